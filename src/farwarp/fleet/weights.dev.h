// How a worker reads its slices of weights. Hopper: one thread loads them into a ring in shared memory and runs ahead
// of the tasks; the weights of the next task arrive while this one waits for activations. CDNA: each wave loads its
// fragments into registers, a batch ahead of the products.
#pragma once

#include "farwarp/fleet/slot_cursor.h"
#include "farwarp/fleet/tasks.dev.h"
#include "farwarp/fleet/worker.dev.h"
#include "farwarp/tile/ring.dev.h"
#include "farwarp/world/device/wait.dev.h"

namespace farwarp::FARWARP_TARGET::fleet {

inline constexpr int kComputingThreads = kWarps * Target::kWarpSize;  ///< of a worker
inline constexpr int kPortionTiles = portion_tiles(Target::kHasBulkCopy);
/// Warps of their own finish tiles (project.dev.h).
constexpr bool has_finisher(int columns) { return Target::kHasBulkCopy && !streams(columns); }
constexpr int block_threads(int columns) { return worker_threads(columns, Target::kWarpSize, Target::kHasBulkCopy); }

/// [the warps that compute] Barrier.
FARWARP_DEVICE void sync_warps() {
  if constexpr (Target::kHasBulkCopy) {
    group_sync(1, kComputingThreads);
  } else {
    block_sync();
  }
}

template <int columns>
using WeightRing = tile::Ring<ring_slots(columns)>;

/// `memory`: the block's.
template <int columns>
FARWARP_DEVICE WeightRing<columns> weight_ring(Shared<std::byte> memory) {
  return WeightRing<columns>(memory + ring_slots(columns) * kSlotBytes);
}

/// The loading thread of a worker.
template <int columns>
class WeightLoader {
 public:
  FARWARP_DEVICE WeightLoader(const WorldView& view, Shared<std::byte> memory, Global<const std::byte> weights)
      : view_(view), memory_(memory), weights_(weights) {}

  /// [thread] Issues the copies of a task's slots. False if a wait has expired.
  FARWARP_DEVICE bool load(const Task& task) {
    for (SlotCursor slot(task, num_blocks(), block_index()); slot.exists(); slot.advance()) {
      if (!begin_slot(slot.bytes())) return false;
      copy(0, weights_ + slot.offset(), slot.bytes());
    }
    return true;
  }
  /// [thread] Of a task with a streamed vector: a slice of all pairs of a group, then the next slice.
  FARWARP_DEVICE bool load_pairs(const Task& task) {
    constexpr int kPairs = kGroupTiles / 2;
    const int groups = task.matrix.groups(task.count);
    ahead_ = ring_slots(columns);
    for (int group = 0; group < groups; ++group) {
      // One thread issues all copies, so what it does for each must take less time than memory: addresses are added up.
      Global<const std::byte> from[kPairs];
      int bytes[kPairs], step[kPairs];
#pragma unroll
      for (int i = 0; i < kPairs; ++i) {
        const MatrixShape::Pair pair = task.matrix.pair_of(num_blocks(), block_index(), group * kPairs + i);
        from[i] = weights_ + (task.weights + pair.first * kSliceBytes);
        bytes[i] = pair.tiles * kSliceBytes;
        step[i] = pair.step * kSliceBytes;
      }
#pragma unroll 1
      for (int slice = task.matrix.slices; slice > 0; --slice) {
#pragma unroll
        for (int i = 0; i < kPairs; ++i) {
          if (bytes[i] == 0) break;  // nor has it later pairs
          if (!begin_slot(bytes[i])) return false;
          copy(0, from[i], bytes[i]);
          from[i] = from[i] + step[i];
        }
      }
    }
    return true;
  }
  /// [thread] Waits for the next slot, which copies of `bytes` in all are to fill. False if a wait has expired.
  FARWARP_DEVICE bool begin_slot(int bytes) {
    const auto ring = weight_ring<columns>(memory_);
    if (!wait_mbarrier(waits_, view_, ring.empty(next_.stage), next_.parity ^ 1)) return false;
    const int most = ahead_ > 0 ? kSlotsInFlightAhead : slots_in_flight(columns);
    if (ahead_ > 0) --ahead_;
    while (in_flight_ >= most) {
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
  /// [thread] Issues a copy into the slot that was begun last. What it loads, weights and pages, is read once a token,
  /// so it should not displace vectors.
  FARWARP_DEVICE void copy(int offset, Global<const std::byte> from, int bytes) const {
    bulk_load<Cache::streaming>(memory_ + (begun_ * kSlotBytes + offset), from, bytes,
                                weight_ring<columns>(memory_).full(begun_));
  }
  /// [thread] Waits until all copies have landed: a block must not end before.
  FARWARP_DEVICE void drain() {
    BlockWaits waits;
    const auto ring = weight_ring<columns>(memory_);
    for (; in_flight_ > 0; --in_flight_, landed_.advance())
      wait_mbarrier(waits, view_, ring.full(landed_.stage), landed_.parity);
  }
  FARWARP_DEVICE BlockWaits& waits() { return waits_; }

 private:
  const WorldView& view_;
  Shared<std::byte> memory_;
  Global<const std::byte> weights_;
  tile::RingPosition<ring_slots(columns)> next_, landed_;
  int in_flight_ = 0, begun_ = 0;
  int ahead_ = 0;  ///< slots that are still loaded with few copies under way
  BlockWaits waits_;
};

/// CDNA: the fragments of a task's weights, from memory to registers. A warp loads the slots of a batch while it
/// multiplies those of the one before, across tiles and passes. Loads have no conditions, so where a tile has fewer
/// slots left than a batch, the last one is loaded again.
class MemoryWeights {
 public:
  FARWARP_DEVICE MemoryWeights(Global<const std::byte> weights, int worker) : weights_(weights), worker_(worker) {}

  FARWARP_DEVICE Global<const std::byte> weights() const { return weights_; }
  /// [warp] Begins to load a task's weights. The task has tiles.
  FARWARP_DEVICE void begin(const Task& task) {
    cursor_ = SlotCursor(task, num_blocks(), worker_);
    odd_ = false;
    load(batches_[0]);
  }
  /// [warp] The next tile, of `slices` slices: use(i, fragment), i from 0 to 2 * slices - 1.
  template <class Use>
  FARWARP_DEVICE void read(int slices, const Use& use) {
    // Two places in turn: a batch in flight that moved to other registers would have to arrive first.
    if (odd_) {
      read_from(batches_[1], batches_[0], slices, use);
    } else {
      read_from(batches_[0], batches_[1], slices, use);
    }
  }

 private:
  static constexpr int kSlots = 2, kSlices = kSlots * kSlotSlices;  ///< of a batch
  struct Batch {
    Fragment of[kSlices * kSliceFragments];
  };

  FARWARP_DEVICE void load(Batch& batch) {
#pragma unroll
    for (int slot = 0; slot < kSlots; ++slot) {
      const Global<const std::byte> from =
          weights_ + (cursor_.offset() + warp_index() * kSliceFragments * kFragmentBytes);
      const int to_second = cursor_.bytes() - kSliceBytes;  // 0: a slot of one slice
#pragma unroll
      for (int i = 0; i < kSlotSlices * kSliceFragments; ++i)
        batch.of[slot * kSlotSlices * kSliceFragments + i] =
            load_fragment(from + (i / kSliceFragments * to_second + i % kSliceFragments * kFragmentBytes));
      if (slot + 1 < kSlots ? !cursor_.ends_tile() : cursor_.exists()) cursor_.advance();
    }
  }
  template <class Use>
  FARWARP_DEVICE void read_from(Batch& first, Batch& second, int slices, const Use& use) {
#pragma unroll 1
    for (int begin = 0;; begin += 2 * kSlices) {
      load(second);
      use_batch(first, begin, slices, use);
      if (begin + kSlices >= slices) {
        odd_ = !odd_;
        return;
      }
      load(first);
      use_batch(second, begin + kSlices, slices, use);
      if (begin + 2 * kSlices >= slices) return;
    }
  }
  template <class Use>
  FARWARP_DEVICE static void use_batch(const Batch& batch, int begin, int slices, const Use& use) {
    schedule_fence();
    const bool whole = begin + kSlices <= slices;  // one condition for all
    if (whole) {
#pragma unroll
      for (int i = 0; i < kSlices * kSliceFragments; ++i) use(begin * kSliceFragments + i, batch.of[i]);
      return;
    }
#pragma unroll
    for (int i = 0; i < (kSlices - 1) * kSliceFragments; ++i) {
      if (begin + i / kSliceFragments < slices) use(begin * kSliceFragments + i, batch.of[i]);
    }
  }

  Global<const std::byte> weights_;
  int worker_;
  SlotCursor cursor_{Task{}, 1, 0};
  Batch batches_[2];
  bool odd_ = false;
};

/// The fragments of weights, as a warp that computes gets them.
template <int columns>
class WeightReader {
 public:
  FARWARP_DEVICE WeightReader(const WorldView& view, Shared<std::byte> memory, Global<const std::byte> weights,
                              const Worker<columns>& worker)
      : view_(view), memory_(memory), in_memory_(weights, worker.number()) {}

  /// [warp] Before the first read() of a task.
  FARWARP_DEVICE void begin(const Task& task) {
    if constexpr (!Target::kHasBulkCopy) in_memory_.begin(task);
  }
  /// [warp] Reads the warp's fragments of the next tile of a pass: use(i, fragment), i from 0 to 2 * slices - 1.
  template <class Use>
  FARWARP_DEVICE void read(int slices, const Use& use) {
    if constexpr (Target::kHasBulkCopy) {
      read_ring(slices, use);
    } else {
      in_memory_.read(slices, use);
    }
  }
  FARWARP_DEVICE Global<const std::byte> weights() const { return in_memory_.weights(); }  ///< all tasks'
  // For warps that read slices themselves (attention, wgmma). A slot has room for two slices, and may have one only.
  // `ahead` and `slices` count halves of slots, also empty ones, from the next slot on; skip() counts slots.
  FARWARP_DEVICE Shared<std::byte> slice(int ahead) const {
    return memory_ + (position_of(ahead / kSlotSlices).stage * kSlotBytes + ahead % kSlotSlices * kSliceBytes);
  }
  /// [warp] Waits for its copy.
  FARWARP_DEVICE void wait_slice(int ahead) {
    const auto position = position_of(ahead / kSlotSlices);
    wait_mbarrier(waits_, view_, weight_ring<columns>(memory_).full(position.stage), position.parity);
  }
  /// [warp] Gives the next `slices` slices back, whole slots, at most a warp's lanes. Nothing where there is no ring.
  /// `arrivals`: of the warp, where only a part of the warps reads these slots.
  template <int arrivals = 1>
  FARWARP_DEVICE void release(int slices) {
    if constexpr (Target::kHasBulkCopy) {
      const int slots = slices / kSlotSlices;
      warp_sync();
      if (lane_index() < slots * arrivals)
        mbarrier_arrive(weight_ring<columns>(memory_).empty(position_of(lane_index() / arrivals).stage));
      position_.advance(slots);
    }
  }
  /// [warp] Of the next kWarps slices, of which each warp reads one, gives back the slot of the warp's own. It also
  /// arrives for the warps that do not read this slot.
  FARWARP_DEVICE void release_own() {
    if constexpr (Target::kHasBulkCopy) {
      constexpr int kSlots = kWarps / kSlotSlices;
      warp_sync();
      if (lane_index() < kSlots)
        mbarrier_arrive(weight_ring<columns>(memory_).empty(position_of(warp_index() / kSlotSlices).stage));
      position_.advance(kSlots);
    }
  }
  /// [warp] The next slots are others'.
  FARWARP_DEVICE void skip(int slots) { position_.advance(slots); }
  FARWARP_DEVICE BlockWaits& waits() { return waits_; }
  FARWARP_DEVICE const WorldView& view() const { return view_; }

 private:
  using Position = tile::RingPosition<ring_slots(columns)>;

  FARWARP_DEVICE Position position_of(int ahead) const {
    Position position = position_;
    position.advance(ahead);
    return position;
  }
  template <class Use>
  FARWARP_DEVICE void read_ring(int slices, const Use& use) {
    const auto ring = weight_ring<columns>(memory_);
    constexpr int kFragments = kSlotSlices * kSliceFragments;
#pragma unroll 1
    for (int slice = 0; slice < slices; slice += kSlotSlices) {
      wait_mbarrier(waits_, view_, ring.full(position_.stage), position_.parity);
      const Shared<const std::byte> memory =
          memory_ + (position_.stage * kSlotBytes + warp_index() * kSliceFragments * kFragmentBytes);
      const bool whole = slice + 1 < slices;
      Fragment fragments[kFragments] = {};
#pragma unroll
      for (int i = 0; i < kFragments; ++i) {
        if (i < kSliceFragments || whole)
          fragments[i] =
              load_fragment(memory + (i / kSliceFragments * kSliceBytes + i % kSliceFragments * kFragmentBytes));
      }
      warp_sync();
      if (lane_index() == 0) mbarrier_arrive(ring.empty(position_.stage));
      position_.advance();
#pragma unroll
      for (int i = 0; i < kFragments; ++i) {
        if (i < kSliceFragments || whole) use(slice * kSliceFragments + i, fragments[i]);
      }
    }
  }
  const WorldView& view_;
  Shared<std::byte> memory_;
  MemoryWeights in_memory_;
  Position position_;
  BlockWaits waits_;
};

}  // namespace farwarp::FARWARP_TARGET::fleet
