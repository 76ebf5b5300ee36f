// MoeLayout::kRows: weights that owners return beside their rows, unrounded: a packet for each k-slot, added up in rank
// order at the source. A launch of its own between dispatch and combine of a call, for callers that train; no other
// call pays for it.
#pragma once

#include "farwarp/ops/moe_a2a/kernel.dev.h"

namespace farwarp::FARWARP_TARGET::moe {

using namespace farwarp::moe;

/// [warp] Returns the weights of output row `output_row`, which `source` has sent for `token`.
FARWARP_DEVICE void return_weights_of(const Call& call, const Regions& regions, int source, int token,
                                      std::int32_t output_row) {
  const Args& args = regions.args;
  const int j = lane_index();
  if (j >= args.k) return;
  const float weight = load(Global<const float>(args.row_weights.of_rows) + (std::int64_t{output_row} * args.k + j));
  store_packet(regions.combine_weights(source, args.view.rank, token) + j, std::bit_cast<std::uint32_t>(weight),
               call.epoch);
}

/// [block] Returns the weights of all rows that this rank has received. Waits for nobody.
FARWARP_DEVICE void return_all_weights(const Call& call, const Args& args) {
  const Regions regions = regions_of(args, call);
  const int ranks = args.view.size;
  if (args.ring.slot_bytes != 0) {  // rings: an output row, or none, for each token and source
#pragma unroll 1
    for (int item = warp_in_grid(); item < args.max_tokens * ranks; item += warps_of_grid()) {
      const int token = args.by_ranks.quotient(item), source = item - token * ranks;
      const std::int32_t output_row = load(regions.kept_output_row(source, token));
      if (output_row >= 0) return_weights_of(call, regions, source, token, output_row);
    }
    return;
  }
  const auto records = static_cast<int>(load(regions.kept_record_count()));
#pragma unroll 1
  for (int row_number = warp_in_grid(); row_number < records; row_number += warps_of_grid()) {
    const Global<std::uint64_t> record = regions.kept_record(row_number);
    const std::uint64_t row_word = load(record), copy_word = load(record + 1);
    return_weights_of(call, regions, source_of_row(row_word), token_of_row(row_word),
                      static_cast<std::int32_t>(output_row_of_copy(copy_word)));
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

/// [block] Retags some of these weights' inbox slots that this call leaves idle, as retag_idle_rows() does.
FARWARP_DEVICE void retag_idle_returned_weights(const Call& call, const Args& args, int tokens) {
  if (block_index() != 0) return;
  const Regions regions = regions_of(args, call);
  for_each_slot_to_retag(call, args, [&](int token, int owner) {
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
    if (!add_up_weights(call, regions, token, warp_ranks_of_token(args, token))) break;
  }
  retag_idle_returned_weights(call, args, tokens);
  end_call(call, kReceived);
}

}  // namespace farwarp::FARWARP_TARGET::moe
