// The slots of a task's weights in the order in which a worker loads them. Their places are those of
// MatrixShape::slice_at(). Division is slow, so a task divides once, and each slot's place follows from the one before.
#pragma once

#include <cstdint>

#include "farwarp/fleet/layout.h"

namespace farwarp::fleet {

/// Of a matrix without groups. `worker` is one of `workers` of the launch, and the task's tiles are all that it has of
/// the matrix.
class SlotCursor {
 public:
  constexpr SlotCursor(const Task& task, int workers, int worker)
      : matrix_(task.matrix),
        weights_(task.weights),
        workers_(workers),
        worker_(worker),
        count_(task.count),
        passes_(count_ > 0 ? matrix_.passes() : 0),
        pass_slices_(passes_ > 0 ? matrix_.pass_slices() : 0),
        base_(matrix_.tiles / workers),
        rest_(matrix_.tiles - base_ * workers) {
    begin_tile();
  }

  constexpr bool exists() const { return pass_ < passes_; }
  /// In bytes from the weights' begin.
  constexpr std::int64_t offset() const { return offset_; }
  constexpr int bytes() const { return slices_ < kSlotSlices ? kSliceBytes : kSlotBytes; }
  /// The tile has no later slot in this pass.
  constexpr bool ends_tile() const { return slices_ <= kSlotSlices; }
  constexpr void advance() {
    slices_ -= kSlotSlices;
    if (slices_ > 0) {
      offset_ += step_;
      if (slices_ < kSlotSlices) offset_ -= worker_ * kSliceBytes;  // half slots lie side by side
      return;
    }
    if (++tile_ == count_) {
      tile_ = 0;
      ++pass_;
    }
    begin_tile();
  }

 private:
  constexpr void begin_tile() {
    if (!exists()) return;
    const int before = pass_ * pass_slices_, rest = matrix_.slices - before;
    slices_ = rest < pass_slices_ ? rest : pass_slices_;
    const bool all = tile_ < base_;  // all workers have this tile
    const int side_by_side = all ? workers_ : rest_;
    step_ = side_by_side * kSlotBytes;
    const int in_slot = slices_ < kSlotSlices ? 1 : kSlotSlices;
    offset_ = weights_ + (std::int64_t{before} * matrix_.tiles +
                          std::int64_t{all ? tile_ : base_} * slices_ * workers_ + worker_ * in_slot) *
                             kSliceBytes;
  }

  MatrixShape matrix_;
  std::int64_t weights_, offset_ = 0;
  int workers_, worker_;
  int count_, tile_ = 0, pass_ = 0, passes_, pass_slices_;
  int base_, rest_;            ///< tiles of every worker; workers that have one more
  int slices_ = 0, step_ = 0;  ///< of this tile those that are left; bytes from slot to slot
};

}  // namespace farwarp::fleet
