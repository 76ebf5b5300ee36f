// Bulk mode: rows cross the link in bulk copies, and a flag after each piece says that it has landed. Every warp sends and works on
// its own. For large batches: copies keep more bytes in flight than a warp's loads and stores do.
#pragma once

#include "farwarp/ops/moe_a2a/encoding.dev.h"
#include "farwarp/ops/moe_a2a/memory.dev.h"
#include "farwarp/ops/moe_a2a/tokens.dev.h"
#include "farwarp/world/device/call.dev.h"
#include "farwarp/world/device/put_row.dev.h"

namespace farwarp::FARWARP_TARGET::moe {

using namespace farwarp::moe;

// ---- putting a row that is quantised on the way: read once, written once per peer, numbers and then scales ----------

class Fp8RowPut {
 public:
  static constexpr int kAlign = kFp8Align / kPer<Unit>;  ///< units; a segment begins at a multiple

  /// [warp] `stage` is this warp's; the other arguments are RowPut's, which loads by bulk copies.
  FARWARP_DEVICE Fp8RowPut(Shared<std::byte> stage, int, Shared<Mbarrier>) : stage_(stage) {}

  /// [warp] Quantises units [first, last) of the bf16 row `x` into each row of `to` whose bit is set in `wanted`. When it
  /// returns they have been written, and a following signal_after_warp() publishes them.
  template <int count>
  FARWARP_DEVICE void put(const Args& args, Global<const Unit> x, int first, int last,
                          const Peer<std::byte> (&to)[count], std::uint32_t wanted) {
    if constexpr (Target::kHasBulkCopy) {
      put_staged<Target>(args, x, first, last, to, wanted);
    } else {
      quantise(x, first, last, [&](int u, const Fp8Unit& unit) {
#pragma unroll
        for (int i = 0; i < count; ++i) {
          if (!(wanted >> i & 1)) continue;
          store<Cache::streaming>(Peer<std::uint64_t>(at<std::uint64_t>(to[i].raw, u * kPer<Unit>)), unit.numbers);
          if (u % kGroupUnits == 0) {
            store(Peer<float>(at<float>(to[i].raw, args.scales_at + u / kGroupUnits * 4)), unit.scale);
          }
        }
      });
    }
  }

 private:
  static constexpr int kAhead = 4;  // units of a lane in flight
  // As many numbers with their scales as fit into the stage, in steps of kAlign, so that both begin at multiples of 16 bytes.
  static constexpr int kStageNumbers = kStageBytes / (kFp8Align + kFp8Align / kScaleGroup * 4) * kFp8Align;
  static_assert(kStageNumbers + kStageNumbers / kScaleGroup * 4 <= kStageBytes);

  template <class T>
  FARWARP_DEVICE static T* at(std::byte* row, int offset) {
    return reinterpret_cast<T*>(row + offset);
  }
  FARWARP_DEVICE static int rounded_up(int bytes) { return (bytes + 15) & -16; }

  /// [warp] Calls `emit(u, unit)` on one lane for each unit.
  template <class Emit>
  FARWARP_DEVICE static void quantise(Global<const Unit> x, int first, int last, const Emit& emit) {
#pragma unroll 1
    for (int base = first; base < last; base += kAhead * kStride) {
      Unit units[kAhead];
#pragma unroll
      for (int a = 0; a < kAhead; ++a) {
        const int u = base + a * kStride + lane_index();
        units[a] = u < last ? load<Cache::streaming>(x + u) : Unit{};
      }
#pragma unroll
      for (int a = 0; a < kAhead; ++a) {
        const int u = base + a * kStride + lane_index();
        const Fp8Unit unit = quantised(units[a]);
        if (u < last) emit(u, unit);
      }
    }
  }

  /// [warp] By bulk copies out of shared memory. A template, so that a target without them discards the body.
  template <class Machine, int count>
  FARWARP_DEVICE void put_staged(const Args& args, Global<const Unit> x, int first, int last,
                                 const Peer<std::byte> (&to)[count], std::uint32_t wanted) {
    constexpr int kStageUnits = kStageNumbers / kPer<Unit>;
    const Shared<std::byte> scales = stage_ + kStageNumbers;
#pragma unroll 1
    for (int begin = first; begin < last; begin += kStageUnits) {
      const int end = begin + kStageUnits < last ? begin + kStageUnits : last;
      if (begin > first) {
        if (lane_index() == 0) bulk_wait_read();  // the stage's previous contents have left it
        warp_sync();
      }
      quantise(x, begin, end, [&](int u, const Fp8Unit& unit) {
        store(Shared<std::uint64_t>(at<std::uint64_t>(stage_.raw, (u - begin) * kPer<Unit>)), unit.numbers);
        if (u % kGroupUnits == 0)
          store(Shared<float>(at<float>(scales.raw, (u - begin) / kGroupUnits * 4)), unit.scale);
      });
      proxy_fence();  // the copies read what the lanes have stored
      warp_sync();
      if (lane_index() == 0) {
        const int bytes = rounded_up((end - begin) * kPer<Unit>);
        const int scale_bytes = rounded_up((end - begin + kGroupUnits - 1) / kGroupUnits * 4);
#pragma unroll
        for (int i = 0; i < count; ++i) {
          if (!(wanted >> i & 1)) continue;
          bulk_store(to[i] + begin * kPer<Unit>, stage_, bytes);
          bulk_store(to[i] + (args.scales_at + begin / kGroupUnits * 4), scales, scale_bytes);
        }
        bulk_commit();
      }
    }
    if (lane_index() == 0) bulk_wait_all();
  }

  Shared<std::byte> stage_;
};

// ---- the wire -------------------------------------------------------------------------------------------------------

template <class RowEncoding>
struct BulkWire {
  using Encoding = RowEncoding;
  using Dispatched = typename Encoding::Dispatched;
  static constexpr int kAlign = Encoding::kFp8 ? Fp8RowPut::kAlign : 1;
  static constexpr bool kLoadsAhead = false;
  // Units of a row that a lane has in flight: one at a time would wait for memory once per unit.
  static constexpr int kAhead = 4;
  static constexpr int kUnpackAhead = Encoding::kFp8 ? 8 : kAhead;
  static constexpr int kAppliedTogether = kAhead;  // of those, in the fused form

  Call& call;
  const Args& args;
  Regions regions;
  std::conditional_t<Encoding::kFp8, Fp8RowPut, RowPut> put;

  FARWARP_DEVICE BulkWire(Call& a_call, const Args& a)
      : call(a_call),
        args(a),
        regions(regions_of(a, a_call)),
        put(shared_at<std::byte>(a.shared.stage) + warp_index() * kStageBytes, kStageBytes,
            shared_at<Mbarrier>(a.shared.barriers) + warp_index()) {}

  // ---- source ----------------------------------------------------------------------------------------------------------

  /// Of a piece the L2 gets a copy ahead (prefetch_pieces).
  struct Ahead {
    FARWARP_DEVICE Ahead(const Args&, const Segment&) {}
  };

  /// [warp] A piece to every rank of `ranks`, beginning behind mine, so that no link is everybody's first.
  FARWARP_DEVICE void send_piece(const Segment& piece, const Ahead&, std::uint32_t ranks) {
    const int first = piece.first, last = piece.last;
    if (first == last) return;
    Peer<std::byte> to[kMaxRanks];  // rows
    Peer<SystemCell<std::uint64_t>> flags[kMaxRanks];
    std::uint32_t flagged = 0;
#pragma unroll
    for (int i = 0; i < kMaxRanks; ++i) {
      if (i >= args.view.size) continue;
      const int rank = rank_after(args, 1 + i);
      if (!(ranks >> rank & 1)) continue;
      flagged |= 1u << i;
      to[i] = regions.row(rank, args.view.rank, piece.token);
      flags[i] = regions.row_flag(rank, args.view.rank, piece.token, piece.number);
    }
    const std::uint32_t wanted = dropped(args, piece.token) ? 0 : flagged;
    const Global<const Unit> x = Global<const Unit>(static_cast<const Unit*>(args.x)) +
                                 static_cast<std::int64_t>(piece.token) * (args.hidden / kPer<Unit>);
    if constexpr (Encoding::kFp8) {
      put.put(args, x, first, last, to, wanted);
    } else {
      constexpr int kBytes = sizeof(Unit);
#pragma unroll
      for (int i = 0; i < kMaxRanks; ++i) to[i] = to[i] + first * kBytes;
      const Global<const std::byte> from(reinterpret_cast<const std::byte*>((x + first).raw));
      if (!put.put(call, from, (last - first) * kBytes, to, wanted, kSiteStage)) flagged = 0;
    }
    signal_after_warp([&] {
#pragma unroll
      for (int i = 0; i < kMaxRanks; ++i) {
        if (flagged >> i & 1) store<Order::relaxed>(flags[i], tagged(call.epoch, 0));
      }
    });
  }

  // ---- owner -----------------------------------------------------------------------------------------------------------

  /// [warp] Units u, u + kStride, ... of the row, as far as they belong to the piece. The first call for a piece, `with_head`, waits until it
  /// has landed, and gives lane j the head's word of k-slot j. False on all lanes if the call is over.
  template <int count>
  FARWARP_DEVICE bool read_row(const ReceivedSegment& row, int u, Dispatched (&x)[count], bool with_head,
                               std::uint64_t& head) {
    if (with_head && !await_piece(row, head)) return false;
    const Peer<std::byte> from = regions.row(args.view.rank, row.source, row.token);
#pragma unroll
    for (int a = 0; a < count; ++a) x[a] = u + a * kStride < row.last ? read_unit(from, u + a * kStride) : Dispatched{};
    return true;
  }

  // ---- tags of what this call leaves idle --------------------------------------------------------------------------------

  FARWARP_DEVICE void retag_row(int source, int token) {
    for (int i = thread_index(); i < args.segments; i += num_threads()) {
      store<Order::relaxed>(regions.row_flag(args.view.rank, source, token, i), tagged(call.epoch - 1, 0));
    }
  }

 private:
  /// [warp] Waits for the head and for the flag.
  FARWARP_DEVICE bool await_piece(const ReceivedSegment& row, std::uint64_t& head) {
    const Global<Packet> from[] = {mine(regions.head(args.view.rank, row.source, row.token)) + lane_index()};
    std::uint64_t data[1] = {head};
    wait_packets<1>(call, from, lane_index() < args.k ? 1 : 0, data, Wait{kSiteRow, row.source});
    head = data[0];
    if (lane_index() == 0) {
      std::uint32_t ignored = 0;
      wait_tagged(call, mine(regions.row_flag(args.view.rank, row.source, row.token, row.segment)), call.epoch, ignored,
                  Wait{kSiteData, row.source});
    }
    warp_sync();  // what one lane has waited for, all may read
    if (ballot(!call.live) != 0) call.live = false;
    return call.live;
  }

  /// [thread] Unit `u` of a row that has landed here.
  FARWARP_DEVICE Dispatched read_unit(Peer<std::byte> row, int u) const {
    if constexpr (Encoding::kFp8) {
      const auto numbers = Global<std::uint64_t>(reinterpret_cast<std::uint64_t*>(row.raw)) + u;
      const auto scale = Global<float>(reinterpret_cast<float*>(row.raw + args.scales_at)) + u / kGroupUnits;
      return {load<Cache::streaming>(numbers), load(scale)};
    } else {
      return load<Cache::streaming>(Global<Unit>(reinterpret_cast<Unit*>(row.raw)) + u);
    }
  }
};

}  // namespace farwarp::FARWARP_TARGET::moe
