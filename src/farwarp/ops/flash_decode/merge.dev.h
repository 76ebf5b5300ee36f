// From sums to results: partial outputs in memory, the count of their works, their merge, and the final row.
#pragma once

#include "farwarp/ops/flash_decode/works.dev.h"
#include "farwarp/tile/softmax.dev.h"
#include "farwarp/world/device/wait.dev.h"

namespace farwarp::FARWARP_TARGET::decode {

inline constexpr float kNone = tile::kNoScore;

/// Sums of a row relative to its maximum: the highest score, not scaled, and the sum of exponentials. An empty split
/// has {-inf, 0}.
struct Statistics {
  float maximum, sum;
};

/// `scale` of a rank's scores of an item, whose keys may have a factor. The product with the scores of masked keys,
/// minus infinity, is no NaN if keys have the factor 0, either.
FARWARP_DEVICE float of_keys(const Args& args, float scale, int item) {
  if (args.k_scale == nullptr) return scale;
  scale = multiply(scale, load(Global<const float>(args.k_scale) + kv_head_of(args, item)));
  return scale == 0 ? 0x1p-149f : scale;
}

/// What a row's sums are multiplied by, and its LSE. If q has a NaN, all scores are NaN: the maximum is minus infinity,
/// but the sum is a NaN, and so are the row and its LSE.
FARWARP_DEVICE tile::RowEnd finish_row(const Args& args, const RowPlace& place, const tile::Logit& highest, float sum) {
  return tile::end_row(sum, highest,
                       args.sinks == nullptr ? kNone : load(Global<const float>(args.sinks) + place.query_head));
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

/// Partial outputs of an item, one of each work.
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

/// [thread] Counts the arrival of a work's partial outputs: one thread, after it has synchronised with those that have
/// stored them. True if it is the item's last work: the thread has then acquired those of all works. What has been
/// refused is not merged, so that no peer takes it for a result. Between calls a counter is all ones; after an aborted
/// call World::recover() restores it.
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
FARWARP_DEVICE Weights weights_of(float first, float second, float scale_log2) {
  const float highest = maximum(first, second);
  return {tile::weight_of(first, highest, scale_log2), tile::weight_of(second, highest, scale_log2), highest};
}
FARWARP_DEVICE float add_weighted(float sum, float other, const Weights& weights) {
  return fused_multiply_add(other, weights.second, multiply(sum, weights.first));
}

/// Four columns of a row, and its statistics.
struct Merged {
  Statistics of{kNone, 0};
  FourOf four{};

  /// Without branches: if it does not exist, `other` has another partial output's numbers, and the result is dropped.
  FARWARP_DEVICE void add_if(bool exists, const Merged& other, float scale_log2) {
    const Weights weights = weights_of(of.maximum, other.of.maximum, scale_log2);
    const float sum = add_weighted(of.sum, other.of.sum, weights);
    of = {exists ? weights.highest : of.maximum, exists ? sum : of.sum};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float added = add_weighted(four.value[i], other.four.value[i], weights);
      four.value[i] = exists ? added : four.value[i];
    }
  }
};

/// An item whose works are counted.
struct CountedItem {
  std::int32_t item;   ///< its number
  std::int32_t works;  ///< as many as partial outputs
  bool of_groups;      ///< works have several splits

  FARWARP_DEVICE static CountedItem of(const Args& args, const Work& work) {
    return {item_number(args, work), work.works, work.shift > 0};
  }
  FARWARP_DEVICE std::uint64_t packed() const {
    return std::uint64_t{static_cast<std::uint32_t>(item)} << 32 | static_cast<std::uint32_t>(works) << 1 |
           (of_groups ? 1u : 0u);
  }
  FARWARP_DEVICE static CountedItem unpack(std::uint64_t word) {
    return {static_cast<std::int32_t>(word >> 32), static_cast<std::int32_t>(word & 0xffffffff) >> 1, (word & 1) != 0};
  }
};

/// [thread] Loads four partial outputs of four columns of a row, `first` and those after it. Where there are fewer than
/// `works`, the item's first one instead.
FARWARP_DEVICE void load_partials(const Partials& partials, int works, int first, int row, int column,
                                  Merged (&parts)[kGroupSplits]) {
#pragma unroll
  for (int i = 0; i < kGroupSplits; ++i) {
    const int partial = first + i < works ? first + i : 0;
    parts[i] = {std::bit_cast<Statistics>(load(partials.statistics_at(partial, row))),
                std::bit_cast<FourOf>(
                    load(Global<const Vec16>(reinterpret_cast<const Vec16*>(partials.at(partial, row, column).raw))))};
  }
}

/// [thread] Merges four columns of a row of an item. Four partial outputs are loaded at a time, and the next four
/// before these are added. The four are a group of splits, which are added first; or they are groups, whose splits have
/// been added.
FARWARP_DEVICE Merged merge_partials(const Partials& partials, const CountedItem& of, int row, int column,
                                     float scale_log2) {
  Merged total, parts[kGroupSplits], next[kGroupSplits];
  load_partials(partials, of.works, 0, row, column, next);
#pragma unroll 1
  for (int first = 0; first < of.works; first += kGroupSplits) {
#pragma unroll
    for (int i = 0; i < kGroupSplits; ++i) parts[i] = next[i];
    load_partials(partials, of.works, first + kGroupSplits, row, column, next);
    Merged group = of.of_groups ? total : Merged{};
#pragma unroll
    for (int i = 0; i < kGroupSplits; ++i) group.add_if(first + i < of.works, parts[i], scale_log2);
    total.add_if(!of.of_groups, group, scale_log2);
    if (of.of_groups) total = group;
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

/// [thread] Finishes four columns of a row of item number `item` and stores them. head_dim is a multiple of 8, so all
/// four are inside or none.
template <class T>
FARWARP_DEVICE void store_result(const Args& args, int item, int row, int column, Statistics of, const FourOf& four) {
  const RowPlace place = place_of(args, item, row);
  const tile::RowEnd result =
      finish_row(args, place, tile::Logit::of(of.maximum, of_keys(args, args.scale, item)), of.sum);
  if (column < args.head_dim)
    store(Global<std::uint64_t>(reinterpret_cast<std::uint64_t*>(out_at<T>(args, place, column).raw)),
          round_four<T>(four, multiply(result.factor, value_scale(args, item))));
  if (column == 0) store_lse(args, place, result.logarithm);
}

}  // namespace farwarp::FARWARP_TARGET::decode
