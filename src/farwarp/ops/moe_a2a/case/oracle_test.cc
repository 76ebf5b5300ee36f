// The oracle of moe-a2a's output passes right outputs, and refuses a weight that is off by 2% and a lost k-slot.
#include "farwarp/ops/moe_a2a/case/oracle.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "farwarp/harness/compare.h"
#include "farwarp/harness/inputs.h"
#include "farwarp/ops/moe_a2a/case/inputs.h"

namespace farwarp::moe {
namespace {

using harness::ExpectedElement;
using harness::InputKind;

MoeAllToAllDesc desc_of(DType dtype, int hidden) {
  MoeAllToAllDesc desc;
  desc.num_experts = 64;
  desc.experts_per_token = 6;
  desc.hidden = hidden;
  desc.max_tokens = 8;
  desc.dtype = dtype;
  return desc;
}

/// One token of one rank: the expected output, and what a kernel would compute with other weights.
struct Token {
  MoeAllToAllDesc desc;
  InputOptions options;
  std::vector<std::int32_t> experts;
  std::vector<float> weights, x;
  std::vector<ExpertFunction> functions;
  int ranks;

  Token(const MoeAllToAllDesc& shape, InputKind kind, int of_ranks = 4, MoeExpert expert = MoeExpert::kTable,
        std::uint64_t seed = 5)
      : desc(shape), ranks(of_ranks) {
    options.kind = kind;
    options.expert = expert;
    options.tokens = TokenCounts::kFull;
    options.seed = seed;
    const Routing routing = make_routings(desc, ranks, options, 0)[0];
    experts.assign(routing.experts.begin(), routing.experts.begin() + desc.experts_per_token);
    weights.assign(routing.weights.begin(), routing.weights.begin() + desc.experts_per_token);
    std::vector<std::uint16_t> row(static_cast<std::size_t>(desc.hidden));
    fill_row(desc, ranks, options, 0, 0, 0, row);
    x = row_values(desc, Fp8Format::kOcp, row);
    functions = make_experts(desc, ranks, options, 0);
  }

  std::vector<ExpectedElement> expected() const {
    std::vector<ExpectedElement> elements(x.size());
    expected_row(desc, ranks, experts, weights, x, functions, elements);
    return elements;
  }

  /// The output in fp32, rounded where the kernels round.
  std::vector<std::uint16_t> output(const std::vector<float>& used) const {
    std::vector<std::uint16_t> out;
    for (const float value : x) {
      float total = 0;
      for (int owner = 0; owner < ranks; ++owner) {
        float sum = 0;
        for (std::size_t slot = 0; slot < experts.size(); ++slot) {
          if (moe_rank_of(experts[slot], ranks, desc.num_experts) != owner) continue;
          const auto& function = functions[static_cast<std::size_t>(experts[slot])];
          sum = std::fma(used[slot], static_cast<float>(expert_output(desc.dtype, function, value)), sum);
        }
        total += harness::decode(desc.dtype, harness::encode(desc.dtype, sum));
      }
      out.push_back(harness::encode(desc.dtype, total));
    }
    return out;
  }

  harness::Verdict verdict_of(const std::vector<std::uint16_t>& out) const {
    harness::Comparison comparison(desc.dtype, 1, desc.hidden);
    const auto elements = expected();
    if (options.kind == InputKind::kExact) {
      std::vector<double> values(elements.size());
      std::ranges::transform(elements, values.begin(), &ExpectedElement::value);
      comparison.add_exact(0, 0, out, values);
    } else {
      comparison.add(0, 0, out, elements);
    }
    return comparison.verdict();
  }
};

TEST(MoeOracle, RowIsTheWeightedSumOfExpertOutputs) {
  const std::vector<ExpertFunction> functions = {{1, 0}, {2, 1}, {3, -2}, {4, 0}};
  const std::vector<std::int32_t> experts = {1, 2};
  const std::vector<float> weights = {0.5f, -0.25f}, x = {1.0f, -2.0f};
  MoeAllToAllDesc desc = desc_of(DType::kBf16, 8);
  desc.num_experts = 4;
  std::vector<ExpectedElement> expected(2);
  expected_row(desc, 2, experts, weights, x, functions, expected);
  EXPECT_DOUBLE_EQ(expected[0].value, 0.5 * 3 - 0.25 * 1);
  EXPECT_DOUBLE_EQ(expected[1].value, 0.5 * -3 - 0.25 * -8);
  // Two owners round 1.5 and -0.25, and their sum is rounded.
  EXPECT_NEAR(expected[0].rounded, 0x1p-8 + 0x1p-10, 1e-9);
  EXPECT_NEAR(expected[0].largest_error(DType::kBf16), 0x1p-8 + 0x1p-10 + 0x1p-8, 1e-5);
}

TEST(MoeOracle, MaskedTokenIsZero) {
  const std::vector<ExpertFunction> functions(4, {2, 1});
  MoeAllToAllDesc desc = desc_of(DType::kF16, 8);
  desc.num_experts = 4;
  std::vector<ExpectedElement> expected(1);
  expected_row(desc, 2, std::vector<std::int32_t>{-1, -1}, std::vector<float>{1, 1}, std::vector<float>{1}, functions,
               expected);
  harness::Comparison zero(DType::kF16, 1, 1), least(DType::kF16, 1, 1);
  zero.add(0, 0, std::vector<std::uint16_t>{0}, expected);
  EXPECT_TRUE(zero.verdict().pass);
  least.add(0, 0, std::vector<std::uint16_t>{1}, expected);
  EXPECT_FALSE(least.verdict().pass);
}

TEST(MoeOracle, PassesWhatIsRight) {
  for (const DType dtype : {DType::kBf16, DType::kF16}) {
    for (const InputKind kind : {InputKind::kExact, InputKind::kNormal, InputKind::kUniform, InputKind::kTiny}) {
      const Token token(desc_of(dtype, 2048), kind);
      const harness::Verdict verdict = token.verdict_of(token.output(token.weights));
      EXPECT_TRUE(verdict.pass) << name_of(dtype) << ": " << verdict.detail;
      if (kind != InputKind::kExact) {
        EXPECT_GT(verdict.tile_share, 0.1) << name_of(dtype);
      }
    }
  }
}

// Many kinds of weights, also some for which the roundings of a few distinct numbers are alike.
TEST(MoeOracle, PassesWhatIsRightWhateverTheWeights) {
  double largest = 0;
  for (const DType dtype : {DType::kBf16, DType::kF16}) {
    for (const int ranks : {2, 8}) {
      for (const int k : {1, 2, 8}) {
        for (const MoeExpert expert : {MoeExpert::kTable, MoeExpert::kRankScale}) {
          for (const bool fp8 : {false, true}) {
            if (fp8 && dtype != DType::kBf16) continue;
            MoeAllToAllDesc desc = desc_of(dtype, 2048);
            desc.experts_per_token = k;
            desc.max_tokens = 1;
            desc.fp8_dispatch = fp8;
            for (std::uint64_t seed = 0; seed < 60; ++seed) {
              const Token token(desc, seed % 2 == 0 ? InputKind::kNormal : InputKind::kUniform, ranks, expert, seed);
              const harness::Verdict verdict = token.verdict_of(token.output(token.weights));
              ASSERT_TRUE(verdict.pass) << ranks << " ranks, top-" << k << ", seed " << seed << ": " << verdict.detail;
              largest = std::max(largest, verdict.tile_share);
            }
          }
        }
      }
    }
  }
  EXPECT_GT(largest, 0.7);
}

TEST(MoeOracle, RefusesWeightsThatAreOffByTwoPercent) {
  for (const DType dtype : {DType::kBf16, DType::kF16}) {
    for (const InputKind kind : {InputKind::kExact, InputKind::kNormal, InputKind::kUniform}) {
      const Token token(desc_of(dtype, 2048), kind);
      std::vector<float> weights = token.weights;
      for (float& weight : weights) weight *= 1.02f;
      EXPECT_FALSE(token.verdict_of(token.output(weights)).pass) << name_of(dtype);
      weights = token.weights;
      *std::ranges::max_element(weights) *= 1.02f;
      EXPECT_FALSE(token.verdict_of(token.output(weights)).pass) << name_of(dtype) << ", one weight";
    }
  }
}

TEST(MoeOracle, RefusesALostSlotAShiftedRowAndAnElement) {
  for (const InputKind kind : {InputKind::kExact, InputKind::kNormal}) {
    const Token token(desc_of(DType::kBf16, 256), kind);
    for (std::size_t slot = 0; slot < token.weights.size(); ++slot) {
      std::vector<float> weights = token.weights;
      weights[slot] = 0;
      EXPECT_FALSE(token.verdict_of(token.output(weights)).pass) << "slot " << slot;
    }
    Token other = token;
    std::ranges::rotate(other.x, other.x.begin() + 1);
    EXPECT_FALSE(token.verdict_of(other.output(token.weights)).pass);
    auto out = token.output(token.weights);
    out[77] ^= 2;
    EXPECT_FALSE(token.verdict_of(out).pass);
  }
}

// Exact inputs are exact: for any top-k and number of ranks, no sum is rounded.
TEST(MoeOracle, ExactInputsAreExact) {
  for (const DType dtype : {DType::kBf16, DType::kF16}) {
    for (const int k : {1, 2, 8, 32}) {
      for (const MoeExpert expert : {MoeExpert::kTable, MoeExpert::kRankScale}) {
        MoeAllToAllDesc desc = desc_of(dtype, 64);
        desc.experts_per_token = k;
        InputOptions options;
        options.kind = InputKind::kExact;
        options.expert = expert;
        options.tokens = TokenCounts::kFull;
        const auto routing = make_routings(desc, 8, options, 0)[3];
        const auto functions = make_experts(desc, 8, options, 0);
        std::vector<std::uint16_t> row(64);
        std::vector<ExpectedElement> expected(64);
        for (int token = 0; token < routing.tokens; ++token) {
          fill_row(desc, 8, options, 0, 3, token, row);
          const auto first = static_cast<std::size_t>(token * k), count = static_cast<std::size_t>(k);
          expected_row(desc, 8, std::span(routing.experts).subspan(first, count),
                       std::span(routing.weights).subspan(first, count), row_values(desc, Fp8Format::kOcp, row),
                       functions, expected);
          for (const ExpectedElement& element : expected)
            ASSERT_EQ(harness::decode(dtype, harness::encode(dtype, static_cast<float>(element.value))), element.value);
        }
      }
    }
  }
}

}  // namespace
}  // namespace farwarp::moe
