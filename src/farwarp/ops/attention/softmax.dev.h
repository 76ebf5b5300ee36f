// Online softmax of a warpgroup's rows: scores in wgmma's fragments, two rows of 64 for each thread, four threads for each row.
//
// Tri Dao, "FlashAttention-2" (arXiv 2307.08691), algorithm 1: the running maximum m and sum l of a row; when m grows, what was summed
// until then is scaled by 2^(old m - new m). Maxima are kept times scale * log2(e), so that a probability is one fused multiply-add and
// one exp2.
#pragma once

#include "farwarp/base/fragments.h"
#include "farwarp/substrate/device.h"

namespace farwarp::FARWARP_TARGET::attention {

inline constexpr float kMinusInfinity = -__builtin_huge_valf();

/// The row of element `i` of a fragment, of the thread's two.
constexpr int row_of_sum(int i) { return i / 2 % 2; }

/// [quad] `value` of the four threads that hold a row, combined.
template <class Combine>
FARWARP_DEVICE float over_quad(float value, const Combine& combine) {
  value = combine(value, shuffle_xor(value, 1));
  return combine(value, shuffle_xor(value, 2));
}

/// The visible keys of the thread's two rows, relative to the first column that the thread holds of a step's scores.
struct Visible {
  int first[2];  ///< 0 or less: from the step's first key
  int end[2];
};

/// [thread] Sets the scores of keys that a row does not see to minus infinity.
template <int count>
FARWARP_DEVICE void mask_scores(const Visible& visible, float (&scores)[count]) {
#pragma unroll
  for (int i = 0; i < count; ++i) {
    const int column = 8 * (i / 4) + i % 2, row = row_of_sum(i);  // wgmma_sum(), without the thread's part
    if (column < visible.first[row] || column >= visible.end[row]) scores[i] = kMinusInfinity;
  }
}

struct Softmax {
  float scale_log2;
  float maximum[2] = {kMinusInfinity, kMinusInfinity};  ///< times scale_log2
  float sum[2] = {0, 0};                                ///< of the thread's columns alone, until finish()

  /// [warp] Replaces scores by probabilities, relative to the new maxima. `rescale` is what earlier sums of the rows are multiplied by.
  template <int count>
  FARWARP_DEVICE void step(float (&scores)[count], float (&rescale)[2]) {
    float largest[2] = {kMinusInfinity, kMinusInfinity};
#pragma unroll
    for (int i = 0; i < count; ++i)
      largest[row_of_sum(i)] = farwarp::FARWARP_TARGET::maximum(largest[row_of_sum(i)], scores[i]);
    float base[2];
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      const float in_step =
          over_quad(largest[row], [](float a, float b) { return farwarp::FARWARP_TARGET::maximum(a, b); });
      const float before = maximum[row];
      maximum[row] = farwarp::FARWARP_TARGET::maximum(before, multiply(in_step, scale_log2));
      // A row that has seen no key yet has no maximum: minus infinity minus itself would be a NaN.
      base[row] = maximum[row] == kMinusInfinity ? 0.0f : maximum[row];
      rescale[row] = before == kMinusInfinity ? 0.0f : exp2(add(before, -base[row]));
      sum[row] = multiply(sum[row], rescale[row]);
    }
#pragma unroll
    for (int i = 0; i < count; ++i) {
      scores[i] = exp2(fused_multiply_add(scores[i], scale_log2, -base[row_of_sum(i)]));
      sum[row_of_sum(i)] = add(sum[row_of_sum(i)], scores[i]);
    }
  }

  /// [warp] After the last step: `factor` normalises a row, and `logarithm` is that of its denominator. `sink` is the head's, or minus
  /// infinity. A row that has seen no key and has no sink gets the factor 0 and minus infinity.
  FARWARP_DEVICE void finish(float sink, float (&factor)[2], float (&logarithm)[2]) const {
    constexpr float kLog2E = 1.44269504f, kLn2 = 0.69314718f;
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      const float all = over_quad(sum[row], [](float a, float b) { return add(a, b); });
      const float sink_log2 = multiply(sink, kLog2E);
      const float most = farwarp::FARWARP_TARGET::maximum(maximum[row], sink_log2);
      const float base = most == kMinusInfinity ? 0.0f : most;
      const float own = exp2(add(maximum[row], -base));  // 1 without a sink
      const float denominator = fused_multiply_add(all, own, exp2(add(sink_log2, -base)));
      factor[row] = most == kMinusInfinity ? 0.0f : divide(own, denominator);
      // A NaN in the query leaves the maximum at minus infinity and makes the sum a NaN.
      logarithm[row] = most == kMinusInfinity ? add(all, kMinusInfinity) : multiply(add(base, log2(denominator)), kLn2);
    }
  }
};

/// [thread] Rounds the probabilities of 16 keys into a fragment of A.
template <class T, int count>
FARWARP_DEVICE void round_probabilities(const float (&scores)[count], std::uint32_t (&rounded)[count / 8][4]) {
#pragma unroll
  for (int i = 0; i < count / 8; ++i) {
#pragma unroll
    for (int word = 0; word < 4; ++word)
      rounded[i][word] = round_pair<T>(scores[8 * i + 2 * word], scores[8 * i + 2 * word + 1]);
  }
}

}  // namespace farwarp::FARWARP_TARGET::attention
