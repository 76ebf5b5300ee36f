// Puts one row into several peers' memory. The row is read once and written once per peer.
#pragma once

#include <type_traits>

#include "farwarp/world/device/wait.dev.h"

namespace farwarp::FARWARP_TARGET {

/// Through shared memory with bulk copies that one thread of the warp issues. They keep more bytes under way than a
/// warp's loads and stores do. Bandwidth of both: ops/moe_a2a/MEASURED.md, "Words or bulk copies".
class BulkRowPut {
 public:
  /// [warp] `staging` and `barrier` belong to this warp; `staging_bytes` is a multiple of 16; `barrier` is not
  /// initialised yet. Only the warp's first lane uses it, so the constructor needs no warp_sync() after it.
  FARWARP_DEVICE BulkRowPut(Shared<std::byte> staging, int staging_bytes, Shared<Mbarrier> barrier)
      : staging_(staging), staging_bytes_(staging_bytes), barrier_(barrier) {
    if (lane_index() != 0) return;
    mbarrier_init(barrier, 1);
    mbarrier_init_fence();
  }

  /// [warp] Copies `bytes` from `source` to each of `to` whose bit is set in `wanted`. Its first lane
  /// alone does this, and learns whether it has: true: the row has been written, and a later signal_after_warp()
  /// publishes it; false: the call is over, and nothing may be published. Other lanes return true at once.
  template <int count>
  FARWARP_DEVICE bool put(Call& call, Global<const std::byte> source, int bytes, const Peer<std::byte> (&to)[count],
                          std::uint32_t wanted, std::uint32_t site) {
    if (lane_index() != 0) return true;
    for (int done = 0; done < bytes; done += staging_bytes_) {
      const int piece = bytes - done < staging_bytes_ ? bytes - done : staging_bytes_;
      if (done > 0) bulk_wait_read();  // until the stores of the previous piece have read the staging buffer
      mbarrier_arrive_expect(barrier_, piece);
      bulk_load(staging_, source + done, piece, barrier_);
      if (!wait_mbarrier(call, barrier_, parity_, site)) {
        bulk_wait_all();  // the stores of earlier pieces still read this block's shared memory
        return false;
      }
      parity_ ^= 1;
#pragma unroll
      for (int i = 0; i < count; ++i) {
        if (wanted >> i & 1) bulk_store(to[i] + done, staging_, piece);
      }
      bulk_commit();
    }
    bulk_wait_all();
    return true;
  }

 private:
  Shared<std::byte> staging_;
  int staging_bytes_;
  Shared<Mbarrier> barrier_;
  std::uint32_t parity_ = 0;
};

/// Through registers with 16-byte accesses, all lanes of the warp. All loads of a batch arrive before its first store:
/// arrived(). Loads have no conditions, after which each store would wait for the one before it.
class VectorRowPut {
 public:
  FARWARP_DEVICE VectorRowPut(Shared<std::byte>, int, Shared<Mbarrier>) {}

  /// [warp] As BulkRowPut::put(); true on all lanes.
  template <int count>
  FARWARP_DEVICE bool put(Call&, Global<const std::byte> source, int bytes, const Peer<std::byte> (&to)[count],
                          std::uint32_t wanted, std::uint32_t) {
    constexpr int kStride = Target::kWarpSize * 16;
    for (int first = lane_index() * 16; first < bytes; first += kBatch * kStride)
      put_batch(source + first, kStride, (bytes - first + kStride - 1) / kStride, to, first, wanted);
    return true;
  }
  /// [warp] Copies the first `bytes` bytes of each of `rows` rows, which are `pitch` bytes apart, in `source` and in
  /// each of `to`.
  template <int count>
  FARWARP_DEVICE void put_rows(Global<const std::byte> source, int rows, int pitch, int bytes,
                               const Peer<std::byte> (&to)[count], std::uint32_t wanted) {
    for (int first = lane_index() * 16; first < bytes; first += Target::kWarpSize * 16) {
      for (int row = 0; row < rows; row += kBatch)
        put_batch(source + (std::int64_t{row} * pitch + first), pitch, rows - row, to,
                  std::int64_t{row} * pitch + first, wanted);
    }
  }

 private:
  static constexpr int kBatch = 8;

  /// [thread] Copies the first kBatch of `vectors` vectors, of which there is one at least, `distance` bytes apart, to
  /// `offset` bytes after each of `to`.
  template <int count>
  FARWARP_DEVICE static void put_batch(Global<const std::byte> from, int distance, int vectors,
                                       const Peer<std::byte> (&to)[count], std::int64_t offset, std::uint32_t wanted) {
    Vec16 values[kBatch];
#pragma unroll
    for (int v = 0; v < kBatch; ++v) {
      const std::byte* const at = from.raw + std::int64_t{v < vectors ? v : vectors - 1} * distance;
      values[v] = load<Cache::streaming>(Global<const Vec16>(reinterpret_cast<const Vec16*>(at)));
    }
    schedule_fence();
#pragma unroll
    for (Vec16& value : values) value = arrived(value);
#pragma unroll
    for (int i = 0; i < count; ++i) {
      if (!(wanted >> i & 1)) continue;
      std::byte* at = to[i].raw + offset;
#pragma unroll
      for (int v = 0; v < kBatch; ++v) {
        if (v < vectors) store<Cache::streaming>(Peer<Vec16>(reinterpret_cast<Vec16*>(at)), values[v]);
        at += recomputed(distance);  // 64 addresses would not fit into registers
      }
    }
  }
};

using RowPut = std::conditional_t<Target::kHasBulkCopy, BulkRowPut, VectorRowPut>;

}  // namespace farwarp::FARWARP_TARGET
