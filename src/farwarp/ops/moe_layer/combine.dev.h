// The end of a MoE layer: an owner adds up its experts' outputs of a row and returns the sum to the row's source as
// words; the source adds up the owners' sums. A warp takes a part of a row.
#pragma once

#include "farwarp/ops/moe_layer/routing.dev.h"
#include "farwarp/tile/sums.dev.h"
#include "farwarp/world/device/words.dev.h"

namespace farwarp::FARWARP_TARGET::moe_layer {

/// `tile_rows`: rows of a tile; `multipliers` store their parts of it. Code is short: each block executes it once or a
/// few times, and a cold launch has to fetch all of it.
template <class T, int tile_rows, int multipliers>
class Combiner {
  static constexpr Failure kFailure = moe_layer::kFailure<multipliers>;

 public:
  FARWARP_DEVICE Combiner(Call& call, const Memory& memory, const CallSize& size)
      : call_(call), memory_(memory), args_(memory.args), size_(size) {}

  /// [warp] All warps that combine call it; `warp` of `warps` in the grid. Rows of peers first: they wait for them.
  FARWARP_DEVICE void run(int warp, int warps) {
    wait_counted<kFailure>(call_, memory_.listed(), size_.slices(), kSiteRowIds, kRoutingDepth);
    const int parts = size_.parts(warps);
    const int vectors = memory_.row_vectors(), of_part = (vectors + parts - 1) / parts;
    const int items = size_.all_tokens() * parts;
    for (int item = warp; item < items; item += warps) {
      int token = item / parts, after = 1;
      const int begin = (item - token * parts) * of_part, end = begin + of_part;
      while (token >= size_.tokens(rank_after(args_, after))) token -= size_.tokens(rank_after(args_, after++));
      if (ballot(!call_.live) != 0) return;
      combine(rank_after(args_, after), token, begin, end < vectors ? end : vectors);
    }
  }

 private:
  // Loads of a lane in flight: of k-slots, and vectors of a row. Two multipliers' kernels have long rows' worth of work
  // for each warp.
  static constexpr int kSlotsAhead = 8, kAhead = multipliers;

  /// A token's k-slots, one on each lane.
  struct Slots {
    Entry entry;
    int row = 0;             ///< of y, if the expert is here
    std::uint64_t here = 0;  ///< lanes
  };

  /// [warp] Waits for the outputs of the experts that are here.
  FARWARP_DEVICE Slots await_slots(int source, int token) {
    Slots slots;
    const int entry = token * args_.k + lane_index();
    std::int64_t bad = 0;
    if (lane_index() < args_.k) slots.entry = entry_of<kFailure>(call_, memory_, source, entry, bad);
    const bool is_here = local_expert(args_, slots.entry.expert) >= 0;
    slots.here = ballot(is_here);
    if (is_here) {
      slots.row = load(memory_.position(source, entry));
      wait_counted<kFailure>(call_, memory_.y_stored(slots.row / tile_rows), args_.y_columns * multipliers, kSiteY,
                             kProductsDepth);
    }
    warp_sync();  // a lane reads outputs that others have waited for
    return slots;
  }

  /// [warp] A part of a row: the sum of the outputs here, then to the row's source, or with the owners' sums to the
  /// output.
  FARWARP_DEVICE void combine(int source, int token, int begin, int end) {
    const Slots slots = await_slots(source, token);
    const bool is_own = source == args_.view.rank;
    const std::uint32_t owners = owners_of(args_, slots.entry.expert);
    if (!is_own && slots.here == 0) return;
    const Peer<Vec16> returned = memory_.returned(source, token, args_.view.rank);
    const Global<Vec16> out =
        Global<Vec16>(static_cast<Vec16*>(args_.out)) + std::int64_t{token} * memory_.row_vectors();
#pragma unroll 1
    for (int first = begin; first < end; first += kAhead * Target::kWarpSize) {
      if (ballot(!call_.live) != 0) return;
      const int v = first + lane_index();
      float sums[kAhead][kVectorElements] = {};
      add_outputs(slots, v, end, sums);
#pragma unroll
      for (int a = 0; a < kAhead; ++a) {
        const int at = v + a * Target::kWarpSize;
        if (at >= end) continue;
        if (is_own) {
          store<Cache::streaming>(out + at, add_owners(owners, token, at, tile::rounded<T>(sums[a])));
        } else {
          // No half is all ones, as words must not be: rounding makes each NaN 0x7fff.
          store_words(returned + at, tile::rounded<T>(sums[a]));
        }
      }
    }
  }

  /// [warp] sums[a]: the weighted outputs of the experts here, in the order of k-slots, of vector v + a * 32, v on this
  /// lane; of those before `end`.
  FARWARP_DEVICE void add_outputs(const Slots& slots, int v, int end, float (&sums)[kAhead][kVectorElements]) const {
    std::uint64_t left = slots.here;
#pragma unroll 1
    while (left != 0) {
      Vec16 outputs[kSlotsAhead][kAhead];
      float weights[kSlotsAhead];
      int used = 0;
#pragma unroll
      for (int i = 0; i < kSlotsAhead; ++i) {
        const int lane = left != 0 ? lowest_bit(left) : 0;
        used += left != 0 ? 1 : 0;
        const int row = shuffle(slots.row, lane);
        weights[i] = shuffle(slots.entry.weight, lane);
#pragma unroll
        for (int a = 0; a < kAhead; ++a) {
          const int at = v + a * Target::kWarpSize;
          outputs[i][a] = left != 0 && at < end ? load<Cache::streaming>(memory_.x_or_y(row) + at) : Vec16{};
        }
        left &= left - 1;  // 0 stays 0
      }
#pragma unroll
      for (int i = 0; i < kSlotsAhead; ++i) {
        if (i >= used) break;
#pragma unroll
        for (int a = 0; a < kAhead; ++a) {
#pragma unroll
          for (int e = 0; e < kVectorElements; ++e)
            sums[a][e] = fused_multiply_add(weights[i], to_float(tile::element<T>(outputs[i][a], e)), sums[a][e]);
        }
      }
    }
  }

  /// [thread] Vector `v` of the owners' sums, added in the order of ranks. `own`: this rank's.
  FARWARP_DEVICE Vec16 add_owners(std::uint32_t owners, int token, int v, Vec16 own) {
    const int me = args_.view.rank;
    Global<const Vec16> from[farwarp::kMaxRanks];
    Vec16 parts[farwarp::kMaxRanks] = {};
#pragma unroll
    for (int r = 0; r < farwarp::kMaxRanks; ++r)
      from[r] = Global<const Vec16>((memory_.returned(me, token, r < args_.view.size ? r : me) + v).raw);
    const std::uint32_t wanted = owners & ~(1u << me);
    if (wanted != 0) {
      if (!wait_words<1, kFailure>(call_, from, wanted, parts,
                                   Wait{.site = kSiteReturn, .peer = -1, .depth = kReturnDepth}))
        return {};
      clear_words(from, wanted);
    }
    float sum[kVectorElements] = {};
#pragma unroll
    for (int r = 0; r < farwarp::kMaxRanks; ++r) {
      if (!(owners >> r & 1)) continue;
#pragma unroll
      for (int e = 0; e < kVectorElements; ++e)
        sum[e] = add(sum[e], to_float(tile::element<T>(r == me ? own : parts[r], e)));
    }
    return tile::rounded<T>(sum);
  }

  Call& call_;
  const Memory& memory_;
  const Args& args_;
  const CallSize& size_;
};

}  // namespace farwarp::FARWARP_TARGET::moe_layer
