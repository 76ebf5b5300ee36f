// Split K: where a product has too few tiles for the machine, several blocks sum parts of a tile's K. Each leaves its sums in
// memory; the last to arrive adds them up in the order of the splits, so results do not depend on who was last.
#pragma once

#include "farwarp/tile/gemm/cluster_split.dev.h"

namespace farwarp::FARWARP_TARGET::tile {

/// [thread] Counts one more arrival of this epoch and returns how many there are. What earlier calls left (an aborted one leaves
/// any number) does not count. The loop ends: it turns as often as others arrive.
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

/// Where splits leave their sums.
struct SplitSpace {
  Global<Vec16> partials;          ///< [parts, splits, sums of a thread / 4, threads of the part]
  Global<std::uint32_t> counters;  ///< [parts]: epoch << 8 | how many splits have arrived
  int splits;
  std::uint32_t epoch;
};

/// Threads that sum a part of a tile: a warpgroup half of it, or a block all of it.
struct SplitPart {
  int number;  ///< of the part among those of all tiles
  int split;
  int thread;                       ///< the caller's number among the part's threads
  Shared<std::uint32_t> last_word;  ///< the part's own
};

/// [the part's threads] True for those of the split that arrives last: `total` are then the sums over all splits. `meet()` is
/// the threads' barrier. `total` may be `sums`. (Not after wgmma: ptxas would wait for each before the next if their accumulators
/// changed in a branch.)
template <int threads, int count, class Meet>
FARWARP_DEVICE bool sum_splits(const SplitSpace& space, const SplitPart& part, const Meet& meet,
                               const float (&sums)[count], float (&total)[count]) {
  // Vector i of thread t at [part][split][i][t]: neighbours write neighbours.
  const std::int64_t of_split = static_cast<std::int64_t>(count) / 4 * threads;
  const Global<Vec16> all = space.partials + of_split * space.splits * part.number + part.thread;
  const Global<Vec16> mine = all + of_split * part.split;
#pragma unroll
  for (int i = 0; i < count / 4; ++i) {
    const FourSums four{{sums[4 * i], sums[4 * i + 1], sums[4 * i + 2], sums[4 * i + 3]}};
    store(mine + i * threads, std::bit_cast<Vec16>(four));
  }
  drain_stores();
  meet();
  if (part.thread == 0) {
    const std::uint32_t arrived = count_arrival(space.counters + part.number, space.epoch);
    store(part.last_word, arrived == static_cast<std::uint32_t>(space.splits) ? 1u : 0u);
  }
  meet();
  const bool last = load(part.last_word) != 0;
  meet();  // all have read the word before the next tile's is written
  if (!last) return false;
#pragma unroll
  for (int i = 0; i < count; ++i) total[i] = 0;
  [[maybe_unused]] constexpr int kAtOnce =
      count <= 32 ? 2 : 1;  // splits whose sums are on their way together, as far as registers go
#pragma unroll kAtOnce
  for (int from = 0; from < space.splits; ++from) {
#pragma unroll
    for (int i = 0; i < count / 4; ++i) {
      const auto four = std::bit_cast<FourSums>(load(all + (of_split * from + i * threads)));
#pragma unroll
      for (int j = 0; j < 4; ++j) total[4 * i + j] = add(total[4 * i + j], four.value[j]);
    }
  }
  return true;
}

}  // namespace farwarp::FARWARP_TARGET::tile
