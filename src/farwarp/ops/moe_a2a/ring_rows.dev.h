// MoeLayout::kRows in bulk mode on targets with bulk copies: what dispatch and combine share. Rows move in pieces
// through a warp's ring of slots in shared memory (world/device/copy_ring.dev.h).
#pragma once

#include "farwarp/ops/moe_a2a/tokens.dev.h"
#include "farwarp/world/device/copy_ring.dev.h"

namespace farwarp::FARWARP_TARGET::moe {

using namespace farwarp::moe;

/// Four newer pieces are stored before the ring asks whether a row has arrived.
using RowRing = CopyRing<kRingSlots, 2, 4>;

/// This warp's part of the rings.
FARWARP_DEVICE Shared<std::byte> ring_slots(const Args& args) {
  return shared_at<std::byte>(args.ring.slots) + warp_index() * kRingSlots * args.ring.slot_bytes;
}
FARWARP_DEVICE Shared<Mbarrier> ring_barriers(const Args& args) {
  return shared_at<Mbarrier>(args.ring.barriers) + warp_index() * kRingSlots;
}
FARWARP_DEVICE RowRing ring_of_warp(const Args& args) {
  return RowRing(ring_slots(args), args.ring.slot_bytes, ring_barriers(args));
}

/// Bytes of a row.
FARWARP_DEVICE std::int64_t row_stride(const Args& args) { return std::int64_t{2} * args.hidden; }

/// [thread] Pushes the pieces of a row's segment; `row` is the row's first byte. Of `piece`, the row, `to` and
/// `segment` are given. A segment that is sent to a rank is announced.
template <class Store, class Announce>
FARWARP_DEVICE void push_segment(Call& call, const Args& args, RowRing& ring, Global<const std::byte> row, Piece piece,
                                 const Store& store, const Announce& announce) {
  constexpr int kBytes = sizeof(Vector);
  const int end = segment_start<1>(args, piece.segment + 1) * kBytes;
#pragma unroll 1
  for (piece.begin = segment_start<1>(args, piece.segment) * kBytes; piece.begin < end;
       piece.begin += args.ring.piece_bytes) {
    piece.bytes = end - piece.begin < args.ring.piece_bytes ? end - piece.begin : args.ring.piece_bytes;
    piece.announced = piece.to != 0 && piece.begin + args.ring.piece_bytes >= end;
    ring.push(call, row + piece.begin, piece, kSiteStaging, store, announce);
  }
}

/// [warp] Calls `work(item, found)` on all lanes for item = first, first + stride, ... below `count`, where `found` is
/// find(item). A lane finds one item's, so that the loads of as many items as there are lanes are under way together.
/// Ends early if `work` returns false.
template <class Find, class Work>
FARWARP_DEVICE void for_each_found(int first, int count, int stride, const Find& find, const Work& work) {
#pragma unroll 1
  for (int base = first; base < count; base += Target::kWarpSize * stride) {
    const int mine = base + lane_index() * stride;
    const auto found = find(mine < count ? mine : base);
#pragma unroll 1
    for (int i = 0; i < Target::kWarpSize && base + i * stride < count; ++i) {
      if (!work(base + i * stride, shuffle(found, i))) return;
    }
  }
}

}  // namespace farwarp::FARWARP_TARGET::moe
