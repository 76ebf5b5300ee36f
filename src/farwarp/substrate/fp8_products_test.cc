// wgmma of fp8 numbers, on every target that has it: sums must agree with base/fp8_sum.h to the bit.
#include "farwarp/substrate/fp8_products_test.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "farwarp/base/fp8_sum.h"
#include "farwarp/runtime/device.h"

namespace farwarp {
namespace {

constexpr int kRows = kFp8TestRows, kDepth = kFp8TestDepth;

struct Problem {
  std::vector<std::uint8_t> a = std::vector<std::uint8_t>(kRows * kDepth);
  std::vector<std::uint8_t> b = std::vector<std::uint8_t>(kRows * kDepth);
  std::vector<float> sums = std::vector<float>(kRows * kRows);
  int first_k = 0, last_k = 96;
};

std::uint8_t fp8(float value) { return fp8_from(Fp8Format::kOcp, value); }
double number(std::uint8_t code) { return float_from_fp8(Fp8Format::kOcp, code); }

class Fp8Products : public testing::TestWithParam<TargetKind> {
 protected:
  void SetUp() override {
    if (!Device::has_kernels(GetParam())) GTEST_SKIP() << "no kernels in this build";
    if (Device::count(GetParam()) == 0) GTEST_SKIP() << "no device of target " << name_of(GetParam());
    auto opened = Device::open(GetParam(), 0);
    ASSERT_TRUE(opened.ok()) << opened.status().to_string();
    device_ = *opened;
    stream_ = *device_->create_stream();
    memory_ = static_cast<std::byte*>(*device_->allocate(kBytes));
  }
  void TearDown() override {
    if (device_ == nullptr) return;
    device_->release(memory_);
    device_->destroy_stream(stream_);
  }

  std::vector<float> multiply(const Problem& problem) {
    std::vector<float> sums = problem.sums;
    std::byte* const b = memory_ + kOperandBytes;
    std::byte* const result = b + kOperandBytes;
    EXPECT_TRUE(device_->copy_in(memory_, problem.a.data(), kOperandBytes, stream_).ok());
    EXPECT_TRUE(device_->copy_in(b, problem.b.data(), kOperandBytes, stream_).ok());
    EXPECT_TRUE(device_->copy_in(result, sums.data(), kSumBytes, stream_).ok());
    const Fp8ProductsArgs args{reinterpret_cast<const std::uint8_t*>(memory_), reinterpret_cast<const std::uint8_t*>(b),
                               reinterpret_cast<float*>(result), problem.first_k, problem.last_k};
    const auto kernel = device_->kernel("fp8_products");
    EXPECT_TRUE(kernel.ok()) << kernel.status().to_string();
    Status status = launch(*device_, *kernel, {1, 128, kFp8TestSharedBytes}, args, stream_);
    EXPECT_TRUE(status.ok()) << status.to_string();
    status = device_->synchronize(stream_, 20'000'000'000);
    EXPECT_TRUE(status.ok()) << status.to_string();
    EXPECT_TRUE(device_->copy_out(sums.data(), result, kSumBytes, stream_).ok());
    return sums;
  }

 private:
  static constexpr std::size_t kOperandBytes = kRows * kDepth, kSumBytes = kRows * kRows * sizeof(float);
  static constexpr std::size_t kBytes = 2 * kOperandBytes + kSumBytes;
  std::shared_ptr<Device> device_;
  Stream stream_{};
  std::byte* memory_ = nullptr;
};

/// The sum at (row, column) by the model, and the most that any way of cutting can be off: each of 33 numbers, and the
/// result, in each instruction.
std::pair<float, double> modelled(const Problem& problem, int row, int column) {
  float sum = problem.sums[static_cast<std::size_t>(row * kRows + column)];
  double bound = 0;
  for (int k = problem.first_k; k <= problem.last_k; k += kFp8Products) {
    const Fp8Row a = decoded(Fp8Format::kOcp, &problem.a[static_cast<std::size_t>(row * kDepth + k)]);
    const Fp8Row b = decoded(Fp8Format::kOcp, &problem.b[static_cast<std::size_t>(column * kDepth + k)]);
    double most = std::abs(sum);
    for (std::size_t i = 0; i < kFp8Products; ++i)
      most = std::max(most, static_cast<double>(std::abs(a.values[i] * b.values[i])));
    sum = add_products(sum, a, b);
    bound += (kFp8Products + 1) * std::ldexp(most, 1 - kFp8SumBits) + std::ldexp(std::abs(sum), -kFp8SumBits);
  }
  return {sum, bound};
}

void expect_right(const Problem& problem, const std::vector<float>& sums) {
  for (int row = 0; row < kRows; ++row) {
    for (int column = 0; column < kRows; ++column) {
      double exact = problem.sums[static_cast<std::size_t>(row * kRows + column)];
      for (int k = problem.first_k; k < problem.last_k + kFp8Products; ++k)
        exact += number(problem.a[static_cast<std::size_t>(row * kDepth + k)]) *
                 number(problem.b[static_cast<std::size_t>(column * kDepth + k)]);
      const auto [expected, bound] = modelled(problem, row, column);
      const float sum = sums[static_cast<std::size_t>(row * kRows + column)];
      ASSERT_NEAR(sum, exact, bound) << row << ", " << column;
      ASSERT_EQ(std::bit_cast<std::uint32_t>(sum), std::bit_cast<std::uint32_t>(expected)) << row << ", " << column;
    }
  }
}

TEST_P(Fp8Products, SmallIntegersAreExact) {
  Problem problem;
  for (int i = 0; i < kRows * kDepth; ++i) {
    problem.a[static_cast<std::size_t>(i)] = fp8(static_cast<float>(i * 7 % 11 - 5));
    problem.b[static_cast<std::size_t>(i)] = fp8(static_cast<float>(i * 5 % 13 - 6));
  }
  for (std::size_t i = 0; i < problem.sums.size(); ++i) problem.sums[i] = static_cast<float>(i % 100);
  const std::vector<float> sums = multiply(problem);
  for (int row = 0; row < kRows; ++row) {
    for (int column = 0; column < kRows; ++column) {
      double expected = (row * kRows + column) % 100;
      for (int k = 0; k < kDepth; ++k)
        expected += number(problem.a[static_cast<std::size_t>(row * kDepth + k)]) *
                    number(problem.b[static_cast<std::size_t>(column * kDepth + k)]);
      ASSERT_EQ(sums[static_cast<std::size_t>(row * kRows + column)], expected) << row << ", " << column;
    }
  }
}

TEST_P(Fp8Products, RandomNumbersAsModelled) {
  std::mt19937 random(1);
  for (const float spread : {0.0f, 3.0f, 9.0f}) {
    for (const int last_k : {0, 96}) {
      Problem problem;
      problem.last_k = last_k;
      std::normal_distribution<float> normal;
      std::uniform_real_distribution<float> exponent(-spread, spread);
      for (std::vector<std::uint8_t>* codes : {&problem.a, &problem.b}) {
        for (std::uint8_t& code : *codes) code = fp8(normal(random) * std::exp2(exponent(random)));
      }
      for (float& sum : problem.sums) sum = normal(random) * std::exp2(exponent(random));
      expect_right(problem, multiply(problem));
    }
  }
}

/// 2^-14 beside 1 is lost, whether it is a product or the sum; 2^-13 is not.
TEST_P(Fp8Products, SmallNumbersBesideALargeOneAreCut) {
  Problem problem;
  problem.last_k = 0;
  for (int row = 0; row < kRows; ++row) {
    problem.a[static_cast<std::size_t>(row * kDepth)] = fp8(1);
    problem.b[static_cast<std::size_t>(row * kDepth)] = fp8(1);
    problem.a[static_cast<std::size_t>(row * kDepth + 1)] = fp8(0x1p-6f);
    problem.b[static_cast<std::size_t>(row * kDepth + 1)] = fp8(row < 32 ? 0x1p-7f : 0x1p-8f);
  }
  const std::vector<float> sums = multiply(problem);
  EXPECT_EQ(sums[0], 1 + 0x1p-13f);
  EXPECT_EQ(sums[63], 1);
  problem.a[1] = 0;
  problem.sums[0] = 0x1p-13f, problem.sums[1] = 0x1p-14f;
  const std::vector<float> beside_sums = multiply(problem);
  EXPECT_EQ(beside_sums[0], 1 + 0x1p-13f);
  EXPECT_EQ(beside_sums[1], 1);
}

/// NaN spreads along its row of A alone.
TEST_P(Fp8Products, NanStaysInItsRow) {
  Problem problem;
  std::fill(problem.a.begin(), problem.a.end(), fp8(1));
  std::fill(problem.b.begin(), problem.b.end(), fp8(2));
  problem.a[3 * kDepth + 77] = 0x7f;
  const std::vector<float> sums = multiply(problem);
  for (int i = 0; i < kRows * kRows; ++i) {
    if (i / kRows == 3) {
      EXPECT_TRUE(std::isnan(sums[static_cast<std::size_t>(i)])) << i;
    } else {
      EXPECT_EQ(sums[static_cast<std::size_t>(i)], 256) << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, Fp8Products, testing::Values(TargetKind::kEmuSm90, TargetKind::kCuda),
                         [](const auto& target) { return std::string(name_of(target.param)); });

}  // namespace
}  // namespace farwarp
