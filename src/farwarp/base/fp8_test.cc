#include "farwarp/base/fp8.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace farwarp {
namespace {

class Fp8Test : public testing::TestWithParam<Fp8Format> {
 protected:
  float decoded(int code) const { return float_from_fp8(GetParam(), static_cast<std::uint8_t>(code)); }
};

TEST_P(Fp8Test, EveryCodeSurvivesTheWayThereAndBack) {
  for (int code = 0; code < 256; ++code) {
    const float value = decoded(code);
    if (std::isnan(value)) {
      EXPECT_EQ(fp8_from(GetParam(), value), GetParam() == Fp8Format::kOcp ? 0x7f : 0x80);
    } else {
      EXPECT_EQ(fp8_from(GetParam(), value), code) << value;
    }
  }
}

// From the definition: the nearer of the two neighbours; if both are equally near, the even one.
TEST_P(Fp8Test, RoundsToNearestEven) {
  const int largest = GetParam() == Fp8Format::kOcp ? 0x7e : 0x7f;
  for (int code = 0; code < largest; ++code) {
    const float below = decoded(code), above = decoded(code + 1), middle = below + (above - below) / 2;
    EXPECT_EQ(fp8_from(GetParam(), middle), code % 2 == 0 ? code : code + 1) << middle;
    EXPECT_EQ(fp8_from(GetParam(), std::nextafter(middle, 0.0f)), code);
    EXPECT_EQ(fp8_from(GetParam(), std::nextafter(middle, 1e9f)), code + 1);
    if (code > 0) {
      EXPECT_EQ(fp8_from(GetParam(), -std::nextafter(middle, 1e9f)), code + 1 + 0x80);
    }
  }
}

TEST_P(Fp8Test, LargeValuesSaturateAndTheLimitsAreTheStandards) {
  const int largest = GetParam() == Fp8Format::kOcp ? 0x7e : 0x7f;
  EXPECT_EQ(decoded(largest), largest_fp8(GetParam()));
  EXPECT_EQ(decoded(1), GetParam() == Fp8Format::kOcp ? 0x1p-9f : 0x1p-10f);
  for (const float value : {largest_fp8(GetParam()) * 1.01f, 1e6f, std::numeric_limits<float>::infinity()}) {
    EXPECT_EQ(fp8_from(GetParam(), value), largest);
    EXPECT_EQ(fp8_from(GetParam(), -value), largest + 0x80);
  }
  EXPECT_EQ(fp8_from(GetParam(), -1e-9f), GetParam() == Fp8Format::kOcp ? 0x80 : 0);
}

INSTANTIATE_TEST_SUITE_P(Formats, Fp8Test, testing::Values(Fp8Format::kOcp, Fp8Format::kFnuz),
                         [](const auto& format) { return format.param == Fp8Format::kOcp ? "ocp" : "fnuz"; });

}  // namespace
}  // namespace farwarp
