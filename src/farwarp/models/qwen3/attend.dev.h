// Attention of one token of each sequence over its cached keys, in splits.
//
// A unit is 128 keys (eight pages) of one KV head of one sequence. Each warp multiplies the 16 keys of its page by the group's queries, then one
// sixteenth of head_dim of all values by the probabilities. The cache holds keys and values as fragments, so both products read it as it lies
// in memory. The token's own key and value are not in the cache yet: the unit that has them takes them from shared memory, and appends them.
#pragma once

#include "farwarp/models/qwen3/heads.dev.h"

namespace farwarp::FARWARP_TARGET::qwen3 {

/// A unit's place and its keys.
struct AttentionUnit {
  std::int32_t column, kv_head, split;
  std::int32_t first, length;  ///< first key; keys of the sequence, with the token's own
  std::int32_t position;       ///< of the token

  FARWARP_DEVICE bool has_new_key() const { return position >= first && position < first + kSplitKeys; }
};

template <int columns>
class Attention {
 public:
  /// `first_pages`: find_first_pages().
  FARWARP_DEVICE Attention(const Context<columns>& context, const Task& task, int first_pages)
      : context_(context), task_(task), first_pages_(first_pages) {}

  /// [warp] The pages of the worker's first unit, whose keys are then loaded without a wait for the table.
  static FARWARP_DEVICE int find_first_pages(const Args& args) {
    const int pairs = columns * args.kv_heads;
    if (block_index() >= pairs * args.splits) return -1;
    return find_pages(args, block_index() % pairs % columns, block_index() / pairs * kSplitKeys);
  }

  /// [the warps that compute] The worker's units.
  FARWARP_DEVICE void run() {
    const Args& args = context_.args;
    const int pairs = columns * args.kv_heads;
    for (int number = block_index(); number < pairs * args.splits; number += num_blocks()) {
      const int pair = number % pairs;
      AttentionUnit unit{pair % columns, pair / columns, number / pairs, number / pairs * kSplitKeys, 0, 0};
      const SequenceState sequence = context_.sequence(unit.column);
      unit.length = keys_of(sequence);
      unit.position = sequence.position;
      if (unit.first < unit.length)
        attend(unit, number == block_index() ? first_pages_ : find_pages(args, unit.column, unit.first));
    }
  }

 private:
  static constexpr int kTiles = kMostHeadDim / 16;

  /// [warp] The page of keys first + 16 * i on, on lane i.
  static FARWARP_DEVICE int find_pages(const Args& args, int column, int first) {
    const int page = first / kPageKeys + lane_index();
    if (lane_index() >= kWarps || page >= args.max_pages) return -1;
    return load(Global<const std::int32_t>(args.page_table) + (column * args.max_pages + page));
  }

  FARWARP_DEVICE std::int64_t page_bytes() const { return std::int64_t{4 * kPageKeys} * context_.args.head_dim; }
  /// The keys of a page; its values follow.
  FARWARP_DEVICE Global<std::byte> keys_at(int page, int kv_head) const {
    const Args& args = context_.args;
    const std::int64_t number = (std::int64_t{task_.layer} * args.pages + page) * args.kv_heads + kv_head;
    return Global<std::byte>(args.cache) + number * page_bytes();
  }
  FARWARP_DEVICE std::int64_t values_offset() const { return page_bytes() / 2; }
  FARWARP_DEVICE void attend(const AttentionUnit& unit, int pages_of_unit) {
    const Args& args = context_.args;
    const int tiles = args.head_dim / 16, warp = warp_index();
    const bool has_page = unit.first + lane_index() * kPageKeys < unit.length;
    const int pages = has_page ? pages_of_unit : -1;  // page i on lane i
    const int own_page = shuffle(pages, warp);
    // Loaded before the queries have arrived.
    Fragment keys[kTiles] = {}, values[kWarps] = {};
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      if (tile < tiles && own_page >= 0)
        keys[tile] = load_fragment(Global<const std::byte>(keys_at(own_page, unit.kv_head)) + tile * kFragmentBytes);
    }
#pragma unroll
    for (int i = 0; i < kWarps; ++i) {
      const int page = shuffle(pages, i);
      if (warp < tiles && page >= 0)
        values[i] = load_fragment(Global<const std::byte>(keys_at(page, unit.kv_head)) +
                                  (values_offset() + warp * kFragmentBytes));
    }
    receive(unit);
    sync_warps();
    score(unit, keys);
    sync_warps();
    exponentiate(unit);
    sync_warps();
    if (warp < tiles) add_values(unit, values);
    sync_warps();
    publish(unit);
    if (unit.has_new_key()) append(unit, shuffle(pages, (unit.position - unit.first) / kPageKeys));
    sync_warps();
  }

  /// [warp] Waits for the group's queries and, if the unit has them, the token's key and value.
  FARWARP_DEVICE void receive(const AttentionUnit& unit) const {
    const Args& args = context_.args;
    const int group = args.query_heads / args.kv_heads, heads = group + (unit.has_new_key() ? 2 : 0);
    for (int i = warp_index(); i < heads; i += kWarps) {
      const bool query = i < group, key = i == group;
      const int head = query ? unit.kv_head * group + i
                       : key ? args.query_heads + unit.kv_head
                             : args.query_heads + args.kv_heads + unit.kv_head;
      HeadParameters parameters;
      if (query || key)
        parameters = HeadParameters::load_for(args, (query ? args.q_norm : args.k_norm) + task_.layer * args.norm_pitch,
                                              unit.position);
      std::uint64_t four = 0;
      const bool exists = lane_index() * 4 < args.head_dim;
      if (exists)
        four = wait_four<columns>(context_.call, task_.in, head * args.head_dim + lane_index() * 4, unit.column,
                                  kSiteHeads);
      warp_sync();
      if (query || key) four = normalise_and_rotate(args, four, parameters);
      const int offset = query ? Layout<columns>::kQueries + i * kMostHeadDim * 2
                         : key ? Layout<columns>::kNewKey
                               : Layout<columns>::kNewValue;
      if (exists) store(word_at<std::uint64_t>(context_.memory, offset) + lane_index(), four);
    }
  }

  /// The operand of the lane's column: four numbers from `first` on of row operand_column() of [group][128] bf16.
  FARWARP_DEVICE std::uint64_t operand(int offset, int first) const {
    const int column = operand_column(lane_index());
    if (column >= kMostGroup) return 0;
    return load(word_at<const std::uint64_t>(context_.memory, offset + column * kMostHeadDim * 2) +
                (first / 4 + operand_four(lane_index())));
  }

  FARWARP_DEVICE void score(const AttentionUnit& unit, Fragment (&keys)[kTiles]) const {
    const Args& args = context_.args;
    const int in_unit = unit.position - unit.first;
    const bool has_new = unit.has_new_key() && in_unit / kPageKeys == warp_index();
    Sums sums = {};
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      if (tile * 16 >= args.head_dim) continue;
#pragma unroll
      for (int i = 0; i < kLaneRows; ++i) {
        if (has_new && operand_row(lane_index(), i) == in_unit % kPageKeys)
          keys[tile].rows[i] = load(word_at<const std::uint64_t>(context_.memory, Layout<columns>::kNewKey) +
                                    (tile * 4 + operand_four(lane_index())));
      }
      multiply_fragment(sums, keys[tile], operand(Layout<columns>::kQueries, 16 * tile));
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const MatrixIndex at = sum_index(lane_index(), i);
      const int key = warp_index() * kPageKeys + at.row;
      if (at.column >= kMostGroup) continue;
      store(word_at<float>(context_.memory, Layout<columns>::kScores) + (at.column * kSplitKeys + key),
            unit.first + key < unit.length ? multiply(sums[i], args.scale_log2) : kNothing);
    }
  }

  /// [warp] Of the query head that is the warp's: probabilities relative to the maximum, and the partial output's statistics.
  FARWARP_DEVICE void exponentiate(const AttentionUnit& unit) const {
    const Args& args = context_.args;
    const int head = warp_index();
    if (head >= args.query_heads / args.kv_heads) return;
    constexpr int kEach = kSplitKeys / Target::kWarpSize;
    const Shared<const float> scores =
        word_at<const float>(context_.memory, Layout<columns>::kScores) + head * kSplitKeys;
    float numbers[kEach], highest = kNothing, sum = 0;
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      numbers[i] = load(scores + (i * Target::kWarpSize + lane_index()));
      highest = maximum(highest, numbers[i]);
    }
#pragma unroll
    for (int lanes = 1; lanes < Target::kWarpSize; lanes *= 2) highest = maximum(highest, shuffle_xor(highest, lanes));
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const float number = exp2(add(numbers[i], -highest));
      sum = add(sum, number);
      store(word_at<std::uint16_t>(context_.memory, Layout<columns>::kProbabilities) +
                (head * kSplitKeys + i * Target::kWarpSize + lane_index()),
            round_to<Bf16>(number).bits);
    }
#pragma unroll
    for (int lanes = 1; lanes < Target::kWarpSize; lanes *= 2) sum = add(sum, shuffle_xor(sum, lanes));
    if (lane_index() == 0) store_pair(unit, head, args.head_dim / 2, highest, sum);
  }

  FARWARP_DEVICE void add_values(const AttentionUnit& unit, Fragment (&values)[kWarps]) const {
    Sums sums = {};
#pragma unroll
    for (int page = 0; page < kWarps; ++page) {
      const int first = unit.first + page * kPageKeys;
      if (first >= unit.length) continue;
      if (first + kPageKeys >= unit.length) replace_last(unit, first, values[page]);
      multiply_fragment(sums, values[page], operand(Layout<columns>::kProbabilities, page * kPageKeys));
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const MatrixIndex at = sum_index(lane_index(), i);
      if (at.column < kMostGroup)
        store(word_at<float>(context_.memory, Layout<columns>::kScores) +
                  (at.column * kMostHeadDim + warp_index() * 16 + at.row),
              sums[i]);
    }
  }

  /// The values of the sequence's last page: the token's own is in shared memory, those after it are zeros.
  FARWARP_DEVICE void replace_last(const AttentionUnit& unit, int first, Fragment& values) const {
#pragma unroll
    for (int row = 0; row < kLaneRows; ++row) {
      const int dim = warp_index() * 16 + operand_row(lane_index(), row);
      const auto new_value = load(word_at<const std::uint16_t>(context_.memory, Layout<columns>::kNewValue) + dim);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int key = first + 4 * operand_four(lane_index()) + i;
        const std::uint64_t mask = std::uint64_t{0xffff} << (16 * i);
        if (key >= unit.position) values.rows[row] &= ~mask;
        if (key == unit.position) values.rows[row] |= static_cast<std::uint64_t>(new_value) << (16 * i);
      }
    }
  }

  /// [thread] A packet of two fp32 of a partial output.
  FARWARP_DEVICE void store_pair(const AttentionUnit& unit, int head, int number, float first, float second) const {
    const Args& args = context_.args;
    const int query_head = unit.kv_head * (args.query_heads / args.kv_heads) + head;
    const std::int64_t at = ((std::int64_t{unit.column} * args.query_heads + query_head) * args.splits + unit.split) *
                                (args.head_dim / 2 + 1) +
                            number;
    store_packet(peer_address<Packet>(args.view, args.view.rank, args.partials) + at,
                 std::bit_cast<std::uint32_t>(first) | static_cast<std::uint64_t>(std::bit_cast<std::uint32_t>(second))
                                                           << 32,
                 context_.call.epoch);
  }

  FARWARP_DEVICE void publish(const AttentionUnit& unit) const {
    const Args& args = context_.args;
    const int pairs = args.head_dim / 2, all = args.query_heads / args.kv_heads * pairs;
    for (int i = thread_index(); i < all; i += kWorkerThreads) {
      const int head = i / pairs, pair = i % pairs;
      const Shared<const float> numbers =
          word_at<const float>(context_.memory, Layout<columns>::kScores) + (head * kMostHeadDim + 2 * pair);
      store_pair(unit, head, pair, load(numbers), load(numbers + 1));
    }
  }

  FARWARP_DEVICE void append(const AttentionUnit& unit, int page) const {
    const int slot = unit.position % kPageKeys;
    const Global<std::byte> keys = keys_at(page, unit.kv_head);
    for (int dim = thread_index(); dim < context_.args.head_dim; dim += kWorkerThreads) {
      const int tile = dim / 16 * kFragmentBytes;
      const auto put = [](Global<std::byte> to, std::uint16_t bits) {
        store(Global<std::uint16_t>(reinterpret_cast<std::uint16_t*>(to.raw)), bits);
      };
      put(keys + (tile + fragment_offset(Target::kMatrixUnit, slot, dim % 16)),
          load(word_at<const std::uint16_t>(context_.memory, Layout<columns>::kNewKey) + dim));
      put(keys + (values_offset() + tile + fragment_offset(Target::kMatrixUnit, dim % 16, slot)),
          load(word_at<const std::uint16_t>(context_.memory, Layout<columns>::kNewValue) + dim));
    }
  }

  const Context<columns>& context_;
  const Task& task_;
  int first_pages_;
};

}  // namespace farwarp::FARWARP_TARGET::qwen3
