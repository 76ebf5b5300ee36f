#include "farwarp/substrate/vocabulary_test.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "farwarp/base/half.h"
#include "farwarp/runtime/device.h"

namespace farwarp {
namespace {

constexpr int kBlocks = 2;

std::uint64_t bits_of_float(float value) { return std::bit_cast<std::uint32_t>(value); }

class VocabularyTest : public testing::TestWithParam<TargetKind> {};

/// What thread `thread` must report on a machine of these traits.
std::vector<std::uint64_t> expected_results(int thread, const TargetTraits& traits) {
  const int warp = traits.warp_size;
  const Fp8Format fp8 = traits.fp8;
  const auto lane = static_cast<std::uint64_t>(thread % warp);
  const std::uint64_t all = warp == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << warp) - 1;
  const float third = static_cast<float>(thread + 1) / 3.0f;
  const Half half = half_from(third);
  const Bf16 bf16 = bf16_from(third);
  std::vector<std::uint64_t> expected(kVocabularyResults);
  expected[kPacketData] = 0x0123456789abcdef;
  expected[kWords] = ~(0x1234ull + static_cast<std::uint64_t>(thread));
  expected[kEvenLanes] = 0x5555555555555555 & all;
  expected[kSameLanes] = (0x1111111111111111 << lane % 4) & all;
  expected[kLanesBelow] = (std::uint64_t{1} << lane) - 1;
  expected[kBitCount] = static_cast<std::uint64_t>(warp / 4);
  expected[kLowestBit] = lane % 4;
  expected[kHighestBit] = static_cast<std::uint64_t>(warp) - 4 + lane % 4;
  expected[kShuffled] = static_cast<std::uint64_t>(warp - 1) << 32 | 5;
  expected[kShuffledXor] = (lane ^ 1) << 32 | 5;
  expected[kShuffledNarrow] = (lane ^ 2) + 3;
  expected[kHalfBits] = half.bits;
  expected[kBf16Bits] = bf16.bits;
  expected[kRoundedPairs] = static_cast<std::uint64_t>(half_from(-third).bits) << 48 |
                            static_cast<std::uint64_t>(half.bits) << 32 | static_cast<std::uint64_t>(bf16.bits) << 16 |
                            bf16_from(-third).bits;
  const auto quad = [](std::uint64_t a, std::uint64_t b, std::uint64_t c, std::uint64_t d) {
    return d << 48 | c << 32 | b << 16 | a;
  };
  expected[kBoundedHalves] = quad(half.bits, 0, half_from(-third).bits, half_from(third * 1000).bits);
  expected[kBoundedBf16] = quad(bf16_from(-third * 0x1p-100f).bits, bf16_from(third * 0x1p90f).bits, bf16.bits, 0);
  const std::uint64_t word = bits_of_float(third);
  expected[kHalvesOfWords] = quad(word >> 16, lane << 20 >> 16, word & 0xffff, lane << 4);
  expected[kLoadedFrom] = 1;
  expected[kRecomputed] = static_cast<std::uint64_t>(thread);
  expected[kPairedBits] = static_cast<std::uint64_t>(bits_of_float(std::fma(3 * third, 7.0f, 1 + third))) << 32 |
                          bits_of_float(std::fma(third * third, third, third + 5));
  const float four[4] = {third, -third * 0x1p-8f, third * 1000, -3 * third};
  float back[4];
  for (int i = 0; i < 4; ++i) {
    const std::uint8_t code = fp8_from(fp8, four[i]);
    expected[kFp8Bytes] |= static_cast<std::uint64_t>(code) << (8 * i);
    back[i] = float_from_fp8(fp8, code);
  }
  expected[kFp8Sum] = bits_of_float((back[0] + back[1]) + (back[2] + back[3]));
  expected[kQuotientBits] = bits_of_float(7.0f / third);
  expected[kFusedBits] = bits_of_float(std::fma(float_from(half), third, float_from(bf16)));
  const volatile float product = float_from(half) * third;  // volatile: the host compiler must not contract it
  expected[kUnfusedBits] = bits_of_float(product + float_from(bf16));
  // Row r of A times row c of B is (r + 1) * (16 * c + 120). Sums of the rows and columns that a lane has, the second
  // ones of mfma32():
  const bool mfma = traits.matrix_unit == MatrixUnit::kMfma;
  const std::uint64_t rows = mfma ? 16 * (lane / 16) + 10 : 2 * (lane / 4) + 10;
  const std::uint64_t columns = mfma ? 16 * (lane % 16) + 120 : 16 * (4 * (lane % 4) + 1) + 240;
  const std::uint64_t of_32 = mfma ? (64 * (lane / 32) + 232) * (16 * (lane % 32) + 120) : 0;
  expected[kMultipliedHalf] = expected[kMultipliedBf16] = bits_of_float(static_cast<float>(rows * columns + of_32));
  expected[kWidenedFp8] = expected[kMaximum] = expected[kExp2Right] = expected[kLog2Right] =
      expected[kReciprocalRight] = 1;
  expected[kUniform] = static_cast<std::uint64_t>(thread / warp);
  expected[kAnyThread] = 1;
  expected[kNoThread] = 0;
  expected[kCounted] = kVocabularyThreads;
  expected[kClocksRun] = 1;
  return expected;
}

TEST_P(VocabularyTest, EveryPrimitiveWorksInOneThreadOrBlock) {
  if (!Device::has_kernels(GetParam())) GTEST_SKIP() << "no kernels in this build";
  if (Device::count(GetParam()) == 0) GTEST_SKIP() << "no device of target " << name_of(GetParam());
  auto opened = Device::open(GetParam(), 0);
  ASSERT_TRUE(opened.ok()) << opened.status().to_string();
  Device& device = **opened;

  std::vector<VocabularyBlock> blocks(kBlocks);
  std::memset(blocks.data(), 0, sizeof(VocabularyBlock) * kBlocks);
  for (int block = 0; block < kBlocks; ++block)
    for (int thread = 0; thread < kVocabularyThreads; ++thread)
      for (int i = 0; i < 16; ++i)
        blocks[block].source[thread][i] = static_cast<std::byte>(1 + block * 7 + thread * 16 + i);

  const std::size_t bytes = sizeof(VocabularyBlock) * kBlocks;
  auto memory = device.allocate(bytes);
  ASSERT_TRUE(memory.ok()) << memory.status().to_string();
  auto stream = device.create_stream();
  ASSERT_TRUE(stream.ok()) << stream.status().to_string();
  Status status = device.copy_in(*memory, blocks.data(), bytes, *stream);
  ASSERT_TRUE(status.ok()) << status.to_string();
  auto kernel = device.kernel("vocabulary");
  ASSERT_TRUE(kernel.ok()) << kernel.status().to_string();
  const VocabularyArgs args{static_cast<VocabularyBlock*>(*memory)};
  status = launch(device, *kernel, {kBlocks, kVocabularyThreads, kVocabularySharedBytes}, args, *stream);
  ASSERT_TRUE(status.ok()) << status.to_string();
  status = device.synchronize(*stream, 20'000'000'000);
  ASSERT_TRUE(status.ok()) << status.to_string();
  status = device.copy_out(blocks.data(), *memory, bytes, *stream);
  ASSERT_TRUE(status.ok()) << status.to_string();

  const TargetTraits traits = device.shape().traits;
  for (int block = 0; block < kBlocks; ++block) {
    SCOPED_TRACE(testing::Message() << "block " << block);
    for (int way = 0; way < kVocabularyCopies; ++way) {
      if (way == kBulk && !traits.bulk_copy) continue;
      EXPECT_EQ(std::memcmp(blocks[block].copies[way], blocks[block].source, sizeof(blocks[block].source)), 0)
          << "copy " << way;
    }
    for (int thread = 0; thread < kVocabularyThreads; ++thread) {
      const std::vector<std::uint64_t> expected = expected_results(thread, traits);
      for (int i = 0; i < kVocabularyResults; ++i)
        ASSERT_EQ(blocks[block].results[thread][i], expected[i]) << "thread " << thread << ", result " << i;
    }
  }
  device.destroy_stream(*stream);
  device.release(*memory);
}

INSTANTIATE_TEST_SUITE_P(Targets, VocabularyTest,
                         testing::Values(TargetKind::kEmuSm90, TargetKind::kEmuGfx942, TargetKind::kCuda,
                                         TargetKind::kHip),
                         [](const auto& target) { return std::string(name_of(target.param)); });

}  // namespace
}  // namespace farwarp
