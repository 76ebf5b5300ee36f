// What a dispatched row is on the link in words mode.
#pragma once

#include "farwarp/ops/moe_a2a/encoding.dev.h"
#include "farwarp/world/device/words.dev.h"

namespace farwarp::FARWARP_TARGET::moe {

template <class Encoding>
struct RowAsWords;

/// A unit is sixteen bytes of words.
template <>
struct RowAsWords<AsTheyAre> {
  static constexpr int kAlign = 1;  ///< units; a segment begins at a multiple
  using Sent = Vec16;

  FARWARP_DEVICE static Sent made_of(const Unit& unit) { return sendable(unit); }

  /// [thread] As unit `u` of the row.
  FARWARP_DEVICE static void send(const Args&, Peer<std::byte> row, int u, const Sent& words) {
    store_words(Peer<Vec16>(reinterpret_cast<Vec16*>(row.raw)) + u, words);
  }

  /// [thread] Units u, u + kStride, ... below `last` of a row that is on its way here.
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
    FARWARP_DEVICE void give(Unit (&x)[count]) const {
#pragma unroll
      for (int a = 0; a < count; ++a) x[a] = words[a];
    }
  };
};

/// A unit's eight numbers are one word of eight bytes. A group's scale is in another, behind the row's numbers, which its first lane
/// reads for all of them. Eight numbers may be all ones (FNUZ: eight times the least number, so this is no matter of NaNs). Such a word
/// travels as zero, and has a bit in the upper half of the scale's.
template <>
struct RowAsWords<AsFp8> {
  static constexpr int kAlign = kGroupUnits;
  struct Sent {
    std::uint64_t numbers, scale;
  };

  /// [warp]
  FARWARP_DEVICE static Sent made_of(const Unit& unit) {
    const Fp8Unit fp8 = quantised(unit);
    const bool escaped = fp8.numbers == kAbsent;
    const auto group = static_cast<std::uint32_t>(ballot(escaped) >> first_lane()) & ((1u << kGroupUnits) - 1);
    const std::uint64_t escapes = static_cast<std::uint64_t>(group) << 32;
    return {escaped ? 0 : fp8.numbers, escapes | std::bit_cast<std::uint32_t>(fp8.scale)};
  }

  FARWARP_DEVICE static void send(const Args& args, Peer<std::byte> row, int u, const Sent& words) {
    store_words(Peer<std::uint64_t>(reinterpret_cast<std::uint64_t*>(row.raw)) + u, words.numbers);
    if (u % kGroupUnits != 0) return;
    store_words(Peer<std::uint64_t>(reinterpret_cast<std::uint64_t*>(row.raw + args.scales_at)) + u / kGroupUnits,
                words.scale);
  }

  template <int count>
  struct Arriving {
    Global<const std::uint64_t> from[2 * count];  ///< numbers, then scales
    std::uint64_t words[2 * count];
    std::uint32_t wanted = 0;

    FARWARP_DEVICE Arriving(const Args& args, Global<std::byte> row, int u, int last) {
      const Global<const std::uint64_t> numbers(reinterpret_cast<const std::uint64_t*>(row.raw));
      const Global<const std::uint64_t> scales(reinterpret_cast<const std::uint64_t*>(row.raw + args.scales_at));
#pragma unroll
      for (int a = 0; a < count; ++a) {
        const int unit = u + a * kStride;
        from[a] = numbers + unit;
        from[count + a] = scales + unit / kGroupUnits;
        words[a] = words[count + a] = 0;
        if (unit < last) wanted |= unit % kGroupUnits == 0 ? 1u << a | 1u << (count + a) : 1u << a;
      }
    }
    /// [warp]
    FARWARP_DEVICE void give(Fp8Unit (&x)[count]) const {
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
  /// Of the lanes that have this lane's group.
  FARWARP_DEVICE static int first_lane() { return lane_index() & ~(kGroupUnits - 1); }
};

}  // namespace farwarp::FARWARP_TARGET::moe
