// The sums of a group of tiles on Hopper, while a vector streams by. A warp has a tile of each unit. The two warpgroups take the stages of the vector in turn.
//
//   warpgroup   wait full[v] -> for each unit: wait full[w] of its pairs -> weights into registers -> empty[w] -> wgmma
//               -> all have been read: empty[v]
#pragma once

#include "farwarp/fleet/stream.dev.h"

namespace farwarp::FARWARP_TARGET::fleet {

template <int columns>
class WgmmaMultiplier {
 public:
  static constexpr int kUnits = tiles_together(columns, true) / kUnitTiles;
  using UnitSums = float[columns / 2];

  FARWARP_DEVICE WgmmaMultiplier(Shared<std::byte> memory, WeightReader<columns>& weights)
      : memory_(memory), weights_(weights) {}

  /// [the warps that compute] The whole vector. `sums` are zeros before.
  FARWARP_DEVICE void multiply(VectorPosition<columns>& position, const Task& group, UnitSums (&sums)[kUnits]) {
    static_assert(knows_all_phases());
    const int stages = uniform(group.matrix.stages), count = uniform(group.count);
    const int slots = (count + kSlotStages - 1) / kSlotStages;  // of a stage of the group
    const auto skip = [&](int number) {
      position.advance(number);
      weights_.skip(number * slots);
    };
    skip(warpgroup() < stages ? warpgroup() : stages);
    Weights weights = {};
#pragma unroll 1
    for (int stage = warpgroup(); stage < stages; stage += kWarpgroups) {
      const auto ring = vector_ring<columns>(memory_);
      wait_mbarrier(weights_.waits(), weights_.view(), ring.full(position.stage), position.parity);
#pragma unroll
      for (int unit = 0; unit < kUnits; ++unit) {
        if (unit * kUnitTiles < count) multiply_unit(sums[unit], weights, position, count - unit * kUnitTiles);
      }
      wgmma_wait_read<0>();
      warp_sync();
      if (lane_index() < kWarpgroups) mbarrier_arrive(ring.empty(position.stage));
      position.advance();
      skip(stage + 1 < stages ? 1 : 0);
    }
#pragma unroll
    for (UnitSums& of_unit : sums) wgmma_wait_sums<0>(of_unit);
  }

 private:
  static constexpr bool knows_all_phases() {
    for (int slots = 1; slots <= tiles_together(columns, true) / kSlotStages; ++slots) {
      if (!knows_phases(columns, slots)) return false;
    }
    return vector_slots(columns) % kWarpgroups ==
           0;  // the stage that a slot of the vector had before was the same warpgroup's
  }
  static constexpr int kGroupThreads = 128, kWarpgroups = kWorkerThreads / kGroupThreads;
  static constexpr int kBatch = 8, kBatches = kStageColumns / 16 / kBatch;  ///< fragments of a stage of a tile
  using Weights = std::uint32_t[kBatch][4];
  static FARWARP_DEVICE int warpgroup() { return uniform(warp_index() / 4); }

  /// [warpgroup] A stage of a unit, of `tiles` tiles or more.
  FARWARP_DEVICE void multiply_unit(UnitSums& sums, Weights& weights, const VectorPosition<columns>& position,
                                    int tiles) {
    const int tile = warp_index() % kUnitTiles;
    weights_.wait_stage(0);
    if (tiles > kSlotStages) weights_.wait_stage(kSlotStages);
    const Shared<const std::byte> from(weights_.stage(tile).raw);
    constexpr int kOfTile = kSwizzleRowBytes / 2 / 16, kTileBytes = columns * kSwizzleRowBytes;
    const Shared<const std::byte> vector((memory_ + ProjectShared<columns, true>::vector_stage(position.stage)).raw);
#pragma unroll
    for (int batch = 0; batch < kBatches; ++batch) {
      wgmma_wait_read<0>();  // the batch before
      if (tile < tiles) {
#pragma unroll
        for (int i = 0; i < kBatch; ++i) {
          const Fragment fragment = load_fragment(from + (batch * kBatch + i) * kFragmentBytes);
#pragma unroll
          for (int word = 0; word < 4; ++word)
            weights[i][word] = static_cast<std::uint32_t>(fragment.words[word / 2] >> (32 * (word % 2)));
        }
      }
      if (batch == kBatches - 1)
        weights_.template release<kWarpgroups>(tiles > kSlotStages ? 2 * kSlotStages : kSlotStages);
      wgmma_fence_loaded(weights);
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        const int step = batch * kBatch + i;
        wgmma_rs<Bf16, columns>(sums, weights[i], vector + step / kOfTile * kTileBytes, step % kOfTile * 16, true);
      }
      wgmma_commit();
    }
  }

  Shared<std::byte> memory_;
  WeightReader<columns>& weights_;
};

}  // namespace farwarp::FARWARP_TARGET::fleet
