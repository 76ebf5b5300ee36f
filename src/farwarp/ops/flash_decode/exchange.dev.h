// Partial outputs of ranks that share the keys of every sequence. The block whose work of an item arrives last on its
// rank sends the rank's partial output as words. Two-shot: to the rank that owns the row, which merges the ranks' parts
// and sends the finished row to all. One-shot: to all ranks, each of which merges all rows.
//
//   a row slot is a row of an item; its owner is slot % ranks
//   inbox     [2 parities][source][merged rows][dim / 4 + 1] x 16 bytes
//             four sums each, relative to the row's maximum; then that maximum's logit in two parts, and the sum of
//             exponentials
//   finished  [2 parities][row slots][dim / 4 + 1] x 8 bytes
//             four columns of out each; then the LSE
#pragma once

#include "farwarp/ops/flash_decode/merge.dev.h"
#include "farwarp/world/device/words.dev.h"

namespace farwarp::FARWARP_TARGET::decode {

/// Addresses of words in the heaps. `vectors` is dim / 4: the number of a row's last word.
template <int dim>
struct Words {
  static constexpr int kVectors = dim / 4;
  const Args& args;
  int parity;

  FARWARP_DEVICE Words(const Args& args_, const Call& call) : args(args_), parity(static_cast<int>(call.epoch & 1)) {}

  FARWARP_DEVICE int ranks() const { return args.view.size; }
  FARWARP_DEVICE int me() const { return args.view.rank; }
  FARWARP_DEVICE bool two_shot() const { return args.exchange == Exchange::kTwoShot; }
  FARWARP_DEVICE int row_slots() const { return args.batch * args.kv_heads * args.row_blocks * args.item_rows; }
  FARWARP_DEVICE int slot_of(int item, int row) const { return item * args.item_rows + row; }
  FARWARP_DEVICE int owner_of(int slot) const { return remainder(args.by_ranks, slot); }
  FARWARP_DEVICE bool exists(int slot) const {
    return slot < row_slots() && remainder(args.by_item_rows, slot) < rows_of(args, args.by_item_rows.quotient(slot));
  }
  /// The `i`-th rank after this one, i up to the number of ranks.
  FARWARP_DEVICE int rank_after(int i) const { return me() + i < ranks() ? me() + i : me() + i - ranks(); }
  /// From a source's words to those of the next one.
  FARWARP_DEVICE std::int64_t of_source() const {
    return std::int64_t{two_shot() ? args.by_ranks.quotient(row_slots() + ranks() - 1) : row_slots()} * (kVectors + 1);
  }
  /// At `where` from `source`.
  FARWARP_DEVICE Peer<Vec16> partial(int where, int source, int slot, int vector) const {
    const int row = two_shot() ? args.by_ranks.quotient(slot) : slot;
    return peer_address<Vec16>(args.view, where, args.at.inbox) +
           ((parity * ranks() + source) * of_source() + row * (kVectors + 1) + vector);
  }
  /// At `where` from the slot's owner.
  FARWARP_DEVICE Peer<std::uint64_t> finished(int where, int slot, int vector) const {
    return peer_address<std::uint64_t>(args.view, where, args.at.finished) +
           ((std::int64_t{parity} * row_slots() + slot) * (kVectors + 1) + vector);
  }
};

/// What is sent for two fp32 numbers or four 16-bit ones. All ones would look absent; they are NaN, and remain so.
FARWARP_DEVICE std::uint64_t sendable_half(std::uint64_t half) { return half == kAbsent ? half >> 1 : half; }

/// A row's statistics between ranks, whose keys may have different factors.
struct SentStatistics {
  float high, sum, low, zero;  ///< of tile::Logit: high, low

  FARWARP_DEVICE static SentStatistics none() { return {kNone, 0, 0, 0}; }
  FARWARP_DEVICE static SentStatistics of(const tile::Logit& highest, float sum) {
    return {highest.high, sum, highest.low, 0};
  }
  FARWARP_DEVICE tile::Logit logit() const { return {high, low}; }
  FARWARP_DEVICE bool is_below(const tile::Logit& other) const {
    return high < other.high || (high == other.high && low < other.low);
  }
  FARWARP_DEVICE float weight(const tile::Logit& highest) const {
    if (high == kNone) return 0;
    return exp2(multiply(add(add(high, -highest.high), add(low, -highest.low)), 1.44269504f));
  }
};

/// [thread] Sends four columns of a row's partial output; with column 0 also the row's statistics.
template <int dim>
FARWARP_DEVICE void send_partial(const Args& args, const Call& call, int item, int row, int column, Statistics of,
                                 const FourOf& four) {
  const Words<dim> words(args, call);
  const int slot = words.slot_of(item, row);
  if (static_cast<std::uint32_t>(slot) + 1 == args.drop_put) return;
  const float scale = value_scale(args, item);
  Vec16 sums = std::bit_cast<Vec16>(FourOf{{multiply(four.value[0], scale), multiply(four.value[1], scale),
                                            multiply(four.value[2], scale), multiply(four.value[3], scale)}});
  sums = {sendable_half(sums.lo), sendable_half(sums.hi)};
  auto statistics =
      std::bit_cast<Vec16>(SentStatistics::of(tile::Logit::of(of.maximum, of_keys(args, args.scale, item)), of.sum));
  statistics.lo = sendable_half(statistics.lo);
  const auto send_to = [&](int rank) {
    store_words(words.partial(rank, words.me(), slot, column / 4), sums);
    if (column == 0) store_words(words.partial(rank, words.me(), slot, Words<dim>::kVectors), statistics);
  };
  if (words.two_shot()) {
    send_to(words.owner_of(slot));
    return;
  }
#pragma unroll 1
  for (int i = 1; i <= words.ranks(); ++i) send_to(words.rank_after(i));
}

/// [warp] A warp merges as many rows at a time as it has lanes for, one lane for four columns.
template <int dim>
struct LaneRow {
  static constexpr int kLanes = dim / 4;  ///< of a row
  static constexpr int kRows = Target::kWarpSize / kLanes;
  static_assert(kLanes >= kMaxRanks && kRows >= 1);
  FARWARP_DEVICE static int row() { return lane_index() / kLanes; }
  FARWARP_DEVICE static int lane() { return lane_index() % kLanes; }
};

FARWARP_DEVICE RowPlace place_of_slot(const Args& args, int slot) {
  return place_of(args, args.by_item_rows.quotient(slot), remainder(args.by_item_rows, slot));
}

/// [thread] The row's four columns -> out; lane 0 also stores the LSE.
template <class T>
FARWARP_DEVICE void store_finished(const Args& args, int slot, int lane, std::uint64_t four, float lse) {
  const RowPlace place = place_of_slot(args, slot);
  if (lane * 4 < args.head_dim)
    store(Global<std::uint64_t>(reinterpret_cast<std::uint64_t*>(out_at<T>(args, place, lane * 4).raw)), four);
  if (lane == 0) store_lse(args, place, lse);
}

/// [warp] Waits for all ranks' parts of one row for each group of lanes, merges them, and clears their words. `slot`
/// and `wanted` are the group's; if the row is not wanted, `slot` may be any number. The order of the additions is the
/// same on all ranks. The lanes of a row wait for its sums; the first of them, one for each rank, also for its
/// statistics. Two-shot: sends the finished row.
template <class T, int dim>
FARWARP_DEVICE void merge_rows(Call& call, const Args& args, int slot, bool wanted) {
  using Lanes = LaneRow<dim>;
  const Words<dim> words(args, call);
  const int lane = Lanes::lane(), ranks = words.ranks();
  const std::uint32_t mask = wanted ? (1u << ranks) - 1 : 0;
  Global<const Vec16> from[kMaxRanks];
  from[0] = Global<const Vec16>(words.partial(words.me(), 0, wanted ? slot : 0, lane).raw);
#pragma unroll
  for (int source = 1; source < kMaxRanks; ++source) from[source] = from[source - 1] + words.of_source();
  const std::uint32_t has_statistics = wanted && lane < ranks ? 1 : 0;
  const Global<const Vec16> statistics_from[1] = {Global<const Vec16>(
      words.partial(words.me(), has_statistics != 0 ? lane : 0, wanted ? slot : 0, Words<dim>::kVectors).raw)};
  Vec16 parts[kMaxRanks] = {}, statistics[1] = {};
  request_words(statistics_from, has_statistics, statistics);
  wait_words<1, Failure::inlined>(call, from, mask, parts, {.site = kSitePartial, .peer = -1});
  wait_requested_words<1, Failure::inlined>(call, statistics_from, has_statistics, statistics,
                                            {.site = kSitePartial, .peer = lane});
  call.live = ballot(!call.live) == 0;
  if (!call.live) return;
  clear_words(from, mask);
  clear_words(statistics_from, has_statistics);

  // Lane r of a row holds the statistics of rank r; the others hold those of no keys.
  static_assert(kMaxRanks == 8);
  const auto own = has_statistics != 0 ? std::bit_cast<SentStatistics>(statistics[0]) : SentStatistics::none();
  SentStatistics total = own;
#pragma unroll
  for (int lanes = 1; lanes < kMaxRanks; lanes *= 2) {
    const tile::Logit other{shuffle_xor(total.high, lanes), shuffle_xor(total.low, lanes)};
    if (total.is_below(other)) total = SentStatistics::of(other, 0);
  }
  const float weight = own.weight(total.logit());
  total.sum = multiply(own.sum, weight);
#pragma unroll
  for (int lanes = 1; lanes < kMaxRanks; lanes *= 2) total.sum = add(total.sum, shuffle_xor(total.sum, lanes));
  const int first_lane = Lanes::row() * Lanes::kLanes;
  const tile::Logit highest{shuffle(total.high, first_lane), shuffle(total.low, first_lane)};
  const float sum = shuffle(total.sum, first_lane);
  FourOf four{};
#pragma unroll
  for (int source = 0; source < kMaxRanks; ++source) {
    const float its_weight = shuffle(weight, first_lane + source);
    const auto part = std::bit_cast<FourOf>(parts[source]);  // zeros of a rank that does not exist
#pragma unroll
    for (int i = 0; i < 4; ++i) four.value[i] = fused_multiply_add(part.value[i], its_weight, four.value[i]);
  }
  if (!wanted) return;
  const tile::RowEnd result = finish_row(args, place_of_slot(args, slot), highest, sum);
  const std::uint64_t rounded = sendable_half(round_four<T>(four, result.factor));
  store_finished<T>(args, slot, lane, rounded, result.logarithm);
  if (!words.two_shot()) return;
  const std::uint64_t lse = std::bit_cast<std::uint32_t>(result.logarithm);
#pragma unroll 1
  for (int i = 1; i < ranks; ++i) {
    const int rank = words.rank_after(i);
    store_words(words.finished(rank, slot, lane), rounded);
    if (lane == 0) store_words(words.finished(rank, slot, Words<dim>::kVectors), lse);
  }
}

/// [warp] Two-shot: copies rows that other ranks own into out, one row of each group of lanes, and clears their words.
template <class T, int dim>
FARWARP_DEVICE void collect_rows(Call& call, const Args& args, int slot, bool wanted) {
  const Words<dim> words(args, call);
  const int lane = LaneRow<dim>::lane(), place = wanted ? slot : 0;
  const Global<const std::uint64_t> from[2] = {
      Global<const std::uint64_t>(words.finished(words.me(), place, lane).raw),
      Global<const std::uint64_t>(words.finished(words.me(), place, Words<dim>::kVectors).raw)};
  const std::uint32_t mask = !wanted ? 0u : lane == 0 ? 3u : 1u;
  std::uint64_t data[2] = {};
  // depth 1: the owner may wait for partial outputs.
  wait_words<kMaxRanks, Failure::inlined>(call, from, mask, data,
                                          {.site = kSiteFinished, .peer = words.owner_of(place), .depth = 1});
  call.live = ballot(!call.live) == 0;
  if (!call.live) return;
  clear_words(from, mask);
  if (wanted) store_finished<T>(args, slot, lane, data[0], std::bit_cast<float>(static_cast<std::uint32_t>(data[1])));
}

/// [warp] After the block's works: the part of warp `warp` of `warps` of the block. Rows go round over the blocks
/// first, then over the warps.
template <class T, int dim>
FARWARP_DEVICE void collect(Call& call, const Args& args, int warp, int warps) {
  constexpr int kRows = LaneRow<dim>::kRows;
  call.live = ballot(!call.live) == 0;
  const Words<dim> words(args, call);
  const int ranks = words.ranks(), me = words.me();
  const int row = LaneRow<dim>::row();
  const int first = (warp * num_blocks() + block_index()) * kRows, stride = warps * num_blocks() * kRows;
  const int step = words.two_shot() ? ranks : 1, offset = words.two_shot() ? me : 0;
  for (int begin = first; begin * step < words.row_slots() && call.live; begin += stride) {
    const int slot = (begin + row) * step + offset;
    merge_rows<T, dim>(call, args, slot, words.exists(slot));
  }
  if (!words.two_shot()) return;
  for (int begin = first; begin < words.row_slots() && call.live; begin += stride) {
    const int slot = begin + row;
    collect_rows<T, dim>(call, args, slot, words.owner_of(slot) != me && words.exists(slot));
  }
}

// ---- after the last arrival -----------------------------------------------------------------------------------------

/// [`warps` warps] Merges the partial outputs of an item. The rows go to out, or to the ranks that merge them. All
/// threads have acquired the partial outputs. The result does not depend on `warps`.
template <class T, int dim>
FARWARP_DEVICE void merge_item(const Args& args, const Call& call, const CountedItem& of, int warp, int warps) {
  constexpr int kVectors = dim / 4;
  const Partials partials(args, of.item, dim);
  const int end = rows_of(args, of.item) * kVectors;
  const float scale = of_keys(args, args.scale_log2, of.item);
#pragma unroll 1
  for (int i = warp * Target::kWarpSize + lane_index(); i < end; i += warps * Target::kWarpSize) {
    const int row = i / kVectors, column = i % kVectors * 4;
    const auto [statistics, four] = merge_partials(partials, of, row, column, scale);
    if (args.exchange == Exchange::kNone) {
      store_result<T>(args, of.item, row, column, statistics, four);
    } else {
      send_partial<dim>(args, call, of.item, row, column, statistics, four);
    }
  }
}

}  // namespace farwarp::FARWARP_TARGET::decode
