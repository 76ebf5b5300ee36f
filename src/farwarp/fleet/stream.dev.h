// How streamed vectors reach the warps that multiply, and the norm of a whole vector. STREAM.md describes it.
//
//   vector loader  wait the step -> for each group and stage: wait empty[v] -> copy the stage of the vector -> full[v]
#pragma once

#include "farwarp/fleet/project.dev.h"

namespace farwarp::FARWARP_TARGET::fleet {

/// A task with the tiles of one group. Its matrix and weights are still those of the whole task.
template <int columns>
FARWARP_DEVICE Task group_of(const Task& task, int number) {
  constexpr int kTogether = tiles_together(columns, Target::kHasBulkCopy);
  Task group = task;
  const int before = number * kTogether, rest = task.count - before;
  group.first += before;
  group.count = rest < kTogether ? rest : kTogether;
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

  /// [thread] Loads a task's input, once for each group of its tiles. The thread has waited for the step. False if a wait has expired.
  FARWARP_DEVICE bool load(const Task& task) {
    proxy_fence();  // threads have stored the vector
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

}  // namespace farwarp::FARWARP_TARGET::fleet
