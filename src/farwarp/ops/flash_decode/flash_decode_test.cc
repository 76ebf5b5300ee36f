// The host API on both emulated targets: what the host refuses, what only the device can find, and which bits a
// sequence gets. case/case_test.cc tests the results.
#include "farwarp/ops/flash_decode/flash_decode.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "farwarp/harness/device_buffer_test_values.h"
#include "farwarp/harness/inputs.h"
#include "farwarp/ops/flash_decode/schedule.h"
#include "farwarp/world/host/world_test_fixture.h"

namespace farwarp {
namespace {

using harness::bits_in;
using harness::buffer_of;
using harness::DeviceBuffer;

constexpr int kHeads = 4, kKvHeads = 2, kDim = 64, kPageSize = 16, kMaxPages = 40;
constexpr int kLengths[] = {300, 0, 640, 17, 129};
constexpr int kSequences = 5;

FlashDecodeDesc desc_of(int batch) {
  return {.batch = batch,
          .query_heads = kHeads,
          .kv_heads = kKvHeads,
          .head_dim = kDim,
          .page_size = kPageSize,
          .pages = kSequences * kMaxPages,
          .max_pages = kMaxPages};
}

template <class T>
DeviceBuffer buffer_with(Device& device, Stream stream, const std::vector<T>& values) {
  DeviceBuffer buffer = buffer_of(device, values.size() * sizeof(T));
  EXPECT_TRUE(buffer.upload(values.data(), buffer.bytes(), stream).ok());
  return buffer;
}

std::vector<std::uint16_t> normal(std::uint64_t stream, std::size_t count) {
  std::vector<std::uint16_t> values(count);
  harness::fill_normal(harness::RandomStream(7, {stream}), 0, 1, DType::kBf16, values);
  return values;
}

/// A cache with the keys of kSequences sequences, and the results of calls on some of them.
struct Fixture {
  World& world;
  Stream stream;
  DeviceBuffer k, v;
  std::vector<std::uint16_t> q = normal(3, std::size_t{kSequences} * kHeads * kDim);

  Fixture(World& world_, Stream stream_)
      : world(world_),
        stream(stream_),
        k(buffer_with(world_.device(), stream_, normal(1, cache_elements()))),
        v(buffer_with(world_.device(), stream_, normal(2, cache_elements()))) {}
  static std::size_t cache_elements() { return std::size_t{kSequences} * kMaxPages * kPageSize * kKvHeads * kDim; }

  struct Results {
    std::vector<std::uint16_t> out, lse;
    Status status;
  };
  using Change = std::function<void(FlashDecodeTensors&)>;

  /// A call of `op`, whose batch is the number of sequences. `change` may spoil the operands.
  Results call(
      FlashDecode& op, const std::vector<int>& sequences, const Change& change = [](FlashDecodeTensors&) {}) {
    std::vector<std::uint16_t> queries;
    std::vector<std::int32_t> table, lengths;
    for (const int sequence : sequences) {
      const auto from = q.begin() + sequence * kHeads * kDim;
      queries.insert(queries.end(), from, from + kHeads * kDim);
      lengths.push_back(kLengths[sequence]);
      for (int page = 0; page < kMaxPages; ++page) table.push_back(page * kSequences + sequence);
    }
    Device& device = world.device();
    const DeviceBuffer of_q = buffer_with(device, stream, queries), of_table = buffer_with(device, stream, table),
                       of_lengths = buffer_with(device, stream, lengths), out = buffer_of(device, queries.size() * 2),
                       lse = buffer_of(device, sequences.size() * kHeads * 4);
    FlashDecodeTensors tensors;
    tensors.q = of_q.get();
    tensors.k = k.get();
    tensors.v = v.get();
    tensors.block_table = of_table.as<std::int32_t>();
    tensors.lengths = of_lengths.as<std::int32_t>();
    tensors.out = out.get();
    tensors.lse = lse.as<float>();
    change(tensors);
    Results results;
    results.status = op(tensors, stream);
    EXPECT_TRUE(device.synchronize(stream, 60'000'000'000).ok());
    if (!results.status.ok()) return results;
    results.status = world.status();
    results.out = bits_in(out, stream);
    results.lse = bits_in(lse, stream);
    return results;
  }
  /// A call of an operator of its own. An operator whose call was aborted is not closed.
  Results call(
      FlashDecodeDesc desc, const std::vector<int>& sequences, const Change& change = [](FlashDecodeTensors&) {}) {
    desc.batch = static_cast<int>(sequences.size());
    auto op = FlashDecode::create(world, desc);
    if (!op.ok()) return {{}, {}, op.status()};
    Results results = call(*op, sequences, change);
    if (world.status().ok()) {
      EXPECT_TRUE(op->close().ok());
    }
    return results;
  }
};

class FlashDecodeApi : public WorldTestBase {
 protected:
  static void with_fixture(const std::function<void(Fixture&)>& body) {
    WorldOptions with_room = options();
    with_room.heap_bytes = 8 << 20;
    on_streams(1, with_room, [&](World& world, Stream stream) {
      Fixture fixture(world, stream);
      body(fixture);
    });
  }
};
INSTANTIATE_TEST_SUITE_P(Targets, FlashDecodeApi, testing::ValuesIn(kAllTargets), name_of_target);

// A sequence's bits depend neither on the others of the batch nor on how many multiprocessors there are. Hopper: nor on
// how many splits a work has.
TEST_P(FlashDecodeApi, ASequenceHasItsBitsInAnyBatchAndOnAnyMachine) {
  with_fixture([](Fixture& fixture) {
    const auto all = fixture.call(desc_of(0), {0, 1, 2, 3, 4});
    ASSERT_TRUE(all.status.ok()) << all.status.to_string();
    constexpr std::size_t kOut = kHeads * kDim, kLse = kHeads * 2;
    const auto expect_same = [&](const Fixture::Results& other, const std::vector<int>& sequences) {
      ASSERT_TRUE(other.status.ok()) << other.status.to_string();
      for (std::size_t i = 0; i < sequences.size(); ++i) {
        const auto sequence = static_cast<std::size_t>(sequences[i]);
        for (std::size_t j = 0; j < kOut; ++j) ASSERT_EQ(other.out[i * kOut + j], all.out[sequence * kOut + j]);
        for (std::size_t j = 0; j < kLse; ++j) ASSERT_EQ(other.lse[i * kLse + j], all.lse[sequence * kLse + j]);
      }
    };
    for (int sequence = 0; sequence < kSequences; ++sequence)
      expect_same(fixture.call(desc_of(0), {sequence}), {sequence});
    expect_same(fixture.call(desc_of(0), {4, 2, 2, 0}), {4, 2, 2, 0});
    for (const int max_sms : {1, 3}) {
      FlashDecodeDesc few = desc_of(0);
      few.max_sms = max_sms;
      expect_same(fixture.call(few, {0, 1, 2, 3, 4}), {0, 1, 2, 3, 4});
    }
    const bool wgmma = fixture.world.device().shape().traits.matrix_unit == MatrixUnit::kWgmma;
    for (const DecodeWork work : {DecodeWork::kSplit, DecodeWork::kGroup, DecodeWork::kAll}) {
      FlashDecodeDesc desc = desc_of(0);
      desc.work = work;
      if (wgmma || work == DecodeWork::kSplit) expect_same(fixture.call(desc, {0, 1, 2, 3, 4}), {0, 1, 2, 3, 4});
    }
  });
}

// A NaN in q makes the row of its query head and that row's LSE NaN, and no other bit different.
TEST_P(FlashDecodeApi, ANaNInAQueryIsANaNInItsRowAndLse) {
  with_fixture([](Fixture& fixture) {
    const std::vector<int> sequences = {0, 2};
    const auto clean = fixture.call(desc_of(0), sequences);
    constexpr std::size_t kRow = 1;  // of sequence 0
    fixture.q[kRow * kDim + 3] = 0x7fc0;
    const auto spoilt = fixture.call(desc_of(0), sequences);
    ASSERT_TRUE(clean.status.ok() && spoilt.status.ok()) << spoilt.status.to_string();
    const auto is_nan = [](std::uint16_t upper_half) { return (upper_half & 0x7fff) > 0x7f80; };
    for (std::size_t i = 0; i < clean.out.size(); ++i) {
      if (i / kDim == kRow) {
        ASSERT_TRUE(is_nan(spoilt.out[i])) << i;
      } else {
        ASSERT_EQ(spoilt.out[i], clean.out[i]) << i;
      }
    }
    for (std::size_t row = 0; row < clean.lse.size() / 2; ++row) {
      if (row == kRow) {
        EXPECT_TRUE(is_nan(spoilt.lse[2 * row + 1]));
      } else {
        EXPECT_EQ(spoilt.lse[2 * row + 1], clean.lse[2 * row + 1]) << row;
      }
    }
  });
}

// All keys that are seen are as probable as each other; those that are masked are not.
TEST_P(FlashDecodeApi, KeysOfTheFactorZeroAreNumbers) {
  with_fixture([](Fixture& fixture) {
    Device& device = fixture.world.device();
    const DeviceBuffer cache =
        buffer_with(device, fixture.stream, std::vector<std::uint8_t>(Fixture::cache_elements(), 0x38));
    const DeviceBuffer of_k = buffer_with(device, fixture.stream, std::vector<float>{0, 1}),
                       of_v = buffer_with(device, fixture.stream, std::vector<float>{1, 1});
    FlashDecodeDesc desc = desc_of(0);
    desc.kv_dtype = KvDType::kFp8;
    const std::vector<int> sequences = {3, 0};
    const auto results = fixture.call(desc, sequences, [&](FlashDecodeTensors& given) {
      given.k = given.v = cache.get();
      given.k_scale = of_k.as<float>();
      given.v_scale = of_v.as<float>();
    });
    ASSERT_TRUE(results.status.ok()) << results.status.to_string();
    for (std::size_t i = 0; i < results.out.size(); ++i) EXPECT_EQ(results.out[i], results.out.back()) << i;
    for (std::size_t row = 0; row < sequences.size() * kHeads; ++row) {
      if (row % kHeads >= kHeads / kKvHeads) continue;
      const auto lse = std::bit_cast<float>(std::uint32_t{results.lse[2 * row + 1]} << 16 | results.lse[2 * row]);
      EXPECT_NEAR(lse, std::log(kLengths[sequences[row / kHeads]]), 1e-5) << row;
    }
  });
}

void expect_names(const Status& status, StatusCode code, const std::string& what) {
  EXPECT_EQ(status.code(), code) << status.to_string();
  EXPECT_TRUE(contains(status.message(), what)) << status.to_string();
}

TEST_P(FlashDecodeApi, HostRefusesWhatItCanSee) {
  with_fixture([](Fixture& fixture) {
    const auto refused = [&](const std::function<void(FlashDecodeTensors&)>& change, const char* what) {
      expect_names(fixture.call(desc_of(0), {0}, change).status, StatusCode::kInvalidArgument, what);
    };
    const float scales[1] = {1};
    refused([](auto& given) { given.q = nullptr; }, "q is null");
    refused([](auto& given) { given.k = static_cast<const std::byte*>(given.k) + 8; }, "k is");
    refused([](auto& given) { given.lengths = nullptr; }, "lengths is null");
    refused([&](auto& given) { given.k_scale = scales; }, "k_scale is given");
    refused([&](auto& given) { given.sinks = scales; }, "sinks is given");
  });
}

// What the device refuses ends the call; after recover() the next one is right.
TEST_P(FlashDecodeApi, RecoversFromALengthThatIsNotAllowed) {
  with_fixture([](Fixture& fixture) {
    const DeviceBuffer wrong =
        buffer_with(fixture.world.device(), fixture.stream, std::vector<std::int32_t>{-1, kMaxPages * kPageSize});
    const auto change = [&](FlashDecodeTensors& given) { given.lengths = wrong.as<std::int32_t>(); };
    expect_names(fixture.call(desc_of(0), {0, 1}, change).status, StatusCode::kBadInput, "'lengths': found");
    ASSERT_TRUE(fixture.world.recover({fixture.stream}).ok());
    EXPECT_TRUE(fixture.call(desc_of(0), {0, 1}).status.ok());
  });
}

// Works whose pages are right have been counted when the call ends. recover() restores the counters.
TEST_P(FlashDecodeApi, RecoversFromAPageThatIsNotAllowed) {
  with_fixture([](Fixture& fixture) {
    std::vector<std::int32_t> table;
    for (int page = 0; page < kMaxPages; ++page) table.push_back(page * kSequences + 2);
    table[3] = kSequences * kMaxPages;
    const DeviceBuffer wrong = buffer_with(fixture.world.device(), fixture.stream, table);
    const auto change = [&](FlashDecodeTensors& given) { given.block_table = wrong.as<std::int32_t>(); };
    auto op = FlashDecode::create(fixture.world, desc_of(1));
    ASSERT_TRUE(op.ok()) << op.status().to_string();
    const auto clean = fixture.call(*op, {2});
    expect_names(fixture.call(*op, {2}, change).status, StatusCode::kBadInput, "'block_table': found");
    ASSERT_TRUE(fixture.world.recover({fixture.stream}).ok());
    const auto again = fixture.call(*op, {2});
    EXPECT_TRUE(again.status.ok()) << again.status.to_string();
    EXPECT_EQ(again.out, clean.out);
    EXPECT_TRUE(op->close().ok());
  });
}

}  // namespace
}  // namespace farwarp
