// The oracle of gemm: float64 on the host, for all elements or for a sample with elements of every part of the result.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "farwarp/base/half.h"
#include "farwarp/ops/gemm/plan.h"

namespace farwarp::gemm {

/// Rows and columns of y that are compared: all if there are few enough products, else one row of each group of up to
/// 64 and one column of each group of up to 8. The seed chooses the place in a group. The sample has elements of every
/// warp's part of every tile.
struct Sample {
  std::vector<int> rows;
  std::vector<int> columns;
};
Sample choose_sample(const GemmDesc& desc, std::uint64_t seed);

/// Computes the sample's columns of y, one row at a time.
class Reference {
 public:
  /// `w`: [n, k], `bias`: [n] or empty; contiguous, in the dtype's 16 bits.
  Reference(const GemmDesc& desc, std::span<const std::uint16_t> w, std::span<const std::uint16_t> bias,
            std::span<const int> columns);
  /// `x_row`: [k], the row of x. values[c]: y[row, columns[c]]. squares[c]: the sum of its squared products and of the
  /// squared bias.
  void row(std::span<const std::uint16_t> x_row, std::vector<double>& values, std::vector<double>& squares) const;

 private:
  DType dtype_;
  std::size_t columns_;
  std::vector<double> w_;  // [k][columns]
  std::vector<double> bias_;
};

}  // namespace farwarp::gemm
