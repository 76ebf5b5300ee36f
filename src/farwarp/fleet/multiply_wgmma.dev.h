// The sums of a group of tiles on Hopper, while a vector streams by: each warpgroup multiplies all tiles by half of the columns. A warp has a tile of each
// unit.
//
//   warps   wait full[v] -> for each unit: wait full[w] of its pairs -> weights into registers -> empty[w] -> wgmma
//           -> all have been read: empty[v]
#pragma once

#include "farwarp/fleet/stream.dev.h"

namespace farwarp::FARWARP_TARGET::fleet {

template <int columns>
class WgmmaMultiplier {
 public:
  static constexpr int kUnits = kTilesTogether / kUnitTiles;
  static constexpr int kColumns = columns / 2;  ///< of a warpgroup
  using UnitSums = float[kColumns / 2];

  FARWARP_DEVICE WgmmaMultiplier(Shared<std::byte> memory, WeightReader<columns>& weights)
      : memory_(memory), weights_(weights) {}

  /// [the warps that compute] The whole vector. `sums` are zeros before.
  FARWARP_DEVICE void multiply(Call&, const StreamWorker&, const Task& group, int, std::uint32_t,
                               UnitSums (&sums)[kUnits]) {
    const int stages = uniform(group.matrix.stages), count = uniform(group.count);
    Weights weights[kBatches] = {};
#pragma unroll 1
    for (int stage = 0; stage < stages; ++stage) {
      const auto ring = vector_ring<columns>(memory_);
      wait_mbarrier(weights_.waits(), weights_.view(), ring.full(position_.stage), position_.parity);
#pragma unroll
      for (int unit = 0; unit < kUnits; ++unit) {
        if (unit * kUnitTiles < count) multiply_unit(sums[unit], weights, count - unit * kUnitTiles);
      }
      wgmma_wait_read<0>();
      warp_sync();
      if (lane_index() == 0) mbarrier_arrive(ring.empty(position_.stage));
      position_.advance();
    }
#pragma unroll
    for (UnitSums& of_unit : sums) wgmma_wait_sums<0>(of_unit);
  }

  /// [the warps that compute] Of a unit.
  FARWARP_DEVICE void store_partials(const UnitSums& sums) const {
    using Layout = ProjectShared<columns, true>;
    const int thread = thread_index() % kGroupThreads;
    const Shared<float> to = SharedSums<columns>{memory_}.floats(Layout::partials(0, 0));
#pragma unroll
    for (int i = 0; i < kColumns / 2; ++i) {
      const MatrixIndex at = wgmma_sum(thread, i);
      store(
          to + (unit_sums_at(columns, at.row / kTileRows, first_column() + at.column, at.row % kTileRows) + at.row % 4),
          sums[i]);
    }
  }

 private:
  static constexpr int kGroupThreads = 128;
  static constexpr int kBatch = 8, kBatches = kStageColumns / 16 / kBatch;  ///< fragments of a stage of a tile
  using Weights = std::uint32_t[kBatch][4];
  static FARWARP_DEVICE int first_column() { return warp_index() / 4 * kColumns; }

  /// [warpgroup] A stage of a unit, of `tiles` tiles or more. Of the last two batches of weights matrix units may still read one.
  FARWARP_DEVICE void multiply_unit(UnitSums& sums, Weights (&weights)[kBatches], int tiles) {
    const int tile = warp_index() % kUnitTiles;
    weights_.wait_stage(0);
    if (tiles > kSlotStages) weights_.wait_stage(kSlotStages);
    const Shared<const std::byte> from(weights_.stage(tile).raw);
    constexpr int kOfTile = kSwizzleRowBytes / 2 / 16, kTileBytes = columns * kSwizzleRowBytes;
    const Shared<const std::byte> vector(
        (memory_ + (ProjectShared<columns, true>::vector_stage(position_.stage) + first_column() * kSwizzleRowBytes))
            .raw);
#pragma unroll
    for (int batch = 0; batch < kBatches; ++batch) {
      wgmma_wait_read<kBatches - 1>();
      if (tile < tiles) load_batch(weights[batch], from + batch * kBatch * kFragmentBytes);
      if (batch == kBatches - 1) weights_.release(tiles > kSlotStages ? 2 * kSlotStages : kSlotStages);
      wgmma_fence_loaded(weights[batch]);
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        const int step = batch * kBatch + i;
        wgmma_rs<Bf16, kColumns>(sums, weights[batch][i], vector + step / kOfTile * kTileBytes, step % kOfTile * 16,
                                 true);
      }
      wgmma_commit();
    }
  }
  static FARWARP_DEVICE void load_batch(Weights& weights, Shared<const std::byte> from) {
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      const Fragment fragment = load_fragment(from + i * kFragmentBytes);
#pragma unroll
      for (int word = 0; word < 4; ++word)
        weights[i][word] = static_cast<std::uint32_t>(fragment.words[word / 2] >> (32 * (word % 2)));
    }
  }

  Shared<std::byte> memory_;
  WeightReader<columns>& weights_;
  VectorPosition<columns> position_;
};

}  // namespace farwarp::FARWARP_TARGET::fleet
