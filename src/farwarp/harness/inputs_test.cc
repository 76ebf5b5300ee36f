#include "farwarp/harness/inputs.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <vector>

namespace farwarp::harness {
namespace {

TEST(Inputs, SameSeedSameValuesAndStreamsDiffer) {
  const RandomStream a(7, {1, 2}), again(7, {1, 2}), other(7, {2, 1}), seeded(8, {1, 2});
  std::set<std::uint64_t> values;
  for (std::uint64_t i = 0; i < 1000; ++i) {
    EXPECT_EQ(a.bits(i), again.bits(i));
    values.insert({a.bits(i), other.bits(i), seeded.bits(i)});
  }
  EXPECT_EQ(values.size(), 3000u);
}

TEST(Inputs, NormalHasTheRightMoments) {
  for (const DType dtype : {DType::kF16, DType::kBf16}) {
    std::vector<std::uint16_t> values(100'001);
    fill_normal(RandomStream(3, {}), 0, 1, dtype, values);
    double sum = 0, squares = 0, beyond_two = 0;
    for (const std::uint16_t bits : values) {
      const double value = decode(dtype, bits);
      ASSERT_TRUE(std::isfinite(value));
      sum += value;
      squares += value * value;
      beyond_two += std::abs(value) > 2;
    }
    const auto n = static_cast<double>(values.size());
    EXPECT_NEAR(sum / n, 0, 0.02);
    EXPECT_NEAR(squares / n, 1, 0.02);
    EXPECT_NEAR(beyond_two / n, 0.0455, 0.005);
  }
}

TEST(Inputs, UniformStaysInRange) {
  std::vector<std::uint16_t> values(10'000);
  fill_uniform(RandomStream(3, {}), -0.01, 0.01, DType::kBf16, values);
  double sum = 0;
  for (const std::uint16_t bits : values) {
    ASSERT_LE(std::abs(decode(DType::kBf16, bits)), 0.0101);
    sum += decode(DType::kBf16, bits);
  }
  EXPECT_NEAR(sum / 10'000, 0, 0.0003);
}

TEST(Inputs, TernaryHasItsDensityAndBothSigns) {
  std::vector<std::uint16_t> values(100'001);
  fill_ternary(RandomStream(3, {}), 0.1, DType::kF16, values);
  int positive = 0, negative = 0;
  for (const std::uint16_t bits : values) {
    const float value = decode(DType::kF16, bits);
    ASSERT_TRUE(value == 0 || value == 1 || value == -1);
    positive += value == 1;
    negative += value == -1;
  }
  EXPECT_NEAR(positive, 5000, 300);
  EXPECT_NEAR(negative, 5000, 300);
}

TEST(Inputs, BelowIsUniform) {
  const RandomStream stream(1, {});
  std::vector<int> counts(10);
  for (std::uint64_t i = 0; i < 10'000; ++i) ++counts[stream.below(i, 10)];
  for (const int count : counts) EXPECT_NEAR(count, 1000, 150);
}

/// The last test of this process: it changes all streams from here on.
TEST(InputsOfSubmissions, StreamsCannotBeComputedFromEachOther) {
  const auto bits = [](std::uint64_t call, std::uint64_t rank) { return RandomStream(7, {call, rank}).bits(0); };
  const std::uint64_t mine = bits(0, 0), others = bits(0, 1);
  keep_streams_apart();
  EXPECT_NE(bits(0, 0), mine);
  EXPECT_EQ(bits(0, 0), bits(0, 0));
  EXPECT_NE(bits(0, 1), others);
  EXPECT_NE(bits(0, 1) ^ bits(0, 0), mine ^ others);
  const std::uint64_t first = bits(1, 0);
  keep_streams_apart();  // another key
  EXPECT_NE(bits(1, 0), first);
}

}  // namespace
}  // namespace farwarp::harness
