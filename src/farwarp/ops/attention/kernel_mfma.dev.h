// attention on CDNA: persistent blocks of eight waves, 32 queries each, all of which load, multiply and store.
//
// Scores are computed transposed, S^T = K * Q^T, and so are results, O^T = V^T * P^T: the sums of the first product
// are, rounded, an operand of the second one, in the same lanes. A step is two halves, with one tile of LDS each for
// keys and values. In each half a tile is read and the other one is written:
//
//   barrier    keys of this step are in LDS; all waves have read the values of step + 1 that were there
//   keys       scores of this step, while older results are rescaled; put the values of step + 1, load those of this
//              step
//   barrier    values of step + 1 are in LDS; all waves have read the keys
//   values     results of step + 1, while the scores of this step become probabilities; put the keys of step - 1, load
//              those of step - 2
//
// So both products have arithmetic of another step beside them, and a load from memory has a whole step's products to
// arrive.
#pragma once

#include <utility>

#include "farwarp/ops/attention/args.h"
#include "farwarp/ops/attention/rows_mfma.dev.h"
#include "farwarp/world/device/call.dev.h"

namespace farwarp::FARWARP_TARGET::attention {

/// Calls f(0) .. f(count - 1), with the numbers as constants.
template <int count, class F>
FARWARP_DEVICE void unrolled(const F& f) {
  [&]<int... i>(std::integer_sequence<int, i...>) { (f(std::integral_constant<int, i>{}), ...); }
  (std::make_integer_sequence<int, count>{});
}

/// The keys that a lane's query sees, relative to the first key that the lane holds of a step's scores.
struct Seen {
  int first, end;
};

template <class Block>
class Attending {
 public:
  using T = typename Block::Element;

  FARWARP_DEVICE Attending(const Args& args, const Block& block) : args_(args), loader_(args, block), block_(block) {}

  FARWARP_DEVICE int bad_page() const { return loader_.bad_page(); }

  /// [block] Computes the queries of a work.
  FARWARP_DEVICE void attend(const BlockWork& work) {
    softmax_ = {};
#pragma unroll
    for (Mfma32Sums& sums : out_) sums = Mfma32Sums{};
    if (work.keys.end > work.keys.first) {
      const int first = work.keys.first / Block::kKeys, end = (work.keys.end + Block::kKeys - 1) / Block::kKeys;
      // All rows of the block see all keys of the steps from `whole_first` to `whole_end` - 1.
      const int whole_first =
          clamp((first_key_of(args_, work.sequence, work.row + kMfmaQueries - 1) + Block::kKeys - 1) / Block::kKeys,
                first, end - 1);
      const int whole_end = clamp(floor_steps(end_key_of(args_, work.sequence, work.row)), whole_first, end - 1);
      loader_.open(work, end - 1);
      first_step(work, end - 1, first);
      int step = end - 2;
      while (step >= first) {
        const bool whole = step >= whole_first && step < whole_end;
        if (whole && uniform(recomputed(args_.page_size)) == 0) {
          for (; step >= whole_first; --step) next_step<true>(work, step, false);
        } else {
          next_step<false>(work, step, !whole);
          --step;
        }
      }
      last_values(work.keys.first - first * Block::kKeys);
    }
    store_results<T>(args_, work, out_, softmax_);
  }

 private:
  // Fragments have 32 rows; the wave's queries are one.
  static constexpr int kKeyFragments = Block::kKeys / 32;
  static constexpr int kColumnFragments = Block::kHeadDim / 32;
  static constexpr int kSlices = Block::kHeadDim / 16;     ///< of a row of keys; a lane reads 16 bytes of each
  static constexpr int kKeySlices = Block::kKeys / 16;     ///< of a row of transposed values
  static constexpr int kPieces = kKeyFragments * 4;        ///< of the softmax of a step, 4 scores of a lane each
  static constexpr int kChunks = kKeyFragments * kSlices;  ///< that a lane reads for a product: an mfma32() each
  static constexpr int kSlots = 2 * kChunks;               ///< of work beside a product
  static constexpr int kAhead = 4;                         ///< chunks that are read from LDS before they are used
  /// Whether each score has an instruction for it (softmax_mfma.dev.h), or large ones have a branch, which takes
  /// registers: with heads of 64 there are enough, and twice as many scores for each matrix instruction.
  static constexpr bool kSubtractsAlways = Block::kHeadDim > 64;
  static_assert(kChunks == kColumnFragments * kKeySlices);

  // ---- products ----------------------------------------------------------------------------------------------------

  FARWARP_DEVICE Vec16 read(int offset) const {
    return farwarp::FARWARP_TARGET::load(
        Shared<const Vec16>(reinterpret_cast<const Vec16*>((block_.memory + offset).raw)));
  }
  /// [thread] Chunk `index` of the keys: 8 columns of each of 32 rows. And of the values: 8 keys of 32 columns.
  FARWARP_DEVICE Vec16 read_keys(int thread, int index) const {
    const MatrixIndex lane = mfma32_operand(thread, 0);
    return read(key_chunk_offset(lane.row, 2 * (index % kSlices) + lane.column / 8, Block::kKeyChunks) +
                index / kSlices * 32 * Block::kHeadDim * 2);
  }
  FARWARP_DEVICE Vec16 read_values(int index) const {
    const MatrixIndex lane = mfma32_operand(lane_index(), 0);
    const int fragment = index % kColumnFragments, slice = index / kColumnFragments;
    return read(Block::kValuesOffset + fragment * 32 * Block::kKeys * 2 +
                value_chunk_offset(lane.row, 2 * slice + lane.column / 8, Block::kValueChunks));
  }

  /// [warp] A product, chunk by chunk. `read(index)` reads a chunk, `multiply(index, chunk)` multiplies it,
  /// `beside(slot)` is other work: slot -1 while the first chunks arrive, then two slots with each chunk. The second
  /// chunk of two is used first, so that one wait is for both.
  template <class Read, class Multiply, class Beside>
  FARWARP_DEVICE void product(const Read& read, const Multiply& multiply, const Beside& beside) {
    Vec16 chunks[kAhead + 1];
#pragma unroll
    for (int i = 0; i < kAhead; ++i) chunks[i] = read(i);
    beside(std::integral_constant<int, -1>{});
    schedule_fence();
    unrolled<kChunks>([&](auto i) {
      constexpr int kNext = i + kAhead, kUsed = i ^ 1;
      multiply(std::integral_constant<int, kUsed>{}, chunks[kUsed % (kAhead + 1)]);
      if constexpr (kNext < kChunks) chunks[kNext % (kAhead + 1)] = read(kNext);
      beside(std::integral_constant<int, 2 * i>{});
      beside(std::integral_constant<int, 2 * i + 1>{});
      schedule_fence();
    });
  }

  /// [warp] scores = q * k^T. Outside of the hot loop places in LDS are computed again: kept for it, one of them was
  /// spilled.
  template <bool hot, class Beside>
  FARWARP_DEVICE void multiply_keys(const Beside& beside) {
    const int lane = hot ? lane_index() : recomputed(lane_index());
    product([&](int index) { return read_keys(lane, index); },
            [&](auto index, Vec16 keys) {
              constexpr int kFragment = index / kSlices, kSlice = index % kSlices;
              if constexpr (kSlice == 1) scores_[kFragment] = Mfma32Sums{};  // the second chunk comes first
              mfma32<T>(scores_[kFragment], keys, queries_[kSlice]);
            },
            beside);
  }

  /// [warp] out += probabilities * v, in the order of the keys, so that registers of probabilities become free.
  template <class Beside>
  FARWARP_DEVICE void multiply_values(const Beside& beside) {
    product([&](int index) { return read_values(index); },
            [&](auto index, Vec16 values) {
              constexpr int kSlice = index / kColumnFragments;
              mfma32<T>(out_[index % kColumnFragments], values,
                        Vec16{probabilities_[2 * kSlice], probabilities_[2 * kSlice + 1]});
            },
            beside);
  }

  // ---- softmax -----------------------------------------------------------------------------------------------------

  /// [thread] What the lane's query sees of a step.
  FARWARP_DEVICE Seen seen(const BlockWork& work, int step) const {
    const MatrixIndex lane = mfma32_sum(recomputed(lane_index()), 0);
    const int key = step * Block::kKeys + key_in_row(lane.row);
    const int query = work.row + first_query_of_wave() + lane.column;
    return {first_key_of(args_, work.sequence, query) - key, end_key_of(args_, work.sequence, query) - key};
  }
  /// [thread] Sets the scores of keys that a query does not see to minus infinity. The maximum begins again, without
  /// the last fragment.
  FARWARP_DEVICE void mask(const Seen& seen) {
#pragma unroll
    for (int fragment = 0; fragment < kKeyFragments; ++fragment) {
#pragma unroll
      for (int i = 0; i < 16; ++i) {
        const int key = key_in_row(32 * fragment + mfma32_sum(0, i).row);
        Mfma32Sums& sums = scores_[fragment];
        sums[i] = key < seen.first || key >= seen.end ? kNoScore : sums[i];
      }
    }
    softmax_.largest = kNoScore;
    add_scores(0, kKeyFragments - 1);
  }

  FARWARP_DEVICE void add_scores(int first, int end) {
#pragma unroll
    for (int fragment = first; fragment < end; ++fragment) softmax_.add_scores(scores_[fragment]);
  }
  FARWARP_DEVICE void raise() {
    softmax_.raise(args_.scale_log2);
    if constexpr (kSubtractsAlways) return;
    if (ballot(softmax_.base.is_large) != 0) [[unlikely]] {
#pragma unroll
      for (Mfma32Sums& sums : scores_) {
#pragma unroll
        for (int i = 0; i < 16; ++i) sums[i] = add(sums[i], -softmax_.base.score());
      }
    }
  }
  /// [thread] A part of piece `piece` of the softmax: four scores of a lane.
  template <int piece, int part>
  FARWARP_DEVICE void make_piece() {
    make_probabilities<T, part, kSubtractsAlways>(scores_[piece / 4], piece % 4 * 4, args_.scale_log2, softmax_,
                                                  next_[piece]);
  }
  FARWARP_DEVICE void take_probabilities() {
#pragma unroll
    for (int i = 0; i < kPieces; ++i) probabilities_[i] = next_[i];
  }
  /// [thread] Rescales what was summed before the last maximum: four of the lane's results.
  FARWARP_DEVICE void rescale(int unit) {
    Mfma32Sums& sums = out_[unit / 4];
    const float factor = softmax_.rescale;
#pragma unroll
    for (int i = unit % 4 * 4; i < unit % 4 * 4 + 4; i += 2) {
      const FloatPair pair = multiply(FloatPair{sums[i], sums[i + 1]}, FloatPair{factor, factor});
      sums[i] = pair.first;
      sums[i + 1] = pair.second;
    }
  }

  // ---- what is done beside the products -----------------------------------------------------------------------------

  static constexpr int kUnits = 4 * kColumnFragments;  ///< of rescale()

  /// Beside the scores of a step: older results are rescaled, the step's maxima begin, the values of step + 1 go into
  /// LDS.
  template <bool plain, int slot>
  FARWARP_DEVICE void beside_keys() {
    if constexpr ((slot + 1) % (kSlots / kUnits) == 0 && slot + 1 < kSlots) rescale((slot + 1) * kUnits / kSlots);
    // A fragment's scores are used two slots after their last product.
    constexpr int kDone = (slot - 1) / (2 * kSlices);
    if constexpr ((slot - 1) % (2 * kSlices) == 0 && kDone > 0) add_scores(kDone - 1, kDone);
    if constexpr (slot == 12) loader_.put_values();
    if constexpr (slot == 14) loader_.template load_values<plain>();
  }
  /// The piece of the softmax that begins in a slot, or -1.
  static constexpr int piece_at(int slot) {
    constexpr int kFirst = 6, kSlotsOfPieces = 24;
    for (int piece = 0; piece < kPieces; ++piece) {
      if (slot == kFirst + piece * kSlotsOfPieces / kPieces) return piece;
    }
    return -1;
  }
  /// Beside the results of step + 1: the step's scores become probabilities, the keys of step - 1 go into LDS.
  template <bool plain, int slot>
  FARWARP_DEVICE void beside_values() {
    if constexpr (slot == -1) softmax_.exchange();
    if constexpr (slot == 4) raise();
    unrolled<kProbabilityParts>([&](auto part) {
      constexpr int kPiece = piece_at(slot - part);
      if constexpr (kPiece >= 0) make_piece<kPiece, part>();
    });
    if constexpr (slot == 12) loader_.put_keys();
    if constexpr (slot == 14) loader_.template load_keys<plain>();
  }

  // ---- steps -------------------------------------------------------------------------------------------------------

  /// [block] A work's last step; its keys may end in it.
  FARWARP_DEVICE void first_step(const BlockWork& work, int step, int first) {
    loader_.template load_keys<false, true>();
    loader_.template load_values<false, true>();
    read_queries(args_, work, queries_);
    loader_.put_keys();
    if (step > first) loader_.template load_keys<false>();
    block_sync();
    multiply_keys<false>([](auto) {});
    block_sync();
    if (step > first) {
      loader_.put_keys();
      loader_.template load_keys<false>();
    }
    mask(seen(work, step));
    add_scores(kKeyFragments - 1, kKeyFragments);
    softmax_.exchange();
    raise();
    unrolled<kPieces * kProbabilityParts>([&](auto i) { make_piece<i / kProbabilityParts, i % kProbabilityParts>(); });
    take_probabilities();
  }

  /// [block] Another step. All rows of the block see all of its keys unless `masked`. `plain`: neither masks nor pages;
  /// the hot loop.
  template <bool plain>
  FARWARP_DEVICE void next_step(const BlockWork& work, int step, bool masked) {
    block_sync();
    schedule_fence();
    multiply_keys<plain>([&](auto slot) { beside_keys<plain, slot>(); });
    block_sync();
    schedule_fence();
    if constexpr (!plain) {
      if (masked) mask(seen(work, step));
    }
    add_scores(kKeyFragments - 1, kKeyFragments);
    multiply_values([&](auto slot) { beside_values<plain, slot>(); });
    take_probabilities();
  }

  /// [block] The results of a work's first step. `unseen`: its keys before the first that is seen.
  FARWARP_DEVICE void last_values(int unseen) {
    block_sync();
    loader_.clear_values(unseen);
    loader_.put_values();
    unrolled<kUnits>([&](auto unit) { rescale(unit); });
    block_sync();
    multiply_values([](auto) {});
  }

  FARWARP_DEVICE static int clamp(int value, int least, int most) {
    return value < least ? least : value > most ? most : value;
  }
  /// Whole steps before key `end`, which may be negative.
  FARWARP_DEVICE static int floor_steps(int end) { return end < 0 ? 0 : end / Block::kKeys; }

  const Args& args_;
  Loader<Block> loader_;
  const Block& block_;
  Vec16 queries_[kSlices];
  Mfma32Sums scores_[kKeyFragments];
  std::uint64_t probabilities_[kPieces], next_[kPieces];  // two are the lane's part of an operand
  Mfma32Sums out_[kColumnFragments];
  RowSoftmax softmax_;
};

/// [warp] The same work. All its fields are equal on all lanes; the compiler does not see that after a load.
FARWARP_DEVICE BlockWork uniform_work(const BlockWork& work) {
  const Sequence& rows = work.sequence;
  return {{uniform(work.place.batch), uniform(work.place.head), uniform(work.place.query_block)},
          {uniform(rows.query_batch), uniform(rows.first_query), uniform(rows.queries), uniform(rows.key_batch),
           uniform(rows.first_key), uniform(rows.keys)},
          uniform(work.row),
          uniform(work.kv_head),
          {uniform(work.keys.first), uniform(work.keys.end)}};
}

template <class T, int head_dim, int keys>
FARWARP_DEVICE void attention_mfma(const Args& args) {
  if (!begin_call(args.view, args.slot, 0).live) return;
  using B = MfmaBlock<T, head_dim, keys>;
  const B block{block_shared()};
  Attending<B> attending(args, block);
  BadInput bad;
  for (int number = block_index(); number < args.grid.works; number += num_blocks()) {
    const TraceStart start = trace_start();
    attending.attend(uniform_work(work_of(args, number, kMfmaQueries, bad)));
    trace_warp(start, TraceWork::kAttend, number);
    bad = {static_cast<Site>(uniform(static_cast<int>(bad.site))),
           static_cast<std::uint64_t>(uniform(static_cast<int>(bad.allowed))),
           static_cast<std::uint64_t>(std::int64_t{uniform(static_cast<int>(bad.found))})};
  }
  // All threads read the same sequences; a wave reads only its own pages.
  if (const int page = attending.bad_page(); page != 0)
    bad = {kSitePage, static_cast<std::uint64_t>(args.pages - 1), static_cast<std::uint64_t>(std::int64_t{page})};
  else if (warp_index() != 0)
    bad = {};
  std::uint32_t phase = 0;  // the cells are read again, because registers are short while the block works
  Call call = read_call(args.view, args.slot, phase);
  if (bad.site != kSites && lane_index() == 0)
    give_up(call, StatusCode::kBadInput, bad.site, -1, bad.allowed, bad.found);
  end_call(call, 0);
}

}  // namespace farwarp::FARWARP_TARGET::attention
