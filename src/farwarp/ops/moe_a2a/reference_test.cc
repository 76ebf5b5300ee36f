#include "farwarp/ops/moe_a2a/reference.h"

#include <gtest/gtest.h>

#include <cmath>

namespace farwarp::moe {
namespace {

MoeAllToAllDesc small_desc() {
  MoeAllToAllDesc desc;
  desc.num_experts = 4;
  desc.experts_per_token = 2;
  desc.hidden = 8;
  desc.max_tokens = 4;
  desc.dtype = DType::kF16;
  return desc;
}

// Two ranks with experts {0, 1} and {2, 3}.
std::vector<Routing> small_routings() {
  return {{2, {1, 2, 1, -1}, {0.5f, 0.25f, 1.0f, 9.0f}}, {1, {0, 1}, {1.0f, 2.0f}}};
}

TEST(Reference, RowsAreOrderedByExpertSourceTokenSlot) {
  const auto expected = expected_dispatch(small_desc(), 0, 0, small_routings());
  EXPECT_EQ(expected.counts, (std::vector<std::int32_t>{1, 3}));
  EXPECT_EQ(expected.offsets, (std::vector<std::int32_t>{0, 1, 4}));
  EXPECT_EQ(expected.origins, (std::vector<std::int64_t>{moe_origin(1, 0, 0), moe_origin(0, 0, 0), moe_origin(0, 1, 0),
                                                         moe_origin(1, 0, 1)}));
  const auto other = expected_dispatch(small_desc(), 0, 1, small_routings());
  EXPECT_EQ(other.counts, (std::vector<std::int32_t>{1, 0}));
  EXPECT_EQ(other.origins, (std::vector<std::int64_t>{moe_origin(0, 0, 1)}));
}

TEST(Reference, ExpertsStartAtAlignedRowsAndPaddingHasNoOrigin) {
  MoeAllToAllDesc desc = small_desc();
  desc.row_alignment = 4;
  const auto expected = expected_dispatch(desc, 0, 0, small_routings());
  EXPECT_EQ(expected.offsets, (std::vector<std::int32_t>{0, 4, 8}));
  EXPECT_EQ(expected.origins[0], moe_origin(1, 0, 0));
  EXPECT_EQ(expected.origins[1], -1);
  EXPECT_EQ(expected.origins[4], moe_origin(0, 0, 0));
  EXPECT_EQ(expected.origins[7], -1);
  EXPECT_EQ(least_recv_rows(desc, small_routings()), 8);
}

TEST(Reference, MaskedLayoutGivesEveryExpertTheSameRoom) {
  MoeAllToAllDesc desc = small_desc();
  desc.layout = MoeLayout::kMasked;
  EXPECT_EQ(least_recv_rows(desc, small_routings()), 6);
  const auto expected = expected_dispatch(desc, 10, 0, small_routings());
  EXPECT_EQ(expected.offsets, (std::vector<std::int32_t>{0, 5, 10}));
  EXPECT_EQ(expected.origins[1], -1);
  EXPECT_EQ(expected.origins[5], moe_origin(0, 0, 0));
}

TEST(Reference, MaskedLayoutHasARowOnceForEachExpert) {
  MoeAllToAllDesc desc = small_desc();
  const std::vector<Routing> routings = {{1, {0, 0}, {1.0f, 1.0f}}, {2, {1, 0, 1, 1}, std::vector<float>(4, 1.0f)}};
  EXPECT_EQ(expected_dispatch(desc, 0, 0, routings).counts, (std::vector<std::int32_t>{3, 3}));
  desc.layout = MoeLayout::kMasked;
  EXPECT_EQ(least_recv_rows(desc, routings), 4);
  const auto expected = expected_dispatch(desc, 4, 0, routings);
  EXPECT_EQ(expected.counts, (std::vector<std::int32_t>{2, 2}));
  EXPECT_EQ(expected.origins, (std::vector<std::int64_t>{moe_origin(0, 0, 0), moe_origin(1, 0, 1), moe_origin(1, 0, 0),
                                                         moe_origin(1, 1, 0)}));
}

TEST(Reference, UnevenExpertsFollowTheDefinitionOfOwners) {
  MoeAllToAllDesc desc = small_desc();
  desc.num_experts = 7;
  desc.experts_per_token = 1;
  std::vector<Routing> routings(3);
  routings[1] = {7, {0, 1, 2, 3, 4, 5, 6}, std::vector<float>(7, 1.0f)};
  std::vector<int> owners(7, -1);
  for (int rank = 0; rank < 3; ++rank) {
    const auto expected = expected_dispatch(desc, 0, rank, routings);
    for (const std::int64_t origin : expected.origins) owners[static_cast<std::size_t>(origin >> 16 & 0xffff)] = rank;
  }
  for (int expert = 0; expert < 7; ++expert)
    EXPECT_EQ(owners[static_cast<std::size_t>(expert)], expert * 3 / 7) << expert;
}

// The error of a quantised number is explained by its rounding: half a unit in the last of three bits of mantissa, or
// half the smallest step of the format near zero, in units of the scale; and the largest of a group is not rounded
// away.
TEST(Reference, QuantisedRowIsWithinARoundingOfTheRow) {
  for (const Fp8Format format : {Fp8Format::kOcp, Fp8Format::kFnuz}) {
    std::vector<std::uint16_t> row;
    for (int i = 0; i < 300; ++i) row.push_back(bf16_from(std::sin(i * 1.7f) * std::ldexp(1.0f, i / 20 - 8)).bits);
    MoeAllToAllDesc desc;
    desc.fp8_dispatch = true;
    const QuantisedRow quantised = quantised_row(format, row);
    const std::vector<float> values = row_values(desc, format, row);
    ASSERT_EQ(quantised.numbers.size(), 300u);
    ASSERT_EQ(quantised.scales.size(), 3u);
    for (std::size_t i = 0; i < row.size(); ++i) {
      const float x = float_from(Bf16{row[i]}), scale = quantised.scales[i / 128];
      const float smallest = float_from_fp8(format, 1) * scale;
      EXPECT_LE(std::abs(values[i] - x), std::max(std::abs(x) * 0x1p-4f, smallest / 2) * 1.0001f) << i;
      EXPECT_LE(std::abs(values[i]), largest_fp8(format) * scale * 1.0001f);
    }
  }
}

TEST(Reference, ZerosAreQuantisedToZeros) {
  const std::vector<std::uint16_t> row(256, 0);
  const QuantisedRow quantised = quantised_row(Fp8Format::kOcp, row);
  EXPECT_EQ(quantised.numbers, std::vector<std::uint8_t>(256, 0));
}

}  // namespace
}  // namespace farwarp::moe
