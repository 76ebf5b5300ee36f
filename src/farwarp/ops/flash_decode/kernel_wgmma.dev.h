// flash-decode on Hopper: persistent blocks of a loading warpgroup and two multipliers.
#pragma once

#include "farwarp/ops/flash_decode/exchange.dev.h"
#include "farwarp/ops/flash_decode/loading.dev.h"
#include "farwarp/ops/flash_decode/merge.dev.h"
#include "farwarp/ops/flash_decode/multiply.dev.h"

namespace farwarp::FARWARP_TARGET::decode {

/// [warpgroup] Calls visit(row, half) for the thread's two rows, as far as the item has them. `half` 0: sums 0 and 1 of four; 1: 2 and 3.
template <class Visit>
FARWARP_DEVICE void for_each_row(int rows, const Visit& visit) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = wgmma_sum(thread_index() % 128, 2 * half).row;
    if (row < rows) visit(row, half);
  }
}

/// [warpgroup] The only partial output of an item: sums -> out.
template <class Block>
FARWARP_DEVICE void store_sums(const Args& args, int item, int rows, const RowState& state,
                               const float (&sums)[Block::kSums]) {
  using T = typename Block::T;
  for_each_row(rows, [&](int row, int half) {
    const RowPlace place = place_of(args, item, row);
    const RowResult result = finish_row(args, place, {state.maximum[half], state.sum[half]});
    const float factor = multiply(result.factor, value_scale(args, item));
    if (lane_index() % 4 == 0) store_lse(args, place, result.lse);
    const Global<T> to = out_at<T>(args, place, 0);
#pragma unroll
    for (int i = 2 * half; i < Block::kSums; i += 4) {
      const int column = wgmma_sum(thread_index() % 128, i).column;
      if (column < args.head_dim)
        store(Global<std::uint32_t>(reinterpret_cast<std::uint32_t*>((to + column).raw)),
              round_pair<T>(multiply(sums[i], factor), multiply(sums[i + 1], factor)));
    }
  });
}

struct TwoSums {
  float value[2];
};

/// [warpgroup] Stores partial output number `partial` of an item.
template <class Block>
FARWARP_DEVICE void store_partial(const Partials& partials, int partial, int rows, const RowState& state,
                                  const float (&sums)[Block::kSums]) {
  for_each_row(rows, [&](int row, int half) {
    const Global<float> to = partials.at(partial, row, 0);
#pragma unroll
    for (int i = 2 * half; i < Block::kSums; i += 4)
      store(
          Global<std::uint64_t>(reinterpret_cast<std::uint64_t*>((to + wgmma_sum(thread_index() % 128, i).column).raw)),
          std::bit_cast<std::uint64_t>(TwoSums{{sums[i], sums[i + 1]}}));
    if (lane_index() % 4 == 0)
      store(partials.statistics_at(partial, row),
            std::bit_cast<std::uint64_t>(Statistics{state.maximum[half], state.sum[half]}));
  });
}

/// A work whose partial outputs the multipliers have stored. While it is counted, they compute the next work's products.
struct PendingWork {
  bool any = false;
  std::int32_t item = 0;    ///< number of its item
  PartialCount partials{};  ///< of the item
  Turn<1> turn;             ///< of counted()
};

/// [both multipliers] Waits until the pending work has been counted; merges the item if it was the last one.
template <class Block>
FARWARP_DEVICE void settle(const Args& args, const Block& block, BlockWaits& waits, PendingWork& pending) {
  if (!pending.any) return;
  pending.any = false;
  if (!wait_mbarrier(waits, args.view, block.counted(), pending.turn.parity())) return;
  ++pending.turn.count;
  if (load(block.last_word()) == 0) return;
  const Call call = block.await_call(args, waits);
  merge_item<typename Block::T, Block::kDim>(args, call, pending.item, pending.partials, thread_index() - 128,
                                             128 * kMultipliers);
}

/// [warpgroup] A multiplier's sums of a work -> out, or memory.
template <class Block>
FARWARP_DEVICE void finish_work(const Args& args, const Block& block, BlockWaits& waits, int multiplier,
                                const Work& work, const Sums<Block>& sums, PendingWork& pending) {
  const bool has_partial = multiplier == 0 || (multiplier < work.stages && multiplier < work.chunk);
  const int item = item_number(args, work), rows = rows_of(args, item);
  if (goes_to_out(args, work)) {
    if (has_partial) store_sums<Block>(args, item, rows, sums.state, sums.of);
    return;
  }
  if (has_partial)
    store_partial<Block>(Partials(args, item, Block::kDim), work.partial + multiplier, rows, sums.state, sums.of);
  settle(args, block, waits, pending);  // before the next arrival: counted() may be one phase ahead
  drain_stores();
  warp_sync();
  if (lane_index() == 0) mbarrier_arrive(block.stored());
  pending.any = true;
  pending.item = item;
  pending.partials = {work.partials, work.chains};
}

/// [warpgroup] The role of a multiplier.
template <class Block>
FARWARP_DEVICE void multiply_role(const Args& args, const Block& block, WorkCursor& cursor, BlockWaits& waits,
                                  int multiplier) {
  Turn<Block::kRing> stages;
  Turn<kQueryBuffers> queries;
  PendingWork pending;
  Work work;
  for (int number = block_index(); cursor.find(number, work); number += num_blocks(), ++queries.count) {
    Sums<Block> sums;
    wait_mbarrier(waits, args.view, block.queries_full(queries.place()), queries.parity());
    multiply_work(args, block, waits, multiplier, work, stages, block.queries(queries.place()), sums);
    warp_sync();
    if (lane_index() == 0) mbarrier_arrive(block.queries_empty(queries.place()));
    finish_work(args, block, waits, multiplier, work, sums, pending);
  }
  settle(args, block, waits, pending);
}

// Registers of a thread. All warps together may not have more than the block was launched with, or raise_registers() waits for ever.
inline constexpr int kLoaderRegisters = 88, kMultiplierRegisters = 208;
static_assert(kLoaderRegisters + kMultipliers * kMultiplierRegisters <= 65536 / 128);

template <class T, int dim, Source source, bool fp8>
FARWARP_DEVICE void flash_decode(const Args& args) {
  using Block = decode::Block<T, dim, source, fp8>;
  const Block block{block_shared()};
  WorkCursor cursor(args);  // its loads are under way during what follows
  if (thread_index() == 0) block.initialise();
  block_sync();
  BlockWaits waits;
  const int warp = warp_index();
  if (warp < 4) {
    lower_registers<kLoaderRegisters>();
    if (warp == kKeyWarp || warp == kValueWarp) {
      load_role(args, block, cursor, waits, warp == kKeyWarp ? Operand::kKeys : Operand::kValues);
    } else if (warp == kQueryWarp) {
      query_role(args, block, cursor, waits);
    } else {
      count_role(args, block, cursor, waits);
    }
  } else {
    raise_registers<kMultiplierRegisters>();
    multiply_role(args, block, cursor, waits, warp / 4 - 1);
    if (args.exchange != Exchange::kNone) {
      Call call = block.await_call(args, waits);
      collect<T, dim>(call, args, warp - 4, 4 * kMultipliers);
    }
  }
  report_expired(waits, args.view, args.slot, kSiteStage);
}

}  // namespace farwarp::FARWARP_TARGET::decode
