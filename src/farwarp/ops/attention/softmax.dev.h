// Online softmax of a warpgroup's rows: scores in wgmma's fragments, two rows of 64 for each thread, four threads for
// each row.
//
// Tri Dao, "FlashAttention-2" (arXiv 2307.08691), algorithm 1: the running maximum m and sum l of a row; when m grows,
// what was summed until then is scaled by 2^(old m - new m). A probability is one fused multiply-add and one exp2,
// unless logits are large.
#pragma once

#include "farwarp/base/fragments.h"
#include "farwarp/tile/softmax.dev.h"

namespace farwarp::FARWARP_TARGET::attention {

using tile::ExponentBase;
using tile::kNoScore;

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
    if (column < visible.first[row] || column >= visible.end[row]) scores[i] = kNoScore;
  }
}

struct Softmax {
  float scale_log2;
  float maximum[2] = {kNoScore, kNoScore};
  float sum[2] = {0, 0};  ///< of the thread's columns alone, until finish()

  /// [warp] Replaces scores by probabilities, relative to the new maxima. `rescale` is what earlier sums of the rows
  /// are multiplied by.
  template <int count>
  FARWARP_DEVICE void step(float (&scores)[count], float (&rescale)[2]) {
    float largest[2] = {kNoScore, kNoScore};
#pragma unroll
    for (int i = 0; i < count; ++i)
      largest[row_of_sum(i)] = farwarp::FARWARP_TARGET::maximum(largest[row_of_sum(i)], scores[i]);
    ExponentBase base[2];
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      const float in_step =
          over_quad(largest[row], [](float a, float b) { return farwarp::FARWARP_TARGET::maximum(a, b); });
      const float before = maximum[row];
      maximum[row] = farwarp::FARWARP_TARGET::maximum(before, in_step);
      base[row] = ExponentBase::of(maximum[row], scale_log2);
      rescale[row] = before == kNoScore ? 0.0f : exp2(base[row].exponent_of_highest(before, scale_log2));
      sum[row] = multiply(sum[row], rescale[row]);
    }
    if (base[0].is_large || base[1].is_large) [[unlikely]] {
#pragma unroll
      for (int i = 0; i < count; ++i) scores[i] = add(scores[i], -base[row_of_sum(i)].score());
    }
#pragma unroll
    for (int i = 0; i < count; ++i) {
      scores[i] = exp2(fused_multiply_add(scores[i], scale_log2, -base[row_of_sum(i)].scaled));
      sum[row_of_sum(i)] = add(sum[row_of_sum(i)], scores[i]);
    }
  }

  /// [warp] After the last step: `factor` normalises a row, and `logarithm` is that of its denominator. `sink` is the
  /// head's, or minus infinity. `scale`: from scores to logits.
  FARWARP_DEVICE void finish(float sink, float scale, float (&factor)[2], float (&logarithm)[2]) const {
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      const float all = over_quad(sum[row], [](float a, float b) { return add(a, b); });
      const tile::RowEnd end = tile::end_row(all, tile::Logit::of(maximum[row], scale), sink);
      factor[row] = end.factor;
      logarithm[row] = end.logarithm;
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
