// The source's side again: the rows that come back, summed.
#pragma once

#include "expert.dev.h"

namespace farwarp::FARWARP_TARGET::ladder {

/// [block] kRankFlags: every owner has returned everything.
template <int rung>
FARWARP_DEVICE bool await_owners(Call& call, const Memory<rung>& memory) {
  if (const int owner = thread_index(); owner < memory.ranks()) {
    std::uint32_t unused = 0;
    wait_tagged(call, own(memory.done_cell(memory.me(), owner)), memory.tag, unused, Wait{kSiteReturn, owner, 1});
  }
  call.live = !block_any(!call.live);
  return call.live;
}

template <class Unit>
FARWARP_DEVICE void add_unit(float (&sum)[kPer<Unit>], Unit unit) {
  float values[kPer<Unit>];
  moe::values_of<Bf16>(unit, values);
#pragma unroll
  for (int i = 0; i < kPer<Unit>; ++i) sum[i] = add(sum[i], values[i]);
}

/// [warp] The rows at `places` added, one row after the other.
template <int rung>
FARWARP_DEVICE void sum_one_by_one(Call& call, const Memory<rung>& memory, int token, int piece, std::uint64_t places,
                                   Global<Unit<rung>> out) {
  const int length = memory.length();
#pragma unroll 1
  for (int u = lane_index(); u < length; u += kAhead * kStride) {
    float sums[kAhead][kPer<Unit<rung>>] = {};
    for_each_bit(places, [&](int place) {
      Unit<rung> units[kAhead] = {};
      read<rung>(call, memory.returned(memory.me(), token, place, piece), u, length, units,
                 Wait{kSiteReturn, rung >= kRankDedup ? place : -1, 1});
#pragma unroll
      for (int a = 0; a < kAhead; ++a) add_unit(sums[a], units[a]);
    });
    if (!call.live) break;
#pragma unroll
    for (int a = 0; a < kAhead; ++a) {
      if (u + a * kStride < length) store(out + (u + a * kStride), moe::rounded<Bf16, Unit<rung>>(sums[a]));
    }
  }
}

/// [warp] The same with packets of all rows in flight at once. A place is a rank here.
template <int rung>
FARWARP_DEVICE void sum_together(Call& call, const Memory<rung>& memory, int token, int piece, std::uint64_t places,
                                 Global<Unit<rung>> out) {
  constexpr int kUnits = 2;  // of each row
  const int length = memory.length();
#pragma unroll 1
  for (int u = lane_index(); u < length; u += kUnits * kStride) {
    Global<Packet> from[kMaxRanks * kUnits];
    std::uint64_t units[kMaxRanks * kUnits] = {};
    std::uint32_t wanted = 0;
#pragma unroll
    for (int i = 0; i < kMaxRanks * kUnits; ++i) {
      const int rank = i / kUnits, at = u + i % kUnits * kStride;
      if ((places >> rank & 1) == 0 || at >= length) continue;
      from[i] = own(memory.returned(memory.me(), token, rank, piece)) + at;
      wanted |= 1u << i;
    }
    if (!wait_packets<kUnits>(call, from, wanted, units, Wait{kSiteReturn, -1, 1})) break;
#pragma unroll
    for (int a = 0; a < kUnits; ++a) {
      float sum[kPer<Unit<rung>>] = {};
#pragma unroll
      for (int rank = 0; rank < kMaxRanks; ++rank) {
        if (places >> rank & 1) add_unit(sum, units[rank * kUnits + a]);
      }
      if (u + a * kStride < length) store(out + (u + a * kStride), moe::rounded<Bf16, Unit<rung>>(sum));
    }
  }
}

/// [warp] One piece of a token's output.
template <int rung>
FARWARP_DEVICE bool sum_piece(Call& call, const Memory<rung>& memory, int token, int piece) {
  const Parcel parcel = parcel_of_lane<rung>(memory.args, token);
  const std::uint64_t places = ballot(parcel.rank >= 0);
  if constexpr (rung >= kTokenFlags && rung < kPackets) {
    if (parcel.rank >= 0) {
      std::uint32_t unused = 0;
      wait_tagged(call, own(memory.return_flag(memory.me(), token, lane_index(), piece)), memory.tag, unused,
                  Wait{kSiteReturn, parcel.rank, 1});
    }
    if (!all_live(call)) return false;
  }
  const Global<Unit<rung>> out = Global<Unit<rung>>(static_cast<Unit<rung>*>(memory.args.out)) +
                                 (static_cast<std::int64_t>(token) * memory.row_length() + piece * memory.length());
  if constexpr (rung >= kTogether) {
    sum_together(call, memory, token, piece, places, out);
  } else {
    sum_one_by_one(call, memory, token, piece, places, out);
  }
  return all_live(call);
}

/// [block] Sums what comes back. A token that went nowhere gives zeros.
template <int rung>
FARWARP_DEVICE void combine(Call& call, const Memory<rung>& memory) {
  if constexpr (rung < kTokenFlags) {
    if (!await_owners(call, memory)) return;
  }
  const int pieces = memory.args.shape.pieces;
  for_each_unit(memory.args.tokens * pieces, [&](int unit) {
    const int token = unit / pieces;
    return sum_piece(call, memory, token, unit - token * pieces);
  });
}

}  // namespace farwarp::FARWARP_TARGET::ladder
