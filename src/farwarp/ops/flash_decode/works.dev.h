// Which works a block does. A work is one split of one item, a group of splits, or all; works are numbered in the order
// sequence, splits, item. Each warp that needs to know finds the works from the lengths by itself: no block waits for
// another one's plan.
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
  std::int32_t shift;          ///< it has up to 1 << shift splits
  std::int32_t first, stages;  ///< of the work
  std::int32_t chunk;          ///< stages of each of its splits but the last
  bool refused;                ///< the length is not allowed
};

/// [warp] Finds works of increasing numbers. Lane i holds the i-th of as many sequences as lanes, and the prefix sum of
/// their works.
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
                            shuffle(splits_.chunk, owner), shuffle(splits_.splits, owner)};
    work.shift = shuffle(shift_, owner);
    const int most = of.chunk << work.shift, begin = work.number * most;
    work.works = of.works(work.shift);
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

  FARWARP_DEVICE SequenceSplits splits_of(int length) const { return args_.rule.of(is_refused(length) ? 0 : length); }

  /// Keys of a sequence that some token sees; of a length that is not allowed, any number.
  FARWARP_DEVICE float visible(int length) const {
    return static_cast<float>(length < args_.most_visible ? length : args_.most_visible);
  }
  /// A block's share of all items' stages, times a factor. Lanes that hold a sequence have it.
  FARWARP_DEVICE void find_share() {
    float keys = visible(length_);
#pragma unroll 1  // every role has a copy of this code
    for (int sequence = Target::kWarpSize + lane_index(); sequence < args_.batch; sequence += Target::kWarpSize)
      keys = add(keys, visible(load(Global<const std::int32_t>(args_.lengths) + sequence)));
#pragma unroll 1
    for (int lanes = 1; lanes < Target::kWarpSize && lanes < args_.batch; lanes *= 2)
      keys = add(keys, shuffle_xor(keys, lanes));
    share_ = multiply(keys, args_.share_factor);
  }
  FARWARP_DEVICE int shift_of(const SequenceSplits& of) const {
    if (args_.work_shift >= 0) return args_.work_shift;
    return of.work_shift(share_);
  }

  FARWARP_DEVICE void sum() {
    const int lane = lane_index();
    const bool holds = base_ + lane < args_.batch;
    splits_ = splits_of(holds ? length_ : 0);
    if (base_ == 0 && args_.work_shift < 0) find_share();
    shift_ = shift_of(splits_);
    works_ = holds ? splits_.works(shift_) * args_.by_items.value : 0;
    until_ = works_;
#pragma unroll
    for (int distance = 1; distance < Target::kWarpSize; distance *= 2) {
      const int below = shuffle(until_, lane >= distance ? lane - distance : lane);
      if (lane >= distance) until_ += below;
    }
    summed_ = true;
  }

  const Args& args_;
  float share_ = 0;
  int base_ = 0;    ///< the first of the sequences that lanes hold
  int before_ = 0;  ///< works of earlier sequences
  int length_ = 0, shift_ = 0, works_ = 0, until_ = 0;
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

/// The work is all of its item, and no other rank has keys of it: its output goes to out, not to memory for a merge.
FARWARP_DEVICE bool goes_to_out(const Args& args, const Work& work) {
  return work.works == 1 && args.exchange == Exchange::kNone;
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
