// Inputs that show the error of fp32 accumulation in any kernel: y is the computed sum minus the exact sum.
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
  kCentred,  ///< x and w from N(0, 1)
  kShifted,  ///< x and w from N(1, 1)
};

/// The last 3 * m elements of K, three for each row of y, subtract the exact sum of the others. Among them x[row, 3 *
/// row + i] is 1 and w[column, 3 * row + i] is the sum's i-th piece, negated. Each piece is a number of the dtype.
/// After three pieces at most 2^-24 of the sum is left.
inline constexpr int kResiduePieces = 3;

/// Overwrites the last 3 * m elements of the rows of `x` [m, x_pitch] and `w` [n, w_pitch]. Returns the subtracted
/// sums, [m, n]. k must be larger than 3 * m.
std::vector<harness::PartialSum> make_residue(const GemmDesc& desc, std::span<std::uint16_t> x,
                                              std::span<std::uint16_t> w);

}  // namespace farwarp::gemm
