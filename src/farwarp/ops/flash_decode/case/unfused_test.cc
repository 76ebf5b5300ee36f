// Flash-decode in several kernels on both emulated targets: fused-wait through the bench, and the merge of bsp on parts
// that the host writes in place of NCCL. That NCCL works, too, can only be tested on a machine with GPUs.
#include "farwarp/ops/flash_decode/case/unfused.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "farwarp/harness/device_buffer.h"
#include "farwarp/harness/inputs.h"
#include "farwarp/harness/params.h"
#include "farwarp/harness/runner.h"
#include "farwarp/ops/flash_decode/case/unfused_args.h"

namespace farwarp::decode {
namespace {

class FlashDecodeUnfused : public testing::TestWithParam<TargetKind> {};
INSTANTIATE_TEST_SUITE_P(Targets, FlashDecodeUnfused, testing::Values(TargetKind::kEmuSm90, TargetKind::kEmuGfx942),
                         [](const auto& info) { return std::string(name_of(info.param)); });

TEST_P(FlashDecodeUnfused, FusedWaitIsTimedAndRight) {
  for (const auto& [settings, ranks] :
       {std::pair("sinks=1,head_dim=72,lengths=short", 4),
        std::pair("query_heads=80,kv_heads=1,dtype=fp16,head_dim=128", 2), std::pair("lengths=empty", 2)}) {
    harness::CaseRequest request;
    request.op = harness::find_operator("flash-decode");
    ASSERT_TRUE(
        harness::add_settings(std::string("kv_shards=all,max_keys=64,batch=1,max_sms=4,") + settings, request.params)
            .ok());
    request.options.target = GetParam();
    request.options.ranks = ranks;
    request.bench = harness::BenchOptions{1, true};
    const harness::CaseResult result = harness::run_case(request, nullptr, [](int) {});
    EXPECT_TRUE(result.outcome.pass) << settings << ": " << result.outcome.detail << result.outcome.status.to_string();
    ASSERT_EQ(result.bench.measurements.size(), 4u) << settings;
    EXPECT_EQ(result.bench.measurements[2].name, "fused-wait, graph");
    EXPECT_NE(result.bench.no_baseline.find("target cuda only"), std::string::npos) << result.bench.no_baseline;
  }
}

/// Three ranks' parts of six rows. Row 0: equal shares; 1: rank 1 has no keys; 2: nobody has; 3: rank 2 has nearly all;
/// 4: large LSEs.
TEST_P(FlashDecodeUnfused, BspMerges) {
  constexpr int kRanks = 3, kRows = 6, kDim = 24;
  const float none = -std::numeric_limits<float>::infinity();
  const float lse[kRanks][kRows] = {
      {1, 2, none, 0, 10'000, -10'000}, {1, none, none, 1, 10'001, -9'999}, {1, 3, none, 90, none, none}};
  for (const bool sinks : {false, true}) {
    const auto device = *Device::open(GetParam(), 0);
    const auto stream = *device->create_stream();
    UnfusedArgs args{};
    args.ranks = kRanks;
    args.rows = kRows;
    args.query_heads = 2;
    args.head_dim = kDim;
    args.lse_offset = kRows * kDim * 2;
    args.part_bytes = args.lse_offset + 32;
    std::vector<std::byte> host(static_cast<std::size_t>(kRanks * args.part_bytes));
    std::vector<std::uint16_t> values(kRows * kDim);
    for (int rank = 0; rank < kRanks; ++rank) {
      for (int i = 0; i < kRows * kDim; ++i)
        values[static_cast<std::size_t>(i)] =
            lse[rank][i / kDim] == none ? 0 : bf16_from(static_cast<float>(rank * 100 + i % kDim)).bits;
      std::byte* const part = host.data() + rank * args.part_bytes;
      std::memcpy(part, values.data(), values.size() * 2);
      std::memcpy(part + args.lse_offset, lse[rank], sizeof(lse[rank]));
    }
    const float host_sinks[2] = {2, none};
    const auto buffer = [](Device& on, std::size_t bytes) {
      auto created = harness::DeviceBuffer::create(on, bytes);
      return std::move(*created);
    };
    auto parts = buffer(*device, host.size());
    auto sink = buffer(*device, sizeof(host_sinks));
    auto out = buffer(*device, kRows * kDim * 2);
    auto merged = buffer(*device, kRows * 4);
    ASSERT_TRUE(parts.upload(host.data(), host.size(), stream).ok());
    ASSERT_TRUE(sink.upload(host_sinks, sizeof(host_sinks), stream).ok());
    args.parts = parts.as<std::byte>();
    args.sinks = sinks ? sink.as<float>() : nullptr;
    args.out = out.get();
    args.lse = merged.as<float>();
    ASSERT_TRUE(
        launch(*device, *device->kernel("flash_decode_unfused_combine_bf16"), {2, kUnfusedThreads, 0}, args, stream)
            .ok());
    std::vector<std::uint16_t> got(kRows * kDim);
    std::vector<float> got_lse(kRows);
    ASSERT_TRUE(out.download(got.data(), got.size() * 2, stream).ok());
    ASSERT_TRUE(merged.download(got_lse.data(), got_lse.size() * 4, stream).ok());
    for (int row = 0; row < kRows; ++row) {
      double highest = sinks ? host_sinks[row % 2] : none;
      for (const auto& of_rank : lse) highest = std::max<double>(highest, of_rank[row]);
      double denominator = sinks && highest > none ? std::exp(host_sinks[row % 2] - highest) : 0;
      for (const auto& of_rank : lse) denominator += of_rank[row] == none ? 0 : std::exp(of_rank[row] - highest);
      const double expected_lse = denominator == 0 ? none : highest + std::log(denominator);
      if (std::isinf(expected_lse)) {
        EXPECT_EQ(got_lse[static_cast<std::size_t>(row)], none);
      } else {
        EXPECT_NEAR(got_lse[static_cast<std::size_t>(row)], expected_lse, 1e-5 + std::abs(expected_lse) * 1e-6) << row;
      }
      for (int column = 0; column < kDim; ++column) {
        double expected = 0;
        for (int rank = 0; rank < kRanks; ++rank) {
          if (lse[rank][row] != none)
            expected += (rank * 100 + column) * std::exp(lse[rank][row] - highest) / denominator;
        }
        EXPECT_NEAR(harness::decode(DType::kBf16, got[static_cast<std::size_t>(row * kDim + column)]), expected,
                    0.004 * expected + 1e-6)
            << "row " << row << ", column " << column << ", sinks " << sinks;
      }
    }
    device->destroy_stream(stream);
  }
}

}  // namespace
}  // namespace farwarp::decode
