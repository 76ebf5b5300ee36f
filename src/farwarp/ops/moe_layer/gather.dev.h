// The warps that load rows of x into stages: an expert's rows lie anywhere, in the caller's x or in the inbox.
#pragma once

#include "farwarp/ops/moe_layer/routing.dev.h"
#include "farwarp/tile/gemm/mainloop_wgmma.dev.h"

namespace farwarp::FARWARP_TARGET::moe_layer {

/// `warps` warps take the block's steps in turn. A lane loads 16 bytes of every fourth row.
template <class Tile, int warps>
class RowGatherer {
  static constexpr int kLanesOfRow = kSwizzleRowBytes / 16, kRowsAtOnce = Target::kWarpSize / kLanesOfRow;
  static constexpr int kBatches = Tile::kRows / Target::kWarpSize;  ///< of 32 rows
  static_assert(Tile::kStages > warps);  // a warp that skips the others' steps skips no phase of a stage

 public:
  /// `warp`: the number among the gathering warps.
  FARWARP_DEVICE RowGatherer(Call& call, const Memory& memory, const Tile& tile, int warp)
      : call_(call),
        memory_(memory),
        args_(memory.args),
        tile_(tile),
        turn_(warp),
        inbox_(reinterpret_cast<const std::byte*>(memory.row(memory.args.view.rank, 0, 0).raw)) {}

  /// [warp] Begins to load which rows `work` has. Before gather() of that work.
  FARWARP_DEVICE void prepare(const Work& work) {
#pragma unroll
    for (int i = 0; i < kBatches; ++i) {
      const int row = i * Target::kWarpSize + lane_index();
      ids_[i] = row < work.rows && call_.live ? load(memory_.row_ids() + (work.tile * Tile::kRows + row)) : -1;
    }
  }

  /// [warp] The steps of a work. `wait(barrier, parity)`: for a free stage. `prepare_next()`: prepares the next work.
  template <class WaitBarrier, class PrepareNext>
  FARWARP_DEVICE void gather(const Work& work, const WaitBarrier& wait, const PrepareNext& prepare_next) {
    find_rows();
    prepare_next();
    for (int step = 0; step < args_.steps_of_hidden; ++step) {
      if (turn_ == 0) {
        wait(tile_.ring.empty(at_.stage), at_.parity ^ 1);  // in the first round every stage is empty
        if (call_.live) fill(work.rows, step);
        async_commit();
        async_wait();
        proxy_fence();
        warp_sync();
        if (lane_index() == 0) mbarrier_arrive(tile_.ring.full(at_.stage));
      }
      turn_ = turn_ == 0 ? warps - 1 : turn_ - 1;
      at_.advance();
    }
  }

 private:
  /// [warp] Lane l gets the places of rows l, l + 32, ... of the tile, once the rows are there. If the call is over,
  /// stages are filled with what they hold, so that no other warp waits for ever.
  FARWARP_DEVICE void find_rows() {
#pragma unroll
    for (int i = 0; i < kBatches; ++i) places_[i] = ids_[i] < 0 ? 0 : await_row(ids_[i]);
    call_.live = ballot(!call_.live) == 0;
    warp_sync();  // a lane reads rows whose flags others have acquired
  }
  /// The row's number in x; of a peer's row the complement of its number in the inbox.
  FARWARP_DEVICE std::int32_t await_row(int id) {
    const int source = args_.by_max_tokens.quotient(id), token = id - source * args_.max_tokens;
    if (source == args_.view.rank) return token;
    std::uint32_t ignored = 0;
    wait_tagged<kFailure<Tile::kMultipliers>>(call_, mine(memory_.row_flag(args_.view.rank, source, token)), memory_.epoch, ignored,
                                  {.site = kSiteRow, .peer = source});
    return ~id;
  }

  /// [warp] Columns beyond the last are zeros, as those of w1 are: a product with what a stage holds might be NaN. The
  /// tile's rows after its last are zeros up to a multiple of 32, or keep what is there; nothing reads their sums.
  FARWARP_DEVICE void fill(int rows, int step) const {
    const int row = lane_index() / kLanesOfRow, byte = lane_index() % kLanesOfRow * 16;
    const int column = step * Tile::kStepDepth + byte / 2;
    const bool has_column = column < args_.hidden;
    const std::int64_t offset = has_column ? column * 2 : 0, pitch = std::int64_t{args_.hidden} * 2;
    const std::byte *const own = static_cast<const std::byte*>(args_.x) + offset, *const inbox = inbox_ + offset;
    const Shared<std::byte> stage = tile_.left(at_.stage);
    // Rows 4 i + row: the swizzle is that of an even or of an odd i.
    const Shared<std::byte> to[2] = {stage + farwarp::swizzled_offset(row, byte),
                                     stage + farwarp::swizzled_offset(row + kRowsAtOnce, byte)};
#pragma unroll
    for (int batch = 0; batch < kBatches; ++batch) {
      if (batch * Target::kWarpSize >= rows) break;
#pragma unroll
      for (int i = 0; i < kLanesOfRow; ++i) {
        // Not kept from step to step: 32 addresses would not fit into registers.
        const std::int32_t place = shuffle(places_[batch], i * kRowsAtOnce + row);
        const std::byte* const from = place < 0 ? inbox + ~place * pitch : own + place * pitch;
        const int tile_row = batch * Target::kWarpSize + i * kRowsAtOnce;  // of lane 0
        const Shared<std::byte> at = to[i % 2] + (tile_row - i % 2 * kRowsAtOnce) * kSwizzleRowBytes;
        async_load(Shared<Vec16>(reinterpret_cast<Vec16*>(at.raw)),
                   Global<const Vec16>(reinterpret_cast<const Vec16*>(from)), !has_column || tile_row + row >= rows);
      }
    }
  }

  Call& call_;
  const Memory& memory_;
  const Args& args_;
  Tile tile_;
  int turn_;  ///< steps until this warp's
  tile::RingPosition<Tile::kStages> at_;
  std::int32_t ids_[kBatches] = {};  ///< of a row of each batch, of the work that is prepared
  std::int32_t places_[kBatches] = {};  ///< await_row() of the rows of this work
  const std::byte* inbox_;
};

}  // namespace farwarp::FARWARP_TARGET::moe_layer
