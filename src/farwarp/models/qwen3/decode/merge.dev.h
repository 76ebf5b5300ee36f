// The merge of the partial outputs of attention.
#pragma once

#include "farwarp/models/qwen3/decode/context.dev.h"

namespace farwarp::FARWARP_TARGET::qwen3 {

/// Teams of four warps merge a query head of a sequence each: a warp four of the sixteen splits, then the first warp
/// the four warps.
template <int columns>
class HeadMerge {
 public:
  FARWARP_DEVICE explicit HeadMerge(const Context<columns>& context) : context_(context) {}

  /// [the warps that compute] The worker's heads, of which the teams take one each in turn. With n = columns_in_use(),
  /// unit u is head u / n of column u % n.
  FARWARP_DEVICE void run(const Task& task) {
    const int used = context_.columns_in_use();
    for (int first = 0; first < task.count; first += kTeams) {
      const int i = first + warp_index() / kTeam;
      const int unit = task.first + i * context_.args.launch.workers;
      if (first != 0) sync_warps();  // the round before has been read
      if (i < task.count) merge_splits(task, unit % used, unit / used);
      sync_warps();
      if (i < task.count && warp_index() % kTeam == 0) merge_warps(task, unit % used, unit / used);
    }
  }

 private:
  static constexpr int kTeam = 4, kTeams = kWarps / kTeam, kSplitsOfWarp = kMaxSplits / kTeam;

  FARWARP_DEVICE Shared<float> outputs_of(int warp) const {
    return word_at<float>(context_.memory, Layout<columns>::kScores) + warp * kMaxHeadDim;
  }
  FARWARP_DEVICE Shared<float> statistics_of(int warp) const {
    return word_at<float>(context_.memory, Layout<columns>::kMerged) + warp * 2;
  }
  FARWARP_DEVICE bool lane_has_rows() const { return lane_index() * 4 < context_.args.head_dim; }

  /// [warp] The lane has rows 4 * lane on.
  FARWARP_DEVICE void merge_splits(const Task& task, int column, int head) {
    const Args& args = context_.args;
    const int first = warp_index() % kTeam * kSplitsOfWarp, blocks = key_blocks_of(keys_of(context_.sequence(column)));
    const int splits = blocks < args.splits ? blocks : args.splits;
    constexpr int kStatistics = 2 * kSplitsOfWarp;  // lane i has those of split i
    std::int64_t at[kStatistics + 1];
    std::uint64_t data[kStatistics + 1] = {};
    std::uint32_t wanted = 0;
    const auto partial = [&](int split, int four) { return partial_at(args, column, head, first + split, four); };
#pragma unroll
    for (int i = 0; i < kSplitsOfWarp; ++i) {
      at[2 * i] = partial(i, 2 * lane_index());
      at[2 * i + 1] = partial(i, 2 * lane_index() + 1);
      if (first + i < splits && lane_has_rows()) wanted |= 3u << (2 * i);
    }
    at[kStatistics] = partial(lane_index() % kSplitsOfWarp, args.head_dim / 2);
    if (lane_index() < kSplitsOfWarp && first + lane_index() < splits) wanted |= 1u << kStatistics;
    if (wanted != 0)
      read_fours(context_.call, context_.worker.buffers, task.in, at, wanted, data,
                 Wait{.site = kSitePartial, .peer = args.launch.view.rank});
    warp_sync();  // lanes leave the wait one by one
    float maxima[kSplitsOfWarp], weights[kSplitsOfWarp], highest = kMinusInfinity, total = 0, sums[4] = {};
#pragma unroll
    for (int i = 0; i < kSplitsOfWarp; ++i) {
      const Two of_split = unpack_two(shuffle(data[kStatistics], i));
      maxima[i] = of_split.first;
      weights[i] = of_split.second;
      if (first + i >= splits) maxima[i] = kMinusInfinity;
      highest = maximum(highest, maxima[i]);
    }
#pragma unroll
    for (int i = 0; i < kSplitsOfWarp; ++i) {
      if (first + i >= splits) continue;
      const float factor = exp2(multiply(add(maxima[i], -highest), args.scale_log2));
      total = fused_multiply_add(factor, weights[i], total);
#pragma unroll
      for (int row = 0; row < 4; row += 2) {
        const Two two = unpack_two(data[2 * i + row / 2]);
        sums[row] = fused_multiply_add(factor, two.first, sums[row]);
        sums[row + 1] = fused_multiply_add(factor, two.second, sums[row + 1]);
      }
    }
    if (lane_has_rows()) {
#pragma unroll
      for (int i = 0; i < 4; ++i) store(outputs_of(warp_index()) + (4 * lane_index() + i), sums[i]);
    }
    if (lane_index() == 0) {
      store(statistics_of(warp_index()), highest);
      store(statistics_of(warp_index()) + 1, total);
    }
  }

  /// [warp] The first of a team. A sequence that has ended has no keys: zeros.
  FARWARP_DEVICE void merge_warps(const Task& task, int column, int head) {
    if (!lane_has_rows()) return;
    float highest = kMinusInfinity, total = 0, sums[4] = {};
#pragma unroll
    for (int i = 0; i < kTeam; ++i) highest = maximum(highest, load(statistics_of(warp_index() + i)));
#pragma unroll
    for (int i = 0; i < kTeam; ++i) {
      const float of_warp = load(statistics_of(warp_index() + i));
      const float factor =
          of_warp == kMinusInfinity ? 0.0f : exp2(multiply(add(of_warp, -highest), context_.args.scale_log2));
      total = fused_multiply_add(factor, load(statistics_of(warp_index() + i) + 1), total);
#pragma unroll
      for (int row = 0; row < 4; ++row)
        sums[row] =
            fused_multiply_add(factor, load(outputs_of(warp_index() + i) + (4 * lane_index() + row)), sums[row]);
    }
    const float factor = total > 0 ? divide(1.0f, total) : 0.0f;
    const int row = head * context_.args.head_dim + lane_index() * 4;
    store_four<columns>(context_.call, context_.worker, task.out, row, column,
                        pack_four(multiply(sums[0], factor), multiply(sums[1], factor), multiply(sums[2], factor),
                                  multiply(sums[3], factor)));
  }

  const Context<columns>& context_;
};

}  // namespace farwarp::FARWARP_TARGET::qwen3
