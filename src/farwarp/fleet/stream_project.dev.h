// A task that multiplies a matrix of weights by a streamed vector: the sums of a group of tiles are in registers until the whole vector has been multiplied.
//
//   warps   multiply a group -> for each of its units: partial sums -> barrier -> finish -> barrier
#pragma once

#include "farwarp/fleet/multiply_mfma.dev.h"
#include "farwarp/fleet/multiply_wgmma.dev.h"

namespace farwarp::FARWARP_TARGET::fleet {

/// Tiles of a unit of a group: the number of the first in the group, and how many.
FARWARP_DEVICE Share tiles_of_unit(const Task& group, int unit) {
  const int first = unit * kUnitTiles, rest = group.count - first;
  return {first, rest < kUnitTiles ? rest : kUnitTiles};
}

template <int columns>
class StreamedProjection {
 public:
  using Multiplier = std::conditional_t<kMfma, MfmaMultiplier<columns>, WgmmaMultiplier<columns>>;

  FARWARP_DEVICE StreamedProjection(Shared<std::byte> memory, WeightReader<columns>& weights)
      : multiplier_(memory, weights) {}

  /// [the warps that compute] finish(group, unit) for each unit of each group, a task with these tiles of the whole matrix: its partial sums are in shared
  /// memory. `norm`: of the input; if it exists, finish() may call inverse_root().
  template <class Finish>
  FARWARP_DEVICE void run(Call& call, const StreamWorker& worker, const Task& task, std::uint32_t site,
                          const InputNorm& norm, const Finish& finish) {
    constexpr int kUnits = Multiplier::kUnits;
    const int groups = task.matrix.groups(task.count);
    multiplier_.begin_task(call, worker, task, norm);
#pragma unroll 1
    for (int number = 0; number < groups; ++number) {
      const Task group = group_of(task, number);
      typename Multiplier::UnitSums sums[kUnits] = {};
      multiplier_.multiply(call, worker, group, number, site, sums);
#pragma unroll 1
      for (int unit = 0; unit * kUnitTiles < group.count; ++unit) {
#pragma unroll
        for (int i = 0; i < kUnits; ++i) {
          if (i == unit) multiplier_.store_partials(sums[i]);
        }
        sync_warps();
        finish(group, unit);
        sync_warps();
      }
    }
  }

 private:
  Multiplier multiplier_;
};

}  // namespace farwarp::FARWARP_TARGET::fleet
