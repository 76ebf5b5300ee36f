// The sums of a group of tiles on Hopper, while a vector streams by. A warp has a tile. The two warpgroups take the
// slices of the vector in turn (drawn in STREAM.md).
#pragma once

#include "farwarp/fleet/stream.dev.h"

namespace farwarp::FARWARP_TARGET::fleet {

template <int columns>
class WgmmaMultiplier {
 public:
  static constexpr int kPortions = 1;
  using PortionSums = float[columns / 2];

  FARWARP_DEVICE WgmmaMultiplier(Shared<std::byte> memory, WeightReader<columns>& weights)
      : memory_(memory), weights_(weights) {}

  /// [the warps that compute] The squares of a norm's input are added after the slices of its first group.
  FARWARP_DEVICE void begin_task(const Worker<columns>&, const Task&, const InputNorm& norm) {
    adds_squares_ = norm.exists;
  }
  /// [the warps that compute] The whole vector. `sums` are zeros before.
  FARWARP_DEVICE void multiply(Call&, const Worker<columns>&, const Task& group, int, std::uint32_t,
                               PortionSums (&sums)[kPortions]) {
    static_assert(knows_all_phases());
    const int slices = uniform(group.matrix.slices), count = uniform(group.count);
    const int slots = (count + kSlotSlices - 1) / kSlotSlices;  // of a slice
    const auto skip = [&](int skipped) {
      position_.advance(skipped);
      weights_.skip(skipped * slots);
    };
    skip(warpgroup() < slices ? warpgroup() : slices);
    Weights weights = {};
#pragma unroll 1
    for (int slice = warpgroup(); slice < slices; slice += kWarpgroups) {
      const auto ring = vector_ring<columns>(memory_);
      wait_mbarrier(weights_.waits(), weights_.view(), ring.full(position_.stage), position_.parity);
      multiply_slice(sums[0], weights, count);
      wgmma_wait_read<0>();
      warp_sync();
      if (lane_index() == 0) mbarrier_arrive(ring.empty(position_.stage));
      position_.advance();
      skip(slice + 1 < slices ? 1 : 0);
    }
    if (adds_squares_) add_squares(slices);
    adds_squares_ = false;
    wgmma_wait_sums<0>(sums[0]);
  }

  /// [the warps that compute] Of a portion.
  FARWARP_DEVICE void store_partials(const PortionSums& sums) const {
    const Shared<float> to =
        SharedSums<columns>{memory_}.floats(ProjectShared<columns, true>::partials(0, warpgroup()));
    const MatrixIndex first = wgmma_sum(recomputed(thread_index()) % kWarpgroupThreads, 0);
    const int tile = first.row / kTileRows, row = first.row % kTileRows;
    // Where the thread's two rows of its first column lie, which is even. Its other columns are a multiple of 8, or
    // that and 1, later, so portion_sums_at() orders them alike.
    const Shared<float> rows[2] = {to + (portion_sums_at(columns, tile, first.column, row) + row % 4),
                                   to + (portion_sums_at(columns, tile, first.column, row + 8) + row % 4)};
#pragma unroll
    for (int i = 0; i < columns / 2; ++i) store(rows[i / 2 % 2] + (8 * (i / 4) + i % 2) * kTileRows, sums[i]);
  }

 private:
  static constexpr bool knows_all_phases() {
    for (int slots = 1; slots <= kGroupTiles / kSlotSlices; ++slots) {
      if (!knows_phases(columns, slots)) return false;
    }
    return vector_slots(columns) % kWarpgroups ==
           0;  // the slice that a slot of the vector had before, in the same group, was the same warpgroup's
  }
  static constexpr int kWarpgroupThreads = 128, kWarpgroups = kComputingThreads / kWarpgroupThreads;
  static constexpr int kFragments = kSliceDepth / 16;  ///< of a slice of a tile
  using Weights = std::uint32_t[kFragments][4];
  static FARWARP_DEVICE int warpgroup() { return uniform(warp_index() / 4); }

  /// [the warps that compute] The squares that follow a vector of `slices` slices: the warpgroups go on to take slices
  /// in turn. A thread adds those of four columns.
  FARWARP_DEVICE void add_squares(int slices) {
    constexpr int kFours = columns / 4, kAtOnce = kWarpgroupThreads / kFours;
    constexpr int kTiles = vector_slice_bytes(columns) / squares_bytes(columns, kTileRows);  ///< of a copy
    static_assert(vector_slice_bytes(columns) % squares_bytes(columns, kTileRows) == 0);
    const int tiles = slices * kSliceDepth / kTileRows, thread = thread_index() % kWarpgroupThreads;
    const int copies = (tiles + kTiles - 1) / kTiles, first = (slices + warpgroup()) % kWarpgroups;
    const auto ring = vector_ring<columns>(memory_);
    float sums[4] = {};
    position_.advance(first < copies ? first : copies);
#pragma unroll 1
    for (int copy = first; copy < copies; copy += kWarpgroups) {
      wait_mbarrier(weights_.waits(), weights_.view(), ring.full(position_.stage), position_.parity);
      const Shared<const Vec16> from(
          reinterpret_cast<const Vec16*>((memory_ + ProjectShared<columns, true>::vector_slice(position_.stage)).raw));
      const int rest = tiles - copy * kTiles, count = rest < kTiles ? rest : kTiles;
#pragma unroll 4
      for (int tile = thread / kFours; tile < count; tile += kAtOnce) {
        const Vec16 four = load(from + (tile * kFours + thread % kFours));
        const Two low = unpack_two(four.lo), high = unpack_two(four.hi);
        sums[0] = add(sums[0], low.first);
        sums[1] = add(sums[1], low.second);
        sums[2] = add(sums[2], high.first);
        sums[3] = add(sums[3], high.second);
      }
      warp_sync();
      if (lane_index() == 0) mbarrier_arrive(ring.empty(position_.stage));
      position_.advance(copy + 1 < copies ? kWarpgroups : 1);
    }
#pragma unroll
    for (int lanes = kFours; lanes < Target::kWarpSize; lanes *= 2) {
#pragma unroll
      for (float& sum : sums) sum = add(sum, shuffle_xor(sum, lanes));
    }
    if (lane_index() < kFours)
      store(Shared<Vec16>(reinterpret_cast<Vec16*>((warp_squares<columns>(memory_) + warp_index() * columns).raw)) +
                lane_index(),
            Vec16{pack_two(sums[0], sums[1]), pack_two(sums[2], sums[3])});
  }

  /// [warpgroup] A slice of a group of `tiles` tiles. wgmma may still run when it returns.
  FARWARP_DEVICE void multiply_slice(PortionSums& sums, Weights& weights, int tiles) {
    const int tile = warp_index() % kGroupTiles;
    weights_.wait_slice(0);
    if (tiles > kSlotSlices) weights_.wait_slice(kSlotSlices);
    const Shared<const std::byte> vector(
        (memory_ + ProjectShared<columns, true>::vector_slice(uniform(position_.stage))).raw);
    const Shared<const Vec16> from(reinterpret_cast<const Vec16*>(weights_.slice(tile).raw));
    if (tile < tiles) {
#pragma unroll
      for (int i = 0; i < kFragments; ++i) load_operand(from + (i * kFragmentBytes / 16 + lane_index()), weights[i]);
    }
    weights_.template release<kWarpgroups>(tiles > kSlotSlices ? 2 * kSlotSlices : kSlotSlices);
    wgmma_fence();
    constexpr int kOfTile = kSwizzleRowBytes / 2 / 16, kTileBytes = columns * kSwizzleRowBytes;
#pragma unroll
    for (int i = 0; i < kFragments; ++i)
      wgmma_rs<Bf16, columns>(sums, weights[i], vector + i / kOfTile * kTileBytes, i % kOfTile * 16, true);
    wgmma_commit();
  }

  Shared<std::byte> memory_;
  WeightReader<columns>& weights_;
  VectorPosition<columns> position_;
  bool adds_squares_ = false;
};

}  // namespace farwarp::FARWARP_TARGET::fleet
