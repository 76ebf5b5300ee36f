// A task that multiplies a matrix of weights by a streamed vector: the sums of a group of tiles are in registers until
// the whole vector has been multiplied.
//
//   warps   multiply a group -> for each of its portions: partial sums -> barrier -> finish -> barrier
#pragma once

#include "farwarp/fleet/multiply_mfma.dev.h"
#include "farwarp/fleet/multiply_wgmma.dev.h"

namespace farwarp::FARWARP_TARGET::fleet {

/// Tiles of a portion of a group: the number of the first in the group, and how many.
FARWARP_DEVICE Share tiles_of_portion(const Task& group, int portion) {
  const int first = portion * kPortionTiles, rest = group.count - first;
  return {first, rest < kPortionTiles ? rest : kPortionTiles};
}

template <int columns>
class StreamedProjection {
 public:
  using Multiplier = std::conditional_t<kMfma, MfmaMultiplier<columns>, WgmmaMultiplier<columns>>;

  FARWARP_DEVICE StreamedProjection(Shared<std::byte> memory, WeightReader<columns>& weights)
      : multiplier_(memory, weights) {}

  /// [the warps that compute] finish(group, portion) for each portion of each group, a task with these tiles of the
  /// whole matrix: its partial sums are in shared memory. `norm`: of the input; if it exists, finish() may call
  /// inverse_root_of_column().
  template <class Finish>
  FARWARP_DEVICE void run(Call& call, const Worker<columns>& worker, const Task& task, std::uint32_t site,
                          const InputNorm& norm, const Finish& finish) {
    constexpr int kPortions = Multiplier::kPortions;
    const int groups = task.matrix.groups(task.count);
    multiplier_.begin_task(worker, task, norm);
#pragma unroll 1
    for (int number = 0; number < groups; ++number) {
      const Task group = group_of(task, number);
      typename Multiplier::PortionSums sums[kPortions] = {};
      multiplier_.multiply(call, worker, group, number, site, sums);
#pragma unroll 1
      for (int portion = 0; portion * kPortionTiles < group.count; ++portion) {
#pragma unroll
        for (int i = 0; i < kPortions; ++i) {
          if (i == portion) multiplier_.store_partials(sums[i]);
        }
        sync_warps();
        finish(group, portion);
        sync_warps();
      }
    }
  }

 private:
  Multiplier multiplier_;
};

}  // namespace farwarp::FARWARP_TARGET::fleet
