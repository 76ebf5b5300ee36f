// MoeLayout::kRows: weights that owners return beside their rows, unrounded: a packet for each k-slot, added up in rank
// order at the source. A launch of its own between dispatch and combine of a call, for callers that train; no other
// call pays for it.
#pragma once

#include "farwarp/ops/moe_a2a/kernel.dev.h"

namespace farwarp::FARWARP_TARGET::moe {

using namespace farwarp::moe;

/// [warp] Returns the weights of the row at `place`, which `source` has sent for `token`.
FARWARP_DEVICE void return_weights_of(const Call& call, const Regions& regions, int source, int token,
                                      std::int32_t place) {
  const Args& args = regions.args;
  const int j = lane_index();
  if (j >= args.k) return;
  const float weight = load(Global<const float>(args.row_weights.of_rows) + (std::int64_t{place} * args.k + j));
  store_packet(regions.combine_weights(source, args.view.rank, token) + j, std::bit_cast<std::uint32_t>(weight),
               call.epoch);
}

/// [block] Returns the weights of all rows that this rank has received. Waits for nobody.
FARWARP_DEVICE void return_all_weights(const Call& call, const Args& args) {
  const Regions regions = regions_of(args, call);
  const int ranks = args.view.size;
  if (args.ring.slot_bytes != 0) {  // rings: a place for each token and source
#pragma unroll 1
    for (int item = warp_in_grid(); item < args.max_tokens * ranks; item += warps_of_grid()) {
      const int token = args.by_ranks.quotient(item), source = item - token * ranks;
      const std::int32_t place = load(regions.kept_row(source, token));
      if (place >= 0) return_weights_of(call, regions, source, token, place);
    }
    return;
  }
  const auto rows = static_cast<int>(load(regions.kept_count()));
#pragma unroll 1
  for (int row = warp_in_grid(); row < rows; row += warps_of_grid()) {
    const std::uint64_t origin = load(regions.kept(row)), word = load(regions.kept(row) + 1);
    return_weights_of(call, regions, static_cast<int>(origin & 0xff), static_cast<int>(origin >> 32),
                      static_cast<std::int32_t>(kept_place(word)));
  }
}

/// [warp] Waits for the weights of one token from the owners in `ranks`, and adds them in rank order. False on all
/// lanes if the call is over.
FARWARP_DEVICE bool add_up_weights(Call& call, const Regions& regions, int token, std::uint32_t ranks) {
  const Args& args = regions.args;
  const int j = lane_index(), k_slot = j < args.k ? j : 0;
  float sum = 0;
#pragma unroll 1
  for (int owner = 0; owner < args.view.size; ++owner) {
    if ((ranks >> owner & 1) == 0) continue;
    const Global<Packet> from[] = {mine(regions.combine_weights(args.view.rank, owner, token)) + k_slot};
    std::uint64_t data[1] = {};
    wait_packets<1>(call, from, j < args.k ? 1 : 0, data, Wait{.site = kSiteWeights, .peer = owner});
    if (ballot(!call.live) != 0) return call.live = false;
    sum = add(sum, std::bit_cast<float>(static_cast<std::uint32_t>(data[0])));
  }
  if (j < args.k) store(Global<float>(args.row_weights.sums) + (std::int64_t{token} * args.k + j), sum);
  return true;
}

/// [block] Retags some of the places that this call leaves idle, as retag_idle_rows() does.
FARWARP_DEVICE void retag_idle_returned_weights(const Call& call, const Args& args, int tokens) {
  if (block_index() != 0) return;
  const Regions regions = regions_of(args, call);
  for_each_place_to_retag(call, args, [&](int token, int owner) {
    if (token < tokens && (ranks_of_token(args, token) >> owner & 1) != 0) return;
    retag(call, regions.combine_weights(args.view.rank, owner, token), args.k);
  });
}

/// The phase of the call stays what it was: combine comes next.
FARWARP_DEVICE void return_row_weights(const Args& args) {
  Call call = begin_call(args.view, args.operator_slot, kReceived);
  if (!call.live) return;
  const int tokens = token_count(call, args);
  return_all_weights(call, args);
  const Regions regions = regions_of(args, call);
#pragma unroll 1
  for (int token = warp_in_grid(); token < tokens; token += warps_of_grid()) {
    if (!add_up_weights(call, regions, token, destinations_by_lanes(args, token))) break;
  }
  retag_idle_returned_weights(call, args, tokens);
  end_call(call, kReceived);
}

}  // namespace farwarp::FARWARP_TARGET::moe
