// Attention of one token of each sequence over its cached keys.
//
// Each warp multiplies the 16 keys of its page of a key block by the queries that share the KV head, and the page's
// values by the probabilities; both lie in memory as fragments. It keeps its own maxima and sums from block to block of
// a split, at whose end the eight warps' are merged in shared memory and stored as a partial output, or, with one split
// of a streamed vector, as what the out projection reads. The token's own key and value are not in the cache yet: its
// warp takes them from shared memory, and appends them.
#pragma once

#include "farwarp/models/qwen3/decode/heads.dev.h"
#include "farwarp/models/qwen3/decode/key_blocks.dev.h"

namespace farwarp::FARWARP_TARGET::qwen3 {

/// [thread] Loads the keys and values of all key blocks of the worker into the ring of weights, a page in a slice's
/// room: the last block of a sequence has eight too, because each warp needs one.
template <int columns>
class PageLoader {
 public:
  FARWARP_DEVICE explicit PageLoader(const Context<columns>& context) : context_(context) {}

  /// False if a wait has expired.
  FARWARP_DEVICE bool load(WeightLoader<columns>& loader, const Task& task) {
    if (static_cast<Kind>(task.kind) != Kind::kAttend) return true;
    const Args& args = context_.args;
    const KeyBlockCursor<columns> first(context_, task);
    const auto block_id = [](const KeyBlockCursor<columns>& block) {
      return block.column() << 24 | block.first_key() / kBlockKeys;
    };
    for (KeyBlockCursor<columns> block = first; block.exists();) {
      if (block_id(block) != loaded_for_) pages_ = KeyBlockPages::load_for(args, block);
      const KeyBlockPages pages = pages_;
      const int kv_head = block.kv_head();
      block.advance();
      // The numbers of the next block's pages arrive while this one's pages are copied; after the last block, those of
      // the first one, for the next layer.
      const KeyBlockCursor<columns>& later = block.exists() ? block : first;
      loaded_for_ = block_id(later);
      pages_ = KeyBlockPages::load_for(args, later);
#pragma unroll 1
      for (int i = 0; i < kWarps; i += kSlotSlices) {
        const int bytes = page_bytes(args.head_dim);
        if (!loader.begin_slot(kSlotSlices * bytes)) return false;
        for (int k = 0; k < kSlotSlices; ++k)
          loader.copy(k * kSliceBytes, page_at(args, task.layer, pages[i + k], kv_head), bytes);
      }
    }
    return true;
  }

 private:
  const Context<columns>& context_;
  KeyBlockPages pages_{};
  int loaded_for_ = -1;
};

template <int columns>
class Attention {
 public:
  FARWARP_DEVICE Attention(const Context<columns>& context, WeightReader<columns>& reader, const Task& task)
      : context_(context), reader_(reader), task_(task) {}

  /// [the warps that compute] The worker's key blocks.
  FARWARP_DEVICE void run() {
    bool same_unit = false;
    for (KeyBlockCursor<columns> block(context_, task_); block.exists();) {
      if (!same_unit) receive(block);
      attend(block);
      if (block.ends_split()) {
        publish(block);
        reset();
        reader_.release(kWarps);  // all warps have read the outputs that lie there
      } else {
        reader_.release_own();  // a warp knows of its own slot alone that the copy has landed
      }
      KeyBlockCursor<columns> next = block;
      next.advance();
      same_unit = next.same_unit(block);
      block = next;
    }
  }

 private:
  // A warp waits for one of a key block's slots, so the slot's phase before must have ended. It has: the warp has
  // waited for its slot of the block before, which was issued at least slots_in_flight() copies after the phase's copy.
  static_assert(!Target::kHasBulkCopy || ring_slots(columns) - kWarps / kSlotSlices >= slots_in_flight(columns));
  static constexpr int kFragments = kMaxHeadDim / 16;  // of a page's keys, and of its values
  static constexpr int kOutputsOfWarp = kMaxHeadDim * kMaxHeadsPerKvHead;

  FARWARP_DEVICE int heads_per_kv_head() const { return context_.args.query_heads / context_.args.kv_heads; }
  FARWARP_DEVICE void reset() {
    maximum_ = kMinusInfinity;
    sum_ = 0;
#pragma unroll
    for (Sums& sums : outputs_) {
#pragma unroll
      for (int i = 0; i < 4; ++i) sums[i] = 0;
    }
  }

  /// Waits for the KV head's queries and, if the worker's key blocks have it, the token's key and value.
  FARWARP_DEVICE void receive(const KeyBlockCursor<columns>& block) {
    const Args& args = context_.args;
    const int position = block.length() - 1, heads = heads_per_kv_head() + (block.shares_new_key() ? 2 : 0);
    for (int i = warp_index(); i < heads; i += kWarps) {
      const bool query = i < heads_per_kv_head(), key = i == heads_per_kv_head();
      const int head = query ? block.kv_head() * heads_per_kv_head() + i
                       : key ? args.query_heads + block.kv_head()
                             : args.query_heads + args.kv_heads + block.kv_head();
      HeadParameters parameters;
      if (query || key)
        parameters = HeadParameters::load_for(args, (query ? args.q_norm : args.k_norm) + task_.layer * args.norm_pitch,
                                              position);
      std::uint64_t four = 0;
      const bool exists = lane_index() * 4 < args.head_dim;
      if (exists)
        four = read_four<columns>(context_.call, context_.worker, task_.in, head * args.head_dim + lane_index() * 4,
                                  block.column(), kSiteHeads);
      warp_sync();
      if (query || key) four = normalise_and_rotate(args, four, parameters);
      const int offset = query ? Layout<columns>::kQueries + i * kMaxHeadDim * 2
                         : key ? Layout<columns>::kNewKey
                               : Layout<columns>::kNewValue;
      if (exists) store(word_at<std::uint64_t>(context_.memory, offset) + lane_index(), four);
    }
    sync_warps();
  }

  /// [warp] The warp's page of a key block: its memory, its first key, and the sequence's last.
  struct Page {
    Shared<std::byte> staged;           ///< Hopper
    Global<const std::byte> in_memory;  ///< CDNA
    int first, position;

    FARWARP_DEVICE Fragment fragment(int i) const {
      if constexpr (Target::kHasBulkCopy)
        return load_fragment(Shared<const std::byte>(staged.raw) + i * kFragmentBytes);
      return load_fragment(in_memory + i * kFragmentBytes);
    }
    FARWARP_DEVICE bool has_keys() const { return first <= position; }
    FARWARP_DEVICE bool has_new_key() const { return has_keys() && position < first + kPageKeys; }
  };

  FARWARP_DEVICE void attend(const KeyBlockCursor<columns>& block) {
    const Args& args = context_.args;
    Page page{{}, {}, block.first_key() + warp_index() * kPageKeys, block.length() - 1};
    if constexpr (Target::kHasBulkCopy) {
      reader_.wait_slice(warp_index());
      page.staged = reader_.slice(warp_index());
    }
    if (!page.has_keys()) return;
    int page_number = 0;
    if (!Target::kHasBulkCopy || page.has_new_key())
      page_number = load(Global<const std::int32_t>(args.page_table) +
                         (block.column() * args.max_pages + page.first / kPageKeys));
    const Global<std::byte> in_memory = page_at(args, task_.layer, page_number, block.kv_head());
    page.in_memory = Global<const std::byte>(in_memory);
    if (page.has_new_key()) append(page, in_memory);
    score(page);
    add_values(page, exponentiate());
  }

  FARWARP_DEVICE Shared<float> scores() const {
    return word_at<float>(context_.memory, Layout<columns>::kScores) + warp_index() * kMaxHeadsPerKvHead * kPageKeys;
  }

  /// [warp] The scores of the page's keys, [heads][16].
  FARWARP_DEVICE void score(const Page& page) const {
    const Args& args = context_.args;
    Sums sums = {};
#pragma unroll
    for (int fragment = 0; fragment < kFragments; ++fragment) {
      if (fragment * 16 >= args.head_dim) continue;
      multiply_fragment(sums, page.fragment(fragment), query(fragment));
    }
    warp_sync();  // the page before is done
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const MatrixIndex at = sum_index(lane_index(), i);
      if (at.column < kMaxHeadsPerKvHead)
        store(scores() + (at.column * kPageKeys + at.row),
              page.first + at.row <= page.position ? sums[i] : kMinusInfinity);
    }
    warp_sync();
  }

  FARWARP_DEVICE std::uint64_t query(int fragment) const {
    const int head = operand_column(lane_index());
    if (head >= kMaxHeadsPerKvHead) return 0;
    return load(word_at<const std::uint64_t>(context_.memory, Layout<columns>::kQueries + head * kMaxHeadDim * 2) +
                (4 * fragment + operand_four(lane_index())));
  }

  /// [warp] Probabilities of four keys for the lane's head, relative to the highest score so far; what was summed
  /// before is brought to the same scale.
  FARWARP_DEVICE std::uint64_t exponentiate() {
    const int head = operand_column(lane_index()) % kMaxHeadsPerKvHead;
    const Vec16 words = load(Shared<const Vec16>(reinterpret_cast<const Vec16*>(scores().raw)) +
                             (head * kPageKeys / 4 + operand_four(lane_index())));
    float values[4] = {bits_of(words.lo), bits_of(words.lo >> 32), bits_of(words.hi), bits_of(words.hi >> 32)};
    float highest = maximum_;
#pragma unroll
    for (const float score : values) highest = maximum(highest, score);
    highest = over_fours(highest, [](float a, float b) { return maximum(a, b); });
    float sum = 0;
#pragma unroll
    for (float& value : values) {
      value = relative_to(highest, value);
      sum = add(sum, value);
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
    return pack_four(values[0], values[1], values[2], values[3]);
  }

  /// The weight of a score. The difference is scaled, not the score: the highest one has exactly 1, however large it
  /// is.
  FARWARP_DEVICE float relative_to(float highest, float score) const {
    return exp2(multiply(add(score, -highest), context_.args.scale_log2));
  }
  static FARWARP_DEVICE float bits_of(std::uint64_t word) {
    return std::bit_cast<float>(static_cast<std::uint32_t>(word));
  }
  /// [warp] `value` of the four lanes that have the keys of the same column.
  template <class Join>
  static FARWARP_DEVICE float over_fours(float value, const Join& join) {
    constexpr int kStep = kMfma ? 16 : 1;
    value = join(value, shuffle_xor(value, kStep));
    return join(value, shuffle_xor(value, 2 * kStep));
  }
  static FARWARP_DEVICE int lane_of_column(int column) { return kMfma ? column : 4 * column; }

  FARWARP_DEVICE void add_values(const Page& page, std::uint64_t probabilities) {
    const int fragments = context_.args.head_dim / 16;
#pragma unroll
    for (int fragment = 0; fragment < kFragments; ++fragment) {
      if (fragment >= fragments) continue;
      multiply_fragment(outputs_[fragment], page.fragment(fragments + fragment), probabilities);
    }
  }

  /// [warp] Puts the token's key and value into the page, and into the copy of it that has arrived. Later rows have the
  /// numbers of an earlier sequence, or zeros; their probabilities are zeros. A copy reads the page in the next token,
  /// after this one has been decided.
  FARWARP_DEVICE void append(const Page& page, Global<std::byte> in_memory) const {
    const int dims = context_.args.head_dim, row = page.position % kPageKeys;
#pragma unroll 1
    for (int dim = lane_index(); dim < dims; dim += Target::kWarpSize) {
      const int fragment_at = dim / 16 * kFragmentBytes;
      const auto put = [&](int at, std::uint16_t bits) {
        store(Global<std::uint16_t>(reinterpret_cast<std::uint16_t*>((in_memory + at).raw)), bits);
        if constexpr (Target::kHasBulkCopy)
          store(Shared<std::uint16_t>(reinterpret_cast<std::uint16_t*>((page.staged + at).raw)), bits);
      };
      put(fragment_at + fragment_offset(kPageOrder, row, dim % 16),
          load(word_at<const std::uint16_t>(context_.memory, Layout<columns>::kNewKey) + dim));
      put(page_bytes(dims) / 2 + fragment_at + fragment_offset(kPageOrder, dim % 16, row),
          load(word_at<const std::uint16_t>(context_.memory, Layout<columns>::kNewValue) + dim));
    }
    warp_sync();
  }

  /// A warp's outputs, [head_dim][heads] fp32: on Hopper where the warp's keys were.
  FARWARP_DEVICE Shared<float> outputs_of(int warp) const {
    if constexpr (Target::kHasBulkCopy) return Shared<float>(reinterpret_cast<float*>(reader_.slice(warp).raw));
    return word_at<float>(context_.memory, Layout<columns>::kOutputs) + warp * kOutputsOfWarp;
  }
  /// [warps][heads] pairs of maximum and sum.
  FARWARP_DEVICE Shared<float> statistics(int warp, int head) const {
    return word_at<float>(context_.memory, Layout<columns>::kStatistics) + (warp * kMaxHeadsPerKvHead + head) * 2;
  }

  /// Merges the warps' outputs of a split, in the order of the warps, and stores them: as a partial output, or, if the
  /// sequence has one split of a streamed vector, as what the out projection reads.
  FARWARP_DEVICE void publish(const KeyBlockCursor<columns>& block) {
    const Args& args = context_.args;
    share_outputs();
    sync_warps();
    bool whole = false;
    if constexpr (streams(columns)) whole = args.splits == 1;
    if (whole) {
      store_attended(block);
    } else {
      store_partials(block);
    }
    sync_warps();  // before the next split's are shared
  }

  /// What a head's outputs of each warp are multiplied by, relative to the highest maximum; and the sum of
  /// probabilities.
  struct WarpFactors {
    float highest = kMinusInfinity, total = 0;
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

  FARWARP_DEVICE void store_attended(const KeyBlockCursor<columns>& block) const {
    const Args& args = context_.args;
    for (int i = thread_index(); i < heads_per_kv_head() * args.head_dim / 4; i += kComputingThreads) {
      const int head = i % heads_per_kv_head(), four = i / heads_per_kv_head();
      const WarpFactors factors = factors_of(head);
      float sums[4] = {};
#pragma unroll
      for (int warp = 0; warp < kWarps; ++warp) {
#pragma unroll
        for (int row = 0; row < 4; ++row)
          sums[row] = fused_multiply_add(
              factors.of[warp], load(outputs_of(warp) + ((4 * four + row) * kMaxHeadsPerKvHead + head)), sums[row]);
      }
      const float inverse = divide(1.0f, factors.total);
      store_four<columns>(context_.call, context_.worker, task_.out,
                          (block.kv_head() * heads_per_kv_head() + head) * args.head_dim + 4 * four, block.column(),
                          pack_four(multiply(sums[0], inverse), multiply(sums[1], inverse), multiply(sums[2], inverse),
                                    multiply(sums[3], inverse)));
    }
  }

  FARWARP_DEVICE void store_partials(const KeyBlockCursor<columns>& block) const {
    const Args& args = context_.args;
    const int pairs = args.head_dim / 2;
    for (int i = thread_index(); i < heads_per_kv_head() * pairs; i += kComputingThreads) {
      const int head = i % heads_per_kv_head(), pair = i / heads_per_kv_head();
      float highest = kMinusInfinity;
#pragma unroll 2
      for (int warp = 0; warp < kWarps; ++warp) highest = maximum(highest, load(statistics(warp, head)));
      float total = 0, first = 0, second = 0;
#pragma unroll 2
      for (int warp = 0; warp < kWarps; ++warp) {
        const float factor = relative_to(highest, load(statistics(warp, head)));
        const Shared<float> from = outputs_of(warp) + (2 * pair * kMaxHeadsPerKvHead + head);
        total = fused_multiply_add(factor, load(statistics(warp, head) + 1), total);
        first = fused_multiply_add(factor, load(from), first);
        second = fused_multiply_add(factor, load(from + kMaxHeadsPerKvHead), second);
      }
      store_pair(block, head, pair, first, second);
      if (pair == 0) store_pair(block, head, pairs, highest, total);
    }
  }

  FARWARP_DEVICE void share_outputs() const {
    const int fragments = context_.args.head_dim / 16;
    const Shared<float> to = outputs_of(warp_index());
    warp_sync();  // all lanes have read the keys
#pragma unroll
    for (int fragment = 0; fragment < kFragments; ++fragment) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const MatrixIndex at = sum_index(lane_index(), i);
        if (fragment < fragments && at.column < kMaxHeadsPerKvHead)
          store(to + ((fragment * 16 + at.row) * kMaxHeadsPerKvHead + at.column), outputs_[fragment][i]);
      }
    }
    const int head = operand_column(lane_index());
    if (operand_four(lane_index()) == 0 && head < kMaxHeadsPerKvHead) {
      store(statistics(warp_index(), head), maximum_);
      store(statistics(warp_index(), head) + 1, sum_);
    }
    if constexpr (Target::kHasBulkCopy)
      proxy_fence();  // a copy fills the room again, and one reads what append() has stored
  }

  /// [thread] Two fp32 of a partial output.
  FARWARP_DEVICE void store_pair(const KeyBlockCursor<columns>& block, int head, int four, float first,
                                 float second) const {
    const Args& args = context_.args;
    store_four_at(context_.call, context_.worker.buffers, task_.out,
                  partial_at(args, block.column(), block.kv_head() * heads_per_kv_head() + head, block.split(), four),
                  pack_two(first, second));
  }

  const Context<columns>& context_;
  WeightReader<columns>& reader_;
  const Task& task_;
  float maximum_ = kMinusInfinity, sum_ = 0;  ///< of the lane's head: operand_column()
  Sums outputs_[kFragments] = {};
};

}  // namespace farwarp::FARWARP_TARGET::qwen3
