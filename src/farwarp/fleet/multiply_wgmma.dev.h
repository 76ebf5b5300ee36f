// The sums of a group of tiles on Hopper, while a vector streams by. A warp has a tile of each unit. Each of the two warpgroups multiplies half of a stage's
// rows by all columns; of 64 columns all rows by half of them, because sums of three units and 64 columns are too many registers.
//
//   warps   wait full[v] -> for each unit: wait full[w] of its pairs -> weights into registers -> empty[w] -> wgmma
//           a stage later: empty[v]
#pragma once

#include "farwarp/fleet/stream.dev.h"

namespace farwarp::FARWARP_TARGET::fleet {

template <int columns>
class WgmmaMultiplier {
 public:
  static constexpr int kUnits = kTilesTogether / kUnitTiles;
  static constexpr int kRowParts = partial_sums(columns, true), kColumnParts = 2 / kRowParts;  ///< a warpgroup each
  static constexpr int kColumns = columns / kColumnParts;                                      ///< of a warpgroup
  using UnitSums = float[kColumns / 2];

  FARWARP_DEVICE WgmmaMultiplier(Shared<std::byte> memory, WeightReader<columns>& weights)
      : memory_(memory), weights_(weights) {}

  /// [the warps that compute] The whole vector. `sums` are zeros before.
  FARWARP_DEVICE void multiply(Call&, const StreamWorker&, const Task& group, int, std::uint32_t,
                               UnitSums (&sums)[kUnits]) {
    const int stages = uniform(group.matrix.stages), count = uniform(group.count);
    Weights weights[kBuffers] = {};
#pragma unroll 1
    for (int stage = 0; stage < stages; ++stage) {
      wait_mbarrier(weights_.waits(), weights_.view(), ring().full(position_.stage), position_.parity);
#pragma unroll
      for (int unit = 0; unit < kUnits; ++unit) {
        if (unit * kUnitTiles < count)
          multiply_unit(sums[unit], weights, count - unit * kUnitTiles, unit == 0 && stage > 0);
      }
      position_.advance();
    }
    wgmma_wait_read<0>();
    release_last();
#pragma unroll
    for (UnitSums& of_unit : sums) wgmma_wait_sums<0>(of_unit);
  }

  /// [the warps that compute] Of a unit.
  FARWARP_DEVICE void store_partials(const UnitSums& sums) const {
    using Layout = ProjectShared<columns, true>;
    const int thread = thread_index() % kGroupThreads;
    const Shared<float> to = SharedSums<columns>{memory_}.floats(Layout::partials(0, row_part()));
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
  // Of a stage of a tile, of which the warpgroup multiplies a part in batches: while matrix units multiply one, the next is loaded.
  static constexpr int kFragments = kStageColumns / 16 / kRowParts, kBatch = 4, kBatches = kFragments / kBatch,
                       kBuffers = 2;
  using Weights = std::uint32_t[kBatch][4];

  static FARWARP_DEVICE int row_part() { return warp_index() / 4 % kRowParts; }
  static FARWARP_DEVICE int first_column() { return warp_index() / 4 % kColumnParts * kColumns; }
  FARWARP_DEVICE VectorRing<columns> ring() const { return vector_ring<columns>(memory_); }
  /// [warp] Frees the vector's stage before the present one.
  FARWARP_DEVICE void release_last() const {
    VectorPosition<columns> last = position_;
    last.advance(vector_slots(columns) - 1);
    warp_sync();
    if (lane_index() == 0) mbarrier_arrive(ring().empty(last.stage));
  }

  /// [warpgroup] A stage of a unit, of `tiles` tiles or more. `ends_last`: the vector's stage before has been multiplied when half of this has been issued.
  FARWARP_DEVICE void multiply_unit(UnitSums& sums, Weights (&weights)[kBuffers], int tiles, bool ends_last) {
    const int tile = warp_index() % kUnitTiles;
    weights_.wait_stage(0);
    if (tiles > kSlotStages) weights_.wait_stage(kSlotStages);
    const Shared<const std::byte> from((weights_.stage(tile) + row_part() * kFragments * kFragmentBytes).raw);
    constexpr int kOfTile = kSwizzleRowBytes / 2 / 16, kTileBytes = columns * kSwizzleRowBytes;
    const Shared<const std::byte> vector(
        (memory_ + (ProjectShared<columns, true>::vector_stage(position_.stage) +
                    row_part() * (kFragments / kOfTile) * kTileBytes + first_column() * kSwizzleRowBytes))
            .raw);
#pragma unroll
    for (int batch = 0; batch < kBatches; ++batch) {
      wgmma_wait_read<kBuffers - 1>();  // the batch that these registers had before
      if (batch == 1 && ends_last) release_last();
      Weights& batch_weights = weights[batch % kBuffers];
      if (tile < tiles) load_batch(batch_weights, from + batch * kBatch * kFragmentBytes);
      if (batch == kBatches - 1) weights_.release(tiles > kSlotStages ? 2 * kSlotStages : kSlotStages);
      wgmma_fence_loaded(batch_weights);
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        const int step = batch * kBatch + i;
        wgmma_rs<Bf16, kColumns>(sums, batch_weights[i], vector + step / kOfTile * kTileBytes, step % kOfTile * 16,
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
