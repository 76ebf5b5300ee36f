// At the source again: the rows that return are summed.
#pragma once

#include "expert.dev.h"

namespace farwarp::FARWARP_TARGET::ladder {

/// [block] kRankFlags: waits until every owner has returned everything. False on all threads if the call is over.
template <int rung>
FARWARP_DEVICE bool await_owners(Call& call, const Memory<rung>& memory) {
  if (const int owner = thread_index(); owner < memory.ranks()) {
    std::uint32_t unused = 0;
    wait_tagged(call, own(memory.done_cell(memory.me(), owner)), memory.tag, unused,
                Wait{.site = kSiteReturn, .peer = owner, .depth = 1});
  }
  call.live = !block_any(!call.live);
  return call.live;
}

template <class Vector>
FARWARP_DEVICE void add_vector(float (&sum)[kElementsPer<Vector>], Vector vector) {
  float values[kElementsPer<Vector>];
  moe::values_of<Bf16>(vector, values);
#pragma unroll
  for (int i = 0; i < kElementsPer<Vector>; ++i) sum[i] = add(sum[i], values[i]);
}

/// [warp] Adds up the rows at `places`, one row after the other.
template <int rung>
FARWARP_DEVICE void sum_one_by_one(Call& call, const Memory<rung>& memory, int token, int segment, std::uint64_t places,
                                   Global<Vector<rung>> out) {
  const int length = memory.length();
#pragma unroll 1
  for (int u = lane_index(); u < length; u += kAhead * kStride) {
    float sums[kAhead][kElementsPer<Vector<rung>>] = {};
    for_each_bit(places, [&](int place) {
      Vector<rung> vectors[kAhead] = {};
      read<rung>(call, memory.returned(memory.me(), token, place, segment), u, length, vectors,
                 Wait{.site = kSiteReturn, .peer = rung >= kRankDedup ? place : -1, .depth = 1});
#pragma unroll
      for (int a = 0; a < kAhead; ++a) add_vector(sums[a], vectors[a]);
    });
    if (!call.live) break;
#pragma unroll
    for (int a = 0; a < kAhead; ++a) {
      if (u + a * kStride < length) store(out + (u + a * kStride), moe::rounded<Bf16, Vector<rung>>(sums[a]));
    }
  }
}

/// [warp] The same with the packets of all rows in flight at once. A place is a rank here.
template <int rung>
FARWARP_DEVICE void sum_together(Call& call, const Memory<rung>& memory, int token, int segment, std::uint64_t places,
                                 Global<Vector<rung>> out) {
  constexpr int kVectors = 2;  // of each row
  const int length = memory.length();
#pragma unroll 1
  for (int u = lane_index(); u < length; u += kVectors * kStride) {
    Global<Packet> from[kMaxRanks * kVectors];
    std::uint64_t vectors[kMaxRanks * kVectors] = {};
    std::uint32_t wanted = 0;
#pragma unroll
    for (int i = 0; i < kMaxRanks * kVectors; ++i) {
      const int rank = i / kVectors, at = u + i % kVectors * kStride;
      if ((places >> rank & 1) == 0 || at >= length) continue;
      from[i] = own(memory.returned(memory.me(), token, rank, segment)) + at;
      wanted |= 1u << i;
    }
    if (!wait_packets<kVectors>(call, from, wanted, vectors, Wait{.site = kSiteReturn, .peer = -1, .depth = 1})) break;
#pragma unroll
    for (int a = 0; a < kVectors; ++a) {
      float sum[kElementsPer<Vector<rung>>] = {};
#pragma unroll
      for (int rank = 0; rank < kMaxRanks; ++rank) {
        if (places >> rank & 1) add_vector(sum, vectors[rank * kVectors + a]);
      }
      if (u + a * kStride < length) store(out + (u + a * kStride), moe::rounded<Bf16, Vector<rung>>(sum));
    }
  }
}

/// [warp] Waits for and sums one segment of a token's output.
template <int rung>
FARWARP_DEVICE bool sum_segment(Call& call, const Memory<rung>& memory, int token, int segment) {
  const Parcel parcel = parcel_of_lane<rung>(memory.args, token);
  const std::uint64_t places = ballot(parcel.rank >= 0);
  if constexpr (rung >= kTokenFlags && rung < kPackets) {
    if (parcel.rank >= 0) {
      std::uint32_t unused = 0;
      wait_tagged(call, own(memory.return_flag(memory.me(), token, lane_index(), segment)), memory.tag, unused,
                  Wait{.site = kSiteReturn, .peer = parcel.rank, .depth = 1});
    }
    if (!all_live(call)) return false;
  }
  const Global<Vector<rung>> out = Global<Vector<rung>>(static_cast<Vector<rung>*>(memory.args.out)) +
                                   (static_cast<std::int64_t>(token) * memory.row_length() + segment * memory.length());
  if constexpr (rung >= kTogether) {
    sum_together(call, memory, token, segment, places, out);
  } else {
    sum_one_by_one(call, memory, token, segment, places, out);
  }
  return all_live(call);
}

/// [block] Sums the rows that return. A token without entries gives zeros.
template <int rung>
FARWARP_DEVICE void combine(Call& call, const Memory<rung>& memory) {
  if constexpr (rung < kTokenFlags) {
    if (!await_owners(call, memory)) return;
  }
  const int segments = memory.args.shape.segments;
  for_each_item(memory.args.tokens * segments, [&](int item) {
    const int token = item / segments;
    return sum_segment(call, memory, token, item - token * segments);
  });
}

}  // namespace farwarp::FARWARP_TARGET::ladder
