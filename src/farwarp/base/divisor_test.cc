// Divisor: every quotient of small numbers, and of dividends next to multiples of the divisor, where an error would
// show.
#include "farwarp/base/divisor.h"

#include <gtest/gtest.h>

#include <limits>

namespace farwarp {
namespace {

constexpr std::int32_t kMost = std::numeric_limits<std::int32_t>::max();

TEST(Divisor, DividesSmallNumbers) {
  for (std::int32_t value = 1; value <= 300; ++value) {
    const Divisor divisor(value);
    for (std::int32_t dividend = 0; dividend <= 3000; ++dividend)
      ASSERT_EQ(divisor.quotient(dividend), dividend / value) << dividend << " / " << value;
  }
}

TEST(Divisor, DividesLargeNumbers) {
  for (const std::int32_t value :
       {1, 2, 3, 5, 7, 127, 132, 641, 65535, 65536, 65537, 1 << 30, (1 << 30) + 1, kMost - 1, kMost}) {
    const Divisor divisor(value);
    for (std::int64_t multiple = kMost / value; multiple > 0; multiple /= 3) {
      for (std::int64_t dividend = multiple * value - 1; dividend <= multiple * value + 1; ++dividend) {
        if (dividend > kMost) continue;
        const auto number = static_cast<std::int32_t>(dividend);
        ASSERT_EQ(divisor.quotient(number), number / value) << number << " / " << value;
      }
    }
    ASSERT_EQ(divisor.quotient(kMost), kMost / value) << value;
  }
}

}  // namespace
}  // namespace farwarp
