// moe_layer on Hopper: one launch. All blocks send, route, multiply with w1, multiply with w2, and add up; README.md
// has the drawing. The warpgroups of a block while it multiplies:
//
//   the first   one thread copies operands into the stages; warps 1 to 3 copy rows of x to their experts' rows
//   1 or 2 more multiply and store; in tiles of 64 rows they copy rows of x before
#pragma once

#include "farwarp/ops/moe_layer/combine.dev.h"
#include "farwarp/ops/moe_layer/copying.dev.h"
#include "farwarp/ops/moe_layer/sending.dev.h"
#include "farwarp/tile/gemm/epilogue_wgmma.dev.h"
#include "farwarp/tile/gemm/gate_wgmma.dev.h"

namespace farwarp::FARWARP_TARGET::moe_layer {

// Registers of a thread. All warps together may not have more than the block was launched with, or raise_registers()
// waits for ever.
inline constexpr int kLoaderRegisters = 88, kMultiplierRegisters = 208;
static_assert(128 * kLoaderRegisters + 256 * kMultiplierRegisters <= farwarp::tile::kWgmmaThreads * 168);

template <class T, int columns, int rows>
struct LayerBlock : tile::WgmmaBlock<T, columns, kBoxes, rows> {
  using Base = tile::WgmmaBlock<T, columns, kBoxes, rows>;
  /// Of a CallSize.
  FARWARP_DEVICE Shared<std::int32_t> call_size() const {
    return Shared<std::int32_t>(
        reinterpret_cast<std::int32_t*>((this->barriers() + farwarp::tile::WgmmaShared::kOperatorOffset).raw));
  }
};

template <class T, int columns, int rows>
class Kernel {
 public:
  using Block = LayerBlock<T, columns, rows>;
  using Tile = typename Block::Tile;
  static constexpr int kMultipliers = Tile::kMultipliers;
  static constexpr Failure kFailure = moe_layer::kFailure<kMultipliers>;
  static constexpr bool kMultipliersCopy = kMultipliers == 1;  ///< rows of x, before they multiply
  static constexpr int kGatedColumns = columns / 2;  ///< of h in a tile: as many rows of w1's gate as of its up part

  FARWARP_DEVICE explicit Kernel(const Args& args)
      : args_(args),
        block_{{block_shared()}},
        table_(block_shared() + Block::Base::kShared.total(), args.local_experts) {}

  FARWARP_DEVICE void run() {
    if (thread_index() == 0) block_.initialise();
    Call call = join_call(args_.view, args_.slot);
    if (!call.live) return;
    if (block_index() == 0 && thread_index() == 0) claim_call(call);
    if (thread_index() == Target::kWarpSize) prefetch_maps();
    const Memory memory{args_, call.epoch};
    clear_counters(memory);
    const int tokens = checked_tokens(call);
    if (args_.view.size > 1) {
      send_entries(args_, memory, tokens);
      send_rows(call, args_, memory, tokens);
    }
    const CallSize size(args_, block_.call_size());
    const Routing<rows, kFailure> routing(call, memory, table_, size, block_shared());
    if (routing.run(tokens)) multiply_and_combine(call, memory, size);
    end_call(call, 0);
  }

 private:
  using Writer = tile::BoxWriter<kBoxes>;

  FARWARP_DEVICE void prefetch_maps() const {
    for (const farwarp::TensorMap* map : {&args_.w1, &args_.w2}) tensor_prefetch(*map);
  }

  /// [block] Clears the counters that the next call uses; the previous call's kernel is over.
  FARWARP_DEVICE void clear_counters(const Memory& memory) const {
    const Global<std::uint32_t> counters = memory.counters(memory.parity() ^ 1);
    for (int i = thread_in_grid(); i < counters_of(args_.row_tiles); i += threads_of_grid())
      store(counters + i, kNoneCounted);
  }

  /// [block] The number of this rank's tokens. If it is out of range, gives up and returns 0.
  FARWARP_DEVICE int checked_tokens(Call& call) const {
    const int tokens = args_.tokens_on_device ? load(Global<const std::int32_t>(args_.tokens_on_device)) : args_.tokens;
    if (tokens >= 0 && tokens <= args_.max_tokens) return tokens;
    if (block_index() == 0 && thread_index() == 0)
      complain<kFailure>(call, StatusCode::kBadInput, kSiteTokens, args_.max_tokens, tokens);
    call.live = false;
    return 0;
  }

  FARWARP_DEVICE void multiply_and_combine(Call& call, const Memory& memory, const CallSize& size) const {
    BlockWaits waits;
    const auto wait = [&](Shared<Mbarrier> barrier, std::uint32_t parity) {
      return wait_mbarrier(waits, args_.view, barrier, parity);
    };
    const int tiles = uniform(table_.tiles()), warpgroup = thread_index() / 128;
    if (warpgroup == 0) {
      if constexpr (kMultipliers > 1) lower_registers<kLoaderRegisters>();
      if (thread_index() == 0) {
        copy_operands(call, memory, size, tiles, wait);
      } else if (warp_index() > 0) {
        copy_x(call, memory, size);
      }
    } else {
      if constexpr (kMultipliers > 1) raise_registers<kMultiplierRegisters>();
      if constexpr (kMultipliersCopy) copy_x(call, memory, size);
      multiply_works(memory, tiles, warpgroup - 1, wait);
      constexpr int kWarps = 4 * kMultipliers;
      Combiner<T, rows, kMultipliers> combiner(call, memory, size);
      combiner.run(block_index() * kWarps + warp_index() - 4, num_blocks() * kWarps);
    }
    report_expired(waits, args_.view, args_.slot, kSiteStage);
  }

  /// [warp] Warps that copy rows are numbered from warp 1 of the block.
  FARWARP_DEVICE void copy_x(Call& call, const Memory& memory, const CallSize& size) const {
    constexpr int kWarps = kMultipliersCopy ? 3 + 4 * kMultipliers : 3;
    copy_rows<rows, kFailure>(call, memory, table_, size, block_index() * kWarps + warp_index() - 1,
                              num_blocks() * kWarps);
  }

  /// [thread] Copies w1 and x, then w2 and h.
  template <class WaitBarrier>
  FARWARP_DEVICE void copy_operands(Call& call, const Memory& memory, const CallSize& size, int tiles,
                                    const WaitBarrier& wait) const {
    const Tile tile = block_.tile();
    tile::RingPosition<Tile::kStages> at, last;
    TileWaits<kFailure> x_waits(call, memory.x_parts(), size.rows());
    for (int number = block_index(); number < tiles * args_.h_columns; number += num_blocks()) {
      const Work work = table_.work(number, args_.h_columns);
      const int height = box_height(work.rows), left_bytes = box_rows(height) * farwarp::kSwizzleRowBytes;
      const auto load_w1 = [&](int step, int stage) {
        const int row = work.expert * 2 * args_.intermediate + work.column * kGatedColumns;
        const Shared<std::byte> to = tile.right(stage);
        const Shared<Mbarrier> full = tile.ring.full(stage);
        tensor_load(to, args_.w1, row, step * Tile::kStepDepth, full);
        tensor_load(to + kGatedColumns * farwarp::kSwizzleRowBytes, args_.w1, row + args_.intermediate,
                    step * Tile::kStepDepth, full);
      };
      const auto load_x = [&](int step, int stage) {
        tensor_load(tile.left(stage), args_.x_or_y[height], work.tile * rows, step * Tile::kStepDepth,
                    tile.ring.full(stage));
      };
      // The block's first stages get w1 before x is there. The barriers expect its bytes when they expect those of x.
      const bool is_first = number == block_index();
      const int early = !is_first ? 0 : args_.steps_of_hidden < Tile::kStages ? args_.steps_of_hidden : Tile::kStages;
      for (int step = 0; step < early; ++step) load_w1(step, step);
      const bool there = x_waits.wait(memory.x_stored(work.tile), work.rows, kSiteX);
      const TraceStart start = trace_start();
      for (int step = 0; step < args_.steps_of_hidden; ++step) {
        if (!wait(tile.ring.empty(at.stage), at.parity ^ 1)) return;  // in the first round every stage is empty
        const Shared<Mbarrier> full = tile.ring.full(at.stage);
        // If the call is over, the copies of x are left out, and no other warp waits for ever.
        mbarrier_arrive_expect(full, Tile::kBBytes + (there ? left_bytes : 0));
        if (step >= early) load_w1(step, at.stage);
        if (there) load_x(step, at.stage);
        last = at;
        at.advance();
      }
      trace_work(start, TraceWork::kLoad, number);
    }
    TileWaits<kFailure> h_waits(call, memory.h_parts(), tiles * args_.h_columns * kMultipliers);
    for (int number = block_index(); number < tiles * args_.y_columns; number += num_blocks()) {
      const Work work = table_.work(number, args_.y_columns);
      const int height = box_height(work.rows);
      const bool there = h_waits.wait(memory.h_stored(work.tile), args_.h_columns * kMultipliers, kSiteH);
      const TraceStart start = trace_start();
      for (int step = 0; step < args_.steps_of_inter; ++step) {
        if (!wait(tile.ring.empty(at.stage), at.parity ^ 1)) return;
        if (there) {
          tile::load_step(tile, args_.h[height], args_.w2, work.tile * rows,
                          work.expert * args_.hidden + work.column * columns, step, at.stage,
                          Tile::kBBytes + box_rows(height) * farwarp::kSwizzleRowBytes);
        } else {
          mbarrier_arrive(tile.ring.full(at.stage));
        }
        last = at;
        at.advance();
      }
      trace_work(start, TraceWork::kLoad, tiles * args_.h_columns + number);
    }
    if (block_index() < tiles * args_.h_columns || block_index() < tiles * args_.y_columns)
      wait(tile.ring.empty(last.stage), last.parity);
  }

  /// [warpgroup] The role of multiplier number `multiplier`.
  template <class WaitBarrier>
  FARWARP_DEVICE void multiply_works(const Memory& memory, int tiles, int multiplier, const WaitBarrier& wait) const {
    const Writer writer(block_.boxes(multiplier), 1 + multiplier);
    const Tile tile = block_.tile();
    tile::RingPosition<Tile::kStages> at;
    // A tile is published when the next one is multiplied: its boxes are then stored. The last one of h is published at
    // once: this block's tiles of y may wait for it.
    int stored = -1;
    for (int number = block_index(); number < tiles * args_.h_columns; number += num_blocks()) {
      const Work work = table_.work(number, args_.h_columns);
      float sums[1][Tile::kSums];
      const TraceStart multiplied = trace_start();
      tile::multiply_steps(tile, multiplier, args_.steps_of_hidden, sums, at, wait);
      trace_warp(multiplied, TraceWork::kMultiply, number);
      const TraceStart storing = trace_start();
      if (stored >= 0) publish_h(memory, stored);
      store_h(work, multiplier, writer, sums[0]);
      stored = work.tile;
      trace_warp(storing, TraceWork::kStore, number);
    }
    if (stored >= 0) publish_h(memory, stored);
    stored = -1;
    for (int number = block_index(); number < tiles * args_.y_columns; number += num_blocks()) {
      const Work work = table_.work(number, args_.y_columns);
      float sums[1][Tile::kSums];
      const TraceStart multiplied = trace_start();
      tile::multiply_steps(tile, multiplier, args_.steps_of_inter, sums, at, wait);
      trace_warp(multiplied, TraceWork::kMultiply, tiles * args_.h_columns + number);
      const TraceStart storing = trace_start();
      if (stored >= 0) publish(memory.y_stored(stored));
      store_y(work, multiplier, writer, sums[0]);
      stored = work.tile;
      trace_warp(storing, TraceWork::kStore, tiles * args_.h_columns + number);
    }
    if (stored >= 0) publish(memory.y_stored(stored));
  }

  FARWARP_DEVICE void store_h(const Work& work, int multiplier, const Writer& writer,
                              const float (&sums)[Tile::kSums]) const {
    const int own_rows = work.rows - 64 * multiplier, height = box_height(own_rows < 64 ? own_rows : 64);
    if (own_rows <= 0) return;
    const int column = work.column * kGatedColumns;
    const std::int64_t first_bias = std::int64_t{work.expert} * 2 * args_.intermediate;
    const Global<const T> bias(args_.bias1 == nullptr ? nullptr : static_cast<const T*>(args_.bias1) + first_bias);
    const auto send_box = [&](int box_row, int box_column, Shared<std::byte> box) {
      tile::store_box(args_.h[height], box_row, box_column, box);
    };
    tile::fill_gated_boxes<T, kGatedColumns>(writer, send_box, work.tile * rows + 64 * multiplier, column,
                                             args_.clamped != 0, bias, args_.intermediate, sums);
  }
  FARWARP_DEVICE void store_y(const Work& work, int multiplier, const Writer& writer,
                              const float (&sums)[Tile::kSums]) const {
    const int own_rows = work.rows - 64 * multiplier, height = box_height(own_rows < 64 ? own_rows : 64);
    if (own_rows <= 0) return;
    const std::int64_t first_bias = std::int64_t{work.expert} * args_.hidden;
    const Global<const T> bias(args_.bias2 == nullptr ? nullptr : static_cast<const T*>(args_.bias2) + first_bias);
    const auto send_box = [&](int box_row, int box_column, Shared<std::byte> box) {
      tile::store_box(args_.x_or_y[height], box_row, box_column, box);
    };
    tile::fill_boxes<T, columns>(writer, send_box, work.tile * rows + 64 * multiplier, work.column * columns, bias,
                                 args_.hidden, sums);
  }
  /// [warpgroup] Says that this multiplier's boxes are in memory: the leader's copies count as its writes once they are
  /// complete.
  FARWARP_DEVICE static void publish(Global<std::uint32_t> counter) {
    if (!tile::leads_warpgroup()) return;
    bulk_wait_all();
    fetch_add<Order::release, Scope::device>(counter, 1u);
  }
  FARWARP_DEVICE void publish_h(const Memory& memory, int tile) const {
    if (!tile::leads_warpgroup()) return;
    bulk_wait_all();
    count_part(memory.h_stored(tile), memory.h_parts());
  }

  const Args& args_;
  Block block_;
  ExpertTable<rows> table_;
};

}  // namespace farwarp::FARWARP_TARGET::moe_layer
