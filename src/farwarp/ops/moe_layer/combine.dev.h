// The end of a MoE layer: an owner adds up its experts' outputs of a row and returns the sum to the row's source as
// words; the source adds up the owners' sums. A warp takes a part of a row.
#pragma once

#include "farwarp/ops/moe_layer/memory.dev.h"
#include "farwarp/tile/sums.dev.h"
#include "farwarp/world/device/words.dev.h"

namespace farwarp::FARWARP_TARGET::moe_layer {

/// `tile_rows`: rows of a tile; `multipliers` store their parts of it.
template <class T, int tile_rows, int multipliers>
class Combiner {
 public:
  FARWARP_DEVICE Combiner(Call& call, const Memory& memory, Shared<const std::int32_t> tokens)
      : call_(call), memory_(memory), args_(memory.args), tokens_(tokens) {}

  /// [warp] All warps that combine call it; `warp` of `warps` in the grid. Rows of peers first: they wait for them.
  FARWARP_DEVICE void run(int warp, int warps) {
    wait_count<Scope::device, Failure::inlined>(call_, memory_.listed(), counted_to(args_.slices),
                                                {.site = kSiteRowIds, .peer = -1, .depth = kCountsDepth});
    int item = warp;
    for (int i = 1; i <= args_.view.size; ++i) {
      const int source = rank_after(args_, i), items = load(tokens_ + source) * args_.parts;
      for (; item < items; item += warps) {
        if (ballot(!call_.live) != 0) return;
        const int token = args_.by_parts.quotient(item), part = item - token * args_.parts;
        if (source == args_.view.rank) {
          store_output(token, part);
        } else {
          return_sum(source, token, part);
        }
      }
      item -= items;
    }
  }

 private:
  static constexpr int kSlotsAhead = 4;

  /// A token's k-slots, one on each lane.
  struct Slots {
    Entry entry;
    int row = 0;  ///< of y, if the expert is here
    std::uint64_t here = 0;  ///< lanes
  };
  /// Vectors of a row.
  struct Range {
    int begin, end;
  };

  FARWARP_DEVICE Range part_of_row(int part) const {
    const int vectors = memory_.row_vectors(), of_part = (vectors + args_.parts - 1) / args_.parts;
    const int begin = part * of_part, end = begin + of_part;
    return {begin, end < vectors ? end : vectors};
  }

  /// [warp] Waits for the outputs of the experts that are here.
  FARWARP_DEVICE Slots await_slots(int source, int token) {
    Slots slots;
    const int entry = token * args_.k + lane_index();
    if (lane_index() < args_.k) slots.entry = entry_of(call_, memory_, source, entry);
    const bool is_here = local_expert(args_, slots.entry.expert) >= 0;
    slots.here = ballot(is_here);
    if (is_here) {
      slots.row = load(memory_.position(source, entry));
      wait_count<Scope::device, Failure::inlined>(
          call_, memory_.y_stored(slots.row / tile_rows), counted_to(args_.y_columns * multipliers),
          {.site = kSiteY, .peer = -1, .depth = kProductsDepth});
    }
    warp_sync();  // a lane reads outputs that others have waited for
    return slots;
  }

  /// [warp] The weighted outputs of the experts here, in the order of k-slots; vector `v` of the row on each lane that
  /// `is_there`.
  FARWARP_DEVICE void add_outputs(const Slots& slots, int v, bool is_there, float (&sum)[kVectorElements]) const {
    std::uint64_t left = slots.here;
    while (left != 0) {
      Vec16 outputs[kSlotsAhead];
      float weights[kSlotsAhead];
      bool used[kSlotsAhead];
#pragma unroll
      for (int i = 0; i < kSlotsAhead; ++i) {
        used[i] = left != 0;
        const int lane = used[i] ? lowest_bit(left) : 0;
        left &= left - (used[i] ? 1 : 0);
        const int row = shuffle(slots.row, lane);
        weights[i] = shuffle(slots.entry.weight, lane);
        outputs[i] = used[i] && is_there ? load<Cache::streaming>(memory_.y(row) + v) : Vec16{};
      }
#pragma unroll
      for (int i = 0; i < kSlotsAhead; ++i) {
        if (!used[i]) break;
#pragma unroll
        for (int e = 0; e < kVectorElements; ++e)
          sum[e] = fused_multiply_add(weights[i], to_float(tile::element<T>(outputs[i], e)), sum[e]);
      }
    }
  }

  FARWARP_DEVICE static Vec16 rounded(const float (&sum)[kVectorElements]) {
    std::uint64_t pairs[4];
#pragma unroll
    for (int pair = 0; pair < 4; ++pair) pairs[pair] = round_pair<T>(sum[2 * pair], sum[2 * pair + 1]);
    return {pairs[1] << 32 | pairs[0], pairs[3] << 32 | pairs[2]};
  }

  FARWARP_DEVICE void return_sum(int source, int token, int part) {
    const Slots slots = await_slots(source, token);
    if (slots.here == 0 || ballot(!call_.live) != 0) return;
    const Range range = part_of_row(part);
    const Peer<Vec16> to = memory_.returned(source, token, args_.view.rank);
    for (int first = range.begin; first < range.end; first += Target::kWarpSize) {
      const int v = first + lane_index();
      float sum[kVectorElements] = {};
      add_outputs(slots, v, v < range.end, sum);
      if (v < range.end) store_words(to + v, sendable(rounded(sum)));
    }
  }

  FARWARP_DEVICE void store_output(int token, int part) {
    const int me = args_.view.rank;
    const Slots slots = await_slots(me, token);
    const std::uint32_t owners = owners_of(args_, slots.entry.expert);
    const Range range = part_of_row(part);
    const Global<Vec16> out =
        Global<Vec16>(static_cast<Vec16*>(args_.out)) + std::int64_t{token} * memory_.row_vectors();
    for (int first = range.begin; first < range.end; first += Target::kWarpSize) {
      if (ballot(!call_.live) != 0) return;
      const int v = first + lane_index();
      float sum[kVectorElements] = {};
      add_outputs(slots, v, v < range.end, sum);
      if (v >= range.end) continue;
      store<Cache::streaming>(out + v, add_owners(owners, token, v, rounded(sum)));
    }
  }

  /// [thread] Vector `v` of the owners' sums, added in the order of ranks. `own`: this rank's.
  FARWARP_DEVICE Vec16 add_owners(std::uint32_t owners, int token, int v, Vec16 own) {
    const int me = args_.view.rank;
    Global<const Vec16> from[farwarp::kMaxRanks];
    Vec16 parts[farwarp::kMaxRanks];
#pragma unroll
    for (int r = 0; r < farwarp::kMaxRanks; ++r)
      from[r] = Global<const Vec16>((memory_.returned(me, token, r < args_.view.size ? r : me) + v).raw);
    const std::uint32_t wanted = owners & ~(1u << me);
    if (wanted != 0) {
      if (!wait_words<1, Failure::inlined>(call_, from, wanted, parts,
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
    return rounded(sum);
  }

  Call& call_;
  const Memory& memory_;
  const Args& args_;
  Shared<const std::int32_t> tokens_;
};

}  // namespace farwarp::FARWARP_TARGET::moe_layer
