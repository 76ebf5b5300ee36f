// moe_layer on Hopper: one launch. All blocks send, route, multiply with w1, multiply with w2, and add up; README.md
// has the drawing. The warpgroups of a block while it multiplies:
//
//   the first   one thread copies w1, w2 and h into the stages; warps 1 to 3 load rows of x
//   1 or 2 more multiply and store
#pragma once

#include "farwarp/ops/moe_layer/combine.dev.h"
#include "farwarp/ops/moe_layer/gather.dev.h"
#include "farwarp/ops/moe_layer/sending.dev.h"
#include "farwarp/tile/gemm/epilogue_wgmma.dev.h"
#include "farwarp/tile/gemm/gate_wgmma.dev.h"

namespace farwarp::FARWARP_TARGET::moe_layer {

// Registers of a thread. All warps together may not have more than the block was launched with, or raise_registers()
// waits for ever.
inline constexpr int kLoaderRegisters = 104, kMultiplierRegisters = 200;
static_assert(128 * kLoaderRegisters + 256 * kMultiplierRegisters <= farwarp::tile::kWgmmaThreads * 168);
inline constexpr int kGatheringWarps = 3;

template <class T, int columns, int rows>
struct LayerBlock : tile::WgmmaBlock<T, columns, kBoxes, rows> {
  using Base = tile::WgmmaBlock<T, columns, kBoxes, rows>;
  /// i32 [ranks]: each source's number of tokens.
  FARWARP_DEVICE Shared<std::int32_t> tokens() const {
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
  static constexpr int kGatedColumns = columns / 2;  ///< of h in a tile: as many rows of w1's gate as of its up part

  FARWARP_DEVICE explicit Kernel(const Args& args)
      : args_(args),
        block_{{block_shared()}},
        table_(block_shared() + Block::Base::kShared.total(), args.local_experts) {}

  FARWARP_DEVICE void run() {
    if (thread_index() == 0) block_.initialise(2);  // the thread that copies, and a warp that gathers
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
    const CallSize size(args_, block_.tokens());
    const Routing<rows, kFailure> routing(call, memory, table_, size, block_shared());
    if (routing.run(tokens)) multiply_and_combine(call, memory, size);
    end_call(call, 0);
  }

 private:
  using Writer = tile::BoxWriter<kBoxes>;

  FARWARP_DEVICE void prefetch_maps() const {
    for (const farwarp::TensorMap* map : {&args_.w1, &args_.w2, &args_.h, &args_.h_store, &args_.y_store})
      tensor_prefetch(*map);
  }

  /// [block] Clears the counters that the next call uses; the previous call's kernel is over.
  FARWARP_DEVICE void clear_counters(const Memory& memory) const {
    const Global<std::uint32_t> counters = memory.counters(memory.parity() ^ 1);
    for (int i = thread_in_grid(); i < counters_of(args_.row_tiles); i += threads_of_grid()) store(counters + i, kNoneCounted);
  }

  /// [block] The number of this rank's tokens. If it is out of range, gives up and returns 0.
  FARWARP_DEVICE int checked_tokens(Call& call) const {
    const int tokens =
        args_.tokens_on_device ? load(Global<const std::int32_t>(args_.tokens_on_device)) : args_.tokens;
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
        copy_operands(call, memory, tiles, wait);
      } else if (warp_index() > 0) {
        gather_rows(call, memory, size, tiles, wait);
      }
    } else {
      if constexpr (kMultipliers > 1) raise_registers<kMultiplierRegisters>();
      multiply_works(memory, tiles, warpgroup - 1, wait);
      constexpr int kWarps = 4 * kMultipliers;
      Combiner<T, rows, kMultipliers> combiner(call, memory, size);
      combiner.run(block_index() * kWarps + warp_index() - 4, num_blocks() * kWarps);
    }
    report_expired(waits, args_.view, args_.slot, kSiteStage);
  }

  /// [thread] Copies w1, then w2 and h.
  template <class WaitBarrier>
  FARWARP_DEVICE void copy_operands(Call& call, const Memory& memory, int tiles, const WaitBarrier& wait) const {
    const Tile tile = block_.tile();
    tile::RingPosition<Tile::kStages> at, last;
    for (int number = block_index(); number < tiles * args_.h_columns; number += num_blocks()) {
      const Work work = table_.work(number, args_.h_columns);
      const int row = work.expert * 2 * args_.intermediate + work.column * kGatedColumns;
      const TraceStart start = trace_start();
      for (int step = 0; step < args_.steps_of_hidden; ++step) {
        if (!wait(tile.ring.empty(at.stage), at.parity ^ 1)) return;
        const Shared<Mbarrier> full = tile.ring.full(at.stage);
        mbarrier_arrive_expect(full, Tile::kBBytes);
        const Shared<std::byte> to = tile.right(at.stage);
        tensor_load(to, args_.w1, row, step * Tile::kStepDepth, full);
        tensor_load(to + kGatedColumns * farwarp::kSwizzleRowBytes, args_.w1, row + args_.intermediate,
                    step * Tile::kStepDepth, full);
        last = at;
        at.advance();
      }
      trace_work(start, TraceWork::kLoad, number);
    }
    bool all_stored = false;  // tiles of h: no more need to wait for each
    for (int number = block_index(); number < tiles * args_.y_columns; number += num_blocks()) {
      const Work work = table_.work(number, args_.y_columns);
      if (!all_stored) {
        all_stored = load<Order::acquire, Scope::device>(memory.h_tiles()) == counted_to(tiles);
        if (!all_stored)
          wait_counted<kFailure>(call, memory.h_stored(work.tile), args_.h_columns * kMultipliers, kSiteH, kProductsDepth);
        proxy_fence();
      }
      const TraceStart start = trace_start();
      for (int step = 0; step < args_.steps_of_inter; ++step) {
        if (!wait(tile.ring.empty(at.stage), at.parity ^ 1)) return;
        mbarrier_arrive(tile.ring.full(at.stage));  // in place of a gathering warp
        if (call.live) {
          tile::load_step(tile, args_.h, args_.w2, work.tile * rows, work.expert * args_.hidden + work.column * columns,
                          step, at.stage);
        } else {
          mbarrier_arrive(tile.ring.full(at.stage));  // h is not there; no other warp may wait for ever
        }
        last = at;
        at.advance();
      }
      trace_work(start, TraceWork::kLoad, tiles * args_.h_columns + number);
    }
    if (block_index() < tiles * args_.h_columns || block_index() < tiles * args_.y_columns)
      wait(tile.ring.empty(last.stage), last.parity);
  }

  /// [warp]
  template <class WaitBarrier>
  FARWARP_DEVICE void gather_rows(Call& call, const Memory& memory, const CallSize& size, int tiles,
                                  const WaitBarrier& wait) const {
    wait_counted<kFailure>(call, memory.listed(), size.slices(), kSiteRowIds, kRoutingDepth);
    call.live = ballot(!call.live) == 0;
    RowGatherer<Tile, kGatheringWarps> gatherer(call, memory, block_.tile(), warp_index() - 1);
    const int works = tiles * args_.h_columns;
    if (block_index() >= works) return;
    Work next = table_.work(block_index(), args_.h_columns);
    gatherer.prepare(next);
    for (int number = block_index(); number < works; number += num_blocks()) {
      const Work work = next;
      gatherer.gather(work, wait, [&] {
        if (number + num_blocks() >= works) return;
        next = table_.work(number + num_blocks(), args_.h_columns);
        gatherer.prepare(next);
      });
    }
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
    if (work.rows <= 64 * multiplier) return;
    const int column = work.column * kGatedColumns;
    const std::int64_t first_bias = std::int64_t{work.expert} * 2 * args_.intermediate;
    const Global<const T> bias(args_.bias1 == nullptr ? nullptr : static_cast<const T*>(args_.bias1) + first_bias);
    const auto send_box = [&](int box_row, int box_column, Shared<std::byte> box) {
      tile::store_box(args_.h_store, box_row, box_column, box);
    };
    tile::fill_gated_boxes<T, kGatedColumns>(writer, send_box, work.tile * rows + 64 * multiplier, column,
                                             args_.clamped != 0, bias, args_.intermediate, sums);
  }
  FARWARP_DEVICE void store_y(const Work& work, int multiplier, const Writer& writer,
                              const float (&sums)[Tile::kSums]) const {
    if (work.rows <= 64 * multiplier) return;
    const std::int64_t first_bias = std::int64_t{work.expert} * args_.hidden;
    const Global<const T> bias(args_.bias2 == nullptr ? nullptr : static_cast<const T*>(args_.bias2) + first_bias);
    const auto send_box = [&](int box_row, int box_column, Shared<std::byte> box) {
      tile::store_box(args_.y_store, box_row, box_column, box);
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
  /// [warpgroup] The same of a tile of h. Who completes its row of tiles counts that, too, for all who have added to it.
  FARWARP_DEVICE void publish_h(const Memory& memory, int tile) const {
    if (!tile::leads_warpgroup()) return;
    bulk_wait_all();
    const std::uint32_t before = fetch_add<Order::acq_rel, Scope::device>(memory.h_stored(tile), 1u);
    if (before + 1 == counted_to(args_.h_columns * kMultipliers))
      fetch_add<Order::release, Scope::device>(memory.h_tiles(), 1u);
  }

  const Args& args_;
  Block block_;
  ExpertTable<rows> table_;
};

}  // namespace farwarp::FARWARP_TARGET::moe_layer
