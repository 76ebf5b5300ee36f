// Bulk mode: rows cross the link as they are, a flag per chunk of the batch says that they have landed. A chunk is what one
// block of the source owns. For large batches: every byte sent is payload.
#pragma once

#include "farwarp/ops/moe_a2a/headers.dev.h"
#include "farwarp/ops/moe_a2a/rows.dev.h"
#include "farwarp/world/device/put_row.dev.h"
#include "farwarp/world/device/signal.dev.h"

namespace farwarp::FARWARP_TARGET::moe {

struct BulkWire {
  Call& call;
  const Args& args;
  Regions regions;

  FARWARP_DEVICE BulkWire(Call& a_call, const Args& a) : call(a_call), args(a), regions(regions_of(a, a_call)) {}

  // ---- source ----------------------------------------------------------------------------------------------------------

  /// [block] Sends the block's tokens, then their flags. Waits only for its own copies.
  FARWARP_DEVICE void send(const OwnTokens& own) {
    RowPut put(shared_at<std::byte>(args.shared.stage) + warp_index() * farwarp::moe::kStageBytes,
               farwarp::moe::kStageBytes, shared_at<Mbarrier>(args.shared.barriers) + warp_index());
    route_and_send(call, args, own, [&](int first, int last) {
      for (int token = first + warp_index(); token < last; token += warps_per_block())
        send_row(put, token, token - first);
    });
    put.finish();
    if (block_any(!call.live)) return;  // a call that gave up publishes nothing
    const auto first_slots = shared_at<std::uint32_t>(args.shared.first_slots);
    const auto rank_rows = shared_at<std::uint32_t>(args.shared.rank_rows);
    signal_after_block(
        args.view.size, [&](int rank) { return regions.chunk_flag(rank, args.view.rank, block_index()); },
        [&](int rank) {
          const std::uint32_t first = load(first_slots + rank);
          return tagged(call.epoch, first << 16 | (load(rank_rows + rank) - first));
        });
  }

  /// [block] Waits until every owner has returned this block's chunk.
  FARWARP_DEVICE bool await_returns() {
    if (const int owner = thread_index(); owner < args.view.size) {
      std::uint32_t ignored = 0;
      wait_tagged(call, mine(regions.return_flag(args.view.rank, owner, block_index())), call.epoch, ignored,
                  Wait{farwarp::moe::kSiteReturn, owner, 1});
    }
    call.live = !block_any(!call.live);
    return call.live;
  }

  FARWARP_DEVICE bool read_returns(int token, std::uint32_t ranks, int v, Vec16 (&parts)[kMaxRanks]) {
#pragma unroll
    for (int r = 0; r < kMaxRanks; ++r) {
      if (ranks >> r & 1) parts[r] = load<Cache::streaming>(mine(regions.bulk_return(args.view.rank, token, r)) + v);
    }
    return true;
  }

  // ---- owner -----------------------------------------------------------------------------------------------------------

  /// [block] Calls `work(row)` on a warp for each row that arrives, chunk by chunk; after each chunk, if `returns`, tells its
  /// source that the partial sums are there.
  template <class Work>
  FARWARP_DEVICE void for_each_row(const Work& work, bool returns) {
    for (int item = block_index(); item < num_blocks() * args.view.size; item += num_blocks()) {
      const int chunk = item / args.view.size;
      const int source = (args.view.rank + 1 + item) % args.view.size;
      std::uint32_t rows = 0;
      if (!await_chunk(source, chunk, rows)) return;
      const auto first = static_cast<std::int32_t>(rows >> 16), count = static_cast<std::int32_t>(rows & 0xffff);
      for (std::int32_t i = warp_index(); i < count; i += warps_per_block()) {
        work(read_routes(source, first + i));
        warp_sync();  // the scratch is free for the next row's routes
      }
      if (returns) {
        signal_after_block(
            1, [&](int) { return regions.return_flag(source, args.view.rank, chunk); },
            [&](int) { return tagged(call.epoch, 0); });
      }
      block_sync();  // the broadcast word is free for the next chunk
    }
  }

  FARWARP_DEVICE bool read(const Row& row, int v, Vec16& x) {
    x = load<Cache::streaming>(mine(regions.bulk_row(args.view.rank, row.source, row.slot)) + v);
    return true;
  }

  FARWARP_DEVICE void write_return(const Row& row, int v, Vec16 sum) {
    store<Cache::streaming>(regions.bulk_return(row.source, row.token, args.view.rank) + v, sum);
  }

  // Flags are written in every call: no tag grows old.
  FARWARP_DEVICE void refresh_idle_rows() {}
  FARWARP_DEVICE void refresh_idle_returns(int) {}

 private:
  /// [warp] A token's routes and data to every rank that owns one of its experts.
  FARWARP_DEVICE void send_row(RowPut& put, int token, int in_batch) {
    const auto slots = shared_at<std::uint32_t>(args.shared.slots) + in_batch * args.view.size;
    std::uint32_t ranks = 0;
    for (int i = 1; i <= args.view.size; ++i) {
      const int rank = (args.view.rank + i) % args.view.size;
      const std::uint32_t slot = load(slots + rank);
      if (slot == kNoSlot) continue;
      const Peer<std::uint64_t> to = regions.bulk_routes(rank, args.view.rank, slot);
      const std::uint32_t k_slots =
          routes_to(call, args, token, in_batch, rank, [&](int r, std::uint64_t word) { store(to + (1 + r), word); });
      if (lane_index() == 0) store(to, row_word(token, k_slots));
      if (slot + 1 != args.drop_put) ranks |= 1u << rank;
    }
    const std::int64_t bytes = 2ll * args.hidden;
    const Global<const std::byte> x = Global<const std::byte>(static_cast<const std::byte*>(args.x)) + token * bytes;
    put.put(call, x, static_cast<int>(bytes), ranks, farwarp::moe::kSiteStage, [&](int rank) {
      const Peer<Vec16> row = regions.bulk_row(rank, args.view.rank, load(slots + rank));
      return Peer<std::byte>(reinterpret_cast<std::byte*>(row.raw));
    });
  }

  /// [block] Waits for a chunk; `rows` gets its flag's value on every thread.
  FARWARP_DEVICE bool await_chunk(int source, int chunk, std::uint32_t& rows) {
    const auto broadcast = shared_at<std::uint32_t>(args.shared.broadcast);
    if (thread_index() == 0) {
      std::uint32_t value = 0;
      wait_tagged(call, mine(regions.chunk_flag(args.view.rank, source, chunk)), call.epoch, value,
                  Wait{farwarp::moe::kSiteChunk, source});
      store(broadcast, value);
    }
    call.live = !block_any(!call.live);
    rows = load(broadcast);
    return call.live;
  }

  /// [warp] The row's routes into the warp's scratch.
  FARWARP_DEVICE Row read_routes(int source, std::int32_t slot) {
    const Global<std::uint64_t> words = mine(regions.bulk_routes(args.view.rank, source, slot));
    const std::uint64_t first = load(words);
    const auto k_slots = static_cast<std::uint32_t>(first >> 32);
    const int j = lane_index();
    if (j < args.k && (k_slots >> j & 1)) {
      const int r = count_bits(k_slots & lanes_below());
      store(scratch_of(args) + r, unpack_route(load(words + (1 + r)), j));
    }
    warp_sync();
    return {source, slot, static_cast<std::int32_t>(first), count_bits(k_slots), 0, args.hidden / kPerVector};
  }
};

}  // namespace farwarp::FARWARP_TARGET::moe
