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
    const int passes = group.matrix.passes();
#pragma unroll 1
    for (int pass = 0; pass < passes; ++pass) {
      warp_sync();  // the pass before has been multiplied
      PassVector<columns>(memory_).fetch(call, worker, group.in, pass * group.matrix.pass_slices(),
                                         group.matrix.slices_of(pass), site);
#pragma unroll
      for (int tile = 0; tile < kGroupTiles; ++tile) {
        if (tile < group.count) multiply_pass(group, pass, group_number * kGroupTiles + tile, sums[tile]);
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
  /// [warp] A pass of a tile. `tile`: of the worker.
  FARWARP_DEVICE void multiply_pass(const Task& group, int pass, int tile, PortionSums& sums) {
    Fragment fragments[kSliceFragments] = {};
    weights_.read(group, pass, tile, [&](int i, const Fragment& fragment) {
      fragments[i % kSliceFragments] = fragment;
      if (i % kSliceFragments == kSliceFragments - 1) multiply_slice(sums, fragments, i / kSliceFragments);
    });
  }
  /// [warp] Slice `slice` of the pass, of the warp's eighth.
  FARWARP_DEVICE void multiply_slice(PortionSums& sums, const Fragment (&weights)[kSliceFragments], int slice) const {
    static_assert(kSliceFragments == 2);
    const Shared<const Vec16> from =
        Shared<const Vec16>(reinterpret_cast<const Vec16*>(
            (memory_ + (ProjectShared<columns, false>::vector(warp_index()) + slice * kSliceFragments * columns * 32))
                .raw)) +
        (operand_column(lane_index()) * 4 + operand_four(lane_index()));
    Vec16 fours[columns / kBlockColumns];
#pragma unroll
    for (int block = 0; block < columns / kBlockColumns; ++block) fours[block] = load(from + block * kBlockColumns * 4);
#pragma unroll
    for (int block = 0; block < columns / kBlockColumns; ++block)
      multiply_fragment(sums.of[block], weights[0], fours[block].lo);
#pragma unroll
    for (int block = 0; block < columns / kBlockColumns; ++block)
      multiply_fragment(sums.of[block], weights[1], fours[block].hi);
  }

  Shared<std::byte> memory_;
  WeightReader<columns>& weights_;
};

}  // namespace farwarp::FARWARP_TARGET::fleet
