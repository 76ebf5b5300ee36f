// Online softmax of a wave's rows: transposed scores in mfma's fragments. A lane holds two rows (queries), of each 16 keys four
// neighbours; four lanes hold a row. The same formulas as softmax.dev.h, cut into parts that are done beside products.
#pragma once

#include "farwarp/base/fragments.h"
#include "farwarp/substrate/device.h"

namespace farwarp::FARWARP_TARGET::attention {

inline constexpr float kNoScore = -__builtin_huge_valf();

/// The online softmax of a lane's row.
struct RowSoftmax {
  float largest = kNoScore;  ///< of the new scores; a NaN does not count
  float maximum = kNoScore;  ///< of all scores, times scale_log2
  float base = 0;            ///< what probabilities are relative to
  float rescale = 0;         ///< what the row's earlier results are multiplied by
  FloatPair sum{0, 0};       ///< of the lane's keys alone, until finish()

  /// [thread] The lane's next four scores.
  FARWARP_DEVICE void add_scores(const MfmaSums& scores) {
#pragma unroll
    for (int i = 0; i < 4; ++i) largest = farwarp::FARWARP_TARGET::maximum(largest, scores[i]);
  }
  /// [warp] Of the four lanes that hold a row, takes the largest of two, 16 and then 32 lanes apart.
  FARWARP_DEVICE void exchange(int distance) {
    largest = farwarp::FARWARP_TARGET::maximum(largest, shuffle_xor(largest, distance));
  }
  /// [thread] After the exchanges.
  FARWARP_DEVICE void raise(float scale_log2) {
    const float before = maximum;
    maximum = farwarp::FARWARP_TARGET::maximum(before, multiply(largest, scale_log2));
    // A row that has seen no key yet has no maximum: minus infinity minus itself would be a NaN.
    base = maximum == kNoScore ? 0.0f : maximum;
    rescale = exp2(add(before, -base));
    sum = multiply(sum, {rescale, rescale});
    largest = kNoScore;
  }

  /// [warp] After the last step: `factor` normalises the row, and `logarithm` is that of its denominator. `sink` is the head's, or minus
  /// infinity. A row that has seen no key and has no sink gets the factor 0 and minus infinity; one with a NaN gets NaNs.
  FARWARP_DEVICE void finish(float sink, float& factor, float& logarithm) const {
    constexpr float kLog2E = 1.44269504f, kLn2 = 0.69314718f;
    float all = add(sum.first, sum.second);
    all = add(all, shuffle_xor(all, 16));
    all = add(all, shuffle_xor(all, 32));
    const float sink_log2 = multiply(sink, kLog2E);
    const float most = farwarp::FARWARP_TARGET::maximum(maximum, sink_log2);
    const bool empty = most == kNoScore && all == 0;
    const float from = most == kNoScore ? 0.0f : most;
    const float own = exp2(add(maximum, -from));  // 1 without a sink
    const float denominator = fused_multiply_add(all, own, exp2(add(sink_log2, -from)));
    factor = empty ? 0.0f : divide(own, denominator);
    logarithm = empty ? kNoScore : multiply(add(from, log2(denominator)), kLn2);
  }
};

/// [thread] Part `part` (0, 1, 2) of what turns a lane's four scores into probabilities. The last one rounds them into the operand of a
/// product whose k is the key. Parts apart from each other need no wait states between them.
template <class T, int part>
FARWARP_DEVICE void make_probabilities(MfmaSums& four, float scale_log2, RowSoftmax& row, std::uint64_t& rounded) {
  FloatPair pairs[2] = {{four[0], four[1]}, {four[2], four[3]}};
  if constexpr (part == 0) {
#pragma unroll
    for (auto& pair : pairs) pair = fused_multiply_add(pair, {scale_log2, scale_log2}, {-row.base, -row.base});
  } else if constexpr (part == 1) {
#pragma unroll
    for (auto& pair : pairs) pair = {exp2(pair.first), exp2(pair.second)};
  } else {
    row.sum = add(row.sum, pairs[0]);
    rounded = round_bounded<T>(pairs[0], pairs[1]);
    row.sum = add(row.sum, pairs[1]);
  }
  four = MfmaSums{pairs[0].first, pairs[0].second, pairs[1].first, pairs[1].second};
}
inline constexpr int kProbabilityParts = 3;

}  // namespace farwarp::FARWARP_TARGET::attention
