// The oracle of gemm: float64 on the host, of all elements or of a sample that meets every part of the result.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "farwarp/base/half.h"
#include "farwarp/ops/gemm/plan.h"

namespace farwarp::gemm {

/// Rows and columns of y that are compared. With few enough products all of them, else one row of each band of up to 64 and one
/// column of each band of 8, at a place in the band that the seed decides: no warp's share of any tile is left out.
struct Sample {
  std::vector<int> rows;
  std::vector<int> columns;
};
Sample choose_sample(const GemmDesc& desc, std::uint64_t seed);

/// For a sample's columns, of one row of y after another.
class Reference {
 public:
  /// `w`: [n, k], `bias`: [n] or empty; contiguous, in the dtype's 16 bits.
  Reference(const GemmDesc& desc, std::span<const std::uint16_t> w, std::span<const std::uint16_t> bias,
            std::span<const int> columns);
  /// values[c], and squares[c], the sum of squared products, of y[row, columns[c]]; `x_row`: [k].
  void row(std::span<const std::uint16_t> x_row, std::vector<double>& values, std::vector<double>& squares) const;

 private:
  DType dtype_;
  std::size_t columns_;
  std::vector<double> w_;  // [k][columns]
  std::vector<double> bias_;
};

}  // namespace farwarp::gemm
