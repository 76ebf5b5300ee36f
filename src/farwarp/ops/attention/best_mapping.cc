#include "farwarp/ops/attention/best_mapping.h"

#include <algorithm>
#include <iterator>

namespace farwarp::attention {
namespace {

constexpr int kMaxSteps = 32;
constexpr std::int64_t kMaxAccesses = 60'000;
constexpr double kNoise = 0.001;

/// Larger tiles, at most kMaxSteps of a head, each of which takes as long as the tiles that it stands for: latencies
/// of tiles that are loaded one after the other add up.
struct Coarse {
  CacheMachine machine;
  PrefillShape shape;
};
Coarse coarse_of(const CacheMachine& machine, const PrefillShape& shape) {
  Coarse coarse{machine, shape};
  const int steps = (shape.seq_k + shape.block_n - 1) / shape.block_n;
  const int factor = (steps + kMaxSteps - 1) / kMaxSteps;
  coarse.shape.block_n = shape.block_n * factor;
  coarse.machine.l2_ns *= factor;
  coarse.machine.memory_side_ns *= factor;
  coarse.machine.hbm_ns *= factor;
  return coarse;
}

double nanoseconds(double bytes, double gb_s) { return gb_s > 0 ? bytes / gb_s : 0; }

}  // namespace

Result<std::array<MappingCost, std::size(kMappings)>> mapping_costs(const CacheMachine& machine,
                                                                    const PrefillShape& shape, bool folded) {
  if (Status status = check(shape); !status.ok()) return status;
  if (Status status = check(machine); !status.ok()) return status;
  const Coarse coarse = coarse_of(machine, shape);
  CacheOptions options;
  options.granularity = Granularity::kTile;
  options.most_accesses = kMaxAccesses;
  std::array<MappingCost, std::size(kMappings)> costs{};
  for (std::size_t i = 0; i < costs.size(); ++i) {
    const PrefillAccesses plan(coarse.shape, kMappings[i], folded, machine.xcds);
    const auto result = simulate_caches(coarse.machine, plan, options);
    if (!result.ok()) return result.status();
    const double computing = flops_of(shape) * 1e-3 / (machine.cu_tflops * machine.xcds * machine.cus_per_xcd);
    const double moving = nanoseconds(result->fabric_bytes, std::max(machine.memory_side_gb_s, machine.hbm_gb_s)) +
                          nanoseconds(result->hbm_bytes, machine.hbm_gb_s);
    costs[i] = {kMappings[i], (computing / result->balance + moving) * 1e-3};
  }
  return costs;
}

Result<Mapping> best_mapping(const CacheMachine& machine, const PrefillShape& shape, bool folded) {
  if (Status status = check(shape); !status.ok()) return status;
  if (machine.xcds == 1) return Mapping::kHeadFirst;
  const auto costs = mapping_costs(machine, shape, folded);
  if (!costs.ok()) return costs.status();
  double least = (*costs)[0].microseconds;
  for (const MappingCost& cost : *costs) least = std::min(least, cost.microseconds);
  for (const Mapping mapping :
       {Mapping::kHeadFirstSwizzled, Mapping::kBlockFirstSwizzled, Mapping::kHeadFirst, Mapping::kBlockFirst}) {
    for (const MappingCost& cost : *costs) {
      if (cost.mapping == mapping && cost.microseconds <= least * (1 + kNoise)) return mapping;
    }
  }
  return Mapping::kHeadFirstSwizzled;
}

}  // namespace farwarp::attention
