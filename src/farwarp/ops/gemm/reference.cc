#include "farwarp/ops/gemm/reference.h"

#include <algorithm>
#include <cmath>
#include <random>

namespace farwarp::gemm {
namespace {

double value_of(DType dtype, std::uint16_t bits) {
  return dtype == DType::kF16 ? float_from(Half{bits}) : float_from(Bf16{bits});
}

std::vector<int> one_of_each_band(int size, int band, std::mt19937_64& random) {
  std::vector<int> chosen;
  for (int first = 0; first < size; first += band) {
    const int width = std::min(band, size - first);
    chosen.push_back(first + static_cast<int>(random() % static_cast<std::uint64_t>(width)));
  }
  return chosen;
}

}  // namespace

Sample choose_sample(const GemmDesc& desc, std::uint64_t seed) {
  constexpr double kMaxProducts = double{1 << 28};  // half a second
  int row_band = 1, column_band = 1;
  const auto products = [&] { return static_cast<double>(desc.m) / row_band * desc.n / column_band * desc.k; };
  while (products() > kMaxProducts && row_band < 64) {
    row_band *= 2;
    if (column_band < 8) column_band *= 2;
  }
  std::mt19937_64 random(seed);
  return {one_of_each_band(desc.m, row_band, random), one_of_each_band(desc.n, column_band, random)};
}

Reference::Reference(const GemmDesc& desc, std::span<const std::uint16_t> w, std::span<const std::uint16_t> bias,
                     std::span<const int> columns)
    : dtype_(desc.dtype),
      columns_(columns.size()),
      w_(static_cast<std::size_t>(desc.k) * columns.size()),
      bias_(columns.size()) {
  const auto k = static_cast<std::size_t>(desc.k);
  for (std::size_t c = 0; c < columns.size(); ++c) {
    const auto column = static_cast<std::size_t>(columns[c]);
    for (std::size_t i = 0; i < k; ++i) w_[i * columns_ + c] = value_of(dtype_, w[column * k + i]);
    if (!bias.empty()) bias_[c] = value_of(dtype_, bias[column]);
  }
}

void Reference::row(std::span<const std::uint16_t> x_row, std::vector<double>& values,
                    std::vector<double>& squares) const {
  values = bias_;
  squares.resize(columns_);
  for (std::size_t c = 0; c < columns_; ++c) squares[c] = bias_[c] * bias_[c];
  for (std::size_t i = 0; i < x_row.size(); ++i) {
    const double x = value_of(dtype_, x_row[i]);
    const double* const w = w_.data() + i * columns_;
    for (std::size_t c = 0; c < columns_; ++c) {
      const double product = x * w[c];
      values[c] += product;
      squares[c] += product * product;
    }
  }
}

}  // namespace farwarp::gemm
