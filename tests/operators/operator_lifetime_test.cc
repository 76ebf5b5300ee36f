// The lifetime of operator objects: close(), calls after it, moves, destruction without close(), and create() that
// fails on one rank only.
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "farwarp/ops/all_reduce/all_reduce.h"
#include "farwarp/ops/attention/attention.h"
#include "farwarp/ops/flash_decode/flash_decode.h"
#include "farwarp/ops/gemm/gemm.h"
#include "farwarp/ops/grouped_gemm/grouped_gemm.h"
#include "farwarp/ops/moe_a2a/moe_a2a.h"
#include "farwarp/ops/moe_layer/moe_layer.h"
#include "farwarp/ops/parallel_gemm/ag_gemm/ag_gemm.h"
#include "farwarp/ops/parallel_gemm/dispatch/parallel_gemm.h"
#include "farwarp/ops/parallel_gemm/gemm_ar/gemm_ar.h"
#include "farwarp/ops/parallel_gemm/gemm_rs/gemm_rs.h"
#include "farwarp/ops/parallel_gemm/unfused.h"
#include "farwarp/world/host/faulty_test_device.h"
#include "farwarp/world/host/testing.h"
#include "farwarp/world/host/world_test_fixture.h"

namespace farwarp {
namespace {

using parallel_gemm::Kind;
using parallel_gemm::Unfused;

constexpr int kRanks = 2;

ParallelGemmDesc small(bool allowed) {
  ParallelGemmDesc desc;
  desc.m = 32;
  desc.n = 32;
  desc.k = allowed ? 32 : 31;
  return desc;
}

/// Creates an operator from a Desc that is allowed or not, and makes all of its calls. The calls have no operands. A
/// call that checks its operands before it checks the operator returns kInvalidArgument.
template <class Op>
struct Subject;

template <>
struct Subject<MoeAllToAll> {
  static Result<MoeAllToAll> create(World& world, bool allowed) {
    return MoeAllToAll::create(
        world, {.num_experts = allowed ? 4 : -1, .experts_per_token = 2, .hidden = 64, .max_tokens = 4});
  }
  static std::vector<Status> call_all(MoeAllToAll& op) {
    op.inject({});
    op.forget_call();
    (void)op.plan();
    return {op.dispatch({}, {}, {}),
            op.combine(nullptr, nullptr, {}),
            op.dispatch_send({}, {}),
            op.dispatch_recv({}, {}),
            op.combine_send(nullptr, {}),
            op.combine_recv(nullptr, {}),
            op.fused({}, MoeExpert::kTable, nullptr, nullptr, {})};
  }
};

template <>
struct Subject<MoeLayer> {
  static Result<MoeLayer> create(World& world, bool allowed) {
    return MoeLayer::create(
        world,
        {.num_experts = allowed ? 4 : -1, .experts_per_token = 2, .hidden = 64, .intermediate = 64, .max_tokens = 4});
  }
  static std::vector<Status> call_all(MoeLayer& op) {
    op.inject({});
    (void)op.plan();
    return {op({}, {})};
  }
};

template <>
struct Subject<Gemm> {
  // Few tiles and a large k, so the plan splits K. Gemm then has a workspace, unless splits meet in shared memory (see
  // takes_heap()).
  static Result<Gemm> create(World& world, bool allowed) {
    return Gemm::create(world, {.m = 64, .n = 64, .k = allowed ? 2048 : 31});
  }
  static std::vector<Status> call_all(Gemm& op) {
    (void)op.plan();
    return {op(nullptr, nullptr, nullptr, nullptr, {})};
  }
};

template <>
struct Subject<GroupedGemm> {
  static Result<GroupedGemm> create(World& world, bool allowed) {
    return GroupedGemm::create(world, {.groups = 2, .max_rows = 8, .n = 8, .k = allowed ? 64 : 31});
  }
  static std::vector<Status> call_all(GroupedGemm& op) {
    (void)op.plan();
    return {op({}, {})};
  }
};

template <>
struct Subject<Attention> {
  static Result<Attention> create(World& world, bool allowed) {
    AttentionDesc desc;
    desc.batch = desc.kv_heads = 1;
    desc.heads = desc.max_queries = desc.max_keys = 2;
    desc.head_dim = allowed ? 64 : 63;
    return Attention::create(world, desc);
  }
  static std::vector<Status> call_all(Attention& op) {
    (void)op.plan();
    return {op({}, {})};
  }
};

template <>
struct Subject<AllReduce> {
  static Result<AllReduce> create(World& world, bool allowed) {
    return AllReduce::create(world, {.max_elements = allowed ? 5000 : -1, .mode = AllReduceMode::kTwoShot});
  }
  static std::vector<Status> call_all(AllReduce& op) {
    (void)op.plan();
    op.drop_put(0);
    return {op(nullptr, nullptr, 1, {})};
  }
};

template <>
struct Subject<FlashDecode> {
  static Result<FlashDecode> create(World& world, bool allowed) {
    return FlashDecode::create(world, {.batch = 2,
                                       .query_heads = 4,
                                       .kv_heads = 2,
                                       .head_dim = allowed ? 64 : 63,
                                       .pages = 4,
                                       .max_pages = 2,
                                       .kv_shards = kRanks});
  }
  static std::vector<Status> call_all(FlashDecode& op) {
    (void)op.plan();
    op.drop_put(0);
    return {op({}, {})};
  }
};

template <class Op>
struct ParallelSubject {
  static Result<Op> create(World& world, bool allowed) { return Op::create(world, small(allowed)); }
  static std::vector<Status> call_all(Op& op) {
    (void)op.plan();
    return {op(nullptr, nullptr, nullptr, nullptr, {})};
  }
};
template <>
struct Subject<AllGatherGemm> : ParallelSubject<AllGatherGemm> {};
template <>
struct Subject<GemmReduceScatter> : ParallelSubject<GemmReduceScatter> {};
template <>
struct Subject<GemmAllReduce> : ParallelSubject<GemmAllReduce> {};

template <>
struct Subject<ParallelGemm> {
  static Result<ParallelGemm> create(World& world, bool allowed) {
    return ParallelGemm::create(world, Kind::kReduceScatter, small(allowed), parallel_gemm::Path::kOwn);
  }
  static std::vector<Status> call_all(ParallelGemm& op) {
    (void)op.path(), (void)op.why(), (void)op.plan(), (void)op.roundings();
    op.drop_put(0);
    return {op(nullptr, nullptr, nullptr, nullptr, {})};
  }
};

void expect_misuse(const Status& status, const char* why) {
  EXPECT_EQ(status.code(), StatusCode::kMisuse) << status.to_string();
  EXPECT_TRUE(contains(status.message(), why)) << status.to_string();
}

template <class Op>
bool takes_heap(const Op&) {
  return true;
}
bool takes_heap(const Gemm& op) { return op.plan().workspace_bytes > 0; }
bool takes_heap(const GroupedGemm&) { return false; }

/// Whether the operator has kernels for the target.
template <class Op>
bool is_there(const MachineShape&) {
  return true;
}
template <>
bool is_there<GroupedGemm>(const MachineShape& shape) {
  return shape.traits.matrix_unit == MatrixUnit::kWgmma;
}
template <>
bool is_there<MoeLayer>(const MachineShape& shape) {
  return shape.traits.matrix_unit == MatrixUnit::kWgmma;
}

template <class Op>
void expect_misuse_of_all(Op& op, const char* why) {
  for (const Status& status : Subject<Op>::call_all(op)) expect_misuse(status, why);
  expect_misuse(op.close(), why);
}

template <class Op>
Op created(World& world) {
  auto op = Subject<Op>::create(world, true);
  EXPECT_TRUE(op.ok()) << op.status().to_string();
  return std::move(op).value();
}

template <class Op>
void expect_closes_once(World& world) {
  Op first = created<Op>(world);
  EXPECT_TRUE(first.close().ok());
  Op second = created<Op>(world);  // in the same slot and memory
  expect_misuse_of_all(first, "after close()");
  EXPECT_TRUE(second.close().ok()) << "nobody else has closed it";
}

template <class Op>
void expect_moves(World& world) {
  Op first = created<Op>(world);
  Op second = std::move(first);
  expect_misuse_of_all(first, "moved from");
  first = std::move(second);
  expect_misuse_of_all(second, "moved from");
  EXPECT_TRUE(first.close().ok());
}

/// Operators that are destroyed without close() keep their slots, and the World still works.
template <class Op>
void expect_destructible_without_close(World& world) {
  for (int number = 0; number < 3; ++number) (void)created<Op>(world);
  Op last = created<Op>(world);
  EXPECT_TRUE(last.close().ok());
}

template <class Op>
void expect_needs_its_world(World& world) {
  Op op = created<Op>(world);
  World moved = std::move(world);
  expect_misuse(Subject<Op>::create(world, true).status(), "the World was moved from");
  expect_misuse(op.close(), "the World was moved from");
  EXPECT_TRUE(created<Op>(moved).close().ok());
}

/// On rank 1 first the plan fails, then each call of the device in turn. All ranks must report the reason and release
/// what they took.
template <class Op>
void expect_fails_on_all_ranks(std::shared_ptr<Bootstrap> bootstrap, const WorldOptions& options) {
  auto real = Device::open(options.target, bootstrap->rank());
  ASSERT_TRUE(real.ok());
  if (!is_there<Op>((*real)->shape())) return;
  const auto device = std::make_shared<FaultyDevice>(*real);
  auto world = testing::create_world(bootstrap, options, device);
  ASSERT_TRUE(world.ok()) << world.status().to_string();
  const bool alone = world->rank() == 1;
  const Status unplanned = Subject<Op>::create(*world, !alone).status();
  EXPECT_EQ(unplanned.code(), StatusCode::kInvalidArgument) << unplanned.to_string();
  EXPECT_TRUE(alone || unplanned.message().starts_with("rank 1: ")) << unplanned.to_string();
  int faults = 0;
  for (bool failed = true; failed; ++faults) {
    if (alone) device->fail_call(faults + 1);
    auto op = Subject<Op>::create(*world, true);
    device->fail_call(0);
    failed = !op.ok();
    if (!failed) {
      EXPECT_TRUE(op->close().ok());
      continue;
    }
    EXPECT_EQ(op.status().code(), StatusCode::kOutOfMemory) << op.status().to_string();
    EXPECT_TRUE(contains(op.status().message(), "a fault of the test in ")) << op.status().to_string();
    EXPECT_TRUE(alone || op.status().message().starts_with("rank 1: ")) << op.status().to_string();
    EXPECT_TRUE(created<Op>(*world).close().ok());
  }
  EXPECT_GE(faults, 4) << "kernel, epochs read, cells written, memory filled";
  // Everything was released: the whole heap can be allocated.
  auto all = world->allocate(options.heap_bytes);
  EXPECT_TRUE(all.ok()) << all.status().to_string();
  EXPECT_EQ(world->open_operator("first", {}, 1).value(), 0);
}

/// Another buffer fills the heap: create() fails alike on all ranks, and releases what it took.
template <class Op>
void expect_needs_heap(World& world, std::size_t heap_bytes) {
  {
    Op op = created<Op>(world);
    const bool needs_none = !takes_heap(op);
    EXPECT_TRUE(op.close().ok());
    if (needs_none) return;
  }
  auto rest = world.allocate(heap_bytes);
  ASSERT_TRUE(rest.ok()) << rest.status().to_string();
  EXPECT_EQ(Subject<Op>::create(world, true).status().code(), StatusCode::kOutOfMemory);
  ASSERT_TRUE(world.free(*rest).ok());
  EXPECT_TRUE(created<Op>(world).close().ok());
  EXPECT_EQ(world.open_operator("first", {}, 1).value(), 0);
}

class OperatorLifetime : public WorldTestBase {
 protected:
  static WorldOptions options() {
    WorldOptions changed = WorldTestBase::options();
    changed.heap_bytes = std::size_t{4} << 20;
    return changed;
  }

  /// Runs `test` for each operator, each in a new World.
  template <class Test>
  static void of_each(const Test& test) {
    on_worlds(kRanks, options(), [&](World& world) { test.template operator()<MoeAllToAll>(world); });
    on_worlds(kRanks, options(), [&](World& world) { test.template operator()<Gemm>(world); });
    on_worlds(kRanks, options(), [&](World& world) {
      if (is_there<GroupedGemm>(world.device().shape())) test.template operator()<GroupedGemm>(world);
    });
    on_worlds(kRanks, options(), [&](World& world) {
      if (is_there<MoeLayer>(world.device().shape())) test.template operator()<MoeLayer>(world);
    });
    on_worlds(kRanks, options(), [&](World& world) { test.template operator()<Attention>(world); });
    on_worlds(kRanks, options(), [&](World& world) { test.template operator()<AllGatherGemm>(world); });
    on_worlds(kRanks, options(), [&](World& world) { test.template operator()<GemmReduceScatter>(world); });
    on_worlds(kRanks, options(), [&](World& world) { test.template operator()<GemmAllReduce>(world); });
    on_worlds(kRanks, options(), [&](World& world) { test.template operator()<ParallelGemm>(world); });
    on_worlds(kRanks, options(), [&](World& world) { test.template operator()<FlashDecode>(world); });
    on_worlds(kRanks, options(), [&](World& world) { test.template operator()<AllReduce>(world); });
  }
};
INSTANTIATE_TEST_SUITE_P(Targets, OperatorLifetime, ::testing::ValuesIn(kAllTargets), name_of_target);

TEST_P(OperatorLifetime, ClosesOnceAndRefusesCallsAfterwards) {
  of_each([]<class Op>(World& world) { expect_closes_once<Op>(world); });
}

TEST_P(OperatorLifetime, RefusesCallsWhereItWasMovedFrom) {
  of_each([]<class Op>(World& world) { expect_moves<Op>(world); });
}

TEST_P(OperatorLifetime, MayBeLetGoWithoutClose) {
  of_each([]<class Op>(World& world) { expect_destructible_without_close<Op>(world); });
}

TEST_P(OperatorLifetime, RefusesCallsWhenItsWorldWasMovedFrom) {
  of_each([]<class Op>(World& world) { expect_needs_its_world<Op>(world); });
}

TEST_P(OperatorLifetime, NeedsHeapOnAllRanksAlike) {
  of_each([]<class Op>(World& world) { expect_needs_heap<Op>(world, options().heap_bytes); });
}

template <class Op>
class OperatorCreation : public ::testing::Test {};
using Operators = ::testing::Types<MoeAllToAll, MoeLayer, Gemm, GroupedGemm, Attention, AllGatherGemm,
                                   GemmReduceScatter, GemmAllReduce, ParallelGemm, FlashDecode, AllReduce>;
TYPED_TEST_SUITE(OperatorCreation, Operators);

TYPED_TEST(OperatorCreation, ThatFailsOnOneRankFailsOnAll) {
  for (const TargetKind target : {TargetKind::kEmuSm90, TargetKind::kEmuGfx942}) {
    WorldOptions options;
    options.target = target;
    options.heap_bytes = std::size_t{4} << 20;
    const Status status = run_ranks(kRanks, [&](std::shared_ptr<Bootstrap> bootstrap) {
      expect_fails_on_all_ranks<TypeParam>(std::move(bootstrap), options);
      return Status();
    });
    EXPECT_TRUE(status.ok()) << status.to_string();
  }
}

// NCCL and cuBLASLt are missing here. All ranks report this reason, but a rank's own error takes precedence.
TEST(UnfusedCreation, ThatFailsOnOneRankFailsOnAll) {
  const Status status = run_ranks(kRanks, [&](std::shared_ptr<Bootstrap> bootstrap) -> Status {
    auto world = World::create(bootstrap, {.heap_bytes = 1 << 20});
    if (!world.ok()) return world.status();
    EXPECT_EQ(Unfused::create(*world, Kind::kAllReduce, small(true)).status().code(), StatusCode::kUnavailable);
    const Status alone = Unfused::create(*world, Kind::kAllReduce, small(world->rank() != 1)).status();
    EXPECT_EQ(alone.code(), world->rank() == 1 ? StatusCode::kInvalidArgument : StatusCode::kUnavailable);
    World moved = std::move(*world);
    expect_misuse(Unfused::create(*world, Kind::kAllReduce, small(true)).status(), "the World was moved from");
    return moved.status();
  });
  EXPECT_TRUE(status.ok()) << status.to_string();
}

}  // namespace
}  // namespace farwarp
