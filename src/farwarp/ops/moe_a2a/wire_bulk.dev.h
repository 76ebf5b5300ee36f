// Bulk mode: rows cross the link in bulk copies (on targets without them: by stores), and a flag for each segment says
// that it has arrived. Every warp sends and receives on its own. For large batches: copies keep more bytes in flight
// than a warp's loads and stores do.
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
  static constexpr int kAlign = kFp8Align / kElementsPer<Vector>;  ///< in vectors; a segment begins at a multiple of it

  /// [warp] `staging`: this warp's staging buffer, which only targets with bulk copies have. The unnamed parameters
  /// make the constructor look like RowPut's.
  FARWARP_DEVICE Fp8RowPut(Shared<std::byte> staging, int, Shared<Mbarrier>) : staging_(staging) {}

  /// [warp] Quantises vectors [first, last) of the bf16 row `x` into each row of `to` whose bit is set in `wanted`.
  /// When it returns, they are written, and the next signal_after_warp() publishes them.
  template <int count>
  FARWARP_DEVICE void put(const Args& args, Global<const Vector> x, int first, int last,
                          const Peer<std::byte> (&to)[count], std::uint32_t wanted) {
    if constexpr (Target::kHasBulkCopy) {
      put_staged<Target>(args, x, first, last, to, wanted);
    } else {
      quantise(args, x, first, last, [&](int u, const Fp8Vector& vector) {
#pragma unroll
        for (int i = 0; i < count; ++i) {
          if (!(wanted >> i & 1)) continue;
          store<Cache::streaming>(Peer<std::uint64_t>(at<std::uint64_t>(to[i].raw, u * kElementsPer<Vector>)),
                                  vector.numbers);
          if (u % kGroupVectors == 0) {
            store(Peer<float>(at<float>(to[i].raw, args.send.scales_at + u / kGroupVectors * 4)), vector.scale);
          }
        }
      });
    }
  }

 private:
  static constexpr int kAhead = 4;  // vectors that a lane has in flight
  // Otherwise when all vectors have arrived: arrived().
  static constexpr bool kEmitsAtOnce = Target::kHasBulkCopy;
  // The most numbers that fit into the staging buffer with their scales, in multiples of kFp8Align, so that both are
  // aligned to 16 bytes.
  static constexpr int kStagingNumbers = kStagingBytes / (kFp8Align + kFp8Align / kScaleGroup * 4) * kFp8Align;
  static_assert(kStagingNumbers + kStagingNumbers / kScaleGroup * 4 <= kStagingBytes);

  template <class T>
  FARWARP_DEVICE static T* at(std::byte* row, int offset) {
    return reinterpret_cast<T*>(row + offset);
  }
  FARWARP_DEVICE static int rounded_up(int bytes) { return (bytes + 15) & -16; }

  /// [warp] Calls `emit(u, vector)` on one lane for each vector.
  template <class Emit>
  FARWARP_DEVICE static void quantise(const Args& args, Global<const Vector> x, int first, int last, const Emit& emit) {
#pragma unroll 1
    for (int base = first; base < last; base += kAhead * kStride) {
      Vector vectors[kAhead];
#pragma unroll
      for (int a = 0; a < kAhead; ++a) {
        const int u = base + a * kStride + lane_index();
        vectors[a] = u < last ? load<Cache::streaming>(x + u) : Vector{};
      }
      Fp8Vector results[kAhead];
#pragma unroll
      for (int a = 0; a < kAhead; ++a) {
        const int u = base + a * kStride + lane_index();
        results[a] = quantised(args, vectors[a]);
        if (kEmitsAtOnce && u < last) emit(u, results[a]);
      }
      if constexpr (kEmitsAtOnce) continue;
      schedule_fence();
#pragma unroll
      for (int a = 0; a < kAhead; ++a) {
        const int u = base + a * kStride + lane_index();
        if (u < last) emit(u, results[a]);
      }
    }
  }

  /// [warp] put() by bulk copies out of shared memory. A template, so that a target without bulk copies discards the
  /// body.
  template <class Machine, int count>
  FARWARP_DEVICE void put_staged(const Args& args, Global<const Vector> x, int first, int last,
                                 const Peer<std::byte> (&to)[count], std::uint32_t wanted) {
    constexpr int kStagingVectors = kStagingNumbers / kElementsPer<Vector>;
    const Shared<std::byte> scales = staging_ + kStagingNumbers;
#pragma unroll 1
    for (int begin = first; begin < last; begin += kStagingVectors) {
      const int end = begin + kStagingVectors < last ? begin + kStagingVectors : last;
      if (begin > first) {
        if (lane_index() == 0) bulk_wait_read();  // the previous copies have read the staging buffer
        warp_sync();
      }
      quantise(args, x, begin, end, [&](int u, const Fp8Vector& vector) {
        store(Shared<std::uint64_t>(at<std::uint64_t>(staging_.raw, (u - begin) * kElementsPer<Vector>)),
              vector.numbers);
        if (u % kGroupVectors == 0)
          store(Shared<float>(at<float>(scales.raw, (u - begin) / kGroupVectors * 4)), vector.scale);
      });
      proxy_fence();  // orders each lane's stores before the copies' reads in the async proxy
      warp_sync();
      if (lane_index() == 0) {
        const int bytes = rounded_up((end - begin) * kElementsPer<Vector>);
        const int scale_bytes = rounded_up((end - begin + kGroupVectors - 1) / kGroupVectors * 4);
#pragma unroll
        for (int i = 0; i < count; ++i) {
          if (!(wanted >> i & 1)) continue;
          bulk_store(to[i] + begin * kElementsPer<Vector>, staging_, bytes);
          bulk_store(to[i] + (args.send.scales_at + begin / kGroupVectors * 4), scales, scale_bytes);
        }
        bulk_commit();
      }
    }
    if (lane_index() == 0) bulk_wait_all();
  }

  Shared<std::byte> staging_;
};

/// [block] Gives the flags of a row's segments a recent tag that no call will wait for (ORDER.md, "Tags").
FARWARP_DEVICE void retag_row_flags(const Call& call, const Regions& regions, int source, int token) {
  for (int i = thread_index(); i < regions.args.segments; i += num_threads()) {
    store<Order::relaxed>(regions.row_flag(regions.me(), source, token, i), tagged(call.epoch - 1, 0));
  }
}

// ---- the wire -------------------------------------------------------------------------------------------------------

template <class RowEncoding>
struct BulkWire {
  using Encoding = RowEncoding;
  using Dispatched = typename Encoding::Dispatched;
  static constexpr int kAlign = Encoding::kFp8 ? Fp8RowPut::kAlign : 1;
  static constexpr bool kBulk = true, kLoadsAhead = false;
  // Vectors of a row that a lane has in flight: one at a time would wait for memory once per vector.
  static constexpr int kAhead = 4;
  static constexpr int kUnpackAhead = Encoding::kFp8 ? 8 : kAhead;
  static constexpr int kAppliedTogether = kAhead;  // of those, how many the fused form applies experts to at a time

  Call& call;
  const Args& args;
  Regions regions;
  std::conditional_t<Encoding::kFp8, Fp8RowPut, RowPut> put;

  FARWARP_DEVICE BulkWire(Call& a_call, const Args& a)
      : call(a_call),
        args(a),
        regions(regions_of(a, a_call)),
        put(shared_at<std::byte>(a.shared.staging) + warp_index() * kStagingBytes, kStagingBytes,
            shared_at<Mbarrier>(a.shared.barriers) + warp_index()) {}

  // ---- source -------------------------------------------------------------------------------------------------------

  /// Nothing is loaded into registers ahead: prefetch_segments() brings segments into the L2.
  struct Ahead {
    FARWARP_DEVICE Ahead(const Args&, const Segment&) {}
  };

  /// [warp] Sends a segment to every rank in `ranks`, beginning with the rank after mine. If the token's row is
  /// dropped, its flag is sent all the same, so the result is wrong and the check finds that. (Words have no flag: the
  /// wait for a dropped row ends at the deadline.)
  FARWARP_DEVICE void send_segment(const Segment& segment, const Ahead&, std::uint32_t ranks) {
    const int first = segment.first, last = segment.last;
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
      to[i] = regions.row(rank, args.view.rank, segment.token);
      flags[i] = regions.row_flag(rank, args.view.rank, segment.token, segment.number);
    }
    const std::uint32_t wanted = dropped(args, segment.token) ? 0 : flagged;
    const Global<const Vector> x = Global<const Vector>(static_cast<const Vector*>(args.send.x)) +
                                   static_cast<std::int64_t>(segment.token) * (args.hidden / kElementsPer<Vector>);
    if constexpr (Encoding::kFp8) {
      put.put(args, x, first, last, to, wanted);
    } else {
      constexpr int kBytes = sizeof(Vector);
#pragma unroll
      for (int i = 0; i < kMaxRanks; ++i) to[i] = to[i] + first * kBytes;
      const Global<const std::byte> from(reinterpret_cast<const std::byte*>((x + first).raw));
      if (!put.put(call, from, (last - first) * kBytes, to, wanted, kSiteStaging)) flagged = 0;
    }
    signal_after_warp([&] {
#pragma unroll
      for (int i = 0; i < kMaxRanks; ++i) {
        if (flagged >> i & 1) signal_cell<Order::relaxed>(flags[i], tagged(call.epoch, 0));
      }
    });
  }

  // ---- owner --------------------------------------------------------------------------------------------------------

  /// [warp] Reads vectors u, u + kStride, ... of the segment. The first call for a segment has `with_routes`: it waits
  /// until the routes and the segment have arrived, and sets `route_word` on lane j to that of k-slot j. False on all
  /// lanes if the call is over.
  template <int count>
  FARWARP_DEVICE bool read_segment(const ReceivedSegment& segment, int u, Dispatched (&x)[count], bool with_routes,
                                   std::uint64_t& route_word) {
    if (with_routes && !await_segment(segment, route_word)) return false;
    const Peer<std::byte> from = regions.row(args.view.rank, segment.source, segment.token);
#pragma unroll
    for (int a = 0; a < count; ++a)
      x[a] = u + a * kStride < segment.last ? read_vector(from, u + a * kStride) : Dispatched{};
    return true;
  }

  // ---- tags of inbox slots that this call leaves idle ---------------------------------------------------------------

  FARWARP_DEVICE void retag_row(int source, int token) { retag_row_flags(call, regions, source, token); }

 private:
  /// [warp] Waits for the row's routes and for the segment's flag.
  FARWARP_DEVICE bool await_segment(const ReceivedSegment& segment, std::uint64_t& route_word) {
    const Global<Packet> from[] = {mine(regions.routes(args.view.rank, segment.source, segment.token)) + lane_index()};
    std::uint64_t data[1] = {route_word};
    wait_packets<1>(call, from, lane_index() < args.k ? 1 : 0, data, Wait{.site = kSiteRoutes, .peer = segment.source});
    route_word = data[0];
    if (lane_index() == 0) {
      std::uint32_t ignored = 0;
      wait_tagged(call, mine(regions.row_flag(args.view.rank, segment.source, segment.token, segment.number)),
                  call.epoch, ignored, Wait{.site = kSiteData, .peer = segment.source});
    }
    warp_sync();  // orders the other lanes' reads after the first lane's acquire
    if (ballot(!call.live) != 0) call.live = false;
    return call.live;
  }

  /// [thread] Vector `u` of a row that has arrived here.
  FARWARP_DEVICE Dispatched read_vector(Peer<std::byte> row, int u) const {
    if constexpr (Encoding::kFp8) {
      const auto numbers = Global<std::uint64_t>(reinterpret_cast<std::uint64_t*>(row.raw)) + u;
      const auto scale = Global<float>(reinterpret_cast<float*>(row.raw + args.send.scales_at)) + u / kGroupVectors;
      return {load<Cache::streaming>(numbers), load(scale)};
    } else {
      return load<Cache::streaming>(Global<Vector>(reinterpret_cast<Vector*>(row.raw)) + u);
    }
  }
};

}  // namespace farwarp::FARWARP_TARGET::moe
