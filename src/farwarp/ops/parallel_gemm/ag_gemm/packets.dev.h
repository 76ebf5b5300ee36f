// x of few rows as packets: no flag and no fence stands between a row's store at its rank and its arrival at the others. Communicators
// send, or gather what has come and tell the blocks of this launch.
#pragma once

#include "farwarp/ops/parallel_gemm/ag_gemm/args.h"
#include "farwarp/world/device/signal.dev.h"
#include "farwarp/world/device/wait.dev.h"

namespace farwarp::FARWARP_TARGET::ag_gemm {

using farwarp::ag_gemm::Args;
using farwarp::ag_gemm::kPacketElements;
using Four = std::uint64_t;  ///< elements, a packet's

FARWARP_DEVICE int packet_piece_count(const Args& args) { return args.packet_pieces.per_split * args.grid.splits; }

/// [block] Calls `visit(row, column)` for the packets of a shard in piece `number`, a thread each.
template <class Visit>
FARWARP_DEVICE void for_each_packet(const Args& args, int number, const Visit& visit) {
  const auto [first, count] = farwarp::ag_gemm::packet_piece(args.packet_pieces, args.grid, args.k, number);
  const int per_row = count / kPacketElements;
  for (int i = thread_index(); i < args.shard_rows * per_row; i += num_threads()) {
    const int row = i / per_row;
    visit(row, first + (i - row * per_row) * kPacketElements);
  }
}

FARWARP_DEVICE Global<const Four> own_four(const Args& args, int row, int column) {
  return Global<const Four>(static_cast<const Four*>(args.own_x)) +
         (std::int64_t{row} * args.k + column) / kPacketElements;
}

/// [block] Calls `visit(number)` for every piece that the block sends.
template <class Visit>
FARWARP_DEVICE void for_each_sent(const Args& args, const Visit& visit) {
  for (int number = block_index(); number < packet_piece_count(args); number += args.packet_pieces.senders)
    visit(number);
}

/// [block] Sends the block's pieces to all peers, its successor first. Nothing is waited for.
FARWARP_DEVICE void send_packets(const Call& call, const Args& args) {
  const WorldView& view = args.view;
  for_each_sent(args, [&](int number) {
    if (args.drop_piece == static_cast<std::uint32_t>(number) + 1) return;
    for_each_packet(args, number, [&](int row, int column) {
      const Four data = load(own_four(args, row, column));
      const std::int64_t at = args.packet_at(call.epoch, view.rank * args.shard_rows + row, column);
      for (int i = 1; i < view.size; ++i) {
        const int peer = view.rank + i < view.size ? view.rank + i : view.rank + i - view.size;
        store_packet(peer_address<Packet>(view, peer, at), data, call.epoch);
      }
    });
  });
}

/// [thread] Four elements of this row of every rank's shard, its own too, from packets to where tensor copies read; and to the caller,
/// who may want them.
FARWARP_DEVICE void gather_fours(Call& call, const Args& args, int row, int column) {
  const WorldView& view = args.view;
  Global<Packet> from[kMaxRanks];
#pragma unroll
  for (int source = 0; source < kMaxRanks; ++source) {
    const int of = source < view.size ? source : view.rank;
    from[source] = own_address<Packet>(view, args.packet_at(call.epoch, of * args.shard_rows + row, column));
  }
  const Four own = load(own_four(args, row, column));
  const std::uint32_t wanted = ((1u << view.size) - 1) & ~(1u << view.rank);
  Four fours[kMaxRanks] = {};
  if (!wait_packets<1, Failure::in_place>(call, from, wanted, fours, {farwarp::ag_gemm::kSiteArrival, -1})) return;
  const auto gathered = own_address<Four>(view, args.gathered_of(call.epoch));
  const Global<Four> all_x(static_cast<Four*>(args.all_x));
#pragma unroll
  for (int source = 0; source < kMaxRanks; ++source) {
    if (source >= view.size) continue;
    const std::int64_t at = (std::int64_t{source * args.shard_rows + row} * args.k + column) / kPacketElements;
    const Four four = source == view.rank ? own : fours[source];
    store(gathered + at, four);
    if (args.all_x != nullptr) store(all_x + at, four);
  }
}

/// [block] Tells this launch that the block has gathered a piece. False if the call is over.
FARWARP_DEVICE bool tell_gathered(Call& call, const Args& args, int number) {
  drain_stores();
  if (block_any(!call.live)) call.live = false;
  if (call.live && thread_index() == 0) {
    store<Order::release, Scope::device>(own_address<std::uint64_t>(args.view, args.told) + number,
                                         tagged(call.epoch, 0));
  }
  return call.live;
}

/// [block] Gathers the block's pieces.
FARWARP_DEVICE void gather_packets(Call& call, const Args& args) {
  const int gatherers = args.packet_pieces.gatherers;
  const int first = block_index() - (args.communicators - gatherers);
  if (first < 0) return;
  for (int number = first; number < packet_piece_count(args); number += gatherers) {
    for_each_packet(args, number, [&](int row, int column) { gather_fours(call, args, row, column); });
    if (!tell_gathered(call, args, number)) return;
  }
}

/// [block] A communicator. Senders are not gatherers, as far as there are blocks: a gatherer's release would wait for what its
/// multiprocessor has on the links.
FARWARP_DEVICE void exchange_packets(const Args& args) {
  const bool sends = block_index() < args.packet_pieces.senders;
  if (sends) {  // x from memory while join_call() reads its cells
    for_each_sent(args, [&](int number) {
      for_each_packet(args, number, [&](int row, int column) { prefetch(own_four(args, row, column)); });
    });
  }
  Call call = join_call(args.view, args.slot);
  if (!call.live) return;
  if (sends) send_packets(call, args);
  if (block_index() == 0 && thread_index() == 0) claim_call(call);
  gather_packets(call, args);
  end_call(call, 0);
}

/// [warp] Waits until piece number `order` of a split has been gathered, for copies, and returns the next that may not have been: all of the
/// split's flags are looked at. At least the next one, also when the call is over.
FARWARP_DEVICE int await_gathered(Call& call, const Args& args, int split, int order) {
  const int left = args.packet_pieces.per_split - order;
  const int lanes = left < Target::kWarpSize ? left : Target::kWarpSize;
  const auto cell =
      own_address<std::uint64_t>(args.view, args.told) + ((order + lane_index()) * args.grid.splits + split);
  // Behind the gatherers' waits for packets.
  const int gathered =
      wait_leading<Failure::in_place>(call, cell, lanes, 1, call.epoch, {farwarp::ag_gemm::kSiteArrival, -1, 1});
  proxy_fence();
  warp_sync();
  return order + (gathered > 0 ? gathered : 1);
}

}  // namespace farwarp::FARWARP_TARGET::ag_gemm
