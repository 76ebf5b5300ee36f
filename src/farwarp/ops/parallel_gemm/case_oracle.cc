#include "farwarp/ops/parallel_gemm/case_oracle.h"

#include <algorithm>
#include <numeric>

#include "farwarp/harness/inputs.h"

namespace farwarp::parallel_gemm {
namespace {

constexpr int kRowBand = 64;
constexpr int kColumnBand = 8;
constexpr int kWideColumnBand = 64;
constexpr double kAllOfThem = double{1 << 25};  // products that are computed without a second thought
constexpr double kMost = double{1 << 30};       // about two seconds

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

/// Consecutive rows of y that one rank owns: has the x of, or reduces.
int owned_rows(const Problem& problem) { return (problem.desc.m + problem.ranks - 1) / problem.ranks; }

int widest_row_band(const Problem& problem) {
  if (problem.desc.m < kRowBand) return 1;
  const int owned = owned_rows(problem);
  if (problem.kind == Kind::kAllReduce) return std::min(owned, kRowBand);
  return owned < kRowBand ? 1 : kRowBand;
}

/// One rank's product, for the columns of a sample.
gemm::Reference product_of(const Problem& problem, int call, int rank, const std::vector<int>& columns) {
  const auto k = static_cast<std::size_t>(problem.local().k);
  std::vector<std::uint16_t> w(columns.size() * k), bias, all_of_bias;
  for (std::size_t c = 0; c < columns.size(); ++c)
    fill_row(problem, Operand::kW, call, rank, columns[c], std::span(w).subspan(c * k, k));
  if (problem.desc.has_bias) {
    all_of_bias.resize(static_cast<std::size_t>(problem.local().w_rows));
    fill_row(problem, Operand::kBias, call, rank, 0, all_of_bias);
    for (const int column : columns) bias.push_back(all_of_bias[static_cast<std::size_t>(column)]);
  }
  GemmDesc desc;
  desc.k = problem.local().k;
  desc.dtype = problem.desc.dtype;
  std::vector<int> chosen(columns.size());
  std::iota(chosen.begin(), chosen.end(), 0);
  return gemm::Reference(desc, w, bias, chosen);
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
  while (products() > kAllOfThem && (row_band < most_rows || column_band < kColumnBand)) {
    row_band = std::min(2 * row_band, most_rows);
    column_band = std::min(2 * column_band, kColumnBand);
  }
  while (products() > kMost && column_band < most_columns) column_band *= 2;
  const auto stream = [&](std::uint64_t which) {
    return harness::RandomStream(
        problem.seed, {kSampleStream, static_cast<std::uint64_t>(call), static_cast<std::uint64_t>(rank), which});
  };
  return {one_of_each_band(local.y_rows, owned_rows(problem), row_band, stream(0)),
          one_of_each_band(local.y_columns, local.y_columns, column_band, stream(1))};
}

Expected expected_of(const Problem& problem, int call, int rank, const gemm::Sample& sample) {
  const bool gathers = problem.kind == Kind::kAllGather;
  const int owned = owned_rows(problem), columns = static_cast<int>(sample.columns.size());
  const int first_row = problem.kind == Kind::kReduceScatter ? rank * owned : 0;  // of y, in the product
  Expected expected;
  expected.values.resize(sample.rows.size() * sample.columns.size());
  expected.magnitudes.resize(expected.values.size());
  std::vector<std::uint16_t> x(static_cast<std::size_t>(problem.local().k));
  std::vector<double> values, magnitudes;
  // A gathered product has one w, this rank's, and rows of x from everywhere; a reduced one has a term of every rank.
  for (int source = gathers ? rank : 0; source < (gathers ? rank + 1 : problem.ranks); ++source) {
    const gemm::Reference product = product_of(problem, call, source, sample.columns);
    for (std::size_t i = 0; i < sample.rows.size(); ++i) {
      const int row = first_row + sample.rows[i];
      fill_row(problem, Operand::kX, call, gathers ? row / owned : source, gathers ? row % owned : row, x);
      product.row(x, values, magnitudes);
      const std::size_t at = i * static_cast<std::size_t>(columns);
      for (std::size_t c = 0; c < values.size(); ++c) {
        expected.values[at + c] += values[c];
        expected.magnitudes[at + c] += magnitudes[c];
      }
    }
  }
  return expected;
}

}  // namespace farwarp::parallel_gemm
