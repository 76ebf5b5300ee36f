// The arithmetic of a softmax whose scores may have any finite size: exponents relative to a row's highest score, and a
// row's denominator.
//
// A probability is 2^(score * scale - highest * scale). One fused multiply-add has the rounding of highest * scale in
// its result. That grows with the logit: from 2^24 on it can be more than 1, and later all probabilities are infinite,
// or zeros. So exponents of large logits are made of the difference of the scores, which is exact where it matters.
#pragma once

#include "farwarp/substrate/device.h"

namespace farwarp::FARWARP_TARGET::tile {

inline constexpr float kNoScore = -__builtin_huge_valf();  ///< the highest score of a row that has seen no key

/// What is subtracted from a row's scores before and after they are scaled to exponents of base 2: one of both is 0.
/// The first is not kept: it would take a register.
struct ExponentBase {
  /// Below it the rounding is at most 2^-13: the highest probability, rounded to 16 bits, is 1.
  static constexpr float kLarge = 4096;

  float highest = 0;
  float scaled = 0;
  bool is_large = false;

  FARWARP_DEVICE static ExponentBase of(float highest, float scale_log2) {
    if (highest == kNoScore) return {};  // minus infinity minus itself would be a NaN
    const float scaled = multiply(highest, scale_log2);
    const bool is_large = !(__builtin_fabsf(scaled) < kLarge);
    return {highest, is_large ? 0.0f : scaled, is_large};
  }
  FARWARP_DEVICE float score() const { return is_large ? highest : 0.0f; }
  FARWARP_DEVICE float exponent(float of, float scale_log2) const {
    return fused_multiply_add(add(of, -score()), scale_log2, -scaled);
  }
  /// The same of the highest score of a part of the row, whose probabilities had that base: exactly 0 of the row's own.
  FARWARP_DEVICE float exponent_of_highest(float of, float scale_log2) const {
    return add(multiply(add(of, -score()), scale_log2), -scaled);
  }
};

/// What the sums of a part whose highest score is `score` are multiplied by, where `highest` is the row's: 1 if it is
/// the same.
FARWARP_DEVICE float weight_of(float score, float highest, float scale_log2) {
  return score == kNoScore ? 0.0f : exp2(ExponentBase::of(highest, scale_log2).exponent_of_highest(score, scale_log2));
}

/// score * scale without a rounding: high + low.
struct Logit {
  float high, low;

  FARWARP_DEVICE static Logit of(float score, float scale) {
    const float high = multiply(score, scale);
    return {high, __builtin_fabsf(high) == -kNoScore ? 0.0f : fused_multiply_add(score, scale, -high)};
  }
  FARWARP_DEVICE float minus(float other) const { return add(add(high, -other), low); }
};

/// What a row's sums are multiplied by, and the logarithm of its denominator.
struct RowEnd {
  float factor, logarithm;
};
/// `sum`: of the row's probabilities, relative to that of the logit `highest`, which may be lower than its highest by a
/// bounded amount. `sink`: its head's, or minus infinity. A row that has seen no key and has no sink gets the factor 0
/// and minus infinity; one with a NaN gets NaNs.
FARWARP_DEVICE RowEnd end_row(float sum, const Logit& highest, float sink) {
  constexpr float kLog2OfE = 1.44269504f, kLogOf2 = 0.69314718f;
  if (highest.high == kNoScore && sink == kNoScore) return {sum, sum == 0 ? kNoScore : sum};
  const float over_sink = highest.minus(sink);
  const bool below = over_sink < 0;
  const float own = below ? exp2(multiply(over_sink, kLog2OfE)) : 1.0f;
  const float denominator = fused_multiply_add(sum, own, below ? 1.0f : exp2(multiply(-over_sink, kLog2OfE)));
  const float logarithm = multiply(log2(denominator), kLogOf2);
  return {divide(own, denominator), below ? add(sink, logarithm) : add(highest.high, add(highest.low, logarithm))};
}

}  // namespace farwarp::FARWARP_TARGET::tile
