// How a worker reads its stages of weights. Hopper: one warp loads them into a ring in shared memory and runs ahead of the tasks; the weights of the
// next task arrive while this one waits for activations. CDNA: each wave loads its fragments of a tile into registers.
#pragma once

#include "farwarp/fleet/product.dev.h"
#include "farwarp/tile/ring.dev.h"
#include "farwarp/world/device/wait.dev.h"

namespace farwarp::FARWARP_TARGET::fleet {

inline constexpr int kWorkerThreads = kWarps * Target::kWarpSize;  ///< that compute
inline constexpr bool kHasFinisher =
    Target::kHasBulkCopy;  ///< a warp that finishes tiles (project.dev.h), then one that loads weights
inline constexpr int kLoaderThread = kWorkerThreads + Target::kWarpSize;
inline constexpr int kBlockThreads = kWorkerThreads + (Target::kHasBulkCopy ? 2 * Target::kWarpSize : 0);

/// [the warps that compute] Barrier.
FARWARP_DEVICE void sync_warps() {
  if constexpr (Target::kHasBulkCopy) {
    group_sync(1, kWorkerThreads);
  } else {
    block_sync();
  }
}

using WeightRing = tile::Ring<kRingSlots>;
using RingPosition = tile::RingPosition<kRingSlots>;

FARWARP_DEVICE WeightRing weight_ring(Shared<std::byte> memory) { return WeightRing(memory + kRingSlots * kSlotBytes); }

/// The loading thread of a worker.
class WeightLoader {
 public:
  FARWARP_DEVICE WeightLoader(const WorldView& view, Shared<std::byte> memory, Global<const std::byte> weights)
      : view_(view), memory_(memory), weights_(weights) {}

  /// [thread] Issues the copies of a task's slots. False if a wait has expired.
  FARWARP_DEVICE bool load(const Task& task) {
    const MatrixShape& matrix = task.matrix;
    for (int pass = 0; pass < matrix.passes(); ++pass) {
      const int stages = matrix.stages_of(pass);
      for (int tile = 0; tile < task.count; ++tile) {
#pragma unroll 1
        for (int stage = 0; stage < stages; stage += kSlotStages) {
          const int bytes = stages - stage < kSlotStages ? kStageBytes : kSlotBytes;
          if (!begin_slot(bytes)) return false;
          copy(0,
               weights_ + task.weights + matrix.stage_at(num_blocks(), block_index(), pass, tile, stage) * kStageBytes,
               bytes);
        }
      }
    }
    return true;
  }
  /// [thread] Waits for the next slot, which copies of `bytes` in all are to fill. False if a wait has expired.
  FARWARP_DEVICE bool begin_slot(int bytes) {
    const WeightRing ring = weight_ring(memory_);
    if (!wait_mbarrier(waits_, view_, ring.empty(next_.stage), next_.parity ^ 1)) return false;
    if (in_flight_ == kSlotsInFlight) {
      if (!wait_mbarrier(waits_, view_, ring.full(landed_.stage), landed_.parity)) return false;
      landed_.advance();
      --in_flight_;
    }
    mbarrier_arrive_expect(ring.full(next_.stage), bytes);
    begun_ = next_.stage;
    next_.advance();
    ++in_flight_;
    return true;
  }
  /// [thread] Issues a copy into the slot that was begun last.
  FARWARP_DEVICE void copy(int offset, Global<const std::byte> from, int bytes) const {
    bulk_load(memory_ + (begun_ * kSlotBytes + offset), from, bytes, weight_ring(memory_).full(begun_));
  }
  /// [thread] Waits until all copies have landed: a block must not end before.
  FARWARP_DEVICE void drain() {
    BlockWaits waits;
    const WeightRing ring = weight_ring(memory_);
    for (; in_flight_ > 0; --in_flight_, landed_.advance())
      wait_mbarrier(waits, view_, ring.full(landed_.stage), landed_.parity);
  }
  FARWARP_DEVICE BlockWaits& waits() { return waits_; }

 private:
  const WorldView& view_;
  Shared<std::byte> memory_;
  Global<const std::byte> weights_;
  RingPosition next_, landed_;
  int in_flight_ = 0, begun_ = 0;
  BlockWaits waits_;
};

/// The fragments of weights, as a warp that computes gets them.
class WeightReader {
 public:
  FARWARP_DEVICE WeightReader(const WorldView& view, Shared<std::byte> memory, Global<const std::byte> weights)
      : view_(view), memory_(memory), weights_(weights) {}

  /// [warp] Multiplies the warp's columns of one tile and pass: use(i, fragment) for i from 0 to 2 * stages - 1.
  template <class Use>
  FARWARP_DEVICE void read(const Task& task, int pass, int tile, const Use& use) {
    if constexpr (Target::kHasBulkCopy) {
      read_ring(task.matrix.stages_of(pass), use);
    } else {
      read_memory(task, pass, tile, use);
    }
  }
  // Stages that are no weights, and are read as they are. `ahead`: of the next one, which begins a slot.
  FARWARP_DEVICE Shared<std::byte> stage(int ahead) const {
    return memory_ + (position_of(ahead / kSlotStages).stage * kSlotBytes + ahead % kSlotStages * kStageBytes);
  }
  /// [warp] Waits for its copy.
  FARWARP_DEVICE void wait_stage(int ahead) {
    const RingPosition position = position_of(ahead / kSlotStages);
    wait_mbarrier(waits_, view_, weight_ring(memory_).full(position.stage), position.parity);
  }
  /// [warp] Gives the next `stages` stages back, whole slots, at most a warp's lanes. Nothing where there is no ring.
  FARWARP_DEVICE void release(int stages) {
    if constexpr (Target::kHasBulkCopy) {
      const int slots = stages / kSlotStages;
      warp_sync();
      if (lane_index() < slots) mbarrier_arrive(weight_ring(memory_).empty(position_of(lane_index()).stage));
      position_.advance(slots);
    }
  }
  FARWARP_DEVICE BlockWaits& waits() { return waits_; }
  FARWARP_DEVICE const WorldView& view() const { return view_; }

 private:
  FARWARP_DEVICE RingPosition position_of(int ahead) const {
    RingPosition position = position_;
    position.advance(ahead);
    return position;
  }
  template <class Use>
  FARWARP_DEVICE void read_ring(int stages, const Use& use) {
    const WeightRing ring = weight_ring(memory_);
#pragma unroll
    for (int stage = 0; stage < kMostPassStages; stage += kSlotStages) {
      if (stage >= stages) break;  // a branch less for each slot
      read_slot(ring, stage, stages, use);
    }
  }
  template <class Use>
  FARWARP_DEVICE void read_slot(const WeightRing& ring, int stage, int stages, const Use& use) {
    wait_mbarrier(waits_, view_, ring.full(position_.stage), position_.parity);
    const Shared<const std::byte> memory =
        memory_ + (position_.stage * kSlotBytes + warp_index() * kStageFragments * kFragmentBytes);
    const bool whole = stage + 1 < stages;
    Fragment fragments[kSlotStages * kStageFragments] = {};
#pragma unroll
    for (int i = 0; i < kSlotStages * kStageFragments; ++i) {
      if (i < kStageFragments || whole)
        fragments[i] =
            load_fragment(memory + (i / kStageFragments * kStageBytes + i % kStageFragments * kFragmentBytes));
    }
    warp_sync();
    if (lane_index() == 0) mbarrier_arrive(ring.empty(position_.stage));
    position_.advance();
#pragma unroll
    for (int i = 0; i < kSlotStages * kStageFragments; ++i) {
      if (i < kStageFragments || whole) use(stage * kStageFragments + i, fragments[i]);
    }
  }
  template <class Use>
  FARWARP_DEVICE void read_memory(const Task& task, int pass, int tile, const Use& use) {
    constexpr int kTogether = 4;  ///< stages whose loads are in flight together
    static_assert(kMostPassStages % kTogether == 0);
    const int stages = task.matrix.stages_of(pass);
#pragma unroll
    for (int group = 0; group < kMostPassStages; group += kTogether) {
      Fragment fragments[kTogether * kStageFragments] = {};
#pragma unroll
      for (int i = 0; i < kTogether; ++i) {
        if (group + i >= stages) continue;
        const std::int64_t at = task.matrix.stage_at(num_blocks(), block_index(), pass, tile, group + i) * kStageBytes;
        const Global<const std::byte> from =
            weights_ + task.weights + at + warp_index() * kStageFragments * kFragmentBytes;
#pragma unroll
        for (int k = 0; k < kStageFragments; ++k)
          fragments[i * kStageFragments + k] = load_fragment(from + k * kFragmentBytes);
      }
#pragma unroll
      for (int i = 0; i < kTogether * kStageFragments; ++i) {
        if (group + i / kStageFragments < stages) use(group * kStageFragments + i, fragments[i]);
      }
      schedule_fence();  // else the compiler moves more loads up than there are registers for
    }
  }

  const WorldView& view_;
  Shared<std::byte> memory_;
  Global<const std::byte> weights_;
  RingPosition position_;
  BlockWaits waits_;
};

}  // namespace farwarp::FARWARP_TARGET::fleet
