// Split K: if a product has too few tiles for the machine, several blocks sum parts of a tile's K. The sums are added
// up in the order of the splits, so results do not depend on which block arrives last.
#pragma once

#include "farwarp/substrate/device.h"

namespace farwarp::FARWARP_TARGET::tile {

// ---- in a cluster (Hopper) ------------------------------------------------------------------------------------------
//
// 2 or 4 blocks of a cluster send each other their sums through shared memory. Each adds up a part of the tile and
// stores it.
//
//   block h * parts + p of 2 * parts owns part p of the columns of warpgroup h's 64 rows
//
//   kernel begins: arrive
//   wait (all have begun); sums of others' parts -> their inboxes; arrive
//   wait; inbox + own sums -> total
//
// The inbox here is the cluster inbox, in shared memory.

struct FourSums {
  float value[4];
};

/// `count`: sums of a thread. `parts`: into how many parts a warpgroup's columns are cut; the cluster has
/// 2 * parts blocks. The cluster inbox, in shared memory, holds the sums as fragments,
/// 16 bytes a thread: [the other blocks][count / parts / 4][128 threads].
template <int count, int parts>
class ClusterSums {
 public:
  static constexpr int kBlocks = 2 * parts;
  static constexpr int kSums = count / parts;  ///< of a thread, in one part
  static constexpr int kClusterInboxBytes = (kBlocks - 1) * kSums * 4 * 128;
  static_assert(kSums % 4 == 0);

  /// `block`: the number of this block in the cluster.
  FARWARP_DEVICE ClusterSums(Shared<std::byte> cluster_inbox, int block)
      : cluster_inbox_(cluster_inbox), block_(block) {}

  /// [warpgroup] Stores the sums of multiplier number `multiplier` into the cluster inboxes of the blocks that add them
  /// up.
  FARWARP_DEVICE void send(int multiplier, const float (&sums)[count]) const {
#pragma unroll
    for (int part = 0; part < parts; ++part) {
      const int owner = multiplier * parts + part;
      if (owner == block_) continue;
#pragma unroll
      for (int i = 0; i < kSums / 4; ++i) {
        const float* const four = &sums[part * kSums + 4 * i];
        store_at(at(block_, owner, i), owner, std::bit_cast<Vec16>(FourSums{{four[0], four[1], four[2], four[3]}}));
      }
    }
  }

  /// [warpgroup] The part of the columns that this block adds up for multiplier `multiplier`, or -1.
  FARWARP_DEVICE int own_part(int multiplier) const { return block_ / parts == multiplier ? block_ % parts : -1; }

  /// [warpgroup] Adds up part `part`, which is own_part(). It is a template argument, so that indices into `sums` are
  /// constants.
  template <int part>
  FARWARP_DEVICE void add_up(const float (&sums)[count], float (&total)[kSums]) const {
#pragma unroll
    for (int i = 0; i < kSums; ++i) total[i] = 0;
#pragma unroll
    for (int split = 0; split < kBlocks; ++split) {
#pragma unroll
      for (int i = 0; i < kSums / 4; ++i) {
        const float* const own = &sums[part * kSums + 4 * i];
        FourSums four{{own[0], own[1], own[2], own[3]}};
        if (split != block_) four = std::bit_cast<FourSums>(load(at(split, block_, i)));
#pragma unroll
        for (int j = 0; j < 4; ++j) total[4 * i + j] = add(total[4 * i + j], four.value[j]);
      }
    }
  }

 private:
  /// The place in the cluster inbox of vector `i` that block `from` sends to block `to`.
  FARWARP_DEVICE Shared<Vec16> at(int from, int to, int i) const {
    const int place = from < to ? from : from - 1;
    return Shared<Vec16>(reinterpret_cast<Vec16*>(cluster_inbox_.raw)) +
           ((place * (kSums / 4) + i) * 128 + thread_index() % 128);
  }

  Shared<std::byte> cluster_inbox_;
  int block_;
};

// ---- through device memory ------------------------------------------------------------------------------------------
//
// Each block writes its sums to memory; the last to arrive adds all of them up.

/// [thread] Counts one more arrival of this epoch and returns how many there are. What earlier calls left in the
/// counter does not count; an aborted call may leave any number. The loop ends: it repeats only when another thread has
/// arrived.
FARWARP_DEVICE std::uint32_t count_arrival(Global<std::uint32_t> counter, std::uint32_t epoch) {
  const std::uint32_t tag = epoch << 8;
  std::uint32_t seen = load<Order::relaxed, Scope::device>(counter);
  for (;;) {
    const std::uint32_t next = (seen & 0xffffff00u) == tag ? seen + 1 : tag + 1;
    const std::uint32_t found = compare_exchange<Order::acq_rel, Scope::device>(counter, seen, next);
    if (found == seen) return next & 0xff;
    seen = found;
  }
}

/// The memory into which splits store their sums.
struct SplitSpace {
  Global<Vec16> partials;          ///< [parts, splits, sums of a thread / 4, threads of the part]
  Global<std::uint32_t> counters;  ///< [parts]: epoch << 8 | how many splits have arrived
  int splits;
  std::uint32_t epoch;
};

/// The threads that sum a part of a tile: a warpgroup sums half of it, or a block all of it.
struct SplitPart {
  int number;  ///< the part's number among the parts of all tiles
  int split;
  int thread;                          ///< the caller's number among the part's threads
  Shared<std::uint32_t> arrived_last;  ///< the part's own: 1 if this split arrived last, else 0
};

/// [the part's threads] Stores `sums` into `space`. Returns true in the split that arrives last; `total` then has the
/// sums of all splits.
/// `sync()` is a barrier of the part's threads. `total` may be `sums`, but not if wgmma accumulates there: a branch
/// that changes accumulators makes ptxas wait for each wgmma before the next.
template <int threads, int count, class Sync>
FARWARP_DEVICE bool sum_splits(const SplitSpace& space, const SplitPart& part, const Sync& sync,
                               const float (&sums)[count], float (&total)[count]) {
  // Vector i of thread t is at [part][split][i][t]: neighbouring threads write neighbouring vectors.
  const std::int64_t of_split = static_cast<std::int64_t>(count) / 4 * threads;
  const Global<Vec16> all = space.partials + of_split * space.splits * part.number + part.thread;
  const Global<Vec16> mine = all + of_split * part.split;
#pragma unroll
  for (int i = 0; i < count / 4; ++i) {
    const FourSums four{{sums[4 * i], sums[4 * i + 1], sums[4 * i + 2], sums[4 * i + 3]}};
    store(mine + i * threads, std::bit_cast<Vec16>(four));
  }
  drain_stores();
  sync();
  if (part.thread == 0) {
    const std::uint32_t arrived = count_arrival(space.counters + part.number, space.epoch);
    store(part.arrived_last, arrived == static_cast<std::uint32_t>(space.splits) ? 1u : 0u);
  }
  sync();
  const bool last = load(part.arrived_last) != 0;
  sync();  // all threads have read it before it is written for the next tile
  if (!last) return false;
#pragma unroll
  for (int i = 0; i < count; ++i) total[i] = 0;
  [[maybe_unused]] constexpr int kAtOnce =
      count <= 32 ? 2 : 1;  // splits whose sums are loaded together; registers limit it
#pragma unroll kAtOnce
  for (int from = 0; from < space.splits; ++from) {
    constexpr int kLoads = 8;  // that wait for memory together
#pragma unroll
    for (int first = 0; first < count / 4; first += kLoads) {
      Vec16 fours[kLoads];
#pragma unroll
      for (int i = 0; i < kLoads; ++i) {
        if (first + i < count / 4) fours[i] = load(all + (of_split * from + (first + i) * threads));
      }
      if constexpr (count > 4 * kLoads) schedule_fence();  // otherwise AMD's compiler waits for each load
#pragma unroll
      for (int i = 0; i < 4 * kLoads; ++i) {
        const int sum = 4 * first + i;
        if (sum < count) total[sum] = add(total[sum], std::bit_cast<FourSums>(fours[i / 4]).value[i % 4]);
      }
    }
  }
  return true;
}

}  // namespace farwarp::FARWARP_TARGET::tile
