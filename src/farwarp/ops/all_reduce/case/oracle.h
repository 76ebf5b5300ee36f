// What an all-reduce must give, to the bit, and its inputs.
#pragma once

#include <cstdint>
#include <span>

#include "farwarp/base/half.h"

namespace farwarp::all_reduce {

/// Numbers of the inputs. Each is a pure function of seed, call, rank and element.
enum class InputKind : std::uint8_t {
  /// of 16 elements each: one in five kSpecial, one kHuge; others kCancelling in calls 0, 2, ..., else kUniform
  kAuto,
  kUniform,     ///< uniform in [-1, 1)
  kCancelling,  ///< two ranks have large numbers that cancel each other, so the order in which ranks are added shows
  kHuge,        ///< uniform up to the largest number of the dtype: sums overflow
  kSpecial,     ///< also NaNs (among them all ones), infinities, zeros of both signs, subnormal numbers
};

struct Inputs {
  DType dtype = DType::kBf16;
  int ranks = 1;
  std::uint64_t seed = 0;
  InputKind kind = InputKind::kAuto;

  /// The bits of one element, in the lower 16 or 32.
  std::uint32_t bits(int call, int rank, std::int64_t element) const;
};

float number_of(DType dtype, std::uint32_t bits);
std::uint32_t bits_of(DType dtype, float value);

/// The sum of the ranks' elements: fp32, in the order of the ranks, rounded once.
std::uint32_t sum_of(DType dtype, std::span<const std::uint32_t> terms);
/// Whether they are the same bits, or two NaNs.
bool same(DType dtype, std::uint32_t got, std::uint32_t expected);

}  // namespace farwarp::all_reduce
