// Attention of one token of each sequence over its cached keys.
//
// Each warp multiplies the 16 keys of its page of a tile by the group's queries, and the page's values by the
// probabilities; both lie in memory as fragments. It keeps its own maxima and sums from tile to tile of a split, at
// whose end the eight warps' are merged in shared memory and stored as a partial output. The token's own key and value
// are not in the cache yet: its warp takes them from shared memory, and appends them.
#pragma once

#include "farwarp/models/qwen3/decode/heads.dev.h"
#include "farwarp/models/qwen3/decode/key_tiles.dev.h"

namespace farwarp::FARWARP_TARGET::qwen3 {

/// [thread] Loads the keys and values of all tiles of the worker into the ring of weights, a page in a stage: the last
/// tile of a sequence has eight too, because each warp needs a stage.
template <int columns>
class PageLoader {
 public:
  FARWARP_DEVICE explicit PageLoader(const Context<columns>& context) : context_(context) {}

  /// False if a wait has expired.
  FARWARP_DEVICE bool load(WeightLoader<columns>& loader, const Task& task) {
    if (static_cast<Kind>(task.kind) != Kind::kAttend) return true;
    const Args& args = context_.args;
    const TileCursor<columns> first(context_, task);
    const auto tile_of = [](const TileCursor<columns>& tile) {
      return tile.column() << 24 | tile.first_key() / kTileKeys;
    };
    for (TileCursor<columns> tile = first; tile.exists();) {
      if (tile_of(tile) != loaded_for_) pages_ = TilePages::load_for(args, tile);
      const TilePages pages = pages_;
      const int kv_head = tile.kv_head();
      tile.advance();
      // The next tile's pages arrive while this one's are copied; after the last tile, those of the next layer's first.
      const TileCursor<columns>& later = tile.exists() ? tile : first;
      loaded_for_ = tile_of(later);
      pages_ = TilePages::load_for(args, later);
#pragma unroll 1
      for (int i = 0; i < kWarps; i += kSlotStages) {
        const int bytes = page_bytes(args.head_dim);
        if (!loader.begin_slot(kSlotStages * bytes)) return false;
        for (int k = 0; k < kSlotStages; ++k)
          loader.copy(k * kStageBytes, page_at(args, task.layer, pages[i + k], kv_head), bytes);
      }
    }
    return true;
  }

 private:
  const Context<columns>& context_;
  TilePages pages_{};
  int loaded_for_ = -1;
};

template <int columns>
class Attention {
 public:
  FARWARP_DEVICE Attention(const Context<columns>& context, WeightReader<columns>& reader, const Task& task)
      : context_(context), reader_(reader), task_(task) {}

  /// [the warps that compute] The worker's tiles.
  FARWARP_DEVICE void run() {
    bool same_unit = false;
    for (TileCursor<columns> tile(context_, task_); tile.exists();) {
      if (!same_unit) receive(tile);
      attend(tile);
      if (tile.ends_split()) {
        publish(tile);
        reset();
        reader_.release(kWarps);  // all warps have read the outputs that lie there
      } else {
        reader_.release_own();  // a warp knows of its own slot alone that the copy has landed
      }
      TileCursor<columns> next = tile;
      next.advance();
      same_unit = next.same_unit(tile);
      tile = next;
    }
  }

 private:
  // A warp waits for one of a tile's slots. It knows the phase before of that slot, because fewer copies are under way
  // than slots lie between two of its own.
  static_assert(!Target::kHasBulkCopy || ring_slots(columns) - kWarps / kSlotStages >= slots_in_flight(columns));
  static constexpr int kTiles = kMaxHeadDim / 16;
  static constexpr int kEach = kMaxHeadDim * kMaxGroup;  // of a warp's outputs

  FARWARP_DEVICE int group() const { return context_.args.query_heads / context_.args.kv_heads; }
  FARWARP_DEVICE void reset() {
    maximum_ = kNothing;
    sum_ = 0;
#pragma unroll
    for (Sums& sums : outputs_) {
#pragma unroll
      for (float& sum : sums) sum = 0;
    }
  }

  /// Waits for the group's queries and, if the worker's tiles have it, the token's key and value.
  FARWARP_DEVICE void receive(const TileCursor<columns>& tile) {
    const Args& args = context_.args;
    const int position = tile.length() - 1, heads = group() + (tile.shares_new_key() ? 2 : 0);
    for (int i = warp_index(); i < heads; i += kWarps) {
      const bool query = i < group(), key = i == group();
      const int head = query ? tile.kv_head() * group() + i
                       : key ? args.query_heads + tile.kv_head()
                             : args.query_heads + args.kv_heads + tile.kv_head();
      HeadParameters parameters;
      if (query || key)
        parameters = HeadParameters::load_for(args, (query ? args.q_norm : args.k_norm) + task_.layer * args.norm_pitch,
                                              position);
      std::uint64_t four = 0;
      const bool exists = lane_index() * 4 < args.head_dim;
      if (exists)
        four = read_four<columns>(context_.call, context_.worker, task_.in, head * args.head_dim + lane_index() * 4,
                                  tile.column(), kSiteHeads);
      warp_sync();
      if (query || key) four = normalise_and_rotate(args, four, parameters);
      const int offset = query ? Layout<columns>::kQueries + i * kMaxHeadDim * 2
                         : key ? Layout<columns>::kNewKey
                               : Layout<columns>::kNewValue;
      if (exists) store(word_at<std::uint64_t>(context_.memory, offset) + lane_index(), four);
    }
    sync_warps();
  }

  /// [warp] The warp's page of a tile: its memory, its first key, and the sequence's last.
  struct Page {
    Shared<std::byte> staged;           ///< Hopper
    Global<const std::byte> in_memory;  ///< CDNA
    int first, position;

    FARWARP_DEVICE Fragment fragment(int number) const {
      if constexpr (Target::kHasBulkCopy)
        return load_fragment(Shared<const std::byte>(staged.raw) + number * kFragmentBytes);
      return load_fragment(in_memory + number * kFragmentBytes);
    }
    FARWARP_DEVICE bool has_keys() const { return first <= position; }
    FARWARP_DEVICE bool has_new_key() const { return has_keys() && position < first + kPageKeys; }
  };

  FARWARP_DEVICE void attend(const TileCursor<columns>& tile) {
    const Args& args = context_.args;
    Page page{{}, {}, tile.first_key() + warp_index() * kPageKeys, tile.length() - 1};
    if constexpr (Target::kHasBulkCopy) {
      reader_.wait_stage(warp_index());
      page.staged = reader_.stage(warp_index());
    }
    if (!page.has_keys()) return;
    int number = 0;
    if (!Target::kHasBulkCopy || page.has_new_key())
      number =
          load(Global<const std::int32_t>(args.page_table) + (tile.column() * args.max_pages + page.first / kPageKeys));
    const Global<std::byte> in_memory = page_at(args, task_.layer, number, tile.kv_head());
    page.in_memory = Global<const std::byte>(in_memory);
    if (page.has_new_key()) append(page, in_memory);
    score(page);
    add_values(page, exponentiate());
  }

  FARWARP_DEVICE Shared<float> scores() const {
    return word_at<float>(context_.memory, Layout<columns>::kScores) + warp_index() * kMaxGroup * kPageKeys;
  }

  /// [warp] The scores of the page's keys, [group][16].
  FARWARP_DEVICE void score(const Page& page) const {
    const Args& args = context_.args;
    Sums sums = {};
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      if (tile * 16 >= args.head_dim) continue;
      multiply_fragment(sums, page.fragment(tile), query(tile));
    }
    warp_sync();  // the page before is done
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const MatrixIndex at = sum_index(lane_index(), i);
      if (at.column < kMaxGroup)
        store(scores() + (at.column * kPageKeys + at.row), page.first + at.row <= page.position ? sums[i] : kNothing);
    }
    warp_sync();
  }

  FARWARP_DEVICE std::uint64_t query(int tile) const {
    const int head = operand_column(lane_index());
    if (head >= kMaxGroup) return 0;
    return load(word_at<const std::uint64_t>(context_.memory, Layout<columns>::kQueries + head * kMaxHeadDim * 2) +
                (4 * tile + operand_four(lane_index())));
  }

  /// [warp] Probabilities of four keys for the lane's head, relative to the highest score so far; what was summed
  /// before is brought to the same scale.
  FARWARP_DEVICE std::uint64_t exponentiate() {
    const int head = operand_column(lane_index()) % kMaxGroup;
    const Vec16 words = load(Shared<const Vec16>(reinterpret_cast<const Vec16*>(scores().raw)) +
                             (head * kPageKeys / 4 + operand_four(lane_index())));
    float numbers[4] = {bits_of(words.lo), bits_of(words.lo >> 32), bits_of(words.hi), bits_of(words.hi >> 32)};
    float highest = maximum_;
#pragma unroll
    for (const float number : numbers) highest = maximum(highest, number);
    highest = over_fours(highest, [](float a, float b) { return maximum(a, b); });
    float sum = 0;
#pragma unroll
    for (float& number : numbers) {
      number = relative_to(highest, number);
      sum = add(sum, number);
    }
    sum = over_fours(sum, [](float a, float b) { return add(a, b); });
    const float factor = relative_to(highest, maximum_);
    sum_ = fused_multiply_add(sum_, factor, sum);
    maximum_ = highest;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float scale = shuffle(factor, lane_of_column(sum_index(lane_index(), i).column));
#pragma unroll
      for (Sums& sums : outputs_) sums[i] = multiply(sums[i], scale);
    }
    return pack_four(numbers[0], numbers[1], numbers[2], numbers[3]);
  }

  /// The weight of a score. The difference is scaled, not the score: the highest one has exactly 1, however large it
  /// is.
  FARWARP_DEVICE float relative_to(float highest, float score) const {
    return exp2(multiply(add(score, -highest), context_.args.scale_log2));
  }
  static FARWARP_DEVICE float bits_of(std::uint64_t word) {
    return std::bit_cast<float>(static_cast<std::uint32_t>(word));
  }
  /// [warp] `number` of the four lanes that have the keys of the same column.
  template <class Join>
  static FARWARP_DEVICE float over_fours(float number, const Join& join) {
    constexpr int kStep = kMfma ? 16 : 1;
    number = join(number, shuffle_xor(number, kStep));
    return join(number, shuffle_xor(number, 2 * kStep));
  }
  static FARWARP_DEVICE int lane_of_column(int column) { return kMfma ? column : 4 * column; }

  FARWARP_DEVICE void add_values(const Page& page, std::uint64_t probabilities) {
    const int tiles = context_.args.head_dim / 16;
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      if (tile >= tiles) continue;
      multiply_fragment(outputs_[tile], page.fragment(tiles + tile), probabilities);
    }
  }

  /// [warp] Puts the token's key and value into the page, and into the copy of it that has arrived. Later rows have the
  /// numbers of an earlier sequence, or zeros; their probabilities are zeros. A copy reads the page in the next token,
  /// after this one has been decided.
  FARWARP_DEVICE void append(const Page& page, Global<std::byte> in_memory) const {
    const int dims = context_.args.head_dim, row = page.position % kPageKeys;
#pragma unroll 1
    for (int dim = lane_index(); dim < dims; dim += Target::kWarpSize) {
      const int tile = dim / 16 * kFragmentBytes;
      const auto put = [&](int at, std::uint16_t bits) {
        store(Global<std::uint16_t>(reinterpret_cast<std::uint16_t*>((in_memory + at).raw)), bits);
        if constexpr (Target::kHasBulkCopy)
          store(Shared<std::uint16_t>(reinterpret_cast<std::uint16_t*>((page.staged + at).raw)), bits);
      };
      put(tile + fragment_offset(kPageOrder, row, dim % 16),
          load(word_at<const std::uint16_t>(context_.memory, Layout<columns>::kNewKey) + dim));
      put(page_bytes(dims) / 2 + tile + fragment_offset(kPageOrder, dim % 16, row),
          load(word_at<const std::uint16_t>(context_.memory, Layout<columns>::kNewValue) + dim));
    }
    warp_sync();
  }

  /// A warp's outputs, [head_dim][group] fp32: on Hopper in the warp's stage, in place of the keys.
  FARWARP_DEVICE Shared<float> outputs_of(int warp) const {
    if constexpr (Target::kHasBulkCopy) return Shared<float>(reinterpret_cast<float*>(reader_.stage(warp).raw));
    return word_at<float>(context_.memory, Layout<columns>::kOutputs) + warp * kEach;
  }
  /// [warps][group] pairs of maximum and sum.
  FARWARP_DEVICE Shared<float> statistics(int warp, int head) const {
    return word_at<float>(context_.memory, Layout<columns>::kStatistics) + (warp * kMaxGroup + head) * 2;
  }

  /// Merges the warps' outputs of a split, in the order of the warps, and stores them: as a partial output, or, if the
  /// sequence has one split of a streamed vector, as what the out projection reads.
  FARWARP_DEVICE void publish(const TileCursor<columns>& tile) {
    const Args& args = context_.args;
    share_outputs();
    sync_warps();
    bool whole = false;
    if constexpr (streams(columns)) whole = args.splits == 1;
    if (whole) {
      store_attended(tile);
    } else {
      store_partials(tile);
    }
    sync_warps();  // before the next split's are shared
  }

  /// What a head's outputs of each warp are multiplied by, relative to the highest maximum; and the sum of
  /// probabilities.
  struct WarpFactors {
    float highest = kNothing, total = 0;
    float of[kWarps];
  };
  FARWARP_DEVICE WarpFactors factors_of(int head) const {
    WarpFactors factors;
#pragma unroll
    for (int warp = 0; warp < kWarps; ++warp) factors.highest = maximum(factors.highest, load(statistics(warp, head)));
#pragma unroll
    for (int warp = 0; warp < kWarps; ++warp) {
      factors.of[warp] = relative_to(factors.highest, load(statistics(warp, head)));
      factors.total = fused_multiply_add(factors.of[warp], load(statistics(warp, head) + 1), factors.total);
    }
    return factors;
  }

  FARWARP_DEVICE void store_attended(const TileCursor<columns>& tile) const {
    const Args& args = context_.args;
    for (int i = thread_index(); i < group() * args.head_dim / 4; i += kWorkerThreads) {
      const int head = i % group(), four = i / group();
      const WarpFactors factors = factors_of(head);
      float sums[4] = {};
#pragma unroll
      for (int warp = 0; warp < kWarps; ++warp) {
#pragma unroll
        for (int row = 0; row < 4; ++row)
          sums[row] = fused_multiply_add(factors.of[warp],
                                         load(outputs_of(warp) + ((4 * four + row) * kMaxGroup + head)), sums[row]);
      }
      const float inverse = divide(1.0f, factors.total);
      store_four<columns>(context_.call, context_.worker, task_.out,
                          (tile.kv_head() * group() + head) * args.head_dim + 4 * four, tile.column(),
                          pack_four(multiply(sums[0], inverse), multiply(sums[1], inverse), multiply(sums[2], inverse),
                                    multiply(sums[3], inverse)));
    }
  }

  FARWARP_DEVICE void store_partials(const TileCursor<columns>& tile) const {
    const Args& args = context_.args;
    const int pairs = args.head_dim / 2;
    for (int i = thread_index(); i < group() * pairs; i += kWorkerThreads) {
      const int head = i % group(), pair = i / group();
      float highest = kNothing;
#pragma unroll 2
      for (int warp = 0; warp < kWarps; ++warp) highest = maximum(highest, load(statistics(warp, head)));
      float total = 0, first = 0, second = 0;
#pragma unroll 2
      for (int warp = 0; warp < kWarps; ++warp) {
        const float factor = relative_to(highest, load(statistics(warp, head)));
        const Shared<float> from = outputs_of(warp) + (2 * pair * kMaxGroup + head);
        total = fused_multiply_add(factor, load(statistics(warp, head) + 1), total);
        first = fused_multiply_add(factor, load(from), first);
        second = fused_multiply_add(factor, load(from + kMaxGroup), second);
      }
      store_pair(tile, head, pair, first, second);
      if (pair == 0) store_pair(tile, head, pairs, highest, total);
    }
  }

  FARWARP_DEVICE void share_outputs() const {
    const int tiles = context_.args.head_dim / 16;
    const Shared<float> to = outputs_of(warp_index());
    warp_sync();  // all lanes have read the keys
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const MatrixIndex at = sum_index(lane_index(), i);
        if (tile < tiles && at.column < kMaxGroup)
          store(to + ((tile * 16 + at.row) * kMaxGroup + at.column), outputs_[tile][i]);
      }
    }
    const int head = operand_column(lane_index());
    if (operand_four(lane_index()) == 0 && head < kMaxGroup) {
      store(statistics(warp_index(), head), maximum_);
      store(statistics(warp_index(), head) + 1, sum_);
    }
    if constexpr (Target::kHasBulkCopy)
      proxy_fence();  // a copy fills the stage again, and one reads what append() has stored
  }

  /// [thread] Two fp32 of a partial output.
  FARWARP_DEVICE void store_pair(const TileCursor<columns>& tile, int head, int number, float first,
                                 float second) const {
    const Args& args = context_.args;
    store_four_at(context_.call, context_.worker.buffers, task_.out,
                  partial_at(args, tile.column(), tile.kv_head() * group() + head, tile.split(), number),
                  pack_two(first, second));
  }

  const Context<columns>& context_;
  WeightReader<columns>& reader_;
  const Task& task_;
  float maximum_ = kNothing, sum_ = 0;  ///< of the lane's head: operand_column()
  Sums outputs_[kTiles] = {};
};

}  // namespace farwarp::FARWARP_TARGET::qwen3
