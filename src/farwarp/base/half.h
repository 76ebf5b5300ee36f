// The 16-bit floating-point storage types, with portable conversions that round to nearest even. Kernels convert
// through substrate's convert.h, which uses the target's instructions and gives the same bits.
#pragma once

#include <bit>
#include <cstdint>

namespace farwarp {

enum class DType : std::uint8_t { kF16, kBf16, kF32, kI32, kI64 };

constexpr int bytes_of(DType type) {
  switch (type) {
    case DType::kF16:
    case DType::kBf16: return 2;
    case DType::kF32:
    case DType::kI32: return 4;
    case DType::kI64: return 8;
  }
  return 0;
}

constexpr const char* name_of(DType type) {
  switch (type) {
    case DType::kF16: return "fp16";
    case DType::kBf16: return "bf16";
    case DType::kF32: return "fp32";
    case DType::kI32: return "int32";
    case DType::kI64: return "int64";
  }
  return "?";
}

/// IEEE 754 binary16.
struct Half {
  std::uint16_t bits;
  static constexpr DType kDType = DType::kF16;
};

/// bfloat16: the upper half of a binary32.
struct Bf16 {
  std::uint16_t bits;
  static constexpr DType kDType = DType::kBf16;
};

constexpr float float_from(Bf16 value) { return std::bit_cast<float>(static_cast<std::uint32_t>(value.bits) << 16); }

constexpr Bf16 bf16_from(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return {static_cast<std::uint16_t>(0x7fffu)};  // NaN, as cvt.rn gives it
  const std::uint32_t odd = (bits >> 16) & 1u;
  return {static_cast<std::uint16_t>((bits + 0x7fffu + odd) >> 16)};
}

constexpr float float_from(Half value) {
  const std::uint32_t sign = static_cast<std::uint32_t>(value.bits & 0x8000u) << 16;
  const std::uint32_t exponent = (value.bits >> 10) & 0x1fu;
  const std::uint32_t mantissa = value.bits & 0x3ffu;
  if (exponent == 0x1fu) return std::bit_cast<float>(sign | 0x7f800000u | (mantissa << 13));
  if (exponent != 0) return std::bit_cast<float>(sign | ((exponent + 112u) << 23) | (mantissa << 13));
  const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;  // subnormal: exact in binary32
  return sign ? -magnitude : magnitude;
}

constexpr Half half_from(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const auto sign = static_cast<std::uint16_t>((bits >> 16) & 0x8000u);
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return {0x7fff};                                       // NaN, as cvt.rn gives it
  if (magnitude >= 0x477ff000u) return {static_cast<std::uint16_t>(sign | 0x7c00u)};  // rounds to infinity
  if (magnitude < 0x38800000u) {                                                      // subnormal or zero
    // Adding 2^-1 * 2^-13 puts the unit of the last place of a subnormal half at bit 0 of the sum.
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    return {static_cast<std::uint16_t>(sign | (std::bit_cast<std::uint32_t>(shifted) - 0x3f000000u))};
  }
  const std::uint32_t odd = (magnitude >> 13) & 1u;
  return {static_cast<std::uint16_t>(sign | ((magnitude - 0x38000000u + 0xfffu + odd) >> 13))};
}

}  // namespace farwarp
