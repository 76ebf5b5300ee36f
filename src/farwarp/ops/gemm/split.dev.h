// Split K: where a product has too few tiles for the machine, several blocks sum parts of a tile's K. Each leaves its sums in
// memory; the last to arrive adds them up in the order of the splits, so results do not depend on who was last.
#pragma once

#include "farwarp/ops/gemm/args.h"
#include "farwarp/world/device/call.dev.h"

namespace farwarp::FARWARP_TARGET::gemm {

struct FourSums {
  float value[4];
};

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

/// [warpgroup] True for the warpgroup that arrives last at its half of the tile: `total` are then the sums over all splits. (Not
/// in place: ptxas would wait for each wgmma before the next if their accumulators changed in a branch.)
template <int count>
FARWARP_DEVICE bool sum_splits(const Call& call, const farwarp::gemm::Args& args, int tile, int split, int multiplier,
                               Shared<std::uint32_t> last_word, const float (&sums)[count], float (&total)[count]) {
  const int thread = thread_index() % 128;
  const int half = tile * 2 + multiplier;
  // Vector i of thread t at [half][split][i][t]: neighbours write neighbours.
  const std::int64_t of_split = static_cast<std::int64_t>(count) / 4 * 128;
  const Global<Vec16> all = own_address<Vec16>(args.view, args.partials) + of_split * args.splits * half + thread;
  const Global<Vec16> mine = all + of_split * split;
#pragma unroll
  for (int i = 0; i < count / 4; ++i) {
    const FourSums four{{sums[4 * i], sums[4 * i + 1], sums[4 * i + 2], sums[4 * i + 3]}};
    store(mine + i * 128, std::bit_cast<Vec16>(four));
  }
  group_sync(1 + multiplier, 128);
  if (thread == 0) {
    const Global<std::uint32_t> counter = own_address<std::uint32_t>(args.view, args.counters) + half;
    const std::uint32_t arrived = count_arrival(counter, call.epoch);
    store(last_word, arrived == static_cast<std::uint32_t>(args.splits) ? 1u : 0u);
  }
  group_sync(1 + multiplier, 128);
  const bool last = load(last_word) != 0;
  group_sync(1 + multiplier, 128);  // all have read the word before the next tile's is written
  if (!last) return false;
#pragma unroll
  for (int i = 0; i < count; ++i) total[i] = 0;
  for (int from = 0; from < args.splits; ++from) {
#pragma unroll
    for (int i = 0; i < count / 4; ++i) {
      const auto four = std::bit_cast<FourSums>(load(all + (of_split * from + i * 128)));
#pragma unroll
      for (int j = 0; j < 4; ++j) total[4 * i + j] = add(total[4 * i + j], four.value[j]);
    }
  }
  return true;
}

}  // namespace farwarp::FARWARP_TARGET::gemm
