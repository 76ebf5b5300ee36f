#include "farwarp/ops/parallel_gemm/case/oracle.h"

#include <algorithm>
#include <utility>

#include "farwarp/harness/inputs.h"

namespace farwarp::parallel_gemm {
namespace {

constexpr int kRowBand = 64;
constexpr int kColumnBand = 8;
constexpr int kWideColumnBand = 64;
constexpr double kMaxProductsUnsampled = double{1 << 25};  // up to so many products, all elements are compared
constexpr double kMaxProductsSampled = double{1 << 30};    // products that take about two seconds

constexpr std::uint64_t kSampleStream = 101;

std::vector<int> one_of_each_band(int size, int owned, int band, const harness::RandomStream& random) {
  std::vector<int> chosen;
  for (int owner = 0; owner < size; owner += owned) {
    const int end = std::min(owner + owned, size);
    for (int first = owner; first < end; first += band) {
      const auto width = static_cast<std::uint64_t>(std::min(band, end - first));
      chosen.push_back(first + static_cast<int>(random.below(chosen.size(), width)));
    }
  }
  return chosen;
}

/// Consecutive rows of y that one rank owns: it has their x, or reduces them.
int owned_rows(const Problem& problem) { return (problem.desc.m + problem.ranks - 1) / problem.ranks; }

int widest_row_band(const Problem& problem) {
  if (problem.desc.m < kRowBand) return 1;
  const int owned = owned_rows(problem);
  if (problem.kind == Kind::kAllReduce) return std::min(owned, kRowBand);
  return owned < kRowBand ? 1 : kRowBand;
}

}  // namespace

gemm::Sample choose_sample(const Problem& problem, int call, int rank) {
  const LocalShape local = problem.local();
  const int most_rows = widest_row_band(problem);
  const int most_columns = problem.kind == Kind::kAllReduce ? kWideColumnBand : kColumnBand;
  int row_band = 1, column_band = 1;
  const auto products = [&] {
    return static_cast<double>(local.y_rows) / row_band * local.y_columns / column_band * problem.desc.k;
  };
  while (products() > kMaxProductsUnsampled && (row_band < most_rows || column_band < kColumnBand)) {
    row_band = std::min(2 * row_band, most_rows);
    column_band = std::min(2 * column_band, kColumnBand);
  }
  while (products() > kMaxProductsSampled && column_band < most_columns) column_band *= 2;
  const auto stream = [&](std::uint64_t which) {
    return harness::RandomStream(
        problem.seed, {kSampleStream, static_cast<std::uint64_t>(call), static_cast<std::uint64_t>(rank), which});
  };
  return {one_of_each_band(local.y_rows, owned_rows(problem), row_band, stream(0)),
          one_of_each_band(local.y_columns, local.y_columns, column_band, stream(1))};
}

gemm::SumOfProducts product_of(const Problem& problem, int call, int rank, int roundings) {
  const bool gathers = problem.kind == Kind::kAllGather;
  const LocalShape local = problem.local();
  const int owned = owned_rows(problem);
  const int first_row =
      problem.kind == Kind::kReduceScatter ? rank * owned : 0;  // row of the product that is y's row 0
  gemm::SumOfProducts product;
  product.dtype = problem.desc.dtype;
  product.rows = local.y_rows;
  product.columns = local.y_columns;
  product.k = local.k;
  // The last rounding is the result's. If sums are reduced, the one before it is that of each rank's sum.
  const bool partial_sums = !gathers && roundings > 1;
  product.roundings = {partial_sums, roundings - (partial_sums ? 2 : 1)};
  // An all-gathered product has one term: this rank's w, and rows of x of all ranks. A reduced one has a term of every
  // rank.
  for (int source = gathers ? rank : 0; source < (gathers ? rank + 1 : problem.ranks); ++source) {
    gemm::SumOfProducts::Term term;
    term.x_row = [&problem, call, gathers, owned, source, first_row](int row, std::span<std::uint16_t> values) {
      const int at = first_row + row;
      fill_row(problem, Operand::kX, call, gathers ? at / owned : source, gathers ? at % owned : at, values);
    };
    term.w_row = [&problem, call, source](int row, std::span<std::uint16_t> values) {
      fill_row(problem, Operand::kW, call, source, row, values);
    };
    if (problem.desc.has_bias) {
      term.bias.resize(static_cast<std::size_t>(local.w_rows));
      fill_row(problem, Operand::kBias, call, source, 0, term.bias);
    }
    product.terms.push_back(std::move(term));
  }
  return product;
}

}  // namespace farwarp::parallel_gemm
