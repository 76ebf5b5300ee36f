// Dispatch with MoeLayout::kRows in bulk mode, on targets with bulk copies: rows move in pieces (ring_rows.dev.h). In
// one launch a rank's rows for itself are not sent: the worker that delivers one copies it from x. Workers send the
// routes: a warp that sends rows uses one lane.
#pragma once

#include "farwarp/ops/moe_a2a/output_rows.dev.h"
#include "farwarp/ops/moe_a2a/ring_rows.dev.h"

namespace farwarp::FARWARP_TARGET::moe {

using namespace farwarp::moe;

/// The lanes of a warp work on the entries of several tokens at a time, one entry each.
struct EntryLanes {
  int tokens;              ///< together
  int token, k_slot;       ///< the lane's token among them, and its k-slot
  std::uint64_t of_token;  ///< the lanes of the same token; 0: the lane has no entry
  FARWARP_DEVICE explicit EntryLanes(const Args& args)
      : tokens(Target::kWarpSize / args.k), token(lane_index() / args.k), k_slot(lane_index() - token * args.k) {
    of_token = token < tokens ? ((std::uint64_t{1} << args.k) - 1) << token * args.k : 0;
  }
};

/// [block] Sends the routes of all tokens. Every worker calls it.
FARWARP_DEVICE void send_all_routes(const Call& call, const Args& args, int tokens) {
  const Regions regions = regions_of(args, call);
  const EntryLanes lanes(args);
#pragma unroll 1
  for (int first = worker_warp_number(args) * lanes.tokens; first < tokens;
       first += args.roles.workers * warps_per_block() * lanes.tokens) {
    const int token = first + lanes.token, entry = token * args.k + lanes.k_slot;
    const bool there = lanes.of_token != 0 && token < tokens;
    const int expert = expert_or_none(args, table_entry(args, entry, there));
    const float weight = there ? load(Global<const float>(args.tokens.weights) + entry) : 0;
    const int owner = owner_or_none(args, expert);
    const std::uint64_t route = owner >= 0 ? pack_route(weight, expert - first_expert(args, owner), 0) : 0;
#pragma unroll 1
    for (int i = 1; i <= args.view.size; ++i) {
      const int rank = rank_after(args, i);
      const bool goes_to_rank = (ballot(owner == rank) & lanes.of_token) != 0;
      if (goes_to_rank && there)
        store_packet(regions.routes(rank, args.view.rank, token) + lanes.k_slot, owner == rank ? route : kNoRoute,
                     call.epoch);
    }
  }
}

/// [block] Waits for the routes of all rows, and stores their entries, the caller's origins, and what combine needs:
/// the output row of each source's row for each token. After scan_bitmaps(). Every worker calls it. A thread whose call
/// is over stops.
FARWARP_DEVICE void deliver_entries(Call& call, const Args& args) {
  const Regions regions = regions_of(args, call);
  const EntryLanes lanes(args);
#pragma unroll 1
  for (int i = 1; i <= args.view.size; ++i) {
    const int source = rank_after(args, i);
#pragma unroll 1
    for (int first = worker_warp_number(args) * lanes.tokens; first < args.max_tokens;
         first += args.roles.workers * warps_per_block() * lanes.tokens) {
      const int token = first + lanes.token;
      if (lanes.of_token == 0 || token >= args.max_tokens) continue;
      const bool sent = has_row(args, source, token);
      const std::int32_t output_row = sent ? find_output_row(args, source, token) : -1;
      if (lanes.k_slot == 0) store(regions.kept_output_row(source, token), output_row);
      if (!sent) continue;
      const Global<Packet> from[] = {mine(regions.routes(args.view.rank, source, token)) + lanes.k_slot};
      std::uint64_t word[1] = {};
      if (!wait_packets<1>(call, from, 1, word, Wait{.site = kSiteRoutes, .peer = source})) return;
      const Route route = unpack_route(word[0]);
      const bool here = word[0] != kNoRoute;
      store_entry(args, std::int64_t{output_row} * args.k + lanes.k_slot, here ? route.expert : -1,
                  here ? route.weight : 0);
      if (lanes.k_slot == 0 && args.dispatch.origins != nullptr)
        store(Global<std::int64_t>(args.dispatch.origins) + output_row,
              std::int64_t{source} << 48 | std::int64_t{token} << 16);
    }
  }
}

FARWARP_DEVICE Global<const std::byte> row_of_x(const Args& args, int token) {
  return Global<const std::byte>(static_cast<const std::byte*>(args.send.x)) + token * row_stride(args);
}

/// [block] Sends this rank's rows in the order of tokens (Piece::row), those for itself only if `to_itself`. No warp
/// waits for another. Machine is Target: a template, so that targets without bulk copies discard the body.
template <class Machine>
FARWARP_DEVICE void send_in_pieces(Call& call, const Args& args, RowRing& ring, int tokens, bool to_itself) {
  const Regions regions = regions_of(args, call);
  const int stride = args.roles.sending_blocks * args.roles.sending_warps, items = tokens * args.segments;
  const std::uint32_t peers = ~(to_itself ? 0u : 1u << args.view.rank);
  const auto store_piece = [&](const Piece& piece, Shared<const std::byte> slot) {
    if (dropped(args, piece.row)) return;
    for_each_rank(args, piece.to, [&](int rank) {
      bulk_store(regions.row(rank, args.view.rank, piece.row) + piece.begin, slot, piece.bytes);
    });
  };
  const auto announce = [&](const Piece& piece) {
    fence<Order::release, Scope::system>();
    for_each_rank(args, piece.to, [&](int rank) {
      signal_cell<Order::relaxed>(regions.row_flag(rank, args.view.rank, piece.row, piece.segment),
                                  tagged(call.epoch, 0));
    });
  };
  const int first = sending_warp_number(args);
  for_each_found(
      first < stride ? first : items, items, stride,
      [&](int item) { return ranks_of_token(args, args.by_segments.quotient(item)) & peers; },
      [&](int item, std::uint32_t to) {
        const int token = args.by_segments.quotient(item);
        const Piece piece{.row = token, .to = to, .segment = item - token * args.segments};
        if (to != 0 && lane_index() == 0)
          push_segment(call, args, ring, row_of_x(args, token), piece, store_piece, announce);
        return true;
      });
  if (lane_index() == 0) ring.finish(call, kSiteStaging, store_piece, announce);
}

/// [block] Copies the rows that arrive to their output rows (Piece::row), and with `from_x` this rank's own ones from
/// x. Every worker calls it.
template <class Machine>
FARWARP_DEVICE void deliver_in_pieces(Call& call, const Args& args, RowRing& ring, bool from_x) {
  const Regions regions = regions_of(args, call);
  const Peer<std::byte> out(static_cast<std::byte*>(args.dispatch.recv_x));
  const auto store_piece = [&](const Piece& piece, Shared<const std::byte> slot) {
    bulk_store(out + (piece.row * row_stride(args) + piece.begin), slot, piece.bytes);
  };
  const auto nobody_waits = [](const Piece&) {};
  for_each_arriving_segment<1>(args, [&](const ReceivedSegment& segment) {
    const Piece piece{.row = find_output_row(args, segment.source, segment.token), .to = 0, .segment = segment.number};
    if (lane_index() == 0) {
      if (from_x && segment.source == args.view.rank) {
        if (!dropped(args, segment.token))
          push_segment(call, args, ring, row_of_x(args, segment.token), piece, store_piece, nobody_waits);
      } else {
        std::uint32_t ignored = 0;
        const auto flag = mine(regions.row_flag(args.view.rank, segment.source, segment.token, segment.number));
        const Wait wait{.site = kSiteData, .peer = segment.source};
        if (wait_tagged(call, flag, call.epoch, ignored, wait)) {
          proxy_fence();  // orders the copies' reads after the acquire
          const Global<const std::byte> row(regions.row(args.view.rank, segment.source, segment.token).raw);
          push_segment(call, args, ring, row, piece, store_piece, nobody_waits);
        }
      }
    }
    if (ballot(!call.live) != 0) call.live = false;
    return call.live;
  });
  if (lane_index() == 0) ring.finish(call, kSiteStaging, store_piece, nobody_waits);
}

/// What retag_idle_rows() needs of a wire.
struct RingWire {
  Call& call;
  const Args& args;
  Regions regions;
  FARWARP_DEVICE void retag_row(int source, int token) { retag_row_flags(call, regions, source, token); }
};

template <class Machine>
FARWARP_DEVICE void receive_in_pieces(Call& call, const Args& args, RowRing& ring) {
  if (!is_worker(args)) return;
  block_sync();  // counting no longer needs the shared memory
  await_bitmaps(call, args);
  call.live = !block_any(!call.live);
  if (!call.live) return;
  const int rows = scan_bitmaps(args);
  RingWire wire{call, args, regions_of(args, call)};
  retag_idle_rows(wire);
  if (!check_capacity(call, args, rows)) return;
  mark_unused(args, rows);
  deliver_entries(call, args);
  if (ballot(!call.live) != 0) call.live = false;
  deliver_in_pieces<Machine>(call, args, ring, sends(args));
  if (is_first_worker(args) && args.dispatch.counts != nullptr)
    receive_headers(call, args);  // they may come later than the rows
}

/// dispatch_rows() in pieces. A block that sends and receives does the one after the other.
template <class Machine>
FARWARP_DEVICE void dispatch_in_pieces(const Args& args) {
  RowRing ring = ring_of_warp(args);
  const int given = given_tokens(args);
  Call call = begin_call(args.view, args.operator_slot, sends(args) ? kIdle : kSent);
  if (!call.live) return;
  if (sends(args)) {
    const int tokens = checked_tokens(call, args, given);
    send_bitmaps(call, args, tokens);
    send_entry_counts(call, args, tokens);
    if (is_worker(args)) send_all_routes(call, args, tokens);
    send_in_pieces<Machine>(call, args, ring, tokens, !receives(args));
  }
  if (receives(args)) {
    receive_in_pieces<Machine>(call, args, ring);
  } else if (is_first_worker(args) && args.dispatch.counts != nullptr) {
    receive_headers(call, args);
  }
  end_call(call, receives(args) ? kReceived : kSent);
}

}  // namespace farwarp::FARWARP_TARGET::moe
