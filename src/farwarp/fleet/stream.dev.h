// How streamed vectors reach the warps that multiply, and the norm of a whole vector. STREAM.md draws and explains it.
#pragma once

#include "farwarp/fleet/project.dev.h"

namespace farwarp::FARWARP_TARGET::fleet {

/// A task with the tiles of one group. Its matrix and weights are still those of the whole task.
FARWARP_DEVICE Task group_of(const Task& task, int group_number) {
  Task group = task;
  const int before = group_number * kGroupTiles, rest = task.count - before;
  group.first += before;
  group.count = rest < kGroupTiles ? rest : kGroupTiles;
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
  FARWARP_DEVICE VectorLoader(const WorldView& view, Shared<std::byte> memory, PlainBuffers buffers)
      : view_(view), memory_(memory), buffers_(buffers) {}

  /// [thread] Loads a task's input, once for each group of its tiles; for the first one also the squares of a norm's
  /// input, which follow it. The thread has waited for the step. False if a wait has expired.
  FARWARP_DEVICE bool load(const Task& task, bool normed) {
    proxy_fence();  // threads have stored the vector
    constexpr int kSlice = vector_slice_bytes(columns);
    const std::byte* const vector = buffers_.memory + task.in;
    const int groups = task.matrix.groups(task.count);
    int squares = normed ? squares_bytes(columns, task.matrix.slices * kSliceDepth) : 0;
    for (int group = 0; group < groups; ++group, squares = 0) {
      const int end = task.matrix.slices * kSlice + squares;
      for (int at = 0; at < end; at += kSlice) {
        const auto ring = vector_ring<columns>(memory_);
        if (!wait_mbarrier(waits_, view_, ring.empty(next_.stage), next_.parity ^ 1)) return false;
        const int bytes = end - at < kSlice ? end - at : kSlice;
        mbarrier_arrive_expect(ring.full(next_.stage), bytes);
        bulk_load(memory_ + ProjectShared<columns, true>::vector_slice(next_.stage),
                  Global<const std::byte>(vector + at), bytes, ring.full(next_.stage));
        next_.advance();
        if (issued_ < vector_slots(columns)) ++issued_;
      }
    }
    return true;
  }
  /// [thread] Waits until all copies have landed: a block must not end before.
  FARWARP_DEVICE void drain() {
    BlockWaits waits;
    // The last copy of each slot. next_ has the parity of a slot's next phase, so that of its last copy is the other.
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
  PlainBuffers buffers_;
  VectorPosition<columns> next_;
  int issued_ = 0;  ///< copies that a slot may still wait for
  BlockWaits waits_;
};

/// What each warp has added of the squares of a task's input, [warps][columns]. `memory`: laid out as ProjectShared.
template <int columns>
FARWARP_DEVICE Shared<float> warp_squares(Shared<std::byte> memory) {
  return SharedSums<columns>{memory}.floats(ProjectShared<columns, Target::kHasBulkCopy>::kSquares);
}
/// [thread] The inverse root of the mean of a column's squares. A barrier lies between the warps' stores of theirs and
/// this call. The order in which they are added is fixed.
template <int columns>
FARWARP_DEVICE float inverse_root_of_warps(Shared<std::byte> memory, const InputNorm& norm, int column) {
  float squares = 0;
#pragma unroll
  for (int warp = 0; warp < kWarps; ++warp)
    squares = add(squares, load(warp_squares<columns>(memory) + (warp * columns + column)));
  return inverse_root(squares, norm.rows, norm.epsilon);
}
/// [thread] The same, where tiles are finished. On CDNA, which has no registers left there, it has been stored in place
/// of the first warp's squares.
template <int columns>
FARWARP_DEVICE float inverse_root_of_column(Shared<std::byte> memory, const InputNorm& norm, int column) {
  if constexpr (kMfma) return load(warp_squares<columns>(memory) + column);
  return inverse_root_of_warps<columns>(memory, norm, column);
}

}  // namespace farwarp::FARWARP_TARGET::fleet
