// The judge of logits accepts other roundings of the same size, and refuses constants that are a little wrong. No
// kernel runs: an oracle that rounds stands for it.
#include "farwarp/models/qwen3/case/judge.h"

#include <gtest/gtest.h>

#include <cstdint>

#include "farwarp/harness/inputs.h"

namespace farwarp::qwen3 {
namespace {

/// The verdict on `sequences` sequences of `tokens` tokens, of which the first `prefilled` have no logits. What differs
/// by `factors` is judged.
harness::Verdict judged(std::uint64_t seed, int sequences, int tokens, const OracleFactors& factors,
                        int prefilled = 0) {
  Qwen3Config config = *qwen3_config("nano");
  config.epsilon = 0.1f;
  const OracleWeights weights(config, seed);
  LogitsJudge judge;
  std::string wrong;
  for (int sequence = 0; sequence < sequences && wrong.empty(); ++sequence) {
    SequenceOracles oracles(weights, true, 0);
    Oracle kernel(weights, true, factors);
    const harness::RandomStream stream(seed, {static_cast<std::uint64_t>(sequence)});
    for (int token = 0; token < tokens && wrong.empty(); ++token) {
      const auto input = static_cast<std::int32_t>(stream.below(static_cast<std::uint64_t>(token), 40));
      const std::vector<double> logits = kernel.step(input, token < prefilled);
      if (token < prefilled) {
        oracles.prefill(input);
      } else {
        wrong = judge.add(oracles, input, std::vector<float>(logits.begin(), logits.end()));
      }
    }
  }
  harness::Verdict verdict = judge.verdict();
  if (!wrong.empty()) verdict = {.detail = wrong};
  return verdict;
}

/// So much that roundings differ, and nothing else can be seen.
constexpr OracleFactors kOtherRoundings = {1 + 2e-5, 1 - 1e-5, 1 + 1e-5, 1 + 2e-5, 1 - 2e-5, 1 - 1e-5};

TEST(Qwen3Judge, AcceptsOtherRoundings) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    EXPECT_EQ(judged(seed, 2, 12, kOtherRoundings).detail, "");
    EXPECT_EQ(judged(seed, 1, 14, kOtherRoundings, 10).detail, "");
  }
}

TEST(Qwen3Judge, RefusesConstantsThatAreALittleWrong) {
  const auto refused = [](double OracleFactors::*factor, double value, const char* name) {
    for (std::uint64_t seed = 1; seed <= 5; ++seed) {
      OracleFactors factors = kOtherRoundings;
      factors.*factor = value;
      const harness::Verdict verdict = judged(seed, 2, 20, factors);
      EXPECT_FALSE(verdict.pass) << name << ", seed " << seed;
    }
  };
  refused(&OracleFactors::scores, 1.005, "scores");
  refused(&OracleFactors::attended, 0.997, "attended");
  refused(&OracleFactors::silu, 1.007, "silu");
  refused(&OracleFactors::activated, 0.995, "activated");
  refused(&OracleFactors::epsilon, 1.02, "epsilon");
  refused(&OracleFactors::logits, 1.002, "logits");
}

}  // namespace
}  // namespace farwarp::qwen3
