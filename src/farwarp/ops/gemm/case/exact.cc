// The oracle of products with exact inputs.
#include <fmt/format.h>

#include <cmath>
#include <optional>

#include "farwarp/base/sizes.h"
#include "farwarp/harness/inputs.h"
#include "farwarp/ops/gemm/case/oracle.h"

namespace farwarp::gemm {
namespace {

constexpr std::int64_t kPrime = (std::int64_t{1} << 31) - 1;
constexpr double kComputedInWhole = 1 << 22;  // a problem of up to this many products is computed
constexpr std::uint64_t kVectorStream = 102;

std::int64_t modulo(__int128 value) {
  const auto rest = static_cast<std::int64_t>(value % kPrime);
  return rest < 0 ? rest + kPrime : rest;
}

/// A row of integers in the dtype's bits.
class IntegerRow {
 public:
  IntegerRow(DType dtype, int length) : dtype_(dtype), bits_(size(length)), integers_(size(length)) {}
  std::span<const std::int32_t> from(const RowSource& source, int row) {
    source(row, bits_);
    for (std::size_t i = 0; i < bits_.size(); ++i)
      integers_[i] = static_cast<std::int32_t>(harness::decode(dtype_, bits_[i]));
    return integers_;
  }

 private:
  DType dtype_;
  std::vector<std::uint16_t> bits_;
  std::vector<std::int32_t> integers_;
};

class ExactJudge {
 public:
  ExactJudge(const SumOfProducts& problem, const Output& output, std::uint64_t seed)
      : problem_(problem), output_(output), x_(problem.dtype, problem.k), w_(problem.dtype, problem.k) {
    const harness::RandomStream random(seed, {kVectorStream});
    for (int c = 0; c < problem.columns; ++c)
      vector_.push_back(static_cast<std::int64_t>(random.below(size(c), size(kPrime))));
  }

  std::string first_difference() {
    const double products = double{1} * problem_.rows * problem_.columns * problem_.k;
    const bool in_whole = products * static_cast<double>(problem_.terms.size()) <= kComputedInWhole;
    if (!in_whole) multiply_operands();
    for (int row = 0; row < problem_.rows; ++row) {
      if (!in_whole && row_passes(row)) continue;
      if (std::string difference = first_in_row(row); !difference.empty()) return difference;
    }
    return {};
  }

 private:
  /// w * v for each term, and bias * v.
  void multiply_operands() {
    __int128 bias = 0;
    for (const SumOfProducts::Term& term : problem_.terms) {
      // Below 2^24 columns, 31 bits of v and a few of w add up to less than 2^63.
      std::vector<std::int64_t>& sums = products_.emplace_back(size(problem_.k));
      for (int column = 0; column < problem_.columns; ++column) {
        const std::int64_t v = vector_[size(column)];
        const auto w = w_.from(term.w_row, column);
        for (std::size_t i = 0; i < w.size(); ++i) sums[i] += v * w[i];
        if (!term.bias.empty()) bias += v * integer(term.bias[size(column)]);
      }
      for (std::int64_t& sum : sums) sum = modulo(sum);
    }
    bias_ = modulo(bias);
  }

  bool row_passes(int row) {
    const auto y = output_.row(row, problem_.columns);
    __int128 got = 0, expected = bias_;
    for (std::size_t c = 0; c < y.size(); ++c) {
      const double value = harness::decode(problem_.dtype, y[c]);
      if (!(std::abs(value) <= 0x1p24) || value != std::trunc(value)) return false;
      got += vector_[c] * static_cast<std::int64_t>(value);
    }
    for (std::size_t t = 0; t < problem_.terms.size(); ++t) {
      const auto x = x_.from(problem_.terms[t].x_row, row);
      for (std::size_t i = 0; i < x.size(); ++i) expected += products_[t][i] * x[i];
    }
    return modulo(got) == modulo(expected);
  }

  /// Computes the row and describes its first wrong element.
  std::string first_in_row(int row) {
    std::vector<std::int64_t> exact(size(problem_.columns));
    for (const SumOfProducts::Term& term : problem_.terms) {
      const auto x = x_.from(term.x_row, row);
      for (int column = 0; column < problem_.columns; ++column) {
        const auto w = w_.from(term.w_row, column);
        std::int64_t sum = term.bias.empty() ? 0 : integer(term.bias[size(column)]);
        for (std::size_t i = 0; i < x.size(); ++i) sum += x[i] * w[i];
        exact[size(column)] += sum;
      }
    }
    const auto y = output_.row(row, problem_.columns);
    const double most = harness::largest_exact_integer(problem_.dtype);
    for (std::size_t c = 0; c < y.size(); ++c) {
      const auto wanted = static_cast<double>(exact[c]);
      const double value = harness::decode(problem_.dtype, y[c]);
      if (value == wanted && y[c] != harness::kPoison16) continue;
      if (std::abs(wanted) > most)
        return fmt::format("y[{}, {}] is exactly {}, which {} cannot hold: the inputs are too dense", row, c, wanted,
                           name_of(problem_.dtype));
      return fmt::format("y[{}, {}] is {}, expected exactly {}", row, c, value, wanted);
    }
    return {};
  }

  std::int64_t integer(std::uint16_t bits) const {
    return static_cast<std::int64_t>(harness::decode(problem_.dtype, bits));
  }

  const SumOfProducts& problem_;
  const Output& output_;
  IntegerRow x_, w_;
  std::vector<std::int64_t> vector_;                 // v: [columns]
  std::vector<std::vector<std::int64_t>> products_;  // w * v of each term: [k]
  std::int64_t bias_ = 0;
};

}  // namespace

std::string exact_difference(const SumOfProducts& problem, const Output& output, std::uint64_t seed) {
  return ExactJudge(problem, output, seed).first_difference();
}

}  // namespace farwarp::gemm
