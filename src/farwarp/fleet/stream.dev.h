// Products with streamed vectors: of more than eight columns a pass is a few stages of the vector, and the sums of a group of tiles are in registers
// until the whole vector has been multiplied. STREAM.md describes it.
//
//   vector loader  wait the step -> for each group and pass: wait empty[v] -> copy a stage of the vector -> full[v]
//   warps          wait full[v] of a pass -> multiply its stages by the weights of each tile of the group -> empty[v]
//                  after the last pass: partial sums of a tile -> barrier -> finish it -> barrier
#pragma once

#include "farwarp/fleet/project.dev.h"

namespace farwarp::FARWARP_TARGET::fleet {

/// A task's tiles of one group, as a task of their own.
FARWARP_DEVICE Task group_of(const Task& task, int number) {
  Task group = task;
  const int before = number * task.matrix.together, rest = task.count - before;
  group.matrix = task.matrix.group(num_blocks(), number);
  group.weights += std::int64_t{task.matrix.tiles_before(num_blocks(), number)} * task.matrix.stages * kStageBytes;
  group.first += before;
  group.count = rest < task.matrix.together ? rest : task.matrix.together;
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

/// A pass of a streamed vector, as a warp multiplies it.
template <int columns>
class StreamedVector {
 public:
  using Layout = ProjectShared<columns, Target::kHasBulkCopy>;

  FARWARP_DEVICE explicit StreamedVector(Shared<std::byte> memory) : memory_(memory) {}

  /// [warp] Waits for `stages` stages from `first` on.
  FARWARP_DEVICE void wait(WeightReader<columns>& weights, Call& call, const StreamWorker& worker, std::int64_t vector,
                           int first, int stages, std::uint32_t site) {
    if constexpr (Target::kHasBulkCopy) {
      for (int stage = 0; stage < stages; ++stage) {
        const auto at = position_of(stage);
        wait_mbarrier(weights.waits(), weights.view(), vector_ring<columns>(memory_).full(at.stage), at.parity);
      }
    } else {
      warp_sync();  // the pass before has been multiplied
      PassVector<columns>(memory_).wait(call, worker, vector, first, stages, site);
    }
  }
  /// [warp] Frees them.
  FARWARP_DEVICE void release(int stages) {
    if constexpr (Target::kHasBulkCopy) {
      warp_sync();
      if (lane_index() < stages) mbarrier_arrive(vector_ring<columns>(memory_).empty(position_of(lane_index()).stage));
      position_.advance(stages);
    }
  }
  /// The lane's part of two fragments of a stage of the pass, of its eighth `eighth` (without a thread that loads vectors: the warp's), from `column` on; block i of
  /// columns is i * kBlockColumns * 4 on.
  FARWARP_DEVICE Shared<const Vec16> stage(int number, int eighth, int column) const {
    int offset;
    if constexpr (Target::kHasBulkCopy) {
      offset = Layout::vector_stage(position_of(number).stage) + eighth * kStageFragments * columns * 32;
    } else {
      offset = Layout::vector(eighth) + number * kStageFragments * columns * 32;
    }
    return Shared<const Vec16>(reinterpret_cast<const Vec16*>((memory_ + offset).raw)) +
           ((column + operand_column(lane_index())) * 4 + operand_four(lane_index()));
  }
  static constexpr int kBlockColumns = kMfma ? 16 : 8;  ///< of a product

 private:
  FARWARP_DEVICE VectorPosition<columns> position_of(int ahead) const {
    VectorPosition<columns> position = position_;
    position.advance(ahead);
    return position;
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
      Task group = group_of(task, number);
      BlockSums sums[kTogether] = {};
      multiply(call, worker, group, site, sums);
      group.matrix = task.matrix;  // partial sums of ranks lie by its tiles
#pragma unroll 1
      for (int tile = 0; tile < group.count; ++tile) {
#pragma unroll
        for (int i = 0; i < kTogether; ++i) {
          if (i == tile) store_partials(sums[i]);
        }
        sync_warps();
        finish(group, tile);
        sync_warps();
      }
    }
  }

 private:
  static constexpr int kTogether = tiles_together(columns), kParts = column_parts(columns, Target::kHasBulkCopy),
                       kPartColumns = columns / kParts, kBlocks = kPartColumns / StreamedVector<columns>::kBlockColumns;
  struct BlockSums {
    Sums of[kBlocks];
  };

  FARWARP_DEVICE void multiply(Call& call, const StreamWorker& worker, const Task& group, std::uint32_t site,
                               BlockSums (&sums)[kTogether]) {
    const int passes = group.matrix.passes();
#pragma unroll 1
    for (int pass = 0; pass < passes; ++pass) {
      const int stages = group.matrix.stages_of(pass);
      vector_.wait(weights_, call, worker, group.in, pass * group.matrix.pass_stages(), stages, site);
#pragma unroll
      for (int tile = 0; tile < kTogether; ++tile) {
        if (tile >= group.count) continue;
        weights_.template read_stages<kParts>(
            group, pass, tile, first_eighth(), [&](int stage, int part, const Fragment(&weights)[kStageFragments]) {
              static_assert(kStageFragments == 2);
              const Shared<const Vec16> from = vector_.stage(stage, first_eighth() + part, first_column());
              Vec16 fours[kBlocks];
#pragma unroll
              for (int block = 0; block < kBlocks; ++block)
                fours[block] = load(from + block * StreamedVector<columns>::kBlockColumns * 4);
#pragma unroll
              for (int block = 0; block < kBlocks; ++block)
                multiply_fragment(sums[tile].of[block], weights[0], fours[block].lo);
#pragma unroll
              for (int block = 0; block < kBlocks; ++block)
                multiply_fragment(sums[tile].of[block], weights[1], fours[block].hi);
            });
      }
      vector_.release(stages);
    }
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
