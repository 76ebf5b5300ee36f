// Division by a number that is known before the launch, as a multiplication and a shift. A division is long code on a
// GPU, above all a 64-bit one, and a cold kernel has to fetch that code from memory.
#pragma once

#include <cstdint>

namespace farwarp {

/// For dividends from 0 to 2^31 - 1. T. Granlund and P. Montgomery, "Division by Invariant Integers using
/// Multiplication" (1994), theorem 4.2 with N = 31: factor = ceil(2^(31 + l) / value), l = ceil(log2(value)).
struct Divisor {
  std::int32_t value = 1;
  std::uint32_t factor = std::uint32_t{1} << 31;
  std::int32_t shift = 31;

  constexpr Divisor() = default;
  constexpr explicit Divisor(std::int32_t divisor) : value(divisor) {
    int bits = 0;
    while (std::int64_t{1} << bits < divisor) ++bits;
    shift = 31 + bits;
    factor = static_cast<std::uint32_t>(((std::uint64_t{1} << shift) + static_cast<std::uint64_t>(divisor) - 1) /
                                        static_cast<std::uint64_t>(divisor));
  }

  constexpr std::int32_t quotient(std::int32_t dividend) const {
    return static_cast<std::int32_t>(static_cast<std::uint64_t>(static_cast<std::uint32_t>(dividend)) * factor >>
                                     shift);
  }
};

}  // namespace farwarp
