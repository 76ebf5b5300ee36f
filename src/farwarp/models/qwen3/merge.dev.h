// The merge of the partial outputs of attention.
#pragma once

#include "farwarp/models/qwen3/context.dev.h"

namespace farwarp::FARWARP_TARGET::qwen3 {

/// [warp] Merges the splits of one query head of one sequence: first the highest maximum, then the weighted sums, in the order of the splits.
template <int columns>
class HeadMerge {
 public:
  FARWARP_DEVICE HeadMerge(const Context<columns>& context, int column, int head)
      : context_(context),
        pairs_(context.args.head_dim / 2),
        splits_((keys_of(context.sequence(column)) + kSplitKeys - 1) / kSplitKeys) {
    const Args& args = context.args;
    first_ = vector_at(args.view, args.partials) +
             (std::int64_t{column} * args.query_heads + head) * args.splits * (pairs_ + 1);
  }

  /// The lane's four rows.
  FARWARP_DEVICE std::uint64_t run() {
    const float highest = splits_ > kGroup ? find_highest() : kNothing;
    float total = 0, sums[4] = {};
    for (int split = 0; split < splits_; split += kGroup) add_group(split, highest, total, sums);
    const float factor = splits_ > 0 ? divide(1.0f, total) : 0.0f;
    return pack_four(multiply(sums[0], factor), multiply(sums[1], factor), multiply(sums[2], factor),
                     multiply(sums[3], factor));
  }

 private:
  static constexpr int kGroup = 5;  ///< splits whose packets are waited for together

  static FARWARP_DEVICE void unpack(std::uint64_t bits, float& first, float& second) {
    first = std::bit_cast<float>(static_cast<std::uint32_t>(bits));
    second = std::bit_cast<float>(static_cast<std::uint32_t>(bits >> 32));
  }
  FARWARP_DEVICE Global<Packet> at(int split, int number) const { return first_ + (split * (pairs_ + 1) + number); }
  FARWARP_DEVICE Wait wait() const { return {.site = kSitePartial, .peer = context_.args.view.rank}; }

  FARWARP_DEVICE float find_highest() {
    float highest = kNothing;
    for (int split = lane_index(); split < splits_; split += Target::kWarpSize) {
      const Global<Packet> from[1] = {at(split, pairs_)};
      std::uint64_t data[1] = {};
      wait_packets<1>(context_.call, from, 1, data, wait());
      float maximum_of_split, sum;
      unpack(data[0], maximum_of_split, sum);
      highest = maximum(highest, maximum_of_split);
    }
    warp_sync();
#pragma unroll
    for (int lanes = 1; lanes < Target::kWarpSize; lanes *= 2) highest = maximum(highest, shuffle_xor(highest, lanes));
    return highest;
  }

  /// Adds up to kGroup splits. If there are no more than these, their highest maximum is that of all.
  FARWARP_DEVICE void add_group(int split, float highest, float& total, float (&sums)[4]) {
    const bool exists = lane_index() * 4 < context_.args.head_dim;
    Global<Packet> from[3 * kGroup];
    std::uint64_t data[3 * kGroup] = {};
    std::uint32_t wanted = 0;
#pragma unroll
    for (int i = 0; i < kGroup; ++i) {
      from[3 * i] = at(split + i, pairs_);
      from[3 * i + 1] = at(split + i, 2 * lane_index());
      from[3 * i + 2] = at(split + i, 2 * lane_index() + 1);
      if (split + i < splits_) wanted |= (exists ? 7u : 1u) << (3 * i);
    }
    wait_packets<1>(context_.call, from, wanted, data, wait());
    float maxima[kGroup], weights[kGroup];
#pragma unroll
    for (int i = 0; i < kGroup; ++i) {
      unpack(data[3 * i], maxima[i], weights[i]);
      if (split + i >= splits_) maxima[i] = kNothing;
      if (splits_ <= kGroup) highest = maximum(highest, maxima[i]);
    }
#pragma unroll
    for (int i = 0; i < kGroup; ++i) {
      if (split + i >= splits_) continue;
      const float factor = exp2(add(maxima[i], -highest));
      total = fused_multiply_add(factor, weights[i], total);
#pragma unroll
      for (int row = 0; row < 4; row += 2) {
        float first, second;
        unpack(data[3 * i + 1 + row / 2], first, second);
        sums[row] = fused_multiply_add(factor, first, sums[row]);
        sums[row + 1] = fused_multiply_add(factor, second, sums[row + 1]);
      }
    }
  }

  const Context<columns>& context_;
  int pairs_, splits_;
  Global<Packet> first_;
};

template <int columns>
FARWARP_DEVICE void merge_head(const Context<columns>& context, const Task& task, int column, int head) {
  const std::uint64_t four = HeadMerge<columns>(context, column, head).run();
  const int row = lane_index() * 4;
  if (row < context.args.head_dim)
    store_four<columns>(context.call, task.out, head * context.args.head_dim + row, column, four);
}

/// [the warps that compute] The worker's heads: of all workers' warps, one each.
template <int columns>
FARWARP_DEVICE void merge_heads(const Context<columns>& context, const Task& task) {
  const int heads = columns * context.args.query_heads;
  for (int i = warp_index() * num_blocks() + block_index(); i < heads; i += kWarps * num_blocks())
    merge_head(context, task, i % columns, i / columns);
}

}  // namespace farwarp::FARWARP_TARGET::qwen3
