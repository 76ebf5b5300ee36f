// Weights that are given only at combine: a source sends them to the owners of its rows, which wait for them before
// they sum.
#pragma once

#include <bit>

#include "farwarp/ops/moe_a2a/returns.dev.h"

namespace farwarp::FARWARP_TARGET::moe {

using namespace farwarp::moe;

/// [block] Sends the weights of this rank's tokens: to each owner those of its copies of the row, in k-slot order and
/// without gaps, as dispatch has kept the copies there. Waits for nobody. `entry`: of the warp's first token,
/// warp_in_grid().
FARWARP_DEVICE void send_weights(const Call& call, const Args& args, int tokens, TokenEntry entry) {
  const Regions regions = regions_of(args, call);
  const int j = lane_index(), peer = j < args.view.size ? j : args.view.rank;
#pragma unroll 1
  for (int token = warp_in_grid(); token < tokens; token += warps_of_grid()) {
    if (token != warp_in_grid()) entry = TokenEntry(args, token, true);
    const int owner = owner_or_none(args, expert_or_none(args, entry.listed));
    const auto address = reinterpret_cast<std::uint64_t>(regions.combine_weights(peer, args.view.rank, token).raw);
    for_each_rank(args, ranks_of_lanes(args, owner), [&](int rank) {
      const Peer<Packet> packets(reinterpret_cast<Packet*>(shuffle(address, rank)));
      const std::uint64_t same = ballot(owner == rank);
      if (owner == rank)
        store_packet(packets + count_bits(same & lanes_below()), std::bit_cast<std::uint32_t>(entry.weight),
                     call.epoch);
    });
  }
}

/// For return_rows().
struct SentWeights {
  static constexpr bool kArrive = true;
  /// [warp] Waits for the weights of a row's copies, and puts them into the copies' words: `copy_word` on
  /// lane i is pack_copy() of copy i. False on all lanes if the call is over.
  FARWARP_DEVICE static bool take(Call& call, const Regions& regions, const ReceivedSegment& segment, int copies,
                                  std::uint64_t& copy_word) {
    const Global<Packet> from[] = {mine(regions.combine_weights(regions.me(), segment.source, segment.token)) +
                                   lane_index()};
    std::uint64_t data[1] = {};
    wait_packets<1>(call, from, lane_index() < copies ? 1 : 0, data,
                    Wait{.site = kSiteWeights, .peer = segment.source});
    copy_word = pack_copy(static_cast<std::int32_t>(output_row_of_copy(copy_word)),
                          std::bit_cast<float>(static_cast<std::uint32_t>(data[0])));
    if (ballot(!call.live) != 0) call.live = false;
    return call.live;
  }
};

/// [block] Retags some of the weights' inbox slots that this call leaves idle, as retag_idle_rows() does those of rows.
/// Which are idle the bitmaps say, which are still in the headers: not in a combine of a handle
/// (Args::dispatch_was_empty).
FARWARP_DEVICE void retag_idle_weights(const Call& call, const Args& args) {
  if (block_index() != 0) return;
  const Regions regions = regions_of(args, call);
  for_each_slot_to_retag(call, args, [&](int token, int source) {
    const Global<Packet> header = mine(regions.header(args.view.rank, source)) + token / kBitmapTokens;
    const auto bitmap = static_cast<std::uint32_t>(packet_data(load_packet(header)));
    if ((bitmap >> token % kBitmapTokens & 1) == 0)
      retag(call, regions.combine_weights(args.view.rank, source, token), args.k);
  });
}

}  // namespace farwarp::FARWARP_TARGET::moe
