// Packet mode: rows and partial sums cross the link as packets that carry their own tag. No flag, no fence, no barrier stands
// between a store and its reader; each warp works on its own. For small batches: the payload is half of what is sent.
#pragma once

#include "farwarp/ops/moe_a2a/headers.dev.h"
#include "farwarp/ops/moe_a2a/rows.dev.h"

namespace farwarp::FARWARP_TARGET::moe {

struct PacketWire {
  Call& call;
  const Args& args;
  Regions regions;

  FARWARP_DEVICE PacketWire(Call& a_call, const Args& a) : call(a_call), args(a), regions(regions_of(a, a_call)) {}

  // ---- source ----------------------------------------------------------------------------------------------------------

  /// [block] Sends the block's tokens. No waits.
  FARWARP_DEVICE void send(const OwnTokens& own) {
    route_and_send(call, args, own, [&](int first, int last) {
      const std::int64_t segments = args.segments;
      const std::int64_t begin = own.first_unit > first * segments ? own.first_unit : first * segments;
      const std::int64_t end = own.last_unit < last * segments ? own.last_unit : last * segments;
      for (std::int64_t unit = begin + warp_index(); unit < end; unit += warps_per_block()) {
        send_piece(static_cast<int>(unit / segments), first, static_cast<int>(unit % segments));
      }
    });
  }

  /// [block] Returns are awaited packet by packet.
  FARWARP_DEVICE bool await_returns() { return call.live; }

  /// [thread] Vector `v` of every owner's sum; all packets in flight before one is tested.
  FARWARP_DEVICE bool read_returns(int token, std::uint32_t ranks, int v, Vec16 (&parts)[kMaxRanks]) {
    Global<Packet> from[2 * kMaxRanks];
    std::uint64_t data[2 * kMaxRanks] = {};
    std::uint32_t wanted = 0;
#pragma unroll
    for (int r = 0; r < kMaxRanks; ++r) {
      if (!(ranks >> r & 1)) continue;
      from[2 * r] = mine(regions.packet_return(args.view.rank, token, r)) + 2 * v;
      from[2 * r + 1] = from[2 * r] + 1;
      wanted |= 3u << (2 * r);
    }
    if (!wait_packets<2>(call, from, wanted, data, Wait{farwarp::moe::kSiteReturn, -1, 1})) return false;
#pragma unroll
    for (int r = 0; r < kMaxRanks; ++r) parts[r] = Vec16{data[2 * r], data[2 * r + 1]};
    return true;
  }

  // ---- owner -----------------------------------------------------------------------------------------------------------

  /// [block] Calls `work(row)` on a warp for each piece of each row that arrives. Which warp takes which (source, slot) is
  /// fixed; a warp learns that a slot stays empty from the source's header, so counts cost no round trip of their own.
  template <class Work>
  FARWARP_DEVICE void for_each_row(const Work& work, bool) {
    const std::int64_t units = static_cast<std::int64_t>(args.max_tokens) * args.view.size * args.segments;
    const std::int64_t stride = static_cast<std::int64_t>(num_blocks()) * warps_per_block();
    std::uint32_t rows = kUnknown;  // lane r: rows of source r
    for (std::int64_t unit = static_cast<std::int64_t>(block_index()) * warps_per_block() + warp_index(); unit < units;
         unit += stride) {
      const auto segment = static_cast<int>(unit % args.segments);
      const std::int64_t place = unit / args.segments;
      const auto slot = static_cast<std::int32_t>(place / args.view.size);
      const int source = (args.view.rank + 1 + static_cast<int>(place % args.view.size)) % args.view.size;
      if (ballot(lane_index() < args.view.size && rows > static_cast<std::uint32_t>(slot)) == 0) return;
      if (shuffle(rows, source) <= static_cast<std::uint32_t>(slot)) continue;
      Row row{source,
              slot,
              0,
              0,
              args.hidden / kPerVector * segment / args.segments,
              args.hidden / kPerVector * (segment + 1) / args.segments};
      std::uint32_t k_slots = 0;
      if (!await_row(row, k_slots, rows)) {
        if (ballot(!call.live) == 0) continue;  // the source sends no such row
        call.live = false;                      // a lane that gave up over an earlier row ends it for the warp
        return;
      }
      if (!read_routes(row, k_slots)) return;
      work(row);
      warp_sync();  // the scratch is free for the next row's routes
    }
  }

  FARWARP_DEVICE bool read(const Row& row, int v, Vec16& x) {
    const Global<Packet> first = mine(regions.packet_row(args.view.rank, row.source, row.slot)) + (1 + args.k + 2 * v);
    const Global<Packet> from[] = {first, first + 1};
    std::uint64_t data[2] = {};
    if (!wait_packets<1>(call, from, 3, data, Wait{farwarp::moe::kSiteRow, row.source})) return false;
    x = Vec16{data[0], data[1]};
    return true;
  }

  FARWARP_DEVICE void write_return(const Row& row, int v, Vec16 sum) {
    const Peer<Packet> to = regions.packet_return(row.source, row.token, args.view.rank) + 2 * v;
    store_packet(to, sum.lo, call.epoch);
    store_packet(to + 1, sum.hi, call.epoch);
  }

  /// [block] A slice of the slots that this call leaves idle gets a recent tag that no call will wait for. Without it a slot
  /// that is skipped for exactly 2^32 calls would show its old packet as new. `rows` of all sources are known.
  FARWARP_DEVICE void refresh_idle_rows() {
    if (block_index() != 0) return;
    const auto rows = shared_at<std::uint32_t>(args.shared.rows);
    for_refreshed(static_cast<std::int64_t>(args.max_tokens) * args.view.size, [&](std::int64_t place) {
      const auto slot = static_cast<std::uint32_t>(place / args.view.size);
      const int source = static_cast<int>(place % args.view.size);
      if (slot >= load(rows + source)) retag(regions.packet_row(args.view.rank, source, slot), regions.row_packets());
    });
  }
  FARWARP_DEVICE void refresh_idle_returns(int tokens) {
    if (block_index() != 0) return;
    for_refreshed(static_cast<std::int64_t>(args.max_tokens) * args.view.size, [&](std::int64_t place) {
      const auto token = static_cast<int>(place / args.view.size);
      const int owner = static_cast<int>(place % args.view.size);
      const bool idle = token >= tokens || !(destinations_of(call, args, token) >> owner & 1);
      if (idle) retag(regions.packet_return(args.view.rank, token, owner), regions.data_packets());
    });
  }

 private:
  static constexpr std::uint32_t kUnknown = 0xffffffffu;

  /// [warp] What precedes a row's data, to every rank that owns one of the token's experts.
  FARWARP_DEVICE void send_routes(int token, int in_batch, Shared<std::uint32_t> slots) {
    for (int i = 1; i <= args.view.size; ++i) {
      const int rank = (args.view.rank + i) % args.view.size;
      const std::uint32_t slot = load(slots + rank);
      if (slot == kNoSlot) continue;
      const Peer<Packet> row = regions.packet_row(rank, args.view.rank, slot);
      const std::uint32_t k_slots = routes_to(call, args, token, in_batch, rank, [&](int r, std::uint64_t word) {
        store_packet(row + (1 + r), word, call.epoch);
      });
      if (lane_index() == 0) store_packet(row, row_word(token, k_slots), call.epoch);
    }
  }

  /// [warp] One segment of a token to every rank that owns one of its experts, beginning behind mine.
  FARWARP_DEVICE void send_piece(int token, int batch_first, int segment) {
    const int in_batch = token - batch_first;
    const auto slots = shared_at<std::uint32_t>(args.shared.slots) + in_batch * args.view.size;
    if (segment == 0) send_routes(token, in_batch, slots);
    Peer<Packet> rows[kMaxRanks];  // unrolled loops only, so that they stay in registers
    std::uint32_t ranks = 0;
#pragma unroll
    for (int i = 0; i < kMaxRanks; ++i) {
      if (i >= args.view.size) continue;
      const int rank = (args.view.rank + 1 + i) % args.view.size;
      const std::uint32_t slot = load(slots + rank);
      if (slot == kNoSlot || slot + 1 == args.drop_put) continue;
      ranks |= 1u << i;
      rows[i] = regions.packet_row(rank, args.view.rank, slot) + (1 + args.k);
    }
    const int vectors = args.hidden / kPerVector;
    const Global<const Vec16> x =
        Global<const Vec16>(static_cast<const Vec16*>(args.x)) + static_cast<std::int64_t>(token) * vectors;
    const int last = vectors * (segment + 1) / args.segments;
    for (int v = vectors * segment / args.segments + lane_index(); v < last; v += Target::kWarpSize) {
      const Vec16 value = load<Cache::streaming>(x + v);
#pragma unroll
      for (int i = 0; i < kMaxRanks; ++i) {
        if (!(ranks >> i & 1)) continue;
        store_packet(rows[i] + 2 * v, value.lo, call.epoch);
        store_packet(rows[i] + (2 * v + 1), value.hi, call.epoch);
      }
    }
  }

  /// [warp] Waits for the row's first packet or for a header that says there is no such row. `rows` (lane r: source r)
  /// learns from the header. False: no row, or the call is over.
  FARWARP_DEVICE bool await_row(Row& row, std::uint32_t& k_slots, std::uint32_t& rows) {
    const Global<Packet> first = mine(regions.packet_row(args.view.rank, row.source, row.slot));
    const Global<Packet> header = mine(regions.header(args.view.rank, row.source));
    const void* const addresses[] = {abort_cell(call).raw, &first.raw->lo, &first.raw->hi, &header.raw->lo,
                                     &header.raw->hi};
    for (std::uint32_t tries = 0;; ++tries) {
      // Every lane polls (one request for the warp) and any lane's sight counts: a lane may only park on what it has polled.
      const Packet row_packet = load_packet(first), header_packet = load_packet(header);
      const std::uint64_t saw_row = ballot(packet_has_tag(row_packet, call.epoch));
      const std::uint64_t saw_header = ballot(packet_has_tag(header_packet, call.epoch));
      if (saw_header != 0) {
        const auto source_rows =
            static_cast<std::uint32_t>(shuffle(packet_data(header_packet), lowest_bit(saw_header)));
        if (lane_index() == row.source) rows = source_rows;
        if (source_rows <= static_cast<std::uint32_t>(row.slot)) return false;
      }
      if (saw_row != 0) {
        const std::uint64_t word = shuffle(packet_data(row_packet), lowest_bit(saw_row));
        row.token = static_cast<std::int32_t>(word);
        k_slots = static_cast<std::uint32_t>(word >> 32);
        row.routes = count_bits(k_slots);
        return true;
      }
      const bool look = park(addresses, 5, call.deadline_ns, tries);
      if (look && lane_index() == 0) {
        may_wait_on(call, Wait{farwarp::moe::kSiteRow, row.source}, call.epoch, row_packet.lo >> 32);
      }
      if (ballot(!call.live) != 0) {
        call.live = false;
        return false;
      }
    }
  }

  /// [warp] The row's routes into the warp's scratch.
  FARWARP_DEVICE bool read_routes(const Row& row, std::uint32_t k_slots) {
    const int j = lane_index();
    bool arrived = true;
    if (j < args.k && (k_slots >> j & 1)) {
      const int r = count_bits(k_slots & lanes_below());
      const Global<Packet> from[] = {mine(regions.packet_row(args.view.rank, row.source, row.slot)) + (1 + r)};
      std::uint64_t data[1] = {};
      arrived = wait_packets<1>(call, from, 1, data, Wait{farwarp::moe::kSiteRow, row.source});
      if (arrived) store(scratch_of(args) + r, unpack_route(data[0], j));
    }
    warp_sync();
    if (ballot(!arrived || !call.live) != 0) call.live = false;
    return call.live;
  }

  template <class Refresh>
  FARWARP_DEVICE void for_refreshed(std::int64_t places, const Refresh& refresh) {
    // A parity is used every second call: halve the epoch so that every place comes by in every parity.
    for (std::int64_t place = (call.epoch / 2) % farwarp::moe::kRefreshPeriod; place < places;
         place += farwarp::moe::kRefreshPeriod) {
      refresh(place);
    }
  }
  FARWARP_DEVICE void retag(Peer<Packet> packets, int count) {
    for (int i = thread_index(); i < count; i += num_threads()) store_packet(packets + i, 0, call.epoch - 1);
  }
};

}  // namespace farwarp::FARWARP_TARGET::moe
