// The warps that load rows of x into stages: an expert's rows lie anywhere, in the caller's x or in the inbox.
#pragma once

#include "farwarp/ops/moe_layer/routing.dev.h"
#include "farwarp/tile/gemm/mainloop_wgmma.dev.h"

namespace farwarp::FARWARP_TARGET::moe_layer {

/// `warps` warps take a work's steps in turn. A lane loads 16 bytes of every fourth row.
template <class Tile, int warps>
class RowGatherer {
  static constexpr int kLanesOfRow = kSwizzleRowBytes / 16, kRowsAtOnce = Target::kWarpSize / kLanesOfRow;
  static constexpr int kRowsOfLane = Tile::kRows / Target::kWarpSize;  ///< whose addresses a lane holds
  static constexpr int kBatch = 8;                                    ///< loads of a lane in flight

 public:
  /// `warp`: the number among the gathering warps.
  FARWARP_DEVICE RowGatherer(Call& call, const Memory& memory, const Tile& tile, int warp)
      : call_(call), memory_(memory), args_(memory.args), tile_(tile), turn_(warp) {}

  /// [warp] The steps of one work. `wait(barrier, parity)`: for a free stage.
  template <class WaitBarrier>
  FARWARP_DEVICE void gather(const Work& work, const WaitBarrier& wait) {
    find_rows(work);
    for (int step = 0; step < args_.steps_of_hidden; ++step) {
      if (turn_ == 0) {
        wait(tile_.ring.empty(at_.stage), at_.parity ^ 1);  // in the first round every stage is empty
        fill(work.rows, step);
        proxy_fence();
        warp_sync();
        if (lane_index() == 0) mbarrier_arrive(tile_.ring.full(at_.stage));
      }
      turn_ = turn_ == 0 ? warps - 1 : turn_ - 1;
      at_.advance();
    }
  }

 private:
  /// [warp] Lane l gets the addresses of rows l, l + 32, ... of the tile, once the rows are there. None if the call is
  /// over: the stages are then filled with what they hold, so that no other warp waits for ever.
  FARWARP_DEVICE void find_rows(const Work& work) {
    for (int i = 0; i < kRowsOfLane; ++i) {
      const int row = i * Target::kWarpSize + lane_index();
      from_[i] = 0;
      if (row >= work.rows || !call_.live) continue;
      const int id = load(memory_.row_ids() + (work.tile * Tile::kRows + row));
      from_[i] = address_of(id / args_.max_tokens, id % args_.max_tokens);
    }
    call_.live = ballot(!call_.live) == 0;
    if (!call_.live)
      for (std::uint64_t& from : from_) from = 0;
    warp_sync();  // a lane reads rows whose flags others have acquired
  }
  FARWARP_DEVICE std::uint64_t address_of(int source, int token) {
    if (source == args_.view.rank)
      return reinterpret_cast<std::uint64_t>(args_.x) + std::int64_t{token} * args_.hidden * 2;
    std::uint32_t ignored = 0;
    wait_tagged<Failure::inlined>(call_, mine(memory_.row_flag(args_.view.rank, source, token)), memory_.epoch, ignored,
                                  {.site = kSiteRow, .peer = source});
    return reinterpret_cast<std::uint64_t>(memory_.row(args_.view.rank, source, token).raw);
  }

  /// [warp] Columns beyond the last are zeros, as those of w1 are: a product with what a stage holds might be NaN. Rows
  /// that the tile does not have keep what is there; nothing reads their sums.
  FARWARP_DEVICE void fill(int rows, int step) const {
    const int row = lane_index() / kLanesOfRow, byte = lane_index() % kLanesOfRow * 16;
    const int column = step * Tile::kStepDepth + byte / 2;
    const Shared<std::byte> stage = tile_.left(at_.stage);
#pragma unroll
    for (int first = 0; first < Tile::kRows / kRowsAtOnce; first += kBatch) {
      if (first * kRowsAtOnce >= rows) break;
      Vec16 values[kBatch];
      std::uint64_t from[kBatch];
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        const int tile_row = (first + i) * kRowsAtOnce;  // of lane 0
        from[i] = shuffle(from_[tile_row / Target::kWarpSize], tile_row % Target::kWarpSize + row);
        values[i] = {};
        if (from[i] != 0 && column < args_.hidden)
          values[i] = load(Global<const Vec16>(
              reinterpret_cast<const Vec16*>(from[i] + static_cast<std::uint64_t>(column) * 2)));
      }
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        if (from[i] == 0) continue;
        const Shared<std::byte> to = stage + farwarp::swizzled_offset((first + i) * kRowsAtOnce + row, byte);
        store(Shared<Vec16>(reinterpret_cast<Vec16*>(to.raw)), values[i]);
      }
    }
  }

  Call& call_;
  const Memory& memory_;
  const Args& args_;
  Tile tile_;
  int turn_;  ///< steps until this warp's
  tile::RingPosition<Tile::kStages> at_;
  std::uint64_t from_[kRowsOfLane] = {};
};

}  // namespace farwarp::FARWARP_TARGET::moe_layer
