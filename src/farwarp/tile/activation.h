// What products of a gate and an up projection become.
#pragma once

#include <cstdint>

namespace farwarp {

/// What becomes of the sums of a matrix w. With an activation w has 2 n rows, the gate's first, and y has n columns.
enum class Activation : std::int8_t {
  kNone,           ///< y is the sums
  kSwiGlu,         ///< y = silu(gate) * up
  kClampedSwiGlu,  ///< the same, of gpt-oss: gate at most 7, up -7 to 7; y = gate / (1 + e^(-1.702 gate)) * (up + 1)
};

}  // namespace farwarp
