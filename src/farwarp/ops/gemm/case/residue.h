// Inputs that show how far fp32 accumulation takes a sum, through any kernel: y is what accumulation adds to the exact sum.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "farwarp/harness/inputs.h"
#include "farwarp/harness/rounding.h"
#include "farwarp/ops/gemm/plan.h"

namespace farwarp::gemm {

enum class Residue : std::uint8_t {
  kNone,
  kCentred,  ///< of N(0, 1)
  kShifted,  ///< of N(1, 1)
};

/// The last of k, three for each row of y, take the exact sum of the rest away: x[row, 3 * row + i] is 1 there and w[column, ...] the
/// sum's i-th piece, negated. Each piece is a number of the dtype; what three of them leave is 2^-24 of the sum at most.
inline constexpr int kResiduePieces = 3;

/// Overwrites the tail of `x` [m, x_pitch] and `w` [n, w_pitch] and returns the sums taken away, [m, n]. k is larger than
/// 3 * m.
std::vector<harness::PartialSum> make_residue(const GemmDesc& desc, std::span<std::uint16_t> x,
                                              std::span<std::uint16_t> w);

}  // namespace farwarp::gemm
