// Words mode: rows cross the link as words, whose values say that they have arrived (world/device/words.dev.h). A store
// and its reader need no flag, no fence and no barrier, and all bytes are payload. Each word has one reader, which
// clears it.
#pragma once

#include "farwarp/ops/moe_a2a/encoding.dev.h"
#include "farwarp/ops/moe_a2a/memory.dev.h"
#include "farwarp/ops/moe_a2a/tokens.dev.h"
#include "farwarp/world/device/words.dev.h"

namespace farwarp::FARWARP_TARGET::moe {

using namespace farwarp::moe;

// ---- a row's words --------------------------------------------------------------------------------------------------

template <class Encoding>
struct WordFormat;

/// A vector crosses as 16 bytes of words.
template <>
struct WordFormat<Unquantised> {
  static constexpr int kAlign = 1;  ///< in vectors; a segment begins at a multiple of it
  using Sent = Vec16;

  FARWARP_DEVICE static Sent made_of(const Args&, const Vector& vector) { return sendable(vector); }

  /// [thread] Stores `words` as vector `u` of the row.
  FARWARP_DEVICE static void send(const Args&, Peer<std::byte> row, int u, const Sent& words) {
    store_words(Peer<Vec16>(reinterpret_cast<Vec16*>(row.raw)) + u, words);
  }

  /// [thread] Vectors u, u + kStride, ... below `last` of a row that is arriving here.
  template <int count>
  struct Arriving {
    Global<const Vec16> from[count];
    Vec16 words[count];
    std::uint32_t wanted = 0;

    FARWARP_DEVICE Arriving(const Args&, Global<std::byte> row, int u, int last) {
#pragma unroll
      for (int a = 0; a < count; ++a) {
        from[a] = Global<const Vec16>(reinterpret_cast<const Vec16*>(row.raw)) + (u + a * kStride);
        words[a] = {};
        if (u + a * kStride < last) wanted |= 1u << a;
      }
    }
    FARWARP_DEVICE void give(Vector (&x)[count]) const {
#pragma unroll
      for (int a = 0; a < count; ++a) x[a] = words[a];
    }
  };
};

/// A vector's eight numbers cross as one word of 8 bytes. The scale of a group is in another word, after the row's
/// numbers; the group's first lane reads it for all. Eight numbers may be all ones (FNUZ: eight times the lowest
/// number, so they cannot be changed as a NaN can). Such a word is sent as zero, and a bit in the upper half of the
/// scale's word is set for it.
template <>
struct WordFormat<AsFp8> {
  static constexpr int kAlign = kGroupVectors;
  struct Sent {
    std::uint64_t numbers, scale;
  };

  /// [warp]
  FARWARP_DEVICE static Sent made_of(const Args& args, const Vector& vector) {
    const Fp8Vector fp8 = quantised(args, vector);
    const bool escaped = fp8.numbers == kAbsent;
    const auto of_group = static_cast<std::uint32_t>(ballot(escaped) >> first_lane()) & ((1u << kGroupVectors) - 1);
    const std::uint64_t escapes = static_cast<std::uint64_t>(of_group) << 32;
    return {escaped ? 0 : fp8.numbers, escapes | std::bit_cast<std::uint32_t>(fp8.scale)};
  }

  FARWARP_DEVICE static void send(const Args& args, Peer<std::byte> row, int u, const Sent& words) {
    store_words(Peer<std::uint64_t>(reinterpret_cast<std::uint64_t*>(row.raw)) + u, words.numbers);
    if (u % kGroupVectors != 0) return;
    store_words(
        Peer<std::uint64_t>(reinterpret_cast<std::uint64_t*>(row.raw + args.send.scales_at)) + u / kGroupVectors,
        words.scale);
  }

  template <int count>
  struct Arriving {
    Global<const std::uint64_t> from[2 * count];  ///< numbers, then scales
    std::uint64_t words[2 * count];
    std::uint32_t wanted = 0;

    FARWARP_DEVICE Arriving(const Args& args, Global<std::byte> row, int u, int last) {
      const Global<const std::uint64_t> numbers(reinterpret_cast<const std::uint64_t*>(row.raw));
      const Global<const std::uint64_t> scales(reinterpret_cast<const std::uint64_t*>(row.raw + args.send.scales_at));
#pragma unroll
      for (int a = 0; a < count; ++a) {
        const int vector = u + a * kStride;
        from[a] = numbers + vector;
        from[count + a] = scales + vector / kGroupVectors;
        words[a] = words[count + a] = 0;
        if (vector < last) wanted |= vector % kGroupVectors == 0 ? 1u << a | 1u << (count + a) : 1u << a;
      }
    }
    /// [warp]
    FARWARP_DEVICE void give(Fp8Vector (&x)[count]) const {
      const int first = first_lane(), mine = lane_index() - first;
#pragma unroll
      for (int a = 0; a < count; ++a) {
        const std::uint64_t scale = shuffle(words[count + a], first);
        const bool escaped = (scale >> (32 + mine) & 1) != 0;
        x[a] = {escaped ? kAbsent : words[a], std::bit_cast<float>(static_cast<std::uint32_t>(scale))};
      }
    }
  };

 private:
  /// The first lane of this lane's group.
  FARWARP_DEVICE static int first_lane() { return lane_index() & ~(kGroupVectors - 1); }
};

template <>
struct WordFormat<AsFp8Columns> : WordFormat<AsFp8> {};

// ---- the wire -------------------------------------------------------------------------------------------------------

template <class RowEncoding>
struct WordWire {
  using Encoding = RowEncoding;
  using Dispatched = typename Encoding::Dispatched;
  using Format = WordFormat<Encoding>;
  static constexpr int kAlign = Format::kAlign;
  static constexpr bool kBulk = false;
  static constexpr bool kLoadsAhead = true;  // Ahead loads into registers
  static constexpr int kAhead = 4;           // vectors of a row that a lane has in flight
  static constexpr int kUnpackAhead = kAhead;
  static constexpr int kAppliedTogether = 2;

  Call& call;
  const Args& args;
  Regions regions;

  FARWARP_DEVICE WordWire(Call& a_call, const Args& a) : call(a_call), args(a), regions(regions_of(a, a_call)) {}

  // ---- source -------------------------------------------------------------------------------------------------------

  /// [warp] Loads a segment's first vectors into registers. Needs nothing of the call.
  struct Ahead {
    Vector values[kAhead];
    FARWARP_DEVICE Ahead(const Args& args, const Segment& segment) {
      load_vectors(args, segment, segment.first + lane_index(), values);
    }
  };

  /// [warp] Sends a segment to every rank in `ranks`, beginning with the rank after mine.
  FARWARP_DEVICE void send_segment(const Segment& segment, const Ahead& ahead, std::uint32_t ranks) {
    Vector values[kAhead];
    typename Format::Sent words[kAhead];
#pragma unroll
    for (int a = 0; a < kAhead; ++a) values[a] = ahead.values[a];
    // Lane r has the row's address at rank r. Every lane sends its vectors to all ranks.
    const int peer = lane_index() < args.view.size ? lane_index() : args.view.rank;
    const auto address = reinterpret_cast<std::uint64_t>(regions.row(peer, args.view.rank, segment.token).raw);
    const std::uint32_t wanted = dropped(args, segment.token) ? 0 : ranks;
#pragma unroll 1
    for (int base = segment.first; base < segment.last; base += kAhead * kStride) {
      const int u = base + lane_index();
      if (base != segment.first) load_vectors(args, segment, u, values);
#pragma unroll
      for (int a = 0; a < kAhead; ++a) words[a] = Format::made_of(args, values[a]);
      for_each_rank(args, wanted, [&](int rank) {
        const Peer<std::byte> row(reinterpret_cast<std::byte*>(shuffle(address, rank)));
#pragma unroll
        for (int a = 0; a < kAhead; ++a) {
          if (u + a * kStride < segment.last) Format::send(args, row, u + a * kStride, words[a]);
        }
      });
    }
  }

  // ---- owner --------------------------------------------------------------------------------------------------------

  /// [warp] Waits for vectors u, u + kStride, ... of the segment, and clears their words. With `with_routes`, waits for
  /// the routes while the vectors' loads are in flight, and sets `route_word` on lane j to that of k-slot j. False on
  /// lanes whose words or routes have not arrived: the call is over.
  template <int count>
  FARWARP_DEVICE bool read_segment(const ReceivedSegment& segment, int u, Dispatched (&x)[count], bool with_routes,
                                   std::uint64_t& route_word) {
    typename Format::template Arriving<count> arriving(
        args, mine(regions.row(args.view.rank, segment.source, segment.token)), u, segment.last);
    request_words(arriving.from, arriving.wanted, arriving.words);
    const Wait wait{.site = kSiteRow, .peer = segment.source};
    if (with_routes && lane_index() < args.k) {
      const Global<Packet> packet[] = {mine(regions.routes(args.view.rank, segment.source, segment.token)) +
                                       lane_index()};
      std::uint64_t data[1] = {route_word};
      wait_packets<1>(call, packet, 1, data, wait);  // if it fails, so does the next wait: both test call.live
      route_word = data[0];
    }
    const bool arrived = wait_requested_words<1>(call, arriving.from, arriving.wanted, arriving.words, wait);
    if (arrived) clear_words(arriving.from, arriving.wanted);
    arriving.give(x);
    return arrived;
  }

  FARWARP_DEVICE void retag_row(int, int) {}  // words carry no tag

 private:
  /// [thread] Vectors u, u + kStride, ... of the token's x, below segment.last.
  FARWARP_DEVICE static void load_vectors(const Args& args, const Segment& segment, int u, Vector (&values)[kAhead]) {
    const Global<const Vector> x = Global<const Vector>(static_cast<const Vector*>(args.send.x)) +
                                   (static_cast<std::int64_t>(segment.token) * (args.hidden / kElementsPer<Vector>)+u);
#pragma unroll
    for (int a = 0; a < kAhead; ++a) {
      values[a] = u + a * kStride < segment.last ? load<Cache::streaming>(x + a * kStride) : Vector{};
    }
  }
};

}  // namespace farwarp::FARWARP_TARGET::moe
