// What arrives at an owner in the split form: which rows there are and who works on them. Which warp takes which (source, slot) is
// fixed; a warp learns that a slot stays empty from the source's header, so counts cost no round trip of their own. And, of both
// forms: the tags of what a call leaves idle.
#pragma once

#include "farwarp/ops/moe_a2a/headers.dev.h"
#include "farwarp/ops/moe_a2a/rows.dev.h"

namespace farwarp::FARWARP_TARGET::moe {

inline constexpr std::uint32_t kUnknown = 0xffffffffu;

/// [warp] The words of a row's head that lane i, or lane i - warp, has waited for: routes into the warp's scratch.
FARWARP_DEVICE void keep_routes(const Args& args, Row& row, int first_packet, std::uint64_t word) {
  const int j = first_packet + lane_index() - 1;
  const bool is_route = j >= 0 && j < args.k && word != farwarp::moe::kNoRoute;
  const std::uint64_t routes = ballot(is_route);
  if (is_route) store(scratch_of(args) + (row.routes + count_bits(routes & lanes_below())), unpack_route(word, j));
  row.routes += count_bits(routes);
}

/// [warp] Waits for the row's head or for a header that says there is no such row. `rows` (lane r: source r) learns from the
/// header. False: no row, or the call is over.
FARWARP_DEVICE bool await_head(Call& call, const Args& args, Row& row, std::uint32_t& rows) {
  const Regions regions = regions_of(args, call);
  const Global<Packet> head = mine(regions.head(args.view.rank, row.source, row.slot));
  const Global<Packet> own = head + (lane_index() <= args.k ? lane_index() : args.k);
  const Global<Packet> header = mine(regions.header(args.view.rank, row.source));
  const void* const addresses[] = {abort_cell(call).raw, &own.raw->lo, &own.raw->hi, &header.raw->lo, &header.raw->hi};
  for (std::uint32_t tries = 0;; ++tries) {
    // Every lane polls a word of the head, and the header, because a lane may only park on what it has polled.
    const Packet head_packet = load_packet(own), header_packet = load_packet(header);
    const std::uint64_t missing = ballot(!packet_has_tag(head_packet, call.epoch));
    const std::uint64_t saw_header = ballot(packet_has_tag(header_packet, call.epoch));
    if (saw_header != 0) {
      const auto source_rows = static_cast<std::uint32_t>(shuffle(packet_data(header_packet), lowest_bit(saw_header)));
      if (lane_index() == row.source) rows = source_rows;
      if (source_rows <= static_cast<std::uint32_t>(row.slot)) return false;
    }
    if (missing == 0) {
      row.token = static_cast<std::int32_t>(shuffle(packet_data(head_packet), 0));
      keep_routes(args, row, 0, packet_data(head_packet));
      break;
    }
    // A lane that has its word waits for the others in the next ballot.
    const bool look = (missing >> lane_index() & 1) != 0 && park(addresses, 5, call.deadline_ns, tries);
    if (look && lane_index() == lowest_bit(missing)) [[unlikely]] {
      may_wait_on(call, Wait{farwarp::moe::kSiteRow, row.source}, call.epoch, head_packet.lo >> 32);
    }
    if (ballot(!call.live) != 0) {
      call.live = false;
      return false;
    }
  }
  for (int first = kStride; first <= args.k; first += kStride) {  // k = 32 has one word more than a warp of 32 lanes
    const Global<Packet> from[] = {head + (first + lane_index() <= args.k ? first + lane_index() : args.k)};
    std::uint64_t word[1] = {farwarp::moe::kNoRoute};
    wait_packets<1>(call, from, 1, word, Wait{farwarp::moe::kSiteRow, row.source});
    keep_routes(args, row, first, word[0]);
  }
  warp_sync();
  if (ballot(!call.live) != 0) call.live = false;
  return call.live;
}

/// [block] Calls `work(row)` on a warp for each piece of each row that arrives; a piece begins at a multiple of `align` units.
template <int align, class Work>
FARWARP_DEVICE void for_each_row(Call& call, const Args& args, const Work& work) {
  const int units = args.max_tokens * args.view.size * args.segments;
  std::uint32_t rows = kUnknown;  // lane r: rows of source r
#pragma unroll 1
  for (int unit = warp_index() * args.roles.workers + worker_index(args); unit < units;
       unit += args.roles.workers * warps_per_block()) {
    const int place = args.by_segments.quotient(unit), segment = unit - place * args.segments;
    const std::int32_t slot = args.by_ranks.quotient(place);
    const int source = rank_behind(args, 1 + place - slot * args.view.size);
    if (ballot(lane_index() < args.view.size && rows > static_cast<std::uint32_t>(slot)) == 0) return;
    if (shuffle(rows, source) <= static_cast<std::uint32_t>(slot)) continue;
    const Segment piece = segment_of<align>(args, slot, segment);
    Row row{source, slot, 0, 0, segment, piece.first, piece.last};
    if (await_head(call, args, row, rows)) work(row);
    // A lane that gave up ends it for the warp; and the scratch is free for the next row's routes.
    warp_sync();
    if (ballot(!call.live) != 0) {
      call.live = false;
      return;
    }
  }
}

/// [block] Gives packets of this rank a recent tag that no call will wait for.
FARWARP_DEVICE void retag(const Call& call, Peer<Packet> packets, int count) {
  for (int i = thread_index(); i < count; i += num_threads()) store_packet(packets + i, 0, call.epoch - 1);
}

/// [block] A slice of the slots that this call leaves idle gets a recent tag, each slot once in kRefreshPeriod calls of a parity.
/// Without it a slot that is skipped for exactly 2^32 calls would show its old contents as new. The headers of all sources have been
/// awaited; `has_row(source, slot)` says what they say.
template <class Wire, class HasRow>
FARWARP_DEVICE void refresh_idle_rows(Wire& wire, const HasRow& has_row) {
  const Args& args = wire.args;
  if (!is_first_worker(args)) return;
  const int places = args.max_tokens * args.view.size;
#pragma unroll 1
  for (auto place = static_cast<int>((wire.call.epoch / 2) % farwarp::moe::kRefreshPeriod); place < places;
       place += static_cast<int>(farwarp::moe::kRefreshPeriod)) {
    const int slot = args.by_ranks.quotient(place), source = place - slot * args.view.size;
    if (has_row(source, slot)) continue;
    retag(wire.call, wire.regions.head(args.view.rank, source, slot), 1 + args.k);
    wire.retag_row(source, slot);
  }
}

}  // namespace farwarp::FARWARP_TARGET::moe
