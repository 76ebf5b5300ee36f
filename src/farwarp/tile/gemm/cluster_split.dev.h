// Split K on Hopper: 2 or 4 blocks of a cluster sum parts of a tile's K, and hand each other what they have summed through shared
// memory. Each adds up a part of the tile, in the order of the splits, and stores it.
//
//   block h * parts + p of 2 * parts: part p of the columns of warpgroup h's 64 rows
//
//   start: arrive       all have begun: wait, sums of others' parts -> their inboxes, arrive      wait: inbox + own sums -> total
#pragma once

#include "farwarp/substrate/device.h"

namespace farwarp::FARWARP_TARGET::tile {

struct FourSums {
  float value[4];
};

/// `count`: sums of a thread; `parts`: half the blocks of the cluster. The inbox holds the sums as fragments, 16 bytes a thread:
/// [the other blocks][count / parts / 4][128 threads].
template <int count, int parts>
class ClusterSums {
 public:
  static constexpr int kBlocks = 2 * parts;
  static constexpr int kSums = count / parts;  ///< of a thread, in one part
  static constexpr int kInboxBytes = (kBlocks - 1) * kSums * 4 * 128;
  static_assert(kSums % 4 == 0);

  FARWARP_DEVICE ClusterSums(Shared<std::byte> inbox, int rank) : inbox_(inbox), rank_(rank) {}

  /// [warpgroup] Of multiplier number `multiplier`: hands over what other blocks add up.
  FARWARP_DEVICE void send(int multiplier, const float (&sums)[count]) const {
#pragma unroll
    for (int part = 0; part < parts; ++part) {
      const int owner = multiplier * parts + part;
      if (owner == rank_) continue;
#pragma unroll
      for (int i = 0; i < kSums / 4; ++i) {
        const float* const four = &sums[part * kSums + 4 * i];
        store_at(at(rank_, owner, i), owner, std::bit_cast<Vec16>(FourSums{{four[0], four[1], four[2], four[3]}}));
      }
    }
  }

  /// [warpgroup] Which part of the columns this block adds up for multiplier `multiplier`, or -1.
  FARWARP_DEVICE int own_part(int multiplier) const { return rank_ / parts == multiplier ? rank_ % parts : -1; }

  /// [warpgroup] Adds up part `part`, its own, whose place in `sums` must be known when the kernel is compiled.
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
        if (split != rank_) four = std::bit_cast<FourSums>(load(at(split, rank_, i)));
#pragma unroll
        for (int j = 0; j < 4; ++j) total[4 * i + j] = add(total[4 * i + j], four.value[j]);
      }
    }
  }

 private:
  /// Vector `i` of what `from` sends to `to`.
  FARWARP_DEVICE Shared<Vec16> at(int from, int to, int i) const {
    const int slot = from < to ? from : from - 1;
    return Shared<Vec16>(reinterpret_cast<Vec16*>(inbox_.raw)) +
           ((slot * (kSums / 4) + i) * 128 + thread_index() % 128);
  }

  Shared<std::byte> inbox_;
  int rank_;
};

}  // namespace farwarp::FARWARP_TARGET::tile
