#include "farwarp/ops/gemm/case/residue.h"

namespace farwarp::gemm {

std::vector<harness::PartialSum> make_residue(const GemmDesc& desc, std::span<std::uint16_t> x,
                                              std::span<std::uint16_t> w) {
  const auto row_of = [](std::span<std::uint16_t> matrix, int row, std::int64_t pitch) {
    return matrix.subspan(static_cast<std::size_t>(row * pitch), static_cast<std::size_t>(pitch));
  };
  const auto summed = static_cast<std::size_t>(desc.k - kResiduePieces * desc.m);
  std::vector<harness::PartialSum> sums;
  for (int row = 0; row < desc.m; ++row) {
    const auto left = row_of(x, row, desc.x_pitch);
    for (std::size_t i = summed; i < static_cast<std::size_t>(desc.k); ++i) {
      const bool mine = (i - summed) / kResiduePieces == static_cast<std::size_t>(row);
      left[i] = harness::encode(desc.dtype, mine ? 1 : 0);
    }
    for (int column = 0; column < desc.n; ++column) {
      const auto right = row_of(w, column, desc.w_pitch);
      harness::PartialSum sum;
      for (std::size_t i = 0; i < summed; ++i) {
        const double product =
            static_cast<double>(harness::decode(desc.dtype, left[i])) * harness::decode(desc.dtype, right[i]);
        sum.value += product;
        sum.squares += product * product;
      }
      double rest = sum.value;
      for (int piece = 0; piece < kResiduePieces; ++piece) {
        const std::uint16_t bits = harness::encode(desc.dtype, static_cast<float>(-rest));
        right[summed + static_cast<std::size_t>(kResiduePieces * row + piece)] = bits;
        rest += harness::decode(desc.dtype, bits);
      }
      sums.push_back(sum);
    }
  }
  return sums;
}

}  // namespace farwarp::gemm
