// The judges of products. A result is one rank's y: the sum over ranks of x_s * w_s^T (+ bias_s), of which gemm and an
// all-gathered product have one term and a reduced product one of each rank.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "farwarp/base/half.h"
#include "farwarp/harness/compare.h"
#include "farwarp/harness/rounding.h"
#include "farwarp/ops/gemm/reference.h"
#include "farwarp/runtime/device.h"

namespace farwarp::gemm {

/// Rows and columns over which errors are added up.
inline constexpr int kTile = 128;

/// Fills one row of an operand, in the dtype's 16 bits.
using RowSource = std::function<void(int row, std::span<std::uint16_t> values)>;

struct SumOfProducts {
  struct Term {
    RowSource x_row;                  ///< [rows of y] of k elements
    RowSource w_row;                  ///< [columns of y] of k elements
    std::vector<std::uint16_t> bias;  ///< [columns of y], or empty
  };
  DType dtype = DType::kBf16;
  int rows = 0, columns = 0;  ///< of y
  int k = 0;                  ///< of each term
  std::vector<Term> terms;
  harness::Roundings roundings;
};

/// What a call left in y.
struct Output {
  std::span<const std::uint16_t> y;
  std::int64_t pitch = 0;  ///< elements from row to row
  std::span<const std::uint16_t> row(int row, int columns) const {
    return y.subspan(static_cast<std::size_t>(row * pitch), static_cast<std::size_t>(columns));
  }
};

/// Exact inputs: empty, or what is wrong with the first row that is. Each row is held against x * (w * v) for a random vector v,
/// modulo the prime 2^31 - 1 (R. Freivalds, "Probabilistic machines can use less running time", 1977): a wrong row passes
/// with a probability of 2^-31. Small products are computed instead.
std::string exact_difference(const SumOfProducts& problem, const Output& output, std::uint64_t seed);

/// Random inputs, float64 on the host: adds the elements of `sample`.
void compare_sample(const SumOfProducts& problem, const Sample& sample, const Output& output,
                    harness::Comparison& comparison);

/// Random inputs: adds all elements, from partial sums that a plain kernel of `device` computes. Uploads every row of every
/// term: rows * k * 2 and columns * k * 2 bytes each.
Status compare_all(const SumOfProducts& problem, Device& device, Stream stream, std::uint64_t timeout_ns,
                   const Output& output, harness::Comparison& comparison);

}  // namespace farwarp::gemm
