// The 8-bit floating-point format e4m3 in its two flavours: OCP (Hopper, gfx950) and FNUZ (gfx942). Four bits of
// exponent, three of mantissa, no infinity. Kernels convert through substrate's convert.h, which uses the target's
// instructions and gives the same bits.
#pragma once

#include <bit>
#include <cstdint>

namespace farwarp {

/// A number in the target's flavour.
struct Fp8 {
  std::uint8_t bits;
};

enum class Fp8Format : std::uint8_t {
  kOcp,   ///< bias 7, largest 448, NaN is 0x7f with either sign (OCP 8-bit Floating Point Specification, E4M3)
  kFnuz,  ///< bias 8, largest 240, NaN is 0x80, no negative zero (AMD CDNA3 ISA)
};

constexpr float largest_fp8(Fp8Format format) { return format == Fp8Format::kOcp ? 448.0f : 240.0f; }
constexpr int fp8_bias(Fp8Format format) { return format == Fp8Format::kOcp ? 7 : 8; }

constexpr float float_from_fp8(Fp8Format format, std::uint8_t code) {
  const std::uint32_t sign = static_cast<std::uint32_t>(code & 0x80u) << 24;
  const std::uint32_t exponent = code >> 3 & 15u, mantissa = code & 7u;
  const bool is_nan = format == Fp8Format::kOcp ? (code & 0x7fu) == 0x7fu : code == 0x80u;
  if (is_nan) return std::bit_cast<float>(0x7fffffffu);
  const auto shift = static_cast<std::uint32_t>(127 - fp8_bias(format));
  if (exponent != 0) return std::bit_cast<float>(sign | (exponent + shift) << 23 | mantissa << 20);
  const float unit = std::bit_cast<float>((shift - 2) << 23);  // the last place's value, 2^(1 - bias - 3)
  const float magnitude = static_cast<float>(mantissa) * unit;
  return sign != 0 ? -magnitude : magnitude;
}

/// Rounds to nearest even, and saturates at the largest number.
constexpr std::uint8_t fp8_from(Fp8Format format, float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  const std::uint32_t sign = bits >> 24 & 0x80u;
  if (magnitude > 0x7f800000u) return format == Fp8Format::kOcp ? 0x7fu : 0x80u;  // NaN, as cvt.rn.satfinite gives it
  const auto shift = static_cast<std::uint32_t>(127 - fp8_bias(format));
  const std::uint32_t largest = format == Fp8Format::kOcp ? 0x7eu : 0x7fu;
  std::uint32_t code = 0;
  if (magnitude >= (shift + 1) << 23) {
    code = ((magnitude + 0x7ffffu + (magnitude >> 20 & 1u)) >> 20) - (shift << 3);
  } else {  // subnormal or zero: adding 2^23 units puts the unit of the last place at bit 0 of the sum
    const std::uint32_t unit = (shift - 2 + 23) << 23;
    code = std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + std::bit_cast<float>(unit)) - unit;
  }
  if (code > largest) code = largest;
  if (format == Fp8Format::kFnuz && code == 0) return 0;
  return static_cast<std::uint8_t>(sign | code);
}

}  // namespace farwarp
