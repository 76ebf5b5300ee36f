// The sums of a group of tiles on CDNA: a wave loads a pass of its eighth of the vector into shared memory, and
// multiplies it by its eighth of each tile.
#pragma once

#include "farwarp/fleet/stream.dev.h"

namespace farwarp::FARWARP_TARGET::fleet {

template <int columns>
class MfmaMultiplier {
 public:
  static constexpr int kPortions = kGroupTiles;  ///< a tile each
  static constexpr int kBlockColumns = 16;       ///< of a product
  struct PortionSums {
    Sums of[columns / kBlockColumns];
  };

  FARWARP_DEVICE MfmaMultiplier(Shared<std::byte> memory, WeightReader<columns>& weights)
      : memory_(memory), weights_(weights) {}

  /// [the warps that compute] Of a norm's input, inverse roots are stored here, where no sums take registers.
  FARWARP_DEVICE void begin_task(const Worker<columns>& worker, const Task& task, const InputNorm& norm) const {
    if (norm.exists) store_inverse_roots(worker, task, norm);
  }
  /// [the warps that compute] Group `group_number` of a task: the whole vector. `sums` are zeros before.
  FARWARP_DEVICE void multiply(Call& call, const Worker<columns>& worker, const Task& group, int group_number,
                               std::uint32_t site, PortionSums (&sums)[kPortions]) {
    const GroupWeights weights(weights_.weights() + group.weights, worker.number(), group, group_number);
    const int passes = group.matrix.passes(), pass_slices = group.matrix.pass_slices();
    const int tiles = (group.count + 1) / 2 * 2;
    Fragments loaded[2];
    weights.load(weights.place_of(0), 0, loaded[0]);
#pragma unroll 1
    for (int pass = 0; pass < passes; ++pass) {
      const int first = pass * pass_slices, rest = group.matrix.slices - first;
      const int slices = rest < pass_slices ? rest : pass_slices;
      warp_sync();  // the pass before has been multiplied
      PassVector<columns>(memory_).fetch(call, worker, group.in, first, slices, site);
#pragma unroll
      for (int tile = 0; tile < kGroupTiles; ++tile) {
        if (tile >= tiles) continue;
        const bool last = tile + 1 >= tiles;
        const auto first_tile = weights.place_of(0), next_tile = weights.place_of((tile + 1) % kGroupTiles);
        weights.load({last ? first_tile.first : next_tile.first, last ? first_tile.step : next_tile.step},
                     last ? first + pass_slices : first, loaded[(tile + 1) % 2]);
        schedule_fence();
#pragma unroll
        for (int slice = 0; slice < kPassSlices; ++slice) {
          if (slice < slices) multiply_slice(sums[tile], loaded[tile % 2].of[slice], slice);
        }
      }
    }
  }

  /// [the warps that compute] Of a portion.
  FARWARP_DEVICE void store_partials(const PortionSums& sums) const {
    const Shared<float> to =
        SharedSums<columns>{memory_}.floats(ProjectShared<columns, false>::partials(0, warp_index()));
#pragma unroll
    for (int block = 0; block < columns / kBlockColumns; ++block) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const MatrixIndex at = sum_index(lane_index(), i);
        store(to + (portion_sums_at(columns, 0, block * kBlockColumns + at.column, at.row) + at.row % 4),
              sums.of[block][i]);
      }
    }
  }

 private:
  static constexpr int kPassSlices = most_pass_slices(columns, false);
  /// A warp's part of a pass of a tile: of each slice two fragments.
  struct Fragments {
    Vec16 of[kPassSlices];
  };
  /// Where the warp's fragments of a group's tiles lie.
  class GroupWeights {
    static constexpr int kPairs = kGroupTiles / 2;

   public:
    FARWARP_DEVICE GroupWeights(Global<const std::byte> weights, int worker, const Task& group, int number)
        : weights_(weights + warp_index() * kSliceFragments * kFragmentBytes), last_(group.matrix.slices - 1) {
#pragma unroll
      for (int i = 0; i < kPairs; ++i) {
        const MatrixShape::Pair pair = group.matrix.pair_of(num_blocks(), worker, number * kPairs + i);
        first_[i] = pair.first * kSliceBytes;
        step_[i] = pair.step * kSliceBytes;
        second_[i] = pair.tiles > 1 ? kSliceBytes : 0;
      }
    }
    struct Place {
      std::int64_t first;  ///< of a tile's first slice, in bytes
      std::int32_t step;   ///< to the next one
    };
    /// A pair's second tile, if it does not exist, is the first one again.
    FARWARP_DEVICE Place place_of(int tile) const {
      return {first_[tile / 2] + (tile % 2 == 0 ? 0 : second_[tile / 2]), step_[tile / 2]};
    }
    /// [warp] Loads a tile's slices from `slice` on; after the last one, that again.
    FARWARP_DEVICE void load(const Place& tile, int slice, Fragments& fragments) const {
      static_assert(kSliceFragments == 2);
#pragma unroll
      for (int i = 0; i < kPassSlices; ++i) {
        const int at = slice + i < last_ ? slice + i : last_;
        const Global<const std::byte> from = weights_ + (tile.first + std::int64_t{at} * tile.step);
        fragments.of[i] = {load_fragment(from).words[0], load_fragment(from + kFragmentBytes).words[0]};
      }
    }

   private:
    Global<const std::byte> weights_;
    int last_;
    std::int64_t first_[kPairs];
    std::int32_t step_[kPairs], second_[kPairs];
  };

  /// [the warps that compute] The warps take a few tiles in turn, and add their squares.
  FARWARP_DEVICE void store_inverse_roots(const Worker<columns>& worker, const Task& task,
                                          const InputNorm& norm) const {
    constexpr int kPairs = column_pairs(columns), kAtOnce = Target::kWarpSize / kPairs, kTogether = 8;
    const int tiles = norm.rows / kTileRows, pair = lane_index() % kPairs;
    float first = 0, second = 0;
#pragma unroll 1
    for (int begin = 0; begin < tiles; begin += kTogether * kWarps * kAtOnce) {
      std::uint64_t data[kTogether] = {};
#pragma unroll
      for (int i = 0; i < kTogether; ++i) {
        const int tile = begin + (i * kWarps + warp_index()) * kAtOnce + lane_index() / kPairs;
        if (tile < tiles) data[i] = load(worker.buffers.plain_at(task.in) + squares_at(columns, norm.rows, tile, pair));
      }
#pragma unroll
      for (const std::uint64_t bits : data) {
        const Two two = unpack_two(bits);
        first = add(first, two.first);
        second = add(second, two.second);
      }
    }
#pragma unroll
    for (int lanes = kPairs; lanes < Target::kWarpSize; lanes *= 2) {
      first = add(first, shuffle_xor(first, lanes));
      second = add(second, shuffle_xor(second, lanes));
    }
    if (lane_index() < kPairs) {
      const Shared<float> to = warp_squares<columns>(memory_) + (warp_index() * columns + 2 * pair);
      store(to, first);
      store(to + 1, second);
    }
    sync_warps();
    if (thread_index() < columns)
      store(warp_squares<columns>(memory_) + thread_index(),
            inverse_root_of_warps<columns>(memory_, norm, thread_index()));
  }
  /// [warp] Slice `slice` of the pass, of the warp's eighth.
  FARWARP_DEVICE void multiply_slice(PortionSums& sums, Vec16 weights, int slice) const {
    const Shared<const Vec16> from =
        Shared<const Vec16>(reinterpret_cast<const Vec16*>(
            (memory_ + (ProjectShared<columns, false>::vector(warp_index()) + slice * kSliceFragments * columns * 32))
                .raw)) +
        (operand_column(lane_index()) * 4 + operand_four(lane_index()));
    Vec16 fours[columns / kBlockColumns];
#pragma unroll
    for (int block = 0; block < columns / kBlockColumns; ++block) fours[block] = load(from + block * kBlockColumns * 4);
#pragma unroll
    for (int block = 0; block < columns / kBlockColumns; ++block) mfma<Bf16>(sums.of[block], weights, fours[block]);
  }

  Shared<std::byte> memory_;
  WeightReader<columns>& weights_;
};

}  // namespace farwarp::FARWARP_TARGET::fleet
