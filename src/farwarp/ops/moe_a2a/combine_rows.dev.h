// Combine with MoeLayout::kRows in bulk mode. On targets with bulk copies rows return in pieces (ring_rows.dev.h), with
// a flag for each segment. In one launch some warps of each block return rows while the others add up what has
// returned; a rank's rows for itself stay where they are, and are added from there. Elsewhere it is combine(), whose
// sums are words.
#pragma once

#include "farwarp/ops/moe_a2a/kernel.dev.h"
#include "farwarp/ops/moe_a2a/ring_rows.dev.h"

namespace farwarp::FARWARP_TARGET::moe {

using namespace farwarp::moe;

// ---- at the owner ---------------------------------------------------------------------------------------------------

FARWARP_DEVICE Global<const std::byte> row_of_y(const Args& args, std::int32_t output_row) {
  return Global<const std::byte>(static_cast<const std::byte*>(args.combine.y)) + output_row * row_stride(args);
}

/// [warp] Returns rows to their sources in the order of tokens (Piece::row), this rank's own ones only if `to_itself`.
/// Waits for nobody. Machine is Target: a template, so that targets without bulk copies discard the body.
template <class Machine>
FARWARP_DEVICE void return_in_pieces(Call& call, const Args& args, RowRing& ring, bool to_itself) {
  const Regions regions = regions_of(args, call);
  const auto store_piece = [&](const Piece& piece, Shared<const std::byte> slot) {
    const Peer<Vector> row = regions.returned(lowest_bit(piece.to), piece.row, args.view.rank);
    bulk_store(Peer<std::byte>(reinterpret_cast<std::byte*>(row.raw)) + piece.begin, slot, piece.bytes);
  };
  const auto announce = [&](const Piece& piece) {
    fence<Order::release, Scope::system>();
    signal_cell<Order::relaxed>(regions.return_flag(lowest_bit(piece.to), piece.row, args.view.rank, piece.segment),
                                tagged(call.epoch, 0));
  };
  struct Item {
    int token, source, segment;
  };
  const auto item_of = [&](int item) {
    const int row = args.by_segments.quotient(item), token = args.by_ranks.quotient(row);
    return Item{token, rank_after(args, 1 + row - token * args.view.size), item - row * args.segments};
  };
  for_each_found(
      sending_warp_number(args), args.max_tokens * args.view.size * args.segments,
      args.roles.sending_blocks * args.roles.sending_warps,
      [&](int item) {
        const Item at = item_of(item);
        return at.source == args.view.rank && !to_itself ? -1 : load(regions.kept_output_row(at.source, at.token));
      },
      [&](int item, std::int32_t output_row) {
        if (output_row < 0 || lane_index() != 0) return true;
        const Item at = item_of(item);
        const Piece piece{.row = at.token, .to = 1u << at.source, .segment = at.segment};
        push_segment(call, args, ring, row_of_y(args, output_row), piece, store_piece, announce);
        return true;
      });
  if (lane_index() == 0) ring.finish(call, kSiteStaging, store_piece, announce);
}

// ---- at the source --------------------------------------------------------------------------------------------------

/// A warp's ring: while it adds up the oldest piece, all other slots are being loaded. A slot has the same piece of all
/// of a token's rows, in rank order.
template <class T>
class SumRing {
 public:
  /// [warp] After ring_of_warp(), which has initialised the barriers, and a barrier of the block.
  FARWARP_DEVICE SumRing(Call& call, const Args& args, bool own_from_y)
      : call_(call), args_(args), regions_(regions_of(args, call)), own_from_y_(own_from_y) {}

  /// [warp] Waits until the rows for the segment from `ranks` (not 0) have returned, and begins to add them up. `own`:
  /// the output row of this rank's own one, with `own_from_y`. False on all lanes if the call is over.
  FARWARP_DEVICE bool push(const Segment& segment, std::uint32_t ranks, std::int32_t own) {
    constexpr int kBytes = sizeof(Vector);
    if (!await_rows(segment, ranks)) return false;
    const int owners = count_bits(ranks), length = (segment.last - segment.first) * kBytes;
    const int fits = args_.ring.slot_bytes / owners / kBytes * kBytes, pieces = (length + fits - 1) / fits;
    const int each = (length / kBytes + pieces - 1) / pieces * kBytes;
#pragma unroll 1
    for (int begin = 0; begin < length; begin += each) {
      add_oldest();
      if (broken_) return false;
      loading_[kRingSlots - 1] = {segment.token, owners, segment.first * kBytes + begin,
                                  length - begin < each ? length - begin : each};
      if (lane_index() == 0) load_piece(loading_[kRingSlots - 1], ranks, own);
      next_ = next_ + 1 == kRingSlots ? 0 : next_ + 1;
    }
    return true;
  }

  /// [warp] Adds up all that was begun. No kernel may end without it after a push().
  FARWARP_DEVICE void finish() {
#pragma unroll 1
    for (int i = 0; i < kRingSlots; ++i) add_oldest();
  }

 private:
  struct Addends {
    std::int32_t token;
    int owners;
    int begin, bytes;  // of each owner's row; bytes 0: none
  };

  /// [warp] A lane waits for each owner.
  FARWARP_DEVICE bool await_rows(const Segment& segment, std::uint32_t ranks) {
    const int owner = lane_index();
    if (owner < args_.view.size && (ranks >> owner & 1) != 0 && !(own_from_y_ && owner == args_.view.rank)) {
      std::uint32_t ignored = 0;
      const auto flag = mine(regions_.return_flag(args_.view.rank, segment.token, owner, segment.number));
      const Wait wait{.site = kSiteReturn, .peer = owner, .depth = 1};
      if (wait_tagged(call_, flag, call_.epoch, ignored, wait)) proxy_fence();  // orders the copies after the acquire
    }
    if (ballot(!call_.live) != 0) call_.live = false;
    warp_sync();  // orders the first lane's copies after the other lanes' fences
    return call_.live;
  }

  /// [first lane]
  FARWARP_DEVICE void load_piece(const Addends& piece, std::uint32_t ranks, std::int32_t own) {
    const Shared<Mbarrier> barrier = ring_barriers(args_) + next_;
    Shared<std::byte> to = ring_slots(args_) + next_ * args_.ring.slot_bytes;
    mbarrier_arrive_expect(barrier, piece.owners * piece.bytes);
#pragma unroll 1
    for (std::uint32_t left = ranks; left != 0; left &= left - 1) {
      const int owner = lowest_bit(left);
      const bool here = own_from_y_ && owner == args_.view.rank;
      const auto* const returned = regions_.returned(args_.view.rank, piece.token, owner).raw;
      const Global<const std::byte> row =
          here ? row_of_y(args_, own) : Global<const std::byte>(reinterpret_cast<const std::byte*>(returned));
      bulk_load(to, row + piece.begin, piece.bytes, barrier);
      to = to + piece.bytes;
    }
  }

  /// [warp] Waits for the oldest piece, adds it up, and frees its slot.
  FARWARP_DEVICE void add_oldest() {
    const Addends piece = loading_[0];
#pragma unroll
    for (int i = 0; i + 1 < kRingSlots; ++i) loading_[i] = loading_[i + 1];
    loading_[kRingSlots - 1] = Addends{};
    if (piece.bytes == 0 || broken_) return;
    broken_ = ballot(!wait_mbarrier(call_, ring_barriers(args_) + oldest_, parity_, kSiteStaging)) != 0;
    if (broken_) return;
    add_up(piece, Shared<const Vector>(
                      reinterpret_cast<const Vector*>((ring_slots(args_) + oldest_ * args_.ring.slot_bytes).raw)));
    warp_sync();  // orders the copy that overwrites the slot after the lanes' reads
    if (++oldest_ == kRingSlots) {
      oldest_ = 0;
      parity_ ^= 1;
    }
  }

  /// [warp] Adds in rank order in fp32, and rounds once.
  FARWARP_DEVICE void add_up(const Addends& piece, Shared<const Vector> rows) {
    constexpr int kAhead = 4, kBytes = sizeof(Vector);
    const int vectors = piece.bytes / kBytes;
    const Global<Vector> out = Global<Vector>(static_cast<Vector*>(args_.combine.out)) +
                               (std::int64_t{piece.token} * regions_.vectors() + piece.begin / kBytes);
#pragma unroll 1
    for (int u = lane_index(); u < vectors; u += kAhead * kStride) {
      float sum[kAhead][kElementsPer<Vector>] = {};
#pragma unroll 1
      for (int owner = 0; owner < piece.owners; ++owner) {
        Vector part[kAhead];
#pragma unroll
        for (int a = 0; a < kAhead; ++a)
          part[a] = u + a * kStride < vectors ? load(rows + (owner * vectors + u + a * kStride)) : Vector{};
#pragma unroll
        for (int a = 0; a < kAhead; ++a) {
#pragma unroll
          for (int i = 0; i < kElementsPer<Vector>; ++i) sum[a][i] = add(sum[a][i], to_float(element<T>(part[a], i)));
        }
      }
#pragma unroll
      for (int a = 0; a < kAhead; ++a) {
        if (u + a * kStride < vectors) store<Cache::streaming>(out + (u + a * kStride), rounded<T, Vector>(sum[a]));
      }
    }
  }

  Call& call_;
  const Args& args_;
  const Regions regions_;
  const bool own_from_y_;
  int next_ = 0, oldest_ = 0;  // slots
  std::uint32_t parity_ = 0;   // of `oldest_`
  bool broken_ = false;
  Addends loading_[kRingSlots] = {};  // oldest first
};

/// [warp] Adds up the rows of this rank's tokens, in their order: items `first`, first + stride, ... of all segments.
template <class Machine, class T>
FARWARP_DEVICE void add_up_in_pieces(Call& call, const Args& args, int tokens, int first, int stride, bool own_from_y) {
  const Regions regions = regions_of(args, call);
  SumRing<T> ring(call, args, own_from_y);
  for_each_found(
      first, tokens * args.segments, stride,
      [&](int item) {
        const int token = args.by_segments.quotient(item);
        const std::uint32_t ranks = ranks_of_token(args, token);
        const bool has_own = own_from_y && (ranks >> args.view.rank & 1) != 0;
        const std::int32_t own = has_own ? load(regions.kept_output_row(args.view.rank, token)) : -1;
        return static_cast<std::uint64_t>(static_cast<std::uint32_t>(own)) << 32 | ranks;
      },
      [&](int item, std::uint64_t found) {
        const int token = args.by_segments.quotient(item);
        const Segment segment = segment_of<1>(args, token, item - token * args.segments);
        const auto ranks = static_cast<std::uint32_t>(found);
        if (ranks != 0) return ring.push(segment, ranks, static_cast<std::int32_t>(found >> 32));
        const Global<Vector> out =
            Global<Vector>(static_cast<Vector*>(args.combine.out)) + std::int64_t{token} * regions.vectors();
        for (int u = segment.first + lane_index(); u < segment.last; u += kStride) store(out + u, Vector{});
        return true;
      });
  ring.finish();
}

/// [thread] Gives some of the flags that this call leaves idle a recent tag, as retag_idle_rows() does (ORDER.md,
/// "Tags").
FARWARP_DEVICE void retag_idle_returns(const Call& call, const Args& args, int tokens) {
  const Regions regions = regions_of(args, call);
  for_each_slot_to_retag(call, args, [&](int token, int owner) {
    if (token < tokens && (ranks_of_token(args, token) >> owner & 1) != 0) return;
    for (int segment = 0; segment < args.segments; ++segment)
      store<Order::relaxed>(regions.return_flag(args.view.rank, token, owner, segment), tagged(call.epoch - 1, 0));
  });
}

// ---- kernels --------------------------------------------------------------------------------------------------------

template <class Machine, class T>
FARWARP_DEVICE void combine_in_pieces(const Args& args) {
  const bool both = args.halves == kBothHalves;
  RowRing ring = ring_of_warp(args);
  Call call = begin_call(args.view, args.operator_slot, sends(args) ? kReceived : kReturning);
  if (!call.live) return;
  const int senders = sends(args) ? args.roles.sending_warps : 0;
  const int tokens = receives(args) ? token_count(call, args) : 0;
  if (warp_index() < senders) {
    return_in_pieces<Machine>(call, args, ring, !both);
  } else if (receives(args)) {
    if (block_index() == 0 && thread_index() == num_threads() - 1) retag_idle_returns(call, args, tokens);
    add_up_in_pieces<Machine, T>(call, args, tokens, (warp_index() - senders) * num_blocks() + block_index(),
                                 (warps_per_block() - senders) * num_blocks(), both);
  }
  end_call(call, receives(args) ? kIdle : kReturning);
}

template <class T>
FARWARP_DEVICE void combine_rows(const Args& args) {
  if constexpr (Target::kHasBulkCopy) {
    combine_in_pieces<Target, T>(args);
  } else {
    combine<T>(args);
  }
}

}  // namespace farwarp::FARWARP_TARGET::moe
