// The oracles of products refuse every loss, at any K, and pass right results.
#include "farwarp/ops/gemm/case/oracle.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "farwarp/base/sizes.h"
#include "farwarp/harness/suite.h"
#include "farwarp/ops/gemm/case/inputs.h"

namespace farwarp::gemm {
namespace {

using harness::RandomStream;

constexpr int kStep = 64;  // elements of K in a pipeline stage

/// One tile of a product whose K is spread over `ranks`, with all operands and every rank's partial sums on the host.
class Tile {
 public:
  Tile(InputKind kind, DType dtype, int rows, int columns, int k, int ranks, harness::Roundings roundings)
      : rows_(rows), columns_(columns), k_(k / ranks), ranks_(ranks) {
    problem_.dtype = dtype;
    problem_.rows = rows;
    problem_.columns = columns;
    problem_.k = k_;
    problem_.roundings = roundings;
    for (int rank = 0; rank < ranks; ++rank) {
      x_.push_back(matrix(kind, Operand::kX, rank, rows, k));
      w_.push_back(matrix(kind, Operand::kW, rank, columns, k));
    }
    for (int rank = 0; rank < ranks; ++rank)
      problem_.terms.push_back({source(x_[size(rank)]), source(w_[size(rank)]), {}});
    for (int rank = 0; rank < ranks; ++rank) sums_.push_back(sums_of(rank, 0, k_));
  }

  const SumOfProducts& problem() const { return problem_; }
  std::vector<std::vector<double>>& sums() { return sums_; }

  /// A rank's partial sums over [first, last) of its K.
  std::vector<double> sums_of(int rank, int first, int last) const {
    std::vector<double> sums(size(rows_) * size(columns_));
    for (int row = 0; row < rows_; ++row) {
      const float* const x = x_[size(rank)].data() + size(row) * size(k_);
      for (int column = 0; column < columns_; ++column) {
        const float* const w = w_[size(rank)].data() + size(column) * size(k_);
        double sum = 0;
        for (int i = first; i < last; ++i) sum += static_cast<double>(x[i] * w[i]);
        sums[size(row) * size(columns_) + size(column)] = sum;
      }
    }
    return sums;
  }

  /// y from partial sums, rounded as problem_.roundings says.
  std::vector<std::uint16_t> y(const std::vector<std::vector<double>>& sums) const {
    std::vector<std::uint16_t> y(size(rows_) * size(columns_));
    for (std::size_t i = 0; i < y.size(); ++i) {
      float sum = 0;
      for (const auto& of_rank : sums) {
        auto term = static_cast<float>(of_rank[i]);
        if (problem_.roundings.partial_sums)
          term = harness::decode(problem_.dtype, harness::encode(problem_.dtype, term));
        sum += term;
      }
      y[i] = harness::encode(problem_.dtype, sum);
    }
    return y;
  }
  std::vector<std::uint16_t> right() const { return y(sums_); }

  std::string exact_difference_of(const std::vector<std::uint16_t>& y) const {
    return exact_difference(problem_, {y, columns_}, 7);
  }

  harness::Verdict verdict_of(const std::vector<std::uint16_t>& y) const {
    harness::Comparison comparison(problem_.dtype, kTile, kTile);
    std::vector<harness::PartialSum> partial(size(ranks_));
    std::vector<harness::ExpectedElement> expected(size(columns_));
    for (int row = 0; row < rows_; ++row) {
      for (int column = 0; column < columns_; ++column) {
        const std::size_t at = size(row) * size(columns_) + size(column);
        for (std::size_t rank = 0; rank < partial.size(); ++rank) partial[rank] = {sums_[rank][at], squares(at)};
        expected[size(column)] = harness::expected_element(problem_.dtype, problem_.roundings, partial, k_);
      }
      comparison.add(row, 0, Output{y, columns_}.row(row, columns_), expected);
    }
    return comparison.verdict();
  }

 private:
  std::vector<float> matrix(InputKind kind, Operand operand, int rank, int rows, int k) const {
    std::vector<std::uint16_t> bits(size(k_));
    std::vector<float> values;
    for (int row = 0; row < rows; ++row) {
      fill_operand(kind, operand, problem_.dtype, k,
                   RandomStream(3, {static_cast<std::uint64_t>(operand), size(rank), size(row)}), bits);
      for (const std::uint16_t value : bits) values.push_back(harness::decode(problem_.dtype, value));
    }
    return values;
  }
  RowSource source(std::vector<float>& matrix) const {
    return [this, &matrix](int row, std::span<std::uint16_t> values) {
      for (std::size_t i = 0; i < values.size(); ++i)
        values[i] = harness::encode(problem_.dtype, matrix[size(row) * size(k_) + i]);
    };
  }
  /// The mean over all elements of the tile, because all elements have the same distribution.
  double squares(std::size_t) const {
    if (mean_squares_ == 0) {
      double x = 0, w = 0;
      for (const float value : x_[0]) x += static_cast<double>(value) * value;
      for (const float value : w_[0]) w += static_cast<double>(value) * value;
      mean_squares_ = x / rows_ * w / columns_ / k_;
    }
    return mean_squares_;
  }

  int rows_, columns_, k_, ranks_;
  SumOfProducts problem_;
  std::vector<std::vector<float>> x_, w_;
  std::vector<std::vector<double>> sums_;
  mutable double mean_squares_ = 0;
};

std::vector<double> difference(std::vector<double> left, const std::vector<double>& right) {
  for (std::size_t i = 0; i < left.size(); ++i) left[i] -= right[i];
  return left;
}

/// Expects the oracle to refuse each loss that a kernel may cause in a tile. `tile` has two ranks at least.
void expect_losses_refused(Tile& tile, int rows, int columns, int k_local, const std::string& shape) {
  const auto refused = [&](const std::vector<std::uint16_t>& y, const char* loss) {
    EXPECT_FALSE(tile.exact_difference_of(y).empty()) << shape << ": " << loss;
  };
  EXPECT_EQ(tile.exact_difference_of(tile.right()), "") << shape;
  const std::size_t last = tile.sums().size() - 1;
  auto sums = tile.sums();
  sums[last] = difference(sums[last], tile.sums_of(static_cast<int>(last), 0, std::min(kStep, k_local)));
  refused(tile.y(sums), "one step of K of one rank");
  sums = tile.sums();
  sums.push_back(sums[0]);
  refused(tile.y(sums), "a tile that is added twice");
  sums = tile.sums();
  std::ranges::rotate(sums[last], sums[last].begin() + columns);
  refused(tile.y(sums), "the rows of another tile");
  std::vector<std::uint16_t> y = tile.right();
  std::fill_n(y.begin() + 3 * columns, columns, std::uint16_t{0});
  if (rows > 3) refused(y, "one row");
  y = tile.right();
  const auto at = y.end() - 3;
  *at = harness::encode(tile.problem().dtype, harness::decode(tile.problem().dtype, *at) + 1);
  refused(y, "one element");
  y = tile.right();
  y[1] = harness::kPoison16;
  refused(y, "an element that was not written");
}

// A tile of every shape of the challenge. bf16 holds integers up to 256.
TEST(ExactJudge, RefusesEveryLossOnEveryShapeOfTheSuite) {
  const auto suite = harness::load_suite("amd2025");
  ASSERT_TRUE(suite.ok()) << suite.status().to_string();
  int shapes = 0;
  for (const harness::SuiteEntry& entry : suite->entries) {
    if (entry.op == "moe-a2a") continue;
    const int k = std::stoi(entry.params.at("k"));
    const int ranks = entry.op == "gemm-rs" ? suite->ranks : 1;  // an all-gathered product has one term
    constexpr int kRows = 8, kColumns = 64;
    Tile tile(InputKind::kExact, DType::kBf16, kRows, kColumns, k, ranks, {entry.op == "gemm-rs", 0});
    expect_losses_refused(tile, kRows, kColumns, k / ranks, entry.op + " k=" + entry.params.at("k"));
    ++shapes;
  }
  EXPECT_GE(shapes, 30);
}

TEST(ExactJudge, RefusesEveryLossAtTheLargestK) {
  for (const DType dtype : {DType::kBf16, DType::kF16}) {
    Tile tile(InputKind::kExact, dtype, 8, 64, 131'072, 8, {true, 0});
    expect_losses_refused(tile, 8, 64, 131'072 / 8, name_of(dtype));
  }
}

// Small products are computed, larger ones checked by a random vector. Both find the same element.
TEST(ExactJudge, NamesTheElement) {
  for (const int k : {64, 65'536}) {
    Tile tile(InputKind::kExact, DType::kBf16, 8, 64, k, 1, {});
    auto y = tile.right();
    y[5 * 64 + 9] = harness::encode(DType::kBf16, harness::decode(DType::kBf16, y[5 * 64 + 9]) + 2);
    EXPECT_EQ(tile.exact_difference_of(y).substr(0, 11), "y[5, 9] is ") << tile.exact_difference_of(y);
  }
}

// If the dtype cannot hold the sums of exact inputs, the message says so instead of reporting a wrong y.
TEST(ExactJudge, SaysThatInputsAreTooDense) {
  SumOfProducts ones;
  ones.rows = ones.columns = 8;
  ones.k = 512;
  const auto source = [](int, std::span<std::uint16_t> values) {
    std::ranges::fill(values, harness::encode(DType::kBf16, 1));
  };
  ones.terms.push_back({source, source, {}});
  const std::vector<std::uint16_t> y(64, harness::encode(DType::kBf16, 510));
  EXPECT_NE(exact_difference(ones, {y, 8}, 1).find("the inputs are too dense"), std::string::npos);
}

class RandomJudgeOf : public testing::TestWithParam<InputKind> {};

INSTANTIATE_TEST_SUITE_P(Inputs, RandomJudgeOf,
                         testing::Values(InputKind::kUniform, InputKind::kNormal, InputKind::kMean),
                         [](const auto& info) {
                           return std::string(info.param == InputKind::kUniform  ? "uniform"
                                              : info.param == InputKind::kNormal ? "normal"
                                                                                 : "mean");
                         });

TEST_P(RandomJudgeOf, PassesWhatIsRightAndUsesATenthOfTheBound) {
  for (const DType dtype : {DType::kBf16, DType::kF16}) {
    for (const int ranks : {1, 8}) {
      Tile tile(GetParam(), dtype, 32, 64, 16'384, ranks, {ranks > 1, 0});
      const harness::Verdict verdict = tile.verdict_of(tile.right());
      EXPECT_TRUE(verdict.pass) << verdict.detail;
      EXPECT_GT(verdict.tile_share, dtype == DType::kBf16 ? 0.1 : 0.02) << name_of(dtype) << ", " << ranks << " ranks";
    }
  }
}

TEST_P(RandomJudgeOf, RefusesALostStepOfK) {
  for (const int k : {4096, 16'384, 131'072}) {
    constexpr int kRanks = 8;
    Tile tile(GetParam(), DType::kBf16, 32, 64, k, kRanks, {true, 0});
    auto sums = tile.sums();
    sums[5] = difference(sums[5], tile.sums_of(5, kStep, 2 * kStep));
    const harness::Verdict verdict = tile.verdict_of(tile.y(sums));
    EXPECT_FALSE(verdict.pass) << "k = " << k << ": " << verdict.tile_share;
  }
}

// With the challenge's inputs, the challenge's tolerance accepts a result that lacks five of eight ranks.
TEST(RandomJudge, RefusesWhatTheChallengesToleranceAccepts) {
  Tile tile(InputKind::kUniform, DType::kBf16, 64, 64, 4096, 8, {true, 0});
  auto sums = tile.sums();
  sums.resize(3);
  const auto y = tile.y(sums), right = tile.right();
  int outside = 0;
  for (std::size_t i = 0; i < y.size(); ++i)
    outside +=
        harness::is_outside(harness::decode(DType::kBf16, y[i]), harness::decode(DType::kBf16, right[i]), 1e-2, 1e-2);
  EXPECT_EQ(outside, 0);
  EXPECT_GT(tile.verdict_of(y).rel_err, 0.7);
  EXPECT_FALSE(tile.verdict_of(y).pass);
}

// If both operands have a mean, a sum and its rounding grow with K, and a step's part of the sum shrinks.
TEST(RandomJudge, AMeanInBothOperandsHidesAStep) {
  const auto hides_a_step = [](int k) {
    const harness::PartialSum sum{.value = static_cast<double>(k), .squares = static_cast<double>(k)};  // means of 1
    const harness::ExpectedElement element = harness::expected_element(DType::kBf16, {}, std::span(&sum, 1), k);
    const double last = harness::half_ulp(DType::kBf16, element.value), margin = 1 + 5 / std::sqrt(2.0 * kTile * kTile);
    return last * last / 3 + kStep * kStep <= margin * margin * element.mean_square_error(DType::kBf16);
  };
  EXPECT_FALSE(hides_a_step(32'768));
  EXPECT_TRUE(hides_a_step(131'072));
}

// On devices, a plain kernel computes the oracle's partial sums.
TEST(DeviceOracle, AgreesWithTheHosts) {
  for (const TargetKind target : {TargetKind::kEmuSm90, TargetKind::kEmuGfx942}) {
    for (const DType dtype : {DType::kBf16, DType::kF16}) {
      Tile tile(InputKind::kNormal, dtype, 7, 40, 144, 2, {true, 0});
      const auto device = Device::open(target, 0);
      ASSERT_TRUE(device.ok());
      const auto stream = (*device)->create_stream();
      ASSERT_TRUE(stream.ok());
      constexpr std::uint64_t kTimeout = 10'000'000'000;
      SumOfProducts problem = tile.problem();
      for (auto& term : problem.terms) term.bias.assign(40, harness::encode(dtype, 0.5f));
      auto sums = tile.sums();
      for (auto& of_rank : sums) {
        for (double& sum : of_rank) sum += 0.5;
      }
      harness::Comparison right(dtype, kTile, kTile), wrong(dtype, kTile, kTile), sampled(dtype, kTile, kTile);
      auto y = tile.y(sums);
      const Status status = compare_all(problem, **device, *stream, kTimeout, {y, 40}, right);
      ASSERT_TRUE(status.ok()) << status.to_string();
      EXPECT_TRUE(right.verdict().pass) << right.verdict().detail;
      Sample sample;
      for (int row = 0; row < 7; ++row) sample.rows.push_back(row);
      for (int column = 0; column < 40; ++column) sample.columns.push_back(column);
      compare_sample(problem, sample, {y, 40}, sampled);
      EXPECT_NEAR(right.verdict().tile_share, sampled.verdict().tile_share, 1e-4);
      EXPECT_NEAR(right.verdict().max_share, sampled.verdict().max_share, 1e-3);
      y[6 * 40 + 39] ^= 0x10;
      ASSERT_TRUE(compare_all(problem, **device, *stream, kTimeout, {y, 40}, wrong).ok());
      EXPECT_NE(wrong.verdict().detail.find("y[6, 39]"), std::string::npos) << wrong.verdict().detail;
      (*device)->destroy_stream(*stream);
    }
  }
}

}  // namespace
}  // namespace farwarp::gemm
