// flash-decode on Hopper: persistent blocks of a loading warpgroup and two multipliers.
#pragma once

#include "farwarp/ops/flash_decode/exchange.dev.h"
#include "farwarp/ops/flash_decode/loading.dev.h"
#include "farwarp/ops/flash_decode/merge.dev.h"
#include "farwarp/ops/flash_decode/multiply.dev.h"

namespace farwarp::FARWARP_TARGET::decode {

/// [warpgroup] The only partial output of an item: sums -> out. All warps have the same statistics; the first stores
/// the LSE.
template <class Block>
FARWARP_DEVICE void store_sums(const Args& args, int item, int rows, const Sums<Block>& sums) {
  using T = typename Block::T;
  const float scale = of_keys(args, args.scale, item);
#pragma unroll
  for (int row = 0; row < Block::kThreadRows; ++row) {
    const int first = Sums<Block>::first_element(row), in_item = row_of(first);
    if (in_item >= rows) continue;
    const RowPlace place = place_of(args, item, in_item);
    const tile::RowEnd result = finish_row(args, place, tile::Logit::of(sums.maximum[row], scale), sums.sum[row]);
    const float factor = multiply(result.factor, value_scale(args, item));
    if (group_thread() < 4) store_lse(args, place, result.logarithm);
#pragma unroll
    for (int panel = 0; panel < Block::kPanels; ++panel) {
#pragma unroll
      for (int i = first; i < first + 4; i += 2) {
        const int column = dim_of<Block>(panel, i);
        if (column < args.head_dim)
          store(out_at<T>(args, place, column), round_to<T>(multiply(sums.of[panel][i], factor)));
      }
    }
  }
}

/// [warpgroup] Stores partial output number `partial` of an item.
template <class Block>
FARWARP_DEVICE void store_partial(const Partials& partials, int partial, int rows, const Sums<Block>& sums) {
#pragma unroll
  for (int row = 0; row < Block::kThreadRows; ++row) {
    const int first = Sums<Block>::first_element(row), in_item = row_of(first);
    if (in_item >= rows) continue;
    const Global<float> to = partials.at(partial, in_item, 0);
#pragma unroll
    for (int panel = 0; panel < Block::kPanels; ++panel) {
#pragma unroll
      for (int i = first; i < first + 4; i += 2) store(to + dim_of<Block>(panel, i), sums.of[panel][i]);
    }
    if (group_thread() < 4)
      store(partials.statistics_at(partial, in_item),
            std::bit_cast<std::uint64_t>(Statistics{sums.maximum[row], sums.sum[row]}));
  }
}

/// [warpgroup] The role of a multiplier. Multiplier 0 also stores what works give.
template <class Block>
FARWARP_DEVICE void multiply_role(const Args& args, const Block& block, WorkCursor& cursor, BlockWaits& waits,
                                  int multiplier) {
  Turn<Block::kRing> stages;
  Turn<kQueryBuffers> queries;
  Handed handed;
  std::uint32_t stored = 0;  // works
  Work work;
  for (int number = block_index(); cursor.find(number, work); number += num_blocks(), ++queries.count) {
    Sums<Block> sums;
    const TraceStart start = trace_start();
    wait_mbarrier(waits, args.view, block.queries_full(queries.place()), queries.parity());
    multiply_work(args, block, waits, multiplier, work, stages, handed, block.queries(queries.place()), sums);
    trace_warp(start, TraceWork::kAttend, number);
    warp_sync();
    if (lane_index() == 0) mbarrier_arrive(block.queries_empty(queries.place()));
    if (multiplier != 0) continue;
    const int item = item_number(args, work), rows = rows_of(args, item);
    if (goes_to_out(args, work)) {
      store_sums<Block>(args, item, rows, sums);
      continue;
    }
    store_partial<Block>(Partials(args, item, Block::kDim), work.number, rows, sums);
    // The count warp has then seen all earlier phases of stored(), so this one cannot complete before they are tested.
    if (stored > 0) wait_mbarrier(waits, args.view, block.counted(), (stored - 1) & 1);
    ++stored;
    if (waits.expired) fetch_add(block.refused(), 1u);  // what has been computed is no result
    drain_stores();
    warp_sync();
    if (lane_index() == 0) mbarrier_arrive(block.stored());
  }
}

/// [block] Merges the listed items; each warp takes a part of each item.
template <class Block>
FARWARP_DEVICE void merge_listed(const Args& args, const Block& block, BlockWaits& waits) {
  if (!wait_together(waits, args.view, block.all_counted(), 0)) return;
  const int listed = static_cast<int>(load(block.list_length()));
  if (listed == 0) return;
  const Call call = block.await_call(args, waits);
#pragma unroll 1
  for (int number = 0; number < listed; ++number) {
    const TraceStart start = trace_start();
    merge_item<typename Block::T, Block::kDim>(args, call, CountedItem::unpack(load(block.listed(number))),
                                               warp_index(), kThreads / 32);
    trace_warp(start, TraceWork::kReduce, number);
  }
}

template <class T, int dim, int rows, Source source, bool fp8>
FARWARP_DEVICE void flash_decode(const Args& args) {
  using Block = decode::Block<T, dim, rows, source, fp8>;
  const Block block{block_shared()};
  WorkCursor cursor(args);  // its loads are under way during what follows
  if (thread_index() == 0) block.initialise();
  block_sync();
  BlockWaits waits;
  const int warp = warp_index();
  if (warp >= 4) {
    multiply_role(args, block, cursor, waits, warp / 4 - 1);
  } else if (warp == kQueryWarp) {
    query_role(args, block, cursor, waits);
  } else if (warp == kCountWarp) {
    count_role(args, block, cursor, waits);
  } else {
    load_role(args, block, cursor, waits, warp == kKeyWarp ? Operand::kKeys : Operand::kValues);
  }
  merge_listed(args, block, waits);
  if (args.exchange != Exchange::kNone) {
    Call call = block.await_call(args, waits);
    collect<T, dim>(call, args, warp, kThreads / 32);
  }
  report_expired(waits, args.view, args.slot, kSiteStage);
}

}  // namespace farwarp::FARWARP_TARGET::decode
