// The tiles that the attention kernel loads on the emulator are those that PrefillAccesses says, so the simulation of
// caches simulates what the kernel does.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <tuple>
#include <vector>

#include "farwarp/ops/attention/accesses.h"
#include "farwarp/ops/attention/attention.h"
#include "farwarp/runtime/device_memory.h"
#include "farwarp/substrate/emu/machine.h"
#include "farwarp/world/host/bootstrap.h"

namespace farwarp::attention {
namespace {

struct Tensor {
  const std::byte* base = nullptr;
  int rows = 0, heads = 0;
};

/// What a run loaded, and its plan.
struct Recording {
  std::vector<emu::LoadRecord> loads;
  Tensor q, k, v;
  AttentionPlan plan;
  int xcds = 1;
};

Status record(const AttentionDesc& desc, const std::shared_ptr<Bootstrap>& bootstrap, Recording& recording) {
  auto world = World::create(bootstrap, {.target = TargetKind::kEmuSm90});
  if (!world.ok()) return world.status();
  auto op = Attention::create(*world, desc);
  if (!op.ok()) return op.status();
  Device& device = world->device();
  const auto stream = device.create_stream();
  if (!stream.ok()) return stream.status();
  std::vector<DeviceMemory> memory;
  Status status;
  const auto zeros = [&](int rows, int heads) -> void* {
    const std::vector<std::byte> values(static_cast<std::size_t>(desc.batch) * rows * heads * desc.head_dim * 2);
    auto allocated = DeviceMemory::create(device, values.size());
    if (status.ok()) status = allocated.status();
    if (!status.ok()) return nullptr;
    memory.push_back(std::move(*allocated));
    status = device.copy_in(memory.back().get(), values.data(), values.size(), *stream);
    return memory.back().get();
  };
  AttentionTensors tensors;
  tensors.q = zeros(desc.max_queries, desc.heads);
  tensors.k = zeros(desc.max_keys, desc.kv_heads);
  tensors.v = zeros(desc.max_keys, desc.kv_heads);
  tensors.out = zeros(desc.max_queries, desc.heads);
  if (status.ok()) status = device.synchronize(*stream, 60'000'000'000);
  emu::Machine::instance().record_loads(&recording.loads);
  if (status.ok()) status = (*op)(tensors, *stream);
  if (status.ok()) status = device.synchronize(*stream, 60'000'000'000);
  emu::Machine::instance().record_loads(nullptr);
  if (status.ok()) status = world->status();
  recording.q = {static_cast<const std::byte*>(tensors.q), desc.max_queries, desc.heads};
  recording.k = {static_cast<const std::byte*>(tensors.k), desc.max_keys, desc.kv_heads};
  recording.v = {static_cast<const std::byte*>(tensors.v), desc.max_keys, desc.kv_heads};
  recording.plan = op->plan();
  recording.xcds = device.shape().xcds;
  memory.clear();  // before the World and its device
  return status.ok() ? op->close() : status;
}

/// Accesses in an order that is given by work.
class Listed : public AccessPlan {
 public:
  explicit Listed(std::int64_t works, std::int64_t tile_bytes)
      : of_work(static_cast<std::size_t>(works)), tile_bytes_(tile_bytes) {}
  std::int64_t workgroups() const override { return static_cast<std::int64_t>(of_work.size()); }
  std::int64_t accesses(std::int64_t work) const override {
    return static_cast<std::int64_t>(of_work[static_cast<std::size_t>(work)].size());
  }
  void read(std::int64_t work, std::int64_t first, std::span<TileAccess> out) const override {
    const auto& all = of_work[static_cast<std::size_t>(work)];
    std::copy_n(all.begin() + first, out.size(), out.begin());
  }
  std::int64_t tile_bytes() const override { return tile_bytes_; }

  std::vector<std::vector<TileAccess>> of_work;

 private:
  std::int64_t tile_bytes_;
};

/// Sorts what the blocks loaded by works. A block's loads are of one work after the other: K, Q, K, V, K, V ... V.
class Reading {
 public:
  Reading(const Recording& recording, const PrefillShape& shape) : recording_(recording), shape_(shape) {
    const WorkGrid grid = work_grid(recording.plan.desc.mapping, recording.plan.folded, shape.batch, shape.heads,
                                    query_blocks(shape), recording.xcds, recording.plan.section);
    for (int work = 0; work < grid.works; ++work) {
      const WorkPlace place = place_of(grid, work);
      number_[{place.batch, place.head, place.query_block}] = work;
    }
  }

  void read(Listed& listed) {
    std::map<int, std::vector<TileAccess>> of_block;
    for (const emu::LoadRecord& load : recording_.loads) add(load, of_block[load.block]);
    for (const auto& [block, tiles] : of_block) split(tiles, listed);
  }

 private:
  std::uint32_t kv_objects() const { return static_cast<std::uint32_t>(2 * shape_.batch * shape_.kv_heads); }

  void add(const emu::LoadRecord& load, std::vector<TileAccess>& tiles) const {
    ASSERT_GT(load.rows, 0);
    for (const Tensor* tensor : {&recording_.q, &recording_.k, &recording_.v}) {
      const std::int64_t row_bytes = std::int64_t{tensor->heads} * shape_.head_dim * 2;
      const std::int64_t offset = load.first - tensor->base;
      if (offset < 0 || offset >= shape_.batch * tensor->rows * row_bytes) continue;
      const bool queries = tensor == &recording_.q;
      const std::int64_t row = offset / row_bytes, head = offset % row_bytes / (shape_.head_dim * 2);
      const std::int64_t in_batch = row % tensor->rows, head_of_all = row / tensor->rows * tensor->heads + head;
      const int rows_of_tile = queries ? shape_.block_m : shape_.block_n;
      EXPECT_EQ(in_batch % rows_of_tile, 0);
      TileAccess access;
      access.object = static_cast<std::uint32_t>(2 * head_of_all + (tensor == &recording_.v ? 1 : 0)) +
                      (queries ? kv_objects() : 0);
      access.tile = static_cast<std::uint32_t>(in_batch / rows_of_tile);
      access.bytes = load.rows * load.row_bytes;
      access.pitch = rows_of_tile * shape_.head_dim * 2;
      if (!queries) access.flops = 2.0 * shape_.block_m * load.rows * shape_.head_dim;
      if (tiles.empty() || tiles.back().object != access.object || tiles.back().tile != access.tile) {
        tiles.push_back(access);
      } else {
        tiles.back().bytes += access.bytes;  // another panel of columns
      }
      return;
    }
    ADD_FAILURE() << "a load outside q, k and v";
  }

  void split(const std::vector<TileAccess>& tiles, Listed& listed) const {
    std::vector<TileAccess>* work = nullptr;
    for (std::size_t i = 0; i < tiles.size(); ++i) {
      if (i + 1 < tiles.size() && tiles[i + 1].object >= kv_objects()) {
        const int head = static_cast<int>(tiles[i + 1].object - kv_objects()) / 2;
        work = &listed.of_work[static_cast<std::size_t>(
            number_.at({head / shape_.heads, head % shape_.heads, static_cast<int>(tiles[i + 1].tile)}))];
        EXPECT_TRUE(work->empty()) << "a work was done twice";
      }
      ASSERT_NE(work, nullptr);
      work->push_back(tiles[i]);
    }
  }

  const Recording& recording_;
  const PrefillShape& shape_;
  std::map<std::tuple<int, int, int>, int> number_;
};

using Tile = std::tuple<std::uint32_t, std::uint32_t, int, int>;
std::vector<Tile> sorted_reads(const std::vector<TileAccess>& accesses) {
  std::vector<Tile> tiles;
  for (const TileAccess& access : accesses) {
    if (!access.write) tiles.emplace_back(access.object, access.tile, access.bytes, access.pitch);
  }
  std::sort(tiles.begin(), tiles.end());
  return tiles;
}

CacheResult simulated(const AccessPlan& plan, std::int64_t l2_bytes) {
  CacheMachine machine = *find_cache_machine("mi300x");
  machine.xcds = 2;
  machine.cus_per_xcd = 2;
  machine.l2.bytes = l2_bytes;
  machine.memory_side.bytes = 0;
  const auto result = simulate_caches(machine, plan);
  EXPECT_TRUE(result.ok()) << result.status().message();
  return *result;
}

void expect_same(const AttentionDesc& desc) {
  Recording recording;
  const Status status =
      run_ranks(1, [&](const std::shared_ptr<Bootstrap>& bootstrap) { return record(desc, bootstrap, recording); });
  ASSERT_TRUE(status.ok()) << status.to_string();
  PrefillShape shape;
  shape.batch = desc.batch;
  shape.heads = desc.heads;
  shape.kv_heads = desc.kv_heads;
  shape.seq_q = desc.max_queries;
  shape.seq_k = desc.max_keys;
  shape.head_dim = desc.head_dim;
  shape.block_m = recording.plan.block_queries;
  shape.block_n = recording.plan.step_keys;
  shape.causal = desc.causal;
  shape.window = desc.causal ? desc.window_left + 1 : 0;  // the plan's count does not include the query's own key
  ASSERT_TRUE(check(shape).ok());
  const PrefillAccesses plan(shape, recording.plan.desc.mapping, recording.plan.folded, recording.xcds,
                             recording.plan.section);
  Listed listed(plan.workgroups(), plan.tile_bytes());
  Reading(recording, shape).read(listed);
  for (std::int64_t work = 0; work < plan.workgroups(); ++work) {
    std::vector<TileAccess> planned(static_cast<std::size_t>(plan.accesses(work)));
    plan.read(work, 0, planned);
    auto& found = listed.of_work[static_cast<std::size_t>(work)];
    ASSERT_EQ(sorted_reads(found), sorted_reads(planned)) << "work " << work;
    found.push_back(planned.back());  // the rows of O, which the kernel stores without copies
  }
  // The kernel reads a work's keys from the last to the first. With room for all that is read, the counts are equal
  // nevertheless.
  const CacheResult ample = simulated(plan, 64 << 20), ample_listed = simulated(listed, 64 << 20);
  EXPECT_EQ(ample.accesses, ample_listed.accesses);
  EXPECT_EQ(ample.l2_bytes, ample_listed.l2_bytes);
  EXPECT_EQ(ample.hbm_bytes, ample_listed.hbm_bytes);
  EXPECT_EQ(ample.l2_hit_rate, ample_listed.l2_hit_rate);
  // With less room they are close, unless works of a section, whose lengths differ, read their last keys first.
  const CacheResult few = simulated(plan, 128 << 10), few_listed = simulated(listed, 128 << 10);
  EXPECT_EQ(few.l2_bytes, few_listed.l2_bytes);
  if (recording.plan.section == 1) {
    EXPECT_NEAR(few.l2_hit_rate, few_listed.l2_hit_rate, 0.05);
  }
}

AttentionDesc desc_of(int batch, int heads, int kv_heads, int head_dim, int queries, int keys) {
  AttentionDesc desc;
  desc.batch = batch;
  desc.heads = heads;
  desc.kv_heads = kv_heads;
  desc.head_dim = head_dim;
  desc.max_queries = queries;
  desc.max_keys = keys;
  return desc;
}

TEST(RecordedAccesses, AreThePlansOfAllMappings) {
  for (const Mapping mapping : kMappings) {
    AttentionDesc desc = desc_of(1, 4, 2, 64, 300, 400);
    desc.mapping = mapping;
    expect_same(desc);
  }
}
TEST(RecordedAccesses, AreThePlansOfSeveralPanelsAndBatches) { expect_same(desc_of(2, 3, 3, 128, 130, 260)); }
TEST(RecordedAccesses, AreThePlansOfCausalAttention) {
  AttentionDesc desc = desc_of(1, 2, 1, 64, 400, 520);
  desc.causal = true;
  expect_same(desc);
}
TEST(RecordedAccesses, AreThePlansOfASlidingWindow) {
  AttentionDesc desc = desc_of(1, 2, 2, 64, 500, 500);
  desc.causal = true;
  desc.window_left = 100;
  expect_same(desc);
}

}  // namespace
}  // namespace farwarp::attention
