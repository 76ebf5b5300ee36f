// The baseline's permutations and kernels on both emulated targets, compared with the oracle. The host copies rows in
// place of NCCL. That NCCL works, too, can only be tested on a machine with GPUs.
#include "farwarp/ops/moe_a2a/case/baseline.h"

#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

#include "farwarp/harness/compare.h"
#include "farwarp/harness/device_buffer.h"
#include "farwarp/ops/moe_a2a/case/inputs.h"
#include "farwarp/ops/moe_a2a/case/oracle.h"

namespace farwarp::moe {
namespace {

using harness::DeviceBuffer;

constexpr std::uint64_t kPatience = 60'000'000'000;

void ok(const Status& status) { ASSERT_TRUE(status.ok()) << status.to_string(); }

template <class T>
T take(Result<T> result) {
  EXPECT_TRUE(result.ok()) << result.status().to_string();
  return std::move(*result);
}

MoeAllToAllDesc desc_of(int experts, int k, int hidden, int tokens, DType dtype = DType::kBf16) {
  MoeAllToAllDesc desc;
  desc.num_experts = experts;
  desc.experts_per_token = k;
  desc.hidden = hidden;
  desc.max_tokens = tokens;
  desc.dtype = dtype;
  return desc;
}

struct Rank {
  Rank(std::shared_ptr<Device> its_device, MoeBaselineKernels its_kernels, const MoeAllToAllDesc& desc)
      : device(std::move(its_device)), kernels(std::move(its_kernels)), stream(take(device->create_stream())) {
    const auto tokens = static_cast<std::size_t>(desc.max_tokens);
    x = take(DeviceBuffer::create(*device, tokens * static_cast<std::size_t>(desc.hidden) * 2));
    weights = take(DeviceBuffer::create(*device, tokens * static_cast<std::size_t>(desc.experts_per_token) * 4));
    out = take(DeviceBuffer::create(*device, x.bytes()));
  }
  Rank(const Rank&) = delete;
  Rank& operator=(const Rank&) = delete;
  ~Rank() { device->destroy_stream(stream); }

  std::shared_ptr<Device> device;
  MoeBaselineKernels kernels;
  Stream stream;
  DeviceBuffer x, weights, out;
};

class MoeBaseline : public testing::TestWithParam<TargetKind> {
 protected:
  static std::shared_ptr<Device> device(int ordinal) { return take(Device::open(GetParam(), ordinal)); }

  static std::vector<std::unique_ptr<Rank>> make_ranks(const MoeAllToAllDesc& desc, int ranks) {
    std::vector<std::unique_ptr<Rank>> result;
    for (int rank = 0; rank < ranks; ++rank) {
      auto opened = device(rank);
      auto kernels = take(MoeBaselineKernels::create(*opened, desc, rank, ranks));
      result.push_back(std::make_unique<Rank>(std::move(opened), std::move(kernels), desc));
    }
    return result;
  }

  // In place of NCCL: copies what `source` sends to `destination`. Both must agree on its size.
  static void copy(Rank& source, const BaselineChunk& from, Rank& destination, const BaselineChunk& to) {
    ASSERT_EQ(from.elements, to.elements);
    std::vector<std::uint16_t> rows(from.elements);
    if (rows.empty()) return;
    ok(source.device->copy_out(rows.data(), from.rows, rows.size() * 2, source.stream));
    ok(destination.device->copy_in(to.rows, rows.data(), rows.size() * 2, destination.stream));
  }

  static void exchange(std::vector<std::unique_ptr<Rank>>& ranks, int handle, bool forth) {
    for (std::size_t a = 0; a < ranks.size(); ++a) {
      for (std::size_t b = 0; b < ranks.size(); ++b) {
        if (a == b) continue;
        const BaselineChunk &sent = ranks[a]->kernels.sent(handle)[b],
                            &received = ranks[b]->kernels.received(handle)[a];
        forth ? copy(*ranks[a], sent, *ranks[b], received) : copy(*ranks[b], received, *ranks[a], sent);
      }
      EXPECT_EQ(ranks[a]->kernels.sent(handle)[a].elements, 0u);
    }
  }

  static void upload(Rank& rank, int number, const MoeAllToAllDesc& desc, const InputOptions& inputs, int call,
                     const Routing& routing) {
    const auto hidden = static_cast<std::size_t>(desc.hidden);
    std::vector<std::uint16_t> x(static_cast<std::size_t>(routing.tokens) * hidden);
    for (int token = 0; token < routing.tokens; ++token) {
      fill_row(desc, 1, inputs, call, number, token,
               std::span(x).subspan(static_cast<std::size_t>(token) * hidden, hidden));
    }
    ok(rank.x.upload(x.data(), x.size() * 2, rank.stream));
    ok(rank.weights.upload(routing.weights.data(), routing.weights.size() * 4, rank.stream));
    ok(rank.out.poison(rank.stream));
  }

  static void compare(Rank& rank, int number, int ranks, const MoeAllToAllDesc& desc, const InputOptions& inputs,
                      int call, const Routing& routing) {
    const auto hidden = static_cast<std::size_t>(desc.hidden), k = static_cast<std::size_t>(desc.experts_per_token);
    std::vector<std::uint16_t> out(rank.out.bytes() / 2), x(hidden);
    ok(rank.out.download(out.data(), rank.out.bytes(), rank.stream));
    const auto experts = make_experts(desc, ranks, inputs, call);
    std::vector<harness::ExpectedElement> expected(hidden);
    harness::Comparison comparison(desc.dtype, 1, desc.hidden);
    comparison.begin_call(call);
    for (int token = 0; token < routing.tokens; ++token) {
      const std::size_t entry = static_cast<std::size_t>(token) * k;
      fill_row(desc, 1, inputs, call, number, token, x);
      const std::vector<float> seen = row_values(desc, Fp8Format::kOcp, x);
      expected_row(desc, ranks, std::span(routing.experts).subspan(entry, k),
                   std::span(routing.weights).subspan(entry, k), seen, experts, expected);
      comparison.add(token, 0, std::span(out).subspan(static_cast<std::size_t>(token) * hidden, hidden), expected);
    }
    const harness::Verdict verdict = comparison.verdict();
    EXPECT_TRUE(routing.tokens == 0 || verdict.pass) << "rank " << number << ": " << verdict.detail;
    for (std::size_t i = static_cast<std::size_t>(routing.tokens) * hidden; i < out.size(); ++i) {
      ASSERT_EQ(out[i], harness::kPoison16) << "written beyond the tokens, at " << i;
    }
  }

  /// `calls` calls, all prepared before the first is made, each with inputs and a routing of its own.
  static void run(const MoeAllToAllDesc& desc, int ranks, const InputOptions& inputs, int calls = 1) {
    auto all = make_ranks(desc, ranks);
    for (int call = 0; call < calls; ++call) {
      const auto routings = make_routings(desc, ranks, inputs, call);
      for (auto& rank : all) {
        ASSERT_EQ(take(rank->kernels.prepare(routings)), call);
      }
    }
    for (int call = 0; call < calls; ++call) {
      const auto routings = make_routings(desc, ranks, inputs, call);
      for (int r = 0; r < ranks; ++r) {
        const auto index = static_cast<std::size_t>(r);
        upload(*all[index], r, desc, inputs, call, routings[index]);
        ok(all[index]->kernels.pack(call, all[index]->x.get(), all[index]->stream));
      }
      exchange(all, call, true);
      for (auto& rank : all) ok(rank->kernels.apply_experts(call, rank->stream));
      exchange(all, call, false);
      for (int r = 0; r < ranks; ++r) {
        Rank& rank = *all[static_cast<std::size_t>(r)];
        ok(rank.kernels.unpack(call, rank.weights.as<float>(), rank.out.get(), rank.stream));
        ok(rank.device->synchronize(rank.stream, kPatience));
        compare(rank, r, ranks, desc, inputs, call, routings[static_cast<std::size_t>(r)]);
      }
    }
  }
};

INSTANTIATE_TEST_SUITE_P(Targets, MoeBaseline, testing::Values(TargetKind::kEmuSm90, TargetKind::kEmuGfx942),
                         [](const auto& info) { return std::string(name_of(info.param)); });

TEST_P(MoeBaseline, EveryRoutingAndDtype) {
  for (const RoutingKind routing :
       {RoutingKind::kUniform, RoutingKind::kZipf, RoutingKind::kRepeated, RoutingKind::kOneExpert,
        RoutingKind::kOneRank, RoutingKind::kSkipped, RoutingKind::kPartial}) {
    for (const DType dtype : {DType::kBf16, DType::kF16}) {
      SCOPED_TRACE(testing::Message() << "routing " << static_cast<int>(routing) << ", " << name_of(dtype));
      run(desc_of(7, 3, 264, 5, dtype), 3, {.routing = routing, .tokens = TokenCounts::kFull, .seed = 1});
    }
  }
}

TEST_P(MoeBaseline, SmallRowsManyEntriesAndEmptyRanks) {
  run(desc_of(2, 1, 8, 1), 2, {.seed = 2});
  run(desc_of(64, 32, 72, 3), 4, {.routing = RoutingKind::kPartial, .tokens = TokenCounts::kFull, .seed = 3});
  run(desc_of(16, 9, 64, 4), 4, {.tokens = TokenCounts::kEmptyRanks, .seed = 4});
}

TEST_P(MoeBaseline, MoreRowsThanThreads) {
  // 8 multiprocessors with 8 blocks of 256 threads, so that the loops over the grid iterate.
  run(desc_of(8, 2, 4096, 40), 2, {.tokens = TokenCounts::kFull, .seed = 5});
}

TEST_P(MoeBaseline, SeveralRoutingsShareTheRows) { run(desc_of(16, 4, 64, 8), 4, {.seed = 6}, 3); }

TEST_P(MoeBaseline, WrongArgumentsAreNamed) {
  const MoeAllToAllDesc desc = desc_of(4, 2, 64, 2);
  const auto opened = device(0);
  MoeBaselineKernels kernels = take(MoeBaselineKernels::create(*opened, desc, 0, 2));
  const auto error_of = [&](const std::vector<Routing>& routings) {
    return kernels.prepare(routings).status().message();
  };
  const Routing good{1, {0, 3}, {1, 1}};
  EXPECT_EQ(error_of({good}), "routings has 1 ranks; allowed: 2");
  EXPECT_EQ(error_of({good, {3, {}, {}}}), "routings[1].tokens is 3; allowed: 0 to 2");
  EXPECT_EQ(error_of({good, {1, {0}, {1}}}), "routings[1].experts has 1 entries; allowed: 2");
  EXPECT_EQ(error_of({{1, {0, 4}, {1, 1}}, good}), "routings[0].experts has 4; allowed: -1 to 3");
  EXPECT_EQ(kernels.pack(0, nullptr, Stream{}).message(), "prepared is 0; allowed: a handle from prepare(), below 0");
  ASSERT_EQ(error_of({good, good}), "");
  EXPECT_EQ(kernels.pack(0, reinterpret_cast<const void*>(8), Stream{}).message(),
            "x is 0x8; allowed: a multiple of 16");
  EXPECT_EQ(MoeBaselineKernels::create(*opened, desc_of(4, 2, 60, 2), 0, 2).status().code(),
            StatusCode::kInvalidArgument);
}

TEST_P(MoeBaseline, NcclIsForCudaOnly) {
  const Status status = run_ranks(2, [](std::shared_ptr<Bootstrap> bootstrap) -> Status {
    WorldOptions options;
    options.target = GetParam();
    options.heap_bytes = 1 << 20;
    auto world = World::create(std::move(bootstrap), options);
    if (!world.ok()) return world.status();
    const auto baseline = MoeNcclBaseline::create(*world, desc_of(4, 2, 64, 2));
    EXPECT_FALSE(baseline.ok());
    EXPECT_EQ(baseline.status().code(), StatusCode::kUnavailable);
    EXPECT_NE(baseline.status().message().find("target cuda only"), std::string::npos) << baseline.status().message();
    return {};
  });
  ok(status);
}

}  // namespace
}  // namespace farwarp::moe
