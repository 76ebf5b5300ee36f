// The sums of a group of tiles on Hopper, while a vector streams by: its columns are A, a pair of tiles is B, both in shared memory. The two warpgroups take
// the stages of the vector in turn.
//
//   warpgroup   wait full[v] -> for each pair: wait full[w] -> wgmma -> wait until they have been multiplied: empty[w];  after all pairs: empty[v]
#pragma once

#include "farwarp/fleet/stream.dev.h"

namespace farwarp::FARWARP_TARGET::fleet {

template <int columns>
class WgmmaMultiplier {
 public:
  static constexpr int kUnits = tiles_together(true) / kUnitTiles;
  /// A thread's sums of a pair: of rows of its warp's 16 columns of the vector.
  using PairSums = float[kPairRows / 2];
  using UnitSums = PairSums[kUnitTiles / kSlotStages];

  FARWARP_DEVICE WgmmaMultiplier(Shared<std::byte> memory, WeightReader<columns>& weights)
      : memory_(memory), weights_(weights) {}

  /// [the warps that compute] The squares of a norm's input are added after its first group.
  FARWARP_DEVICE void begin_task(const Call&, const StreamWorker&, const Task&, const InputNorm& norm) {
    adds_squares_ = norm.exists;
  }
  /// [the warps that compute] The whole vector. `sums` are zeros before.
  FARWARP_DEVICE void multiply(Call&, const StreamWorker&, const Task& group, int, std::uint32_t,
                               UnitSums (&sums)[kUnits]) {
    static_assert(knows_all_phases());
    const int stages = uniform(group.matrix.stages), count = uniform(group.count);
    const int pairs = (count + kSlotStages - 1) / kSlotStages;
    const auto skip = [&](int number) {
      position_.advance(number);
      weights_.skip(number * pairs);
    };
    skip(warpgroup() < stages ? warpgroup() : stages);
#pragma unroll 1
    for (int stage = warpgroup(); stage < stages; stage += kWarpgroups) {
      const auto ring = vector_ring<columns>(memory_);
      wait_mbarrier(weights_.waits(), weights_.view(), ring.full(position_.stage), position_.parity);
#pragma unroll
      for (int pair = 0; pair < kPairs; ++pair) {
        if (pair < pairs) multiply_pair(sums[pair / kOfUnit][pair % kOfUnit], count - pair * kSlotStages);
      }
      warp_sync();
      if (lane_index() == 0) mbarrier_arrive(ring.empty(position_.stage));
      position_.advance();
      skip(stage + 1 < stages ? 1 : 0);
    }
    if (adds_squares_) add_squares(stages);
    adds_squares_ = false;
#pragma unroll
    for (UnitSums& of_unit : sums) {
#pragma unroll
      for (PairSums& of_pair : of_unit) wgmma_wait_sums<0>(of_pair);
    }
  }

  /// [the warps that compute] Of a unit.
  FARWARP_DEVICE void store_partials(const UnitSums& sums) const {
    const int thread = recomputed(thread_index()) % kGroupThreads;
    const int column = wgmma_sum(thread, 0).row;  // of the vector, and 8 later
    if (columns < kMostColumns && column / 16 >= columns / 16) return;
    const Shared<float> to =
        SharedSums<columns>{memory_}.floats(ProjectShared<columns, true>::partials(0, warpgroup()));
#pragma unroll
    for (int pair = 0; pair < kOfUnit; ++pair) {
#pragma unroll
      for (int i = 0; i < kPairRows / 2; i += 2) {
        const MatrixIndex at = wgmma_sum(thread, i);  // and the row of weights after it
        const int row = at.column % kTileRows, tile = pair * kSlotStages + at.column / kTileRows;
        store(Shared<std::uint64_t>(
                  reinterpret_cast<std::uint64_t*>((to + (unit_sums_at(columns, tile, at.row, row) + row % 4)).raw)),
              pack_two(sums[pair][i], sums[pair][i + 1]));
      }
    }
  }

 private:
  static constexpr bool knows_all_phases() {
    for (int slots = 1; slots <= kPairs; ++slots) {
      if (!knows_phases(columns, slots)) return false;
    }
    return vector_slots(columns) % kWarpgroups ==
           0;  // the stage that a slot of the vector had before was the same warpgroup's
  }
  static constexpr int kGroupThreads = 128, kWarpgroups = kWorkerThreads / kGroupThreads;
  static constexpr int kPairs = tiles_together(true) / kSlotStages, kOfUnit = kUnitTiles / kSlotStages;
  static FARWARP_DEVICE int warpgroup() { return uniform(warp_index() / 4); }

  /// [the warps that compute] The squares that follow a vector of `stages` stages: the warpgroups go on to take stages in turn. A thread adds those of four
  /// columns.
  FARWARP_DEVICE void add_squares(int stages) {
    constexpr int kFours = columns / 4, kAtOnce = kGroupThreads / kFours;
    constexpr int kTiles = vector_stage_bytes(columns) / squares_bytes(columns, kTileRows);  ///< of a stage
    const int tiles = stages * kStageColumns / kTileRows, thread = thread_index() % kGroupThreads;
    const int copies = (tiles + kTiles - 1) / kTiles, first = (stages + warpgroup()) % kWarpgroups;
    const auto ring = vector_ring<columns>(memory_);
    float sums[4] = {};
    position_.advance(first < copies ? first : copies);
#pragma unroll 1
    for (int copy = first; copy < copies; copy += kWarpgroups) {
      wait_mbarrier(weights_.waits(), weights_.view(), ring.full(position_.stage), position_.parity);
      const Shared<const Vec16> from(
          reinterpret_cast<const Vec16*>((memory_ + ProjectShared<columns, true>::vector_stage(position_.stage)).raw));
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

  /// [warpgroup] A stage of a pair, of `tiles` tiles or more.
  FARWARP_DEVICE void multiply_pair(PairSums& sums, int tiles) {
    constexpr int kDepth = 16;
    weights_.wait_stage(0);
    const int of_pair = tiles < kSlotStages ? tiles : kSlotStages;
    const MatrixPart weights{Shared<const std::byte>(weights_.slot().raw), pair_panel_bytes(of_pair),
                             of_pair * kTileRows};
    const Shared<std::byte> stage = memory_ + ProjectShared<columns, true>::vector_stage(uniform(position_.stage));
    const MatrixPart vector{Shared<const std::byte>(stage.raw), columns * kSwizzleRowBytes, columns};
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < kStageColumns; k += kDepth) wgmma_part<Bf16, kPairRows>(sums, vector, weights, k, true);
    wgmma_commit();
    wgmma_wait_read<0>();
    weights_.template release<kWarpgroups>(kSlotStages);
  }

  Shared<std::byte> memory_;
  WeightReader<columns>& weights_;
  VectorPosition<columns> position_;
  bool adds_squares_ = false;
};

}  // namespace farwarp::FARWARP_TARGET::fleet
