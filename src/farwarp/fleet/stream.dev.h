// Products with streamed vectors: of more than eight columns the sums of a group of tiles are in registers until the whole vector has been multiplied, a
// stage at a time. STREAM.md describes it.
//
//   vector loader  wait the step -> for each group and stage: wait empty[v] -> copy the stage of the vector -> full[v]
//   warps          wait full[v] -> multiply the stage by the weights of each pair of the group's tiles -> empty[v]
//                  after the last stage: partial sums of a tile -> barrier -> finish it -> barrier
#pragma once

#include "farwarp/fleet/project.dev.h"

namespace farwarp::FARWARP_TARGET::fleet {

/// A task with the tiles of one group. Its matrix and weights are still those of the whole task.
FARWARP_DEVICE Task group_of(const Task& task, int number) {
  Task group = task;
  const int before = number * kTilesTogether, rest = task.count - before;
  group.first += before;
  group.count = rest < kTilesTogether ? rest : kTilesTogether;
  return group;
}

template <int columns>
using VectorRing = tile::Ring<vector_slots(columns)>;
template <int columns>
using VectorPosition = tile::RingPosition<vector_slots(columns)>;

/// `memory`: laid out as ProjectShared.
template <int columns>
FARWARP_DEVICE VectorRing<columns> vector_ring(Shared<std::byte> memory) {
  return VectorRing<columns>(memory + ProjectShared<columns, true>::kVectorRing);
}

/// The thread of a worker that loads vectors.
template <int columns>
class VectorLoader {
 public:
  FARWARP_DEVICE VectorLoader(const WorldView& view, Shared<std::byte> memory, const StreamWorker& worker)
      : view_(view), memory_(memory), worker_(worker) {}

  /// [thread] Loads a task's input, once for each group of its tiles. False if a wait has expired.
  FARWARP_DEVICE bool load(const Task& task) {
    const std::byte* const vector =
        reinterpret_cast<const std::byte*>(worker_.data_of(vector_at(view_, task.in).raw).raw);
    const int groups = task.matrix.groups(task.count);
    for (int group = 0; group < groups; ++group) {
      for (int stage = 0; stage < task.matrix.stages; ++stage) {
        const auto ring = vector_ring<columns>(memory_);
        if (!wait_mbarrier(waits_, view_, ring.empty(next_.stage), next_.parity ^ 1)) return false;
        constexpr int kBytes = vector_stage_bytes(columns);
        mbarrier_arrive_expect(ring.full(next_.stage), kBytes);
        bulk_load(memory_ + ProjectShared<columns, true>::vector_stage(next_.stage),
                  Global<const std::byte>(vector + std::int64_t{stage} * kBytes), kBytes, ring.full(next_.stage));
        next_.advance();
        if (issued_ < vector_slots(columns)) ++issued_;
      }
    }
    return true;
  }
  /// [thread] Waits until all copies have landed: a block must not end before.
  FARWARP_DEVICE void drain() {
    BlockWaits waits;
    // Of a slot's last copy; a slot that no reader has freed since has its parity.
    for (; issued_ > 0; --issued_) {
      VectorPosition<columns> last = next_;
      last.advance(vector_slots(columns) - issued_);
      wait_mbarrier(waits, view_, vector_ring<columns>(memory_).full(last.stage), last.parity ^ 1);
    }
  }
  FARWARP_DEVICE BlockWaits& waits() { return waits_; }

 private:
  const WorldView& view_;
  Shared<std::byte> memory_;
  StreamWorker worker_;
  VectorPosition<columns> next_;
  int issued_ = 0;  ///< copies that a slot may still wait for
  BlockWaits waits_;
};

/// A streamed vector, as a warp multiplies it: a stage at a time where a thread loads it, else a pass of a few.
template <int columns>
class StreamedVector {
 public:
  using Layout = ProjectShared<columns, Target::kHasBulkCopy>;
  static constexpr int kBlockColumns = kMfma ? 16 : 8;  ///< of a product

  FARWARP_DEVICE explicit StreamedVector(Shared<std::byte> memory) : memory_(memory) {}

  /// [warp] Waits for the next stage.
  FARWARP_DEVICE void wait(BlockWaits& waits, const WorldView& view) const {
    wait_mbarrier(waits, view, vector_ring<columns>(memory_).full(position_.stage), position_.parity);
  }
  /// [warp] Frees it.
  FARWARP_DEVICE void release() {
    warp_sync();
    if (lane_index() == 0) mbarrier_arrive(vector_ring<columns>(memory_).empty(position_.stage));
    position_.advance();
  }
  /// The lane's part of two fragments of the stage, of its eighth `eighth`, from `column` on; block i of columns is i * kBlockColumns * 4 on.
  FARWARP_DEVICE Shared<const Vec16> loaded(int eighth, int column) const {
    return at(Layout::vector_stage(position_.stage) + eighth * kStageFragments * columns * 32, column);
  }
  /// The same where the warp has loaded a pass: of stage `number` of the pass, of the warp's eighth.
  FARWARP_DEVICE Shared<const Vec16> of_pass(int number) const {
    return at(Layout::vector(warp_index()) + number * kStageFragments * columns * 32, 0);
  }

 private:
  FARWARP_DEVICE Shared<const Vec16> at(int offset, int column) const {
    return Shared<const Vec16>(reinterpret_cast<const Vec16*>((memory_ + offset).raw)) +
           ((column + operand_column(lane_index())) * 4 + operand_four(lane_index()));
  }

  Shared<std::byte> memory_;
  VectorPosition<columns> position_;
};

/// The inverse roots of the mean squares of a task's input, [columns]. `memory`: laid out as ProjectShared.
template <int columns>
FARWARP_DEVICE Shared<float> inverses(Shared<std::byte> memory) {
  return SharedSums<columns>{memory}.floats(ProjectShared<columns, Target::kHasBulkCopy>::kInverses);
}

/// [the warps that compute] Computes them. Each warp adds the squares of every eighth few tiles, then a thread those of the warps, so that their order is
/// fixed. Uses the memory of partial sums.
template <int columns>
FARWARP_DEVICE void store_inverses(const Call& call, const StreamWorker& worker, const Task& task,
                                   const InputNorm& norm, Shared<std::byte> memory) {
  using Layout = ProjectShared<columns, Target::kHasBulkCopy>;
  constexpr int kPairs = column_pairs(columns), kAtOnce = Target::kWarpSize / kPairs, kTogether = 8;
  const int tiles = norm.rows / kTileRows, pair = lane_index() % kPairs;
  float first = 0, second = 0;
#pragma unroll 1
  for (int begin = 0; begin < tiles; begin += kTogether * kWarps * kAtOnce) {
    std::uint64_t data[kTogether] = {};
#pragma unroll
    for (int i = 0; i < kTogether; ++i) {
      const int tile = begin + (i * kWarps + warp_index()) * kAtOnce + lane_index() / kPairs;
      if (tile < tiles)
        data[i] =
            load(worker.data_of((vector_at(call.view, task.in) + squares_at(columns, norm.rows, tile, pair)).raw));
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
  const SharedSums<columns> shared{memory};
  if (lane_index() < kPairs) {
    const Shared<float> to = shared.floats(Layout::partials(0, 0)) + (warp_index() * columns + 2 * pair);
    store(to, first);
    store(to + 1, second);
  }
  sync_warps();
  if (thread_index() < columns) {
    float squares = 0;
#pragma unroll
    for (int warp = 0; warp < kWarps; ++warp)
      squares = add(squares, load(shared.floats(Layout::partials(0, 0)) + (warp * columns + thread_index())));
    const float mean = divide(squares, static_cast<float>(norm.rows));
    store(inverses<columns>(memory) + thread_index(), exp2(multiply(-0.5f, log2(add(mean, norm.epsilon)))));
  }
  sync_warps();
}

/// A task that multiplies a matrix of weights by a streamed vector.
template <int columns>
class StreamedProjection {
 public:
  using Layout = ProjectShared<columns, Target::kHasBulkCopy>;

  FARWARP_DEVICE StreamedProjection(Shared<std::byte> memory, WeightReader<columns>& weights)
      : shared_{memory}, weights_(weights), vector_(memory) {}

  /// [the warps that compute] finish(group, tile) for each tile of each group, a task with these tiles of the whole matrix: partial sums are in buffer 0.
  template <class Finish>
  FARWARP_DEVICE void run(Call& call, const StreamWorker& worker, const Task& task, std::uint32_t site,
                          const Finish& finish) {
    const int groups = task.matrix.groups(task.count);
#pragma unroll 1
    for (int number = 0; number < groups; ++number) {
      const Task group = group_of(task, number);
      BlockSums sums[kTilesTogether] = {};
      multiply(call, worker, group, number, site, sums);
#pragma unroll 1
      for (int tile = 0; tile < group.count; ++tile) {
#pragma unroll
        for (int i = 0; i < kTilesTogether; ++i) {
          if (i == tile) store_partials(sums[i]);
        }
        sync_warps();
        finish(group, tile);
        sync_warps();
      }
    }
  }

 private:
  static constexpr int kParts = column_parts(columns, Target::kHasBulkCopy), kPartColumns = columns / kParts,
                       kBlocks = kPartColumns / StreamedVector<columns>::kBlockColumns;
  struct BlockSums {
    Sums of[kBlocks];
  };
  struct BlockFours {
    Vec16 of[kBlocks];
  };

  /// [the warps that compute] Group `number` of a task.
  FARWARP_DEVICE void multiply(Call& call, const StreamWorker& worker, const Task& group, int number,
                               std::uint32_t site, BlockSums (&sums)[kTilesTogether]) {
    if constexpr (Target::kHasBulkCopy) {
#pragma unroll 1
      for (int stage = 0; stage < group.matrix.stages; ++stage) {
        vector_.wait(weights_.waits(), weights_.view());
#pragma unroll
        for (int tile = 0; tile < kTilesTogether; tile += 2) {
          if (tile < group.count) multiply_pair(sums[tile], sums[tile + 1], tile + 1 < group.count);
        }
        vector_.release();
      }
    } else {
      const int passes = group.matrix.passes();
#pragma unroll 1
      for (int pass = 0; pass < passes; ++pass) {
        warp_sync();  // the pass before has been multiplied
        PassVector<columns>(shared_.memory)
            .wait(call, worker, group.in, pass * group.matrix.pass_stages(), group.matrix.stages_of(pass), site);
#pragma unroll
        for (int tile = 0; tile < kTilesTogether; ++tile) {
          if (tile < group.count) multiply_pass(group, pass, number * kTilesTogether + tile, sums[tile]);
        }
      }
    }
  }

  static FARWARP_DEVICE BlockFours load_blocks(Shared<const Vec16> from) {
    BlockFours fours;
#pragma unroll
    for (int block = 0; block < kBlocks; ++block)
      fours.of[block] = load(from + block * StreamedVector<columns>::kBlockColumns * 4);
    return fours;
  }
  static FARWARP_DEVICE void multiply_blocks(BlockSums& sums, const Fragment (&weights)[kStageFragments],
                                             const BlockFours& fours) {
    static_assert(kStageFragments == 2);
#pragma unroll
    for (int block = 0; block < kBlocks; ++block) multiply_fragment(sums.of[block], weights[0], fours.of[block].lo);
#pragma unroll
    for (int block = 0; block < kBlocks; ++block) multiply_fragment(sums.of[block], weights[1], fours.of[block].hi);
  }

  /// [warp] A stage of two tiles, or of the first alone: the next slot.
  FARWARP_DEVICE void multiply_pair(BlockSums& first, BlockSums& second, bool both) {
    weights_.wait_stage(0);
    const auto fragments_of = [&](int tile, int eighth, Fragment(&fragments)[kStageFragments]) {
      const Shared<const std::byte> memory(weights_.stage(tile).raw);
#pragma unroll
      for (int i = 0; i < kStageFragments; ++i)
        fragments[i] = load_fragment(memory + (eighth * kStageFragments + i) * kFragmentBytes);
    };
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
      const BlockFours fours = load_blocks(vector_.loaded(first_eighth() + part, first_column()));
      Fragment fragments[kStageFragments];
      fragments_of(0, first_eighth() + part, fragments);
      multiply_blocks(first, fragments, fours);
      if (both) {
        fragments_of(1, first_eighth() + part, fragments);
        multiply_blocks(second, fragments, fours);
      }
    }
    weights_.release(kSlotStages);  // after the products: before them, registers would be moved
  }
  /// [warp] A pass of a tile, where there is no ring. `tile`: of the worker.
  FARWARP_DEVICE void multiply_pass(const Task& group, int pass, int tile, BlockSums& sums) {
    Fragment fragments[kStageFragments] = {};
    weights_.read(group, pass, tile, [&](int i, const Fragment& fragment) {
      fragments[i % kStageFragments] = fragment;
      if (i % kStageFragments == kStageFragments - 1)
        multiply_blocks(sums, fragments, load_blocks(vector_.of_pass(i / kStageFragments)));
    });
  }

  /// What the warp multiplies: kParts eighths of a stage's rows of the vector, one of kParts parts of the columns.
  static FARWARP_DEVICE int first_eighth() { return warp_index() / kParts * kParts; }
  static FARWARP_DEVICE int first_column() { return warp_index() % kParts * kPartColumns; }

  FARWARP_DEVICE void store_partials(const BlockSums& sums) const {
    const Shared<float> to = shared_.floats(Layout::partials(0, warp_index() / kParts)) + first_column() * kTileRows;
#pragma unroll
    for (int block = 0; block < kBlocks; ++block) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const MatrixIndex at = sum_index(lane_index(), i);
        store(to + ((block * StreamedVector<columns>::kBlockColumns + at.column) * kTileRows + at.row),
              sums.of[block][i]);
      }
    }
  }

  SharedSums<columns> shared_;
  WeightReader<columns>& weights_;
  StreamedVector<columns> vector_;
};

}  // namespace farwarp::FARWARP_TARGET::fleet
