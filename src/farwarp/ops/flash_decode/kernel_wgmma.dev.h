// flash-decode on Hopper: persistent blocks of a loading warpgroup and two multipliers.
#pragma once

#include "farwarp/ops/flash_decode/exchange.dev.h"
#include "farwarp/ops/flash_decode/loading.dev.h"
#include "farwarp/ops/flash_decode/merge.dev.h"
#include "farwarp/ops/flash_decode/multiply.dev.h"

namespace farwarp::FARWARP_TARGET::decode {

/// [warpgroup] Visits the pairs of neighbouring columns of the thread's two rows: visit(row, column, i) with sums i and i + 1.
template <int count, class Visit>
FARWARP_DEVICE void for_each_pair(int rows, const Visit& visit) {
#pragma unroll
  for (int i = 0; i < count; i += 2) {
    const MatrixIndex at = wgmma_sum(thread_index() % 128, i);
    if (at.row < rows) visit(at.row, at.column, i);
  }
}

/// [warpgroup] The only split of a sequence on this rank: sums -> out.
template <class Block>
FARWARP_DEVICE void store_sums(const Args& args, int item, int rows, const RowState& state,
                               const float (&sums)[Block::kSums]) {
  using T = typename Block::T;
  float factors[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int row = wgmma_sum(thread_index() % 128, 2 * i).row;
    if (row >= rows) continue;
    const RowPlace place = place_of(args, item, row);
    const RowResult result = finish_row(args, place, {state.maximum[i], state.sum[i]});
    factors[i] = multiply(result.factor, value_scale(args, item));
    if (lane_index() % 4 == 0) store_lse(args, place, result.lse);
  }
  for_each_pair<Block::kSums>(rows, [&](int row, int column, int i) {
    if (column >= args.head_dim) return;
    const float factor = factors[i / 2 % 2];
    store(
        Global<std::uint32_t>(reinterpret_cast<std::uint32_t*>(out_at<T>(args, place_of(args, item, row), column).raw)),
        round_pair<T>(multiply(sums[i], factor), multiply(sums[i + 1], factor)));
  });
}

/// [warpgroup] Stores the partial output of a split.
template <class Block>
FARWARP_DEVICE void store_partial(const Partials& partials, int split, int rows, const RowState& state,
                                  const float (&sums)[Block::kSums]) {
  for_each_pair<Block::kSums>(rows, [&](int row, int column, int i) {
    store(Global<std::uint64_t>(reinterpret_cast<std::uint64_t*>(partials.at(split, row, column).raw)),
          std::bit_cast<std::uint64_t>(TwoSums{{sums[i], sums[i + 1]}}));
  });
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int row = wgmma_sum(thread_index() % 128, 2 * i).row;
    if (lane_index() % 4 == 0 && row < rows)
      store(partials.statistics_at(split, row),
            std::bit_cast<std::uint64_t>(Statistics{state.maximum[i], state.sum[i]}));
  }
}

/// [warpgroup] Multiplier 0: a work's sums -> out, or memory; and what the split that arrives last has to do.
template <class Block>
FARWARP_DEVICE void finish_work(const Args& args, const Block& block, BlockWaits& waits, const Work& work,
                                const RowState& state, const float (&sums)[Block::kSums]) {
  using T = typename Block::T;
  const int item = item_number(args, work), rows = rows_of(args, item);
  if (work.splits == 1 && args.exchange == Exchange::kNone) {
    store_sums<Block>(args, item, rows, state, sums);
    return;
  }
  const Call call = block.await_call(args, waits);
  const Partials partials(args, item, Block::kDim);
  store_partial<Block>(partials, work.split, rows, state, sums);
  const int thread = thread_index() % 128;
  const auto sync = [] { group_sync(1, 128); };
  if (!arrives_last(args, call, work, thread, block.refused(), block.last_word(), sync)) return;
  merge_item<T, Block::kDim>(args, call, work, partials, thread, 128);
}

/// [warpgroup] The role of a multiplier.
template <class Block>
FARWARP_DEVICE void multiply_role(const Args& args, const Block& block, WorkCursor& cursor, BlockWaits& waits,
                                  int multiplier) {
  Turn<Block::kStages> stages;
  Turn<kQueryBuffers> queries;
  Turn<1> given;
  Work work;
  for (int number = block_index(); cursor.find(number, work); number += num_blocks(), ++queries.count) {
    float sums[Block::kSums];
#pragma unroll
    for (int i = 0; i < Block::kSums; ++i) sums[i] = 0;
    RowState state;
    wait_mbarrier(waits, args.view, block.queries_full(queries.place()), queries.parity());
    multiply_stages(args, block, waits, multiplier, work, stages, block.queries(queries.place()), state, sums);
    warp_sync();
    if (lane_index() == 0) mbarrier_arrive(block.queries_empty(queries.place()));
    stages.count += static_cast<std::uint32_t>(work.stages);
    const int rows = rows_of(args, item_number(args, work));
    if (work.stages > 1) {
      if (multiplier == 0) {
        take_sums(args, block, waits, given, rows, state, sums);
      } else {
        give_sums(args, block, waits, given, rows, state, sums);
      }
      ++given.count;
    }
    if (multiplier == 0) finish_work(args, block, waits, work, state, sums);
  }
}

/// [block] Sets the rows of q to zero: those that an item lacks stay so.
template <class Block>
FARWARP_DEVICE void clear_queries(const Block& block) {
  const Shared<Vec16> all(reinterpret_cast<Vec16*>(block.queries(0).raw));
  for (int i = thread_index(); i < kQueryBuffers * Block::kShared.query_bytes() / 16; i += kThreads)
    store(all + i, Vec16{0, 0});
  proxy_fence();
}

template <class T, int dim, Source source, bool fp8>
FARWARP_DEVICE void flash_decode(const Args& args) {
  using Block = decode::Block<T, dim, source, fp8>;
  const Block block{block_shared()};
  WorkCursor cursor(args);  // its loads are under way during what follows
  if (thread_index() == 0) block.initialise();
  clear_queries(block);
  block_sync();
  BlockWaits waits;
  const int warp = warp_index();
  if (warp == kKeyWarp || warp == kValueWarp) {
    load_role(args, block, cursor, waits, warp == kKeyWarp ? Operand::kKeys : Operand::kValues);
  } else if (warp == kQueryWarp) {
    query_role(args, block, cursor, waits);
  } else if (warp == kCallWarp) {
    if (lane_index() == 0) call_role(args, block);
  } else if (warp >= 4) {
    multiply_role(args, block, cursor, waits, warp / 4 - 1);
    if (args.exchange != Exchange::kNone) {
      Call call = block.await_call(args, waits);
      collect<T, dim>(call, args, warp - 4, 4 * kMultipliers);
    }
  }
  report_expired(waits, args.view, args.slot, kSiteStage);
}

}  // namespace farwarp::FARWARP_TARGET::decode
