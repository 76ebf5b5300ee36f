// Online softmax of a wave's rows: transposed scores in mfma's fragments. Two lanes hold a row (a query), of each 16
// keys eight neighbours. The same formulas as softmax.dev.h, cut into parts that are done beside
// products.
#pragma once

#include "farwarp/base/fragments.h"
#include "farwarp/tile/softmax.dev.h"

namespace farwarp::FARWARP_TARGET::attention {

using tile::kNoScore;

/// The online softmax of a lane's row.
struct RowSoftmax {
  float largest = kNoScore;  ///< of the new scores; a NaN does not count
  float maximum = kNoScore;  ///< of all scores
  tile::ExponentBase base;   ///< of the probabilities' exponents
  float rescale = 0;         ///< what the row's earlier results are multiplied by
  FloatPair sum{0, 0};       ///< of the lane's keys alone, until finish()

  /// [thread] The lane's next scores.
  FARWARP_DEVICE void add_scores(const Mfma32Sums& scores) {
#pragma unroll
    for (int i = 0; i < 16; ++i) largest = farwarp::FARWARP_TARGET::maximum(largest, scores[i]);
  }
  /// [warp] The largest of the two lanes that hold a row.
  FARWARP_DEVICE void exchange() { largest = farwarp::FARWARP_TARGET::maximum(largest, shuffle_xor(largest, 32)); }
  /// [thread] After the exchange.
  FARWARP_DEVICE void raise(float scale_log2) {
    const float before = maximum;
    maximum = farwarp::FARWARP_TARGET::maximum(before, largest);
    base = tile::ExponentBase::of(maximum, scale_log2);
    rescale = exp2(base.exponent_of_highest(before, scale_log2));
    sum = multiply(sum, {rescale, rescale});
    largest = kNoScore;
  }

  /// [warp] After the last step. `sink` is the head's, or minus infinity. `scale`: from scores to logits.
  FARWARP_DEVICE tile::RowEnd finish(float sink, float scale) const {
    float all = add(sum.first, sum.second);
    all = add(all, shuffle_xor(all, 32));
    return tile::end_row(all, tile::Logit::of(maximum, scale), sink);
  }
};

/// [thread] Part `part` (0, 1, 2) of what turns four of a lane's scores, from `first` on, into probabilities. The last
/// one rounds them into the operand of a product whose k is the key. Parts apart from each other need no wait states
/// between them. `subtracts`: else large scores have been subtracted.
template <class T, int part, bool subtracts>
FARWARP_DEVICE void make_probabilities(Mfma32Sums& scores, int first, float scale_log2, RowSoftmax& row,
                                       std::uint64_t& rounded) {
  FloatPair pairs[2] = {{scores[first], scores[first + 1]}, {scores[first + 2], scores[first + 3]}};
  if constexpr (part == 0) {
#pragma unroll
    for (auto& pair : pairs) {
      if constexpr (subtracts) pair = add(pair, {-row.base.score(), -row.base.score()});
      pair = fused_multiply_add(pair, {scale_log2, scale_log2}, {-row.base.scaled, -row.base.scaled});
    }
  } else if constexpr (part == 1) {
#pragma unroll
    for (auto& pair : pairs) pair = {exp2(pair.first), exp2(pair.second)};
  } else {
    row.sum = add(row.sum, pairs[0]);
    rounded = round_bounded<T>(pairs[0], pairs[1]);
    row.sum = add(row.sum, pairs[1]);
  }
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    scores[first + 2 * i] = pairs[i].first;
    scores[first + 2 * i + 1] = pairs[i].second;
  }
}
inline constexpr int kProbabilityParts = 3;

}  // namespace farwarp::FARWARP_TARGET::attention
