// Online softmax of a warpgroup's rows: scores in wgmma's fragments, two rows of 64 for each thread, four threads for
// each row.
//
// Tri Dao, "FlashAttention-2" (arXiv 2307.08691), algorithm 1: the running maximum m and sum l of a row; when m grows,
// what was summed until then is scaled by 2^(old m - new m). Here m may be low. A probability is one fused multiply-add
// and one exp2, unless logits are large.
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

/// [thread] Replaces scores by tanh(x), x = score * scale / softcap; logits are softcap times that. `cap_log2`: 2 *
/// log2(e) * scale / softcap. 1 - 2 / (1 + e^2x) is off by at most 2^-20, and right for infinities. Of small x that
/// would be much; there a polynomial is off by 2^-21 of x.
template <int count>
FARWARP_DEVICE void cap_scores(float cap_log2, float (&scores)[count]) {
  constexpr float kHalfLogOf2 = 0.34657359f, kSmall = 0.0625f;
#pragma unroll
  for (int i = 0; i < count; ++i) {
    const float exponent = multiply(scores[i], cap_log2), x = multiply(exponent, kHalfLogOf2), square = multiply(x, x);
    const float polynomial =
        multiply(x, fused_multiply_add(fused_multiply_add(square, 2.0f / 15, -1.0f / 3), square, 1.0f));
    const float inverse = exp2(-log2(add(1.0f, exp2(exponent))));
    scores[i] = square < kSmall * kSmall ? polynomial : fused_multiply_add(-2.0f, inverse, 1.0f);
  }
}

/// Probabilities are relative to a base: the row's highest score when the base was last raised. A step first takes the
/// base that it finds, so that no exponential waits for a maximum. If a thread's probabilities then add up to more than
/// kMostSum, its row's base is raised to the highest score and they are computed again. Ted Zadouri et al.,
/// "FlashAttention-4" (2026), leave a base, too, that is low by a bounded factor; their bound is of the maximum.
struct Softmax {
  static constexpr float kMostSum = 1024;  ///< all are finite in fp16, and rounded as they would be relative to 1
  static constexpr float kAlways = -1;     ///< less than any sum

  float scale_log2;
  float base[2] = {kNoScore, kNoScore};
  float scaled[2] = {0, 0};                ///< ExponentBase::scaled of the bases
  float most_sum[2] = {kAlways, kAlways};  ///< kAlways also if a base is large (ExponentBase) or there is none
  float sum[2] = {0, 0};                   ///< of the thread's columns alone, until finish()

  /// [warp] A step: rounded probabilities of `scores`, as fragments of A. `out` are the row's sums of probabilities
  /// times values so far.
  template <class T, int count, int sums>
  FARWARP_DEVICE void step(const float (&scores)[count], std::uint32_t (&probabilities)[count / 8][4],
                           float (&out)[sums]) {
    constexpr float kNothing[2] = {0, 0};
    float of_step[2];
    weigh<T, false>(scores, kNothing, probabilities, of_step);
    const bool too_large[2] = {!(of_step[0] <= most_sum[0]), !(of_step[1] <= most_sum[1])};  // also a NaN
    if (ballot(too_large[0] || too_large[1]) != 0) [[unlikely]] {
      bool raised[2];
#pragma unroll
      for (int row = 0; row < 2; ++row) raised[row] = over_quad(too_large[row] ? 1.0f : 0.0f, maximum_of) != 0;
      raise<T>(raised, scores, probabilities, out);
    } else {
#pragma unroll
      for (int row = 0; row < 2; ++row) sum[row] = add(sum[row], of_step[row]);
    }
  }
  template <class T, int count, int sums>
  FARWARP_DEVICE void first_step(const float (&scores)[count], std::uint32_t (&probabilities)[count / 8][4],
                                 float (&out)[sums]) {
    constexpr bool kBoth[2] = {true, true};
    raise<T>(kBoth, scores, probabilities, out);
  }

  /// [warp] After the last step: `factor` normalises a row, and `logarithm` is that of its denominator. `sink` is the
  /// head's, or minus infinity. `scale`: from scores to logits.
  FARWARP_DEVICE void finish(float sink, float scale, float (&factor)[2], float (&logarithm)[2]) const {
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      const float all = over_quad(sum[row], [](float a, float b) { return add(a, b); });
      const tile::RowEnd end = tile::end_row(all, tile::Logit::of(base[row], scale), sink);
      factor[row] = end.factor;
      logarithm[row] = end.logarithm;
    }
  }

 private:
  FARWARP_DEVICE static float maximum_of(float a, float b) { return farwarp::FARWARP_TARGET::maximum(a, b); }

  /// [thread] `of_step`: sums of the rows' probabilities. `subtracted` from scores: not 0 if a base is large.
  template <class T, bool subtracts, int count>
  FARWARP_DEVICE void weigh(const float (&scores)[count], const float (&subtracted)[2],
                            std::uint32_t (&probabilities)[count / 8][4], float (&of_step)[2]) const {
    of_step[0] = of_step[1] = 0;
#pragma unroll
    for (int i = 0; i < count; i += 2) {
      const int row = row_of_sum(i);
      float pair[2];
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const float score = subtracts ? add(scores[i + j], -subtracted[row]) : scores[i + j];
        pair[j] = exp2(fused_multiply_add(score, scale_log2, -scaled[row]));
        of_step[row] = add(of_step[row], pair[j]);
      }
      probabilities[i / 8][i / 2 % 4] = round_pair<T>(pair[0], pair[1]);
    }
  }

  /// [warp] A step that raises the bases of the rows that are `raised`. A row's bits do not depend on other rows.
  template <class T, int count, int sums>
  FARWARP_DEVICE void raise(const bool (&raised)[2], const float (&scores)[count],
                            std::uint32_t (&probabilities)[count / 8][4], float (&out)[sums]) {
    float largest[2] = {kNoScore, kNoScore};
#pragma unroll
    for (int i = 0; i < count; ++i) largest[row_of_sum(i)] = maximum_of(largest[row_of_sum(i)], scores[i]);
    float rescale[2], subtracted[2], of_step[2];
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      const float in_step = over_quad(largest[row], maximum_of), before = base[row];
      if (raised[row]) base[row] = maximum_of(before, in_step);
      const ExponentBase next = ExponentBase::of(base[row], scale_log2);
      rescale[row] = before == kNoScore ? 0.0f : exp2(next.exponent_of_highest(before, scale_log2));
      scaled[row] = next.scaled;
      subtracted[row] = next.score();
      most_sum[row] = next.is_large || base[row] == kNoScore ? kAlways : kMostSum;
    }
    weigh<T, true>(scores, subtracted, probabilities, of_step);
#pragma unroll
    for (int row = 0; row < 2; ++row) sum[row] = fused_multiply_add(sum[row], rescale[row], of_step[row]);
#pragma unroll
    for (int i = 0; i < sums; ++i) out[i] = multiply(out[i], rescale[row_of_sum(i)]);
  }
};

}  // namespace farwarp::FARWARP_TARGET::attention
