// Bulk mode's put of a row that is quantised on the way: read once, written once per peer, numbers and behind them scales.
#pragma once

#include "farwarp/ops/moe_a2a/encoding.dev.h"

namespace farwarp::FARWARP_TARGET::moe {

class Fp8RowPut {
 public:
  static constexpr int kAlign = farwarp::moe::kFp8Align / kPer<Unit>;  ///< units; a segment begins at a multiple

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
  static constexpr int kStageNumbers = farwarp::moe::kStageBytes /
                                       (farwarp::moe::kFp8Align + farwarp::moe::kFp8Align / kScaleGroup * 4) *
                                       farwarp::moe::kFp8Align;
  static_assert(kStageNumbers + kStageNumbers / kScaleGroup * 4 <= farwarp::moe::kStageBytes);

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

}  // namespace farwarp::FARWARP_TARGET::moe
