// The sums of a narrow group of tiles on Hopper, while a vector streams by: of a matrix of which no worker has more tiles than a unit. A stage takes 0.2 us,
// where the two warpgroups of wgmma() need 0.45 (README.md of qwen3's MEASURED).
//
//   warp   wait full[v], full[w] of its tile -> its part of the stage: weights and vector into registers -> mma -> all have been read: empty[w], empty[v]
//
// Warp i has tile i % n, and of a stage part i / n of its columns.
#pragma once

#include "farwarp/fleet/stream.dev.h"

namespace farwarp::FARWARP_TARGET::fleet {

template <int columns>
class MmaMultiplier {
 public:
  using UnitSums = float[columns / 2];

  FARWARP_DEVICE MmaMultiplier(Shared<std::byte> memory, WeightReader<columns>& weights)
      : memory_(memory), weights_(weights) {}

  /// [the warps that compute] The whole vector. `sums` are zeros before; they lie as those of wgmma(). `tiles`: tiles_of_warps().
  FARWARP_DEVICE void multiply(VectorPosition<columns>& position, const Task& group, int tiles, UnitSums& sums) {
    // A warp waits for one of two slots of a stage. The other's phases before it knows, because fewer copies are under way than slots lie between.
    static_assert(ring_slots(columns) - kMostNarrowTiles / kSlotStages >= slots_in_flight(columns));
    const int tile = warp_index() % tiles, part = warp_index() / tiles;
    const int panels = kPanels * tiles / kWarps;  // of the warp
    const int slots = (group.count + kSlotStages - 1) / kSlotStages;
    const auto ring = vector_ring<columns>(memory_);
#pragma unroll 1
    for (int stage = 0; stage < group.matrix.stages; ++stage) {
      wait_mbarrier(weights_.waits(), weights_.view(), ring.full(position.stage), position.parity);
      if (tile < group.count) {
        weights_.wait_stage(tile / kSlotStages * kSlotStages);
        const Shared<const std::byte> from(weights_.stage(tile).raw);
        const Shared<const std::byte> vector(
            (memory_ + ProjectShared<columns, true>::vector_stage(position.stage)).raw);
#pragma unroll 1
        for (int panel = part * panels; panel < (part + 1) * panels; ++panel)
          multiply_panel(sums, from + panel * kPanelFragments * kFragmentBytes,
                         vector + panel * columns * kSwizzleRowBytes);
      }
      weights_.release(slots * kSlotStages);
      if (lane_index() == 0) mbarrier_arrive(ring.empty(position.stage));
      position.advance();
    }
  }

  /// A thread's columns of the first eight of the vector: this one, and the one two later.
  static FARWARP_DEVICE int first_column() { return column_of(2 * (lane_index() % 4)); }

 private:
  static constexpr int kPanelFragments = kSwizzleRowBytes / 2 / 16, kPanels = kStageColumns / 16 / kPanelFragments;

  /// The vector's column that is column `number` of B: in this order eight lanes read eight different chunks of the swizzled rows.
  static constexpr FARWARP_DEVICE int column_of(int number) { return number % 4 * 2 + number / 4; }

  /// [warp] 64 columns of a tile.
  FARWARP_DEVICE void multiply_panel(UnitSums& sums, Shared<const std::byte> weights,
                                     Shared<const std::byte> vector) const {
    Fragment fragments[kPanelFragments];
#pragma unroll
    for (int i = 0; i < kPanelFragments; ++i) fragments[i] = load_fragment(weights + i * kFragmentBytes);
    const int column = column_of(operand_column(lane_index())), four = operand_four(lane_index());
#pragma unroll
    for (int i = 0; i < kPanelFragments; ++i) {
      const int at = swizzled_offset(column, (i * 16 + four * 4) * 2);
#pragma unroll
      for (int block = 0; block < columns / 8; ++block) {
        const std::uint64_t activations = load(Shared<const std::uint64_t>(
            reinterpret_cast<const std::uint64_t*>((vector + (block * 8 * kSwizzleRowBytes + at)).raw)));
        Sums& of_block = *reinterpret_cast<Sums*>(&sums[block * 4]);
        multiply_fragment(of_block, fragments[i], activations);
      }
    }
  }

  Shared<std::byte> memory_;
  WeightReader<columns>& weights_;
};

}  // namespace farwarp::FARWARP_TARGET::fleet
