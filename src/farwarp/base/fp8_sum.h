// The sums of Hopper's matrix unit with fp8 operands (QGMMA): fewer bits than fp32 has.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>

#include "farwarp/base/fp8.h"

namespace farwarp {

inline constexpr int kFp8Products = 32;  ///< that one instruction adds to a sum
inline constexpr int kFp8SumBits = 13;   ///< of a sum after its leading bit

/// The K of one instruction of a row of an operand.
struct Fp8Row {
  std::array<float, kFp8Products> values;
  std::array<float, kFp8Products> powers;  ///< the power of two of each number's exponent, 0 of a zero
  bool has_nan;
};

inline Fp8Row decoded(Fp8Format format, const std::uint8_t* codes) {
  static const auto tables = [] {
    std::array<std::array<float, 512>, 2> result;
    for (int code = 0; code < 512; ++code) {
      const float value = float_from_fp8(static_cast<Fp8Format>(code / 256), static_cast<std::uint8_t>(code));
      const int exponent = std::max(code >> 3 & 15, 1) - fp8_bias(static_cast<Fp8Format>(code / 256));
      result[0][static_cast<std::size_t>(code)] = value;
      result[1][static_cast<std::size_t>(code)] = value == 0 ? 0.0f : std::ldexp(1.0f, exponent);
    }
    return result;
  }();
  const std::size_t first = format == Fp8Format::kOcp ? 0 : 256;
  Fp8Row row{};
  float total = 0;
  for (std::size_t i = 0; i < kFp8Products; ++i) {
    row.values[i] = tables[0][first + codes[i]];
    row.powers[i] = tables[1][first + codes[i]];
    total += row.values[i];
  }
  row.has_nan = std::isnan(total);
  return row;
}

/// Without the bits of `value` that a sum does not keep: cut toward zero.
inline float cut_sum(float value) {
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(value) & ~((1u << (23 - kFp8SumBits)) - 1));
}

/// `sum` + the products. All are aligned to the largest exponent among them, that of a product being the sum of its
/// factors', and cut toward zero kFp8SumBits below it. They are added exactly, and the result is cut again. After
/// published measurements (DeepSeek-V3, arXiv 2412.19437, section 3.3.2: about 14 bits; the accumulator's 13 bits:
/// SageAttention2, arXiv 2411.10958). One H200 gave these bits for all of 655,360 sums of random numbers and codes
/// (2026-11-29); infinite sums and NaN were not among them.
inline float add_products(float sum, const Fp8Row& a, const Fp8Row& b) {
  if (a.has_nan || b.has_nan || !std::isfinite(sum)) return sum + (a.has_nan || b.has_nan ? NAN : 0.0f);
  float most = 0;
  for (std::size_t i = 0; i < kFp8Products; ++i) most = std::max(most, a.powers[i] * b.powers[i]);
  if (most == 0) return cut_sum(sum);
  most = std::max(most, std::bit_cast<float>(std::bit_cast<std::uint32_t>(sum) & 0x7f800000u));
  const float unit = most * (1.0f / (1 << kFp8SumBits)), units = (1 << kFp8SumBits) / most;
  std::int32_t total = static_cast<std::int32_t>(sum * units);
  for (std::size_t i = 0; i < kFp8Products; ++i) total += static_cast<std::int32_t>(a.values[i] * b.values[i] * units);
  return cut_sum(static_cast<float>(total) * unit);
}

}  // namespace farwarp
