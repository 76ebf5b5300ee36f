// Putting one row into several peers' memory: read once, written once per peer.
#pragma once

#include <type_traits>

#include "farwarp/world/device/wait.dev.h"

namespace farwarp::FARWARP_TARGET {

/// Through shared memory with bulk copies, one thread of the warp issuing: the copy engine of the SM does the rest. 8 blocks
/// with 16 KB chunks reach 315 of 343 GB/s on 8 H200s; the same blocks with 16-byte stores per thread reach 350 to one peer.
class BulkRowPut {
 public:
  /// [warp] `stage` is this warp's, `stage_bytes` a multiple of 16; `barrier` is this warp's and not initialised yet. A
  /// block_sync() must follow before put().
  FARWARP_DEVICE BulkRowPut(Shared<std::byte> stage, int stage_bytes, Shared<Mbarrier> barrier)
      : stage_(stage), stage_bytes_(stage_bytes), barrier_(barrier) {
    if (lane_index() != 0) return;
    mbarrier_init(barrier, 1);
    mbarrier_init_fence();
  }

  /// [warp] Copies `bytes` from `source` to `destination_of(rank)` for every rank in `ranks`, beginning behind mine: each
  /// rank then starts with another peer, and no link is everybody's first.
  template <class DestinationOf>
  FARWARP_DEVICE void put(Call& call, Global<const std::byte> source, int bytes, std::uint32_t ranks,
                          std::uint32_t site, const DestinationOf& destination_of) {
    if (lane_index() != 0 || ranks == 0 || !call.live) return;
    for (int done = 0; done < bytes; done += stage_bytes_) {
      const int piece = bytes - done < stage_bytes_ ? bytes - done : stage_bytes_;
      bulk_wait_read();  // the stage's previous contents have left it
      mbarrier_arrive_expect(barrier_, piece);
      bulk_load(stage_, source + done, piece, barrier_);
      if (!wait_bulk_load(call, barrier_, parity_, site)) return;  // the call is over: nothing will be flagged
      parity_ ^= 1;
      for (int i = 1; i <= call.view.size; ++i) {
        const int rank = (call.view.rank + i) % call.view.size;
        if (ranks >> rank & 1) bulk_store(destination_of(rank) + done, stage_, piece);
      }
      bulk_commit();
    }
  }

  /// [warp] All puts have been performed: a following signal_after_block() publishes them.
  FARWARP_DEVICE void finish() {
    if (lane_index() == 0) bulk_wait_all();
  }

 private:
  Shared<std::byte> stage_;
  int stage_bytes_;
  Shared<Mbarrier> barrier_;
  std::uint32_t parity_ = 0;
};

/// Through registers with 16-byte accesses, all lanes of the warp.
class VectorRowPut {
 public:
  FARWARP_DEVICE VectorRowPut(Shared<std::byte>, int, Shared<Mbarrier>) {}

  template <class DestinationOf>
  FARWARP_DEVICE void put(Call& call, Global<const std::byte> source, int bytes, std::uint32_t ranks, std::uint32_t,
                          const DestinationOf& destination_of) {
    for (int offset = lane_index() * 16; offset < bytes; offset += Target::kWarpSize * 16) {
      const Vec16 value =
          load<Cache::streaming>(Global<const Vec16>(reinterpret_cast<const Vec16*>(source.raw + offset)));
      for (int i = 1; i <= call.view.size; ++i) {
        const int rank = (call.view.rank + i) % call.view.size;
        if (!(ranks >> rank & 1)) continue;
        store<Cache::streaming>(Peer<Vec16>(reinterpret_cast<Vec16*>(destination_of(rank).raw + offset)), value);
      }
    }
  }

  FARWARP_DEVICE void finish() {}
};

using RowPut = std::conditional_t<Target::kHasBulkCopy, BulkRowPut, VectorRowPut>;

}  // namespace farwarp::FARWARP_TARGET
