// Which works a block does. A work is one split of one item, or a group of splits; works are numbered in the order sequence, splits, item. Each
// warp that needs to know finds the works from the lengths by itself: no block waits for another one's plan.
#pragma once

#include "farwarp/ops/flash_decode/args.h"
#include "farwarp/substrate/device.h"

namespace farwarp::FARWARP_TARGET::decode {

using namespace farwarp::decode;

struct Work {
  std::int32_t sequence;
  std::int32_t item;           ///< of the sequence: kv_head * row_blocks + block of rows
  std::int32_t length;         ///< 0 if what the caller gave is not allowed
  std::int32_t given;          ///< what the caller gave
  std::int32_t number, works;  ///< of the item's works
  std::int32_t first, stages;  ///< of the work
  std::int32_t chunk;          ///< stages of each of its splits but the last
  std::int32_t partial;        ///< number of the work's first partial output among those of the item
  std::int32_t partials;       ///< of the item
  std::int32_t chains;         ///< partial outputs of each work but the last
  bool refused;                ///< the length is not allowed
};

/// [warp] Finds works of increasing numbers. Lane i holds the i-th of as many sequences as lanes, and the prefix sum of their works.
class WorkCursor {
 public:
  /// Loads the first lengths. They may be used after a barrier, so that its wait overlaps with the load.
  FARWARP_DEVICE explicit WorkCursor(const Args& args) : args_(args) { load_lengths(); }

  /// False: there is no work of this number.
  FARWARP_DEVICE bool find(int number, Work& work) {
    for (;;) {
      if (base_ >= args_.batch) return false;
      if (!summed_) sum();
      const int total = shuffle(until_, Target::kWarpSize - 1);
      if (number - before_ < total) break;
      before_ += total;
      base_ += Target::kWarpSize;
      load_lengths();
    }
    const int place = number - before_;
    const int owner = lowest_bit(ballot(until_ > place));
    const int in_sequence = place - shuffle(until_ - works_, owner);
    work.sequence = base_ + owner;
    work.given = shuffle(length_, owner);
    work.refused = is_refused(work.given);
    work.length = work.refused ? 0 : work.given;
    work.number = args_.by_items.quotient(in_sequence);
    work.item = in_sequence - work.number * args_.by_items.value;
    const SequenceSplits of{shuffle(splits_.first, owner), shuffle(splits_.stages, owner),
                            shuffle(splits_.chunk, owner), shuffle(splits_.splits, owner),
                            shuffle(splits_.split_partials, owner)};
    const int most = of.chunk << args_.work_shift, begin = work.number * most;
    work.works = of.works(args_.work_shift);
    work.partial = work.number * of.split_partials;
    work.partials = of.partials(args_.work_shift);
    work.chains = of.split_partials;
    work.first = of.first + begin;
    work.stages = of.stages - begin < most ? of.stages - begin : most;
    work.chunk = of.chunk;
    return true;
  }

 private:
  FARWARP_DEVICE bool is_refused(int length) const { return length < 0 || length > args_.max_pages * args_.page_size; }

  FARWARP_DEVICE void load_lengths() {
    const int sequence = base_ + lane_index();
    length_ = sequence < args_.batch ? load(Global<const std::int32_t>(args_.lengths) + sequence) : 0;
    summed_ = false;
  }

  FARWARP_DEVICE void sum() {
    const int lane = lane_index();
    splits_ = args_.rule.of(is_refused(length_) ? 0 : length_);
    works_ = base_ + lane < args_.batch ? splits_.works(args_.work_shift) * args_.by_items.value : 0;
    until_ = works_;
#pragma unroll
    for (int distance = 1; distance < Target::kWarpSize; distance *= 2) {
      const int below = shuffle(until_, lane >= distance ? lane - distance : lane);
      if (lane >= distance) until_ += below;
    }
    summed_ = true;
  }

  const Args& args_;
  int base_ = 0;    ///< the first of the sequences that lanes hold
  int before_ = 0;  ///< works of earlier sequences
  int length_ = 0, works_ = 0, until_ = 0;
  SequenceSplits splits_{};  ///< of the lane's sequence
  bool summed_ = false;
};

/// The item's number among those of all sequences.
FARWARP_DEVICE int item_number(const Args& args, const Work& work) {
  return work.sequence * args.by_items.value + work.item;
}
FARWARP_DEVICE int remainder(const Divisor& by, int number) { return number - by.quotient(number) * by.value; }
FARWARP_DEVICE int kv_head_of(const Args& args, int item) {
  return remainder(args.by_kv_heads, args.by_row_blocks.quotient(item));
}
/// The item's first row among those of its (sequence, KV head).
FARWARP_DEVICE int first_row_of(const Args& args, int item) {
  return remainder(args.by_row_blocks, item) * args.block_rows;
}
/// How many rows of the block of rows there are.
FARWARP_DEVICE int rows_of(const Args& args, int item) {
  const int rest = args.rows - first_row_of(args, item);
  return rest < args.item_rows ? rest : args.item_rows;
}

/// The item has one partial output, and no other rank has keys of it: it goes to out, not to memory for a merge.
FARWARP_DEVICE bool goes_to_out(const Args& args, const Work& work) {
  return work.partials == 1 && args.exchange == Exchange::kNone;
}

/// The query token and the place in q and out of row `row` of item number `item`.
struct RowPlace {
  std::int32_t token;
  std::int32_t query_head;
  std::int64_t row;  ///< of q, out and lse: (sequence * query_tokens + token) * query_heads + query_head
};
FARWARP_DEVICE RowPlace place_of(const Args& args, int item, int row) {
  const int in_head = first_row_of(args, item) + row;
  const int token = args.by_group.quotient(in_head);
  const int query_head = kv_head_of(args, item) * args.group + in_head - token * args.group;
  const int sequence = args.by_items.quotient(item);
  const std::int64_t tokens = std::int64_t{sequence} * args.rule.query_tokens + token;
  return {token, query_head, tokens * (args.kv_heads * args.group) + query_head};
}

}  // namespace farwarp::FARWARP_TARGET::decode
