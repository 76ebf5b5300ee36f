// The oracles of products. A result is one rank's y, a sum of terms x_s * w_s^T (+ bias_s): one term for gemm and an
// all-gathered product, one for each rank for a reduced product.
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

/// Errors are added up over tiles of this many rows and columns.
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

/// y after a call.
struct Output {
  std::span<const std::uint16_t> y;
  std::int64_t pitch = 0;  ///< elements from row to row
  std::span<const std::uint16_t> row(int row, int columns) const {
    return y.subspan(static_cast<std::size_t>(row * pitch), static_cast<std::size_t>(columns));
  }
};

/// For exact inputs. Returns what is wrong with the first wrong row, or an empty string. Compares y * v of each row
/// with x * (w * v) for a random vector v, modulo the prime 2^31 - 1 (R. Freivalds, "Probabilistic machines can use
/// less running time", 1977). A wrong row passes with a probability of 2^-31. Small products are computed instead.
std::string exact_difference(const SumOfProducts& problem, const Output& output, std::uint64_t seed);

/// For random inputs: compares the elements of `sample` with float64 sums of the host and adds them to `comparison`.
void compare_sample(const SumOfProducts& problem, const Sample& sample, const Output& output,
                    harness::Comparison& comparison);

/// For random inputs: compares all elements with partial sums that a plain kernel computes on `device`, and adds them
/// to `comparison`. Uploads x and w of every term: rows * k * 2 and columns * k * 2 bytes.
Status compare_all(const SumOfProducts& problem, Device& device, Stream stream, std::uint64_t timeout_ns,
                   const Output& output, harness::Comparison& comparison);

}  // namespace farwarp::gemm
