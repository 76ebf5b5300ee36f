// Tensor parallelism of a decode step: each rank attends with its own heads, and gemm-ar adds up what the ranks'
// columns of the output projection give. Two launches in one stream.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <vector>

#include "farwarp/base/half.h"
#include "farwarp/harness/device_buffer_test_values.h"
#include "farwarp/harness/inputs.h"
#include "farwarp/ops/flash_decode/flash_decode.h"
#include "farwarp/ops/parallel_gemm/gemm_ar/gemm_ar.h"
#include "farwarp/world/host/world_test_fixture.h"

namespace farwarp {
namespace {

using harness::bits_in;
using harness::buffer_of;
using harness::DeviceBuffer;
using Bits = std::vector<std::uint16_t>;

constexpr int kQueryHeads = 8, kKvHeads = 4, kGroup = kQueryHeads / kKvHeads, kDim = 64, kPageSize = 16, kMaxPages = 9;
constexpr int kLengths[] = {5, 64, 130, 0}, kBatch = 4, kPages = kBatch * kMaxPages, kHidden = 72;

/// The whole model's operands: q [batch][query head][dim], k and v [page][row][KV head][dim], w [hidden][query
/// head][dim].
struct Model {
  Bits q = normal(1, std::size_t{kBatch} * kQueryHeads * kDim, 1), k = normal(2, cache_numbers(), 1),
       v = normal(3, cache_numbers(), 1), w = normal(4, std::size_t{kHidden} * kQueryHeads * kDim, 0.05);

  static std::size_t cache_numbers() { return std::size_t{kPages} * kPageSize * kKvHeads * kDim; }
  static Bits normal(std::uint64_t stream, std::size_t count, double deviation) {
    Bits numbers(count);
    harness::fill_normal(harness::RandomStream(11, {stream}), 0, deviation, DType::kBf16, numbers);
    return numbers;
  }
};

/// Of rows of `heads` heads, the heads of a rank.
Bits heads_of(const Bits& all, int heads, int rank, int ranks) {
  const std::size_t row = std::size_t{kDim} * static_cast<std::size_t>(heads),
                    part = row / static_cast<std::size_t>(ranks);
  Bits mine;
  for (std::size_t begin = 0; begin < all.size(); begin += row) {
    const auto from = all.begin() + static_cast<std::ptrdiff_t>(begin + part * static_cast<std::size_t>(rank));
    mine.insert(mine.end(), from, from + static_cast<std::ptrdiff_t>(part));
  }
  return mine;
}

double number(const Bits& bits, std::size_t at) { return double{float_from(Bf16{bits[at]})}; }

/// The page of a sequence's `index`-th keys: not in order.
int page_of(int sequence, int index) { return index * kBatch + (kBatch - 1 - sequence); }

/// Float64: attention of one head, out[dim].
std::vector<double> attend(const Model& model, int sequence, int head) {
  const auto row = [&](int key) {
    const int page = page_of(sequence, key / kPageSize);
    return ((std::size_t{static_cast<unsigned>(page)} * kPageSize + static_cast<std::size_t>(key % kPageSize)) *
                kKvHeads +
            static_cast<std::size_t>(head / kGroup)) *
           kDim;
  };
  const std::size_t query = (static_cast<std::size_t>(sequence) * kQueryHeads + static_cast<std::size_t>(head)) * kDim;
  std::vector<double> out(kDim);
  double sum = 0;
  for (int key = 0; key < kLengths[sequence]; ++key) {
    double score = 0;
    for (std::size_t i = 0; i < kDim; ++i) score += number(model.q, query + i) * number(model.k, row(key) + i);
    const double weight = std::exp(score / std::sqrt(double{kDim}));
    sum += weight;
    for (std::size_t i = 0; i < kDim; ++i) out[i] += weight * number(model.v, row(key) + i);
  }
  if (sum != 0) {
    for (double& value : out) value /= sum;
  }
  return out;
}

DeviceBuffer upload(World& world, Stream stream, const void* data, std::size_t bytes) {
  DeviceBuffer buffer = buffer_of(world.device(), bytes);
  EXPECT_TRUE(buffer.upload(data, bytes, stream).ok());
  return buffer;
}

/// What this rank gets: y [batch][hidden].
Bits decode_step(World& world, Stream stream, const Model& model) {
  const int rank = world.rank(), ranks = world.size();
  auto attention = FlashDecode::create(world, {.batch = kBatch,
                                               .query_heads = kQueryHeads / ranks,
                                               .kv_heads = kKvHeads / ranks,
                                               .head_dim = kDim,
                                               .page_size = kPageSize,
                                               .pages = kPages,
                                               .max_pages = kMaxPages});
  auto projection = GemmAllReduce::create(world, {.m = kBatch, .n = kHidden, .k = kQueryHeads * kDim});
  EXPECT_TRUE(attention.ok()) << attention.status().to_string();
  EXPECT_TRUE(projection.ok()) << projection.status().to_string();
  if (!attention.ok() || !projection.ok()) return {};
  const auto of = [&](const Bits& all, int heads) {
    const Bits mine = heads_of(all, heads, rank, ranks);
    return upload(world, stream, mine.data(), mine.size() * 2);
  };
  const DeviceBuffer q = of(model.q, kQueryHeads), k = of(model.k, kKvHeads), v = of(model.v, kKvHeads),
                     w = of(model.w, kQueryHeads);
  std::vector<std::int32_t> pages;
  for (int sequence = 0; sequence < kBatch; ++sequence) {
    for (int index = 0; index < kMaxPages; ++index) pages.push_back(page_of(sequence, index));
  }
  const DeviceBuffer table = upload(world, stream, pages.data(), pages.size() * 4),
                     lengths = upload(world, stream, kLengths, sizeof kLengths),
                     out = buffer_of(world.device(),
                                     std::size_t{kBatch} * kQueryHeads * kDim * 2 / static_cast<std::size_t>(ranks)),
                     y = buffer_of(world.device(), std::size_t{kBatch} * kHidden * 2);
  FlashDecodeTensors tensors{.q = q.get(), .k = k.get(), .v = v.get()};
  tensors.block_table = table.as<std::int32_t>();
  tensors.lengths = lengths.as<std::int32_t>();
  tensors.out = out.get();
  EXPECT_TRUE((*attention)(tensors, stream).ok());
  EXPECT_TRUE((*projection)(out.get(), w.get(), nullptr, y.get(), stream).ok());
  const Bits result = bits_in(y, stream);
  EXPECT_TRUE(world.status().ok()) << world.status().to_string();
  EXPECT_TRUE(projection->close().ok() && attention->close().ok());
  return result;
}

class HeadSharded : public WorldTestBase {};
INSTANTIATE_TEST_SUITE_P(Targets, HeadSharded, testing::ValuesIn(kAllTargets), name_of_target);

TEST_P(HeadSharded, AnyNumberOfRanksGivesTheModelsOutput) {
  const Model model;
  std::vector<double> expected(std::size_t{kBatch} * kHidden);
  for (int sequence = 0; sequence < kBatch; ++sequence) {
    for (int head = 0; head < kQueryHeads; ++head) {
      const std::vector<double> out = attend(model, sequence, head);
      for (std::size_t n = 0; n < kHidden; ++n) {
        for (std::size_t i = 0; i < kDim; ++i)
          expected[static_cast<std::size_t>(sequence) * kHidden + n] +=
              out[i] * number(model.w, (n * kQueryHeads + static_cast<std::size_t>(head)) * kDim + i);
      }
    }
  }
  for (const int ranks : {1, 2, 4}) {
    std::vector<Bits> results(static_cast<std::size_t>(ranks));
    WorldOptions with_room = options();
    with_room.heap_bytes = 8 << 20;
    on_streams(ranks, with_room, [&](World& world, Stream stream) {
      results[static_cast<std::size_t>(world.rank())] = decode_step(world, stream, model);
    });
    if (IsSkipped()) return;
    for (const Bits& result : results) {
      EXPECT_EQ(result, results[0]);
      ASSERT_EQ(result.size(), expected.size());
      for (std::size_t i = 0; i < expected.size(); ++i)
        ASSERT_NEAR(number(result, i), expected[i], 0.02) << ranks << " ranks, element " << i;
    }
  }
}

}  // namespace
}  // namespace farwarp
