// From sums to results: partial outputs in memory, the count of their works, their merge, and the final row.
#pragma once

#include "farwarp/ops/flash_decode/works.dev.h"
#include "farwarp/world/device/wait.dev.h"

namespace farwarp::FARWARP_TARGET::decode {

inline constexpr float kLog2OfE = 1.44269504088896341f, kLogOf2 = 0.693147180559945309f;
inline constexpr float kNone = -__builtin_huge_valf();  ///< the maximum of a row that has seen no key

/// Sums of a row relative to its maximum: the maximum in units of log2, and the sum of exponentials. An empty split has {-inf, 0}.
struct Statistics {
  float maximum, sum;
};

/// exp2(maximum - highest), where both may be minus infinity.
FARWARP_DEVICE float weight_of(float maximum, float highest) {
  return maximum == kNone ? 0.0f : exp2(add(maximum, -highest));
}

/// What a row's sums are multiplied by, and its LSE. A row that has seen nothing and has no sink gets zeros and minus infinity. If q has a NaN,
/// all scores are NaN: the maximum is minus infinity, but the sum is a NaN, and so are the row and its LSE.
struct RowResult {
  float factor, lse;
};
FARWARP_DEVICE RowResult finish_row(const Args& args, const RowPlace& place, Statistics of) {
  float factor = 1;
  if (args.sinks != nullptr) {
    const float sink = multiply(load(Global<const float>(args.sinks) + place.query_head), kLog2OfE);
    const float highest = maximum(of.maximum, sink);
    if (highest == kNone) return {0, kNone};
    factor = weight_of(of.maximum, highest);
    of = {highest, fused_multiply_add(of.sum, factor, weight_of(sink, highest))};
  }
  if (of.maximum == kNone) return {0, of.sum == 0 ? kNone : of.sum};
  return {divide(factor, of.sum), multiply(add(of.maximum, log2(of.sum)), kLogOf2)};
}

/// fp8: what this rank's values are multiplied by. Ranks that share a sequence may have different scales.
FARWARP_DEVICE float value_scale(const Args& args, int item) {
  return args.v_scale == nullptr ? 1.0f : load(Global<const float>(args.v_scale) + kv_head_of(args, item));
}

template <class T>
FARWARP_DEVICE Global<T> out_at(const Args& args, const RowPlace& place, int column) {
  return Global<T>(static_cast<T*>(args.out)) + (place.row * args.head_dim + column);
}
FARWARP_DEVICE void store_lse(const Args& args, const RowPlace& place, float lse) {
  if (args.lse != nullptr) store(Global<float>(args.lse) + place.row, lse);
}

// ---- splits of a sequence in memory ---------------------------------------------------------------------------------

/// Partial outputs of an item, in the order of its works; of a work, in the order of its multipliers.
struct Partials {
  Global<float> sums;                ///< [partials][item_rows][dim]
  Global<std::uint64_t> statistics;  ///< [partials][item_rows]
  int rows, dim;

  FARWARP_DEVICE Partials(const Args& args, int item, int dim_)
      : sums(own_address<float>(args.view, args.at.sums) +
             std::int64_t{item} * args.most_partials * args.item_rows * dim_),
        statistics(own_address<std::uint64_t>(args.view, args.at.statistics) +
                   std::int64_t{item} * args.most_partials * args.item_rows),
        rows(args.item_rows),
        dim(dim_) {}
  FARWARP_DEVICE Global<float> at(int partial, int row, int column) const {
    return sums + (std::int64_t{partial} * rows + row) * dim + column;
  }
  FARWARP_DEVICE Global<std::uint64_t> statistics_at(int partial, int row) const {
    return statistics + (partial * rows + row);
  }
};

/// [thread] Counts the arrival of a work's partial outputs: one thread, after it has synchronised with those that have stored them. True if it
/// is the item's last work: the thread has then acquired those of all works. What has been refused is not merged, so that no peer takes it
/// for a result. Between calls a counter is all ones; after an aborted call World::recover() restores it.
FARWARP_DEVICE bool arrives_last(const Args& args, const Call& call, const Work& work, Shared<std::uint32_t> refused) {
  if (!call.live || work.refused || fetch_add(refused, 0u) != 0) return false;
  const auto counter = own_address<std::uint32_t>(args.view, args.at.counters) + item_number(args, work);
  const auto before = static_cast<int>(fetch_add<Order::acq_rel, Scope::device>(counter, 1u) + 1);
  if (before != work.works - 1) return false;
  store<Order::relaxed, Scope::device>(counter, ~0u);
  return true;
}

struct FourOf {
  float value[4];
};

/// What two sums, each relative to its maximum, are multiplied by when they are added, and their common maximum.
struct Weights {
  float first, second, highest;
};
FARWARP_DEVICE Weights weights_of(float first, float second) {
  const float highest = maximum(first, second);
  return {weight_of(first, highest), weight_of(second, highest), highest};
}
FARWARP_DEVICE float add_weighted(float sum, float other, const Weights& weights) {
  return fused_multiply_add(other, weights.second, multiply(sum, weights.first));
}

/// Four columns of a row, and its statistics.
struct Merged {
  Statistics of{kNone, 0};
  FourOf four{};

  /// Without branches: if it does not exist, `other` has another partial output's numbers, and the result is dropped.
  FARWARP_DEVICE void add_if(bool exists, const Merged& other) {
    const Weights weights = weights_of(of.maximum, other.of.maximum);
    const float sum = add_weighted(of.sum, other.of.sum, weights);
    of = {exists ? weights.highest : of.maximum, exists ? sum : of.sum};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float added = add_weighted(four.value[i], other.four.value[i], weights);
      four.value[i] = exists ? added : four.value[i];
    }
  }
};

/// The partial outputs of an item: how many there are, and of a work.
struct PartialCount {
  std::int32_t all;
  std::int32_t chains;  ///< of each work but the last
};

/// An item whose works are counted.
struct CountedItem {
  std::int32_t item;  ///< its number
  PartialCount partials;

  FARWARP_DEVICE static CountedItem of(const Args& args, const Work& work) {
    return {item_number(args, work), {work.partials, work.chains}};
  }
  FARWARP_DEVICE std::uint64_t packed() const {
    return std::uint64_t{static_cast<std::uint32_t>(item)} << 32 | static_cast<std::uint32_t>(partials.all) << 8 |
           static_cast<std::uint32_t>(partials.chains);
  }
  FARWARP_DEVICE static CountedItem unpack(std::uint64_t word) {
    return {static_cast<std::int32_t>(word >> 32),
            {static_cast<std::int32_t>(word >> 8 & 0xffffff), static_cast<std::int32_t>(word & 0xff)}};
  }
};

/// A chain: an item's partial outputs of one multiplier. Those of four works are loaded at a time, and the next four before these are added.
class Chain {
 public:
  FARWARP_DEVICE Chain(const Args& args, const Partials& partials, PartialCount count, int chain, int row, int column)
      : args_(args),
        partials_(partials),
        count_(count),
        chain_(chain),
        row_(row),
        column_(column),
        end_(chain < count.chains ? count.all : 0) {}
  /// The four are a group of splits, which are added first; or they are groups, whose splits multipliers have added.
  FARWARP_DEVICE Merged sum() {
    Merged total, parts[kGroupSplits], next[kGroupSplits];
    load(0, next);
    const int step = kGroupSplits * count_.chains;
    const bool of_groups = args_.work_shift > 0;
#pragma unroll 1
    for (int first = 0; first < end_; first += step) {
#pragma unroll
      for (int i = 0; i < kGroupSplits; ++i) parts[i] = next[i];
      load(first + step, next);
      Merged group = of_groups ? total : Merged{};
#pragma unroll
      for (int i = 0; i < kGroupSplits; ++i) group.add_if(place(first, i) < end_, parts[i]);
      total.add_if(!of_groups, group);
      if (of_groups) total = group;
    }
    return total;
  }

 private:
  FARWARP_DEVICE int place(int first, int i) const { return first + i * count_.chains + chain_; }
  FARWARP_DEVICE void load(int first, Merged (&parts)[kGroupSplits]) const {
#pragma unroll
    for (int i = 0; i < kGroupSplits; ++i) {
      const int partial = place(first, i) < end_ ? place(first, i) : 0;
      parts[i] = {std::bit_cast<Statistics>(FARWARP_TARGET::load(partials_.statistics_at(partial, row_))),
                  std::bit_cast<FourOf>(FARWARP_TARGET::load(
                      Global<const Vec16>(reinterpret_cast<const Vec16*>(partials_.at(partial, row_, column_).raw))))};
    }
  }

  const Args& args_;
  const Partials& partials_;
  PartialCount count_;
  int chain_, row_, column_, end_;
};

/// Lanes that merge four columns of a row each; the others of the warp add further chains of the same columns.
template <int chains>
inline constexpr int kMergeLanes = Target::kWarpSize / chains;

/// [warp] Merges four columns of a row of an item: each lane adds one chain of at most `chains`, then all are added. All lanes with the same
/// row and column get the result.
template <int chains>
FARWARP_DEVICE Merged merge_partials(const Args& args, const Partials& partials, PartialCount count, int row,
                                     int column) {
  constexpr int kLanes = kMergeLanes<chains>;
  const Merged own = Chain(args, partials, count, lane_index() / kLanes, row, column).sum();
  Merged total;
#pragma unroll
  for (int chain = 0; chain < chains; ++chain) {
    const int lane = chain * kLanes + lane_index() % kLanes;
    Merged other;
    other.of = {shuffle(own.of.maximum, lane), shuffle(own.of.sum, lane)};
#pragma unroll
    for (int i = 0; i < 4; ++i) other.four.value[i] = shuffle(own.four.value[i], lane);
    total.add_if(chain < count.chains && chain < count.all, other);
  }
  return total;
}

/// Four columns, rounded: as they are stored and sent.
template <class T>
FARWARP_DEVICE std::uint64_t round_four(const FourOf& four, float factor) {
  const std::uint64_t low = round_pair<T>(multiply(four.value[0], factor), multiply(four.value[1], factor));
  const std::uint64_t high = round_pair<T>(multiply(four.value[2], factor), multiply(four.value[3], factor));
  return high << 32 | low;
}

/// [thread] Finishes four columns of a row of item number `item` and stores them. head_dim is a multiple of 8, so all four are inside or none.
template <class T>
FARWARP_DEVICE void store_result(const Args& args, int item, int row, int column, Statistics of, const FourOf& four) {
  const RowPlace place = place_of(args, item, row);
  const RowResult result = finish_row(args, place, of);
  if (column < args.head_dim)
    store(Global<std::uint64_t>(reinterpret_cast<std::uint64_t*>(out_at<T>(args, place, column).raw)),
          round_four<T>(four, multiply(result.factor, value_scale(args, item))));
  if (column == 0) store_lse(args, place, result.lse);
}

}  // namespace farwarp::FARWARP_TARGET::decode
