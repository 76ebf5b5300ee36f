// flash-decode on CDNA: persistent blocks of four waves. A wave takes 16 keys of every stage. It computes S^T = K * q^T
// and O^T += V^T * P^T with mfma: the S^T that a lane holds is the P^T that it has to give. Keys and values go from
// memory to registers.
#pragma once

#include "farwarp/ops/flash_decode/exchange.dev.h"
#include "farwarp/ops/flash_decode/loading_mfma.dev.h"
#include "farwarp/ops/flash_decode/merge.dev.h"

namespace farwarp::FARWARP_TARGET::decode {

/// What a lane holds: row lane % 16 of the item; element i of sums[j] is column column_of(i, j). The sum of
/// exponentials is that of the lane's own keys, until the waves are merged.
template <int dim>
struct WaveState {
  static constexpr int kColumns = dim / 16;
  Statistics of{kNone, 0};
  float sums[kColumns][4] = {};

  /// Row r of product j is column kColumns * r + j of V: the kColumns columns that one lane loads.
  FARWARP_DEVICE static int column_of(int i, int j) { return kColumns * mfma_sum(lane_index(), i).row + j; }
};

template <class T_, int dim, bool fp8>
struct WaveBlock {
  using T = T_;
  static constexpr DecodeMfmaShared kShared{dim};
  static constexpr int kDim = dim;
  static constexpr bool kFp8 = fp8;
  Shared<std::byte> memory;

  FARWARP_DEVICE Shared<Vec16> sums(int wave, int row, int column) const {
    return at<Vec16>(kShared.sums() + ((wave * kMfmaItemRows + row) * dim + column) * 4);
  }
  FARWARP_DEVICE Shared<std::uint64_t> statistics(int wave, int row) const {
    return at<std::uint64_t>(kShared.statistics() + (wave * kMfmaItemRows + row) * 8);
  }
  FARWARP_DEVICE Shared<std::uint32_t> refused() const { return at<std::uint32_t>(kShared.words()); }
  FARWARP_DEVICE Shared<std::uint32_t> last_word() const { return at<std::uint32_t>(kShared.words() + 4); }

  template <class Word>
  FARWARP_DEVICE Shared<Word> at(int offset) const {
    return Shared<Word>(reinterpret_cast<Word*>((memory + offset).raw));
  }
};

/// The rows of q as an operand: vector i of lane: elements 32 * i + 8 * (lane / 16) to + 7 of row lane % 16.
/// fp8: in the order of widen_fp8(), which the keys have, too.
template <class T, int dim, bool fp8>
FARWARP_DEVICE void load_queries(const Args& args, int item, Vec16 (&q)[dim / 32]) {
  const int row = lane_index() % 16, rows = rows_of(args, item);
  const Global<const T> from =
      Global<const T>(static_cast<const T*>(args.q)) + (row < rows ? place_of(args, item, row).row * args.head_dim : 0);
#pragma unroll
  for (int i = 0; i < dim / 32; ++i) {
    const int element = 32 * i + 8 * (lane_index() / 16);
    q[i] = row < rows && element < args.head_dim
               ? load(Global<const Vec16>(reinterpret_cast<const Vec16*>((from + element).raw)))
               : Vec16{0, 0};
    if constexpr (fp8) {
      for (std::uint64_t* const four : {&q[i].lo, &q[i].hi}) {
        const auto first = static_cast<std::uint32_t>(*four), second = static_cast<std::uint32_t>(*four >> 32);
        *four = pair_of(lower_halves(first, second), upper_halves(first, second));
      }
    }
  }
}

/// [warp] S^T of the wave's 16 keys: element i is key 4 * (lane / 16) + i, row lane % 16.
template <class Block>
FARWARP_DEVICE void multiply_keys(const Args& args, const Vec16 (&q)[Block::kDim / 32],
                                  const StageInTransit<Block::kDim, Block::kFp8>& stage, float (&scores)[4]) {
#pragma unroll
  for (int i = 0; i < Block::kDim / 32; ++i) {
    std::uint32_t k[4];
    widen<typename Block::T, Block::kFp8, 8>(stage.k[i], 32 * i + 8 * (lane_index() / 16) < args.head_dim, k);
    mfma<typename Block::T>(scores, Vec16{pair_of(k[0], k[1]), pair_of(k[2], k[3])}, q[i]);
  }
}

/// [warp] Scores -> exponentials, rounded as an operand; rescales what has been summed.
template <class T, int dim>
FARWARP_DEVICE std::uint64_t exponentiate(float (&scores)[4], float scale, WaveState<dim>& state) {
  float highest = kNone;
#pragma unroll
  for (int i = 0; i < 4; ++i) highest = maximum(highest, scores[i]);
#pragma unroll
  for (int lanes = 16; lanes < 64; lanes *= 2) highest = maximum(highest, shuffle_xor(highest, lanes));
  const float before = state.of.maximum;
  state.of.maximum = maximum(before, highest);
  const auto base = tile::ExponentBase::of(state.of.maximum, scale);
  const float shrink = exp2(base.exponent_of_highest(before, scale));
  state.of.sum = multiply(state.of.sum, shrink);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    scores[i] = exp2(base.exponent(scores[i], scale));
    state.of.sum = add(state.of.sum, scores[i]);
  }
#pragma unroll
  for (int j = 0; j < dim / 16; ++j) {
#pragma unroll
    for (int i = 0; i < 4; ++i) state.sums[j][i] = multiply(state.sums[j][i], shrink);
  }
  return static_cast<std::uint64_t>(round_pair<T>(scores[2], scores[3])) << 32 | round_pair<T>(scores[0], scores[1]);
}

/// [warp] O^T += V^T * P^T. Rows of V that no token sees count as zeros, as do columns that do not exist: memory may
/// hold NaN.
template <class Block>
FARWARP_DEVICE void multiply_values(const Args& args, const KeyPlaces& places, int key,
                                    const StageInTransit<Block::kDim, Block::kFp8>& stage, std::uint64_t p,
                                    WaveState<Block::kDim>& state) {
  using T = typename Block::T;
  constexpr int kColumns = Block::kDim / 16;
  std::uint32_t rows[4][kColumns / 2];
#pragma unroll
  for (int i = 0; i < 4; ++i)
    widen<T, Block::kFp8, kColumns>(
        stage.v[i], places.is_seen(key + 4 * (lane_index() / 16) + i) && kColumns * (lane_index() % 16) < args.head_dim,
        rows[i]);
#pragma unroll
  for (int j = 0; j < kColumns; j += 2) {
    const auto &a = rows[0][j / 2], &b = rows[1][j / 2], &c = rows[2][j / 2], &d = rows[3][j / 2];
    const int lower = Block::kFp8 ? j / 4 * 4 + j % 4 / 2 : j, upper = Block::kFp8 ? lower + 2 : j + 1;  // columns
    mfma<T>(state.sums[lower], pair_of(lower_halves(a, b), lower_halves(c, d)), p);
    mfma<T>(state.sums[upper], pair_of(upper_halves(a, b), upper_halves(c, d)), p);
  }
}

/// [warp] Records in the ledger, once for the block, a page index that is not allowed.
FARWARP_DEVICE void report_refused(Call& call, const Args& args, Shared<std::uint32_t> refused,
                                   const KeyPlaces& places) {
  if (!places.any_refused() || fetch_add(refused, 1u) != 0 || !call.live) return;
  give_up(call, StatusCode::kBadInput, kSitePage, -1, static_cast<std::uint64_t>(args.pages - 1),
          static_cast<std::uint64_t>(std::int64_t{places.refused()}));
}

/// [warp] The wave's keys of a work. While a stage is multiplied, the next one is on its way.
template <class Block>
FARWARP_DEVICE void attend(Call& call, const Args& args, const Block& block, const Work& work,
                           WaveState<Block::kDim>& state) {
  using T = typename Block::T;
  constexpr int kDim = Block::kDim;
  if (work.stages == 0) return;
  const int tokens = args.rule.query_tokens, window = args.rule.window;
  KeyPlaces places(args, work);
  auto even = load_stage<T, kDim, Block::kFp8>(args, places), odd = even;
  Vec16 q[kDim / 32];
  load_queries<T, kDim, Block::kFp8>(args, item_number(args, work), q);
  const float scale = of_keys(args, args.scale_log2, work.item);
  const int token = args.by_group.quotient(first_row_of(args, work.item) + lane_index() % 16);
  const int end = work.length - tokens + (token < tokens ? token : tokens - 1) + 1;
  const int first = window > 0 ? end - window : 0;
  const auto multiply_stage = [&](const auto& stage, auto& next) {
    const int key = places.key() - kStageKeys;
    // After the last stage it loads page 0, which is not used: around a branch the compiler would wait for all loads.
    next = load_stage<T, kDim, Block::kFp8>(args, places);
    schedule_fence();
    float scores[4] = {};
    multiply_keys<Block>(args, q, stage, scores);
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int at = key + mfma_sum(lane_index(), j).row;
      if (at < first || at >= end) scores[j] = kNone;
    }
    multiply_values<Block>(args, places, key, stage, exponentiate<T, kDim>(scores, scale, state), state);
  };
  // Stages have two places in turn: a stage in flight that moved to another register would have to arrive first.
  for (int left = work.stages;;) {
    multiply_stage(even, odd);
    if (--left == 0) break;
    multiply_stage(odd, even);
    if (--left == 0) break;
  }
  report_refused(call, args, block.refused(), places);
#pragma unroll
  for (int lanes = 16; lanes < 64; lanes *= 2) state.of.sum = add(state.of.sum, shuffle_xor(state.of.sum, lanes));
}

/// [block] The waves' sums -> those of the split, in the order of the waves: visit(row, column, statistics, four
/// columns).
template <class Block, int dim, class Visit>
FARWARP_DEVICE void merge_waves(const Block& block, int rows, float scale, const WaveState<dim>& state,
                                const Visit& visit) {
  const int row = lane_index() % 16, wave = warp_index();
#pragma unroll
  for (int i = 0; i < 4; ++i) {
#pragma unroll
    for (int j = 0; j < dim / 16; j += 4)
      store(block.sums(wave, row, state.column_of(i, j)),
            std::bit_cast<Vec16>(
                FourOf{{state.sums[j][i], state.sums[j + 1][i], state.sums[j + 2][i], state.sums[j + 3][i]}}));
  }
  if (lane_index() < 16) store(block.statistics(wave, row), std::bit_cast<std::uint64_t>(state.of));
  block_sync();
  for (int i = thread_index(); i < rows * (dim / 4); i += kMfmaThreads) {
    const int at = i / (dim / 4), column = i % (dim / 4) * 4;
    Statistics all[kMfmaWaves], total{kNone, 0};
#pragma unroll
    for (int w = 0; w < kMfmaWaves; ++w) {
      all[w] = std::bit_cast<Statistics>(load(block.statistics(w, at)));
      total.maximum = maximum(total.maximum, all[w].maximum);
    }
    FourOf four{};
#pragma unroll
    for (int w = 0; w < kMfmaWaves; ++w) {
      const auto part = std::bit_cast<FourOf>(load(block.sums(w, at, column)));
      const float weight = tile::weight_of(all[w].maximum, total.maximum, scale);
      total.sum = fused_multiply_add(all[w].sum, weight, total.sum);
#pragma unroll
      for (int j = 0; j < 4; ++j) four.value[j] = fused_multiply_add(part.value[j], weight, four.value[j]);
    }
    visit(at, column, total, four);
  }
  block_sync();  // the next work's sums overwrite these
}

template <class T, int dim, bool fp8>
FARWARP_DEVICE void flash_decode_mfma(const Args& args) {
  using Block = WaveBlock<T, dim, fp8>;
  const Block block{block_shared()};
  if (thread_index() == 0) store(block.refused(), 0u);
  WorkCursor cursor(args);
  Call call = join_call(args.view, args.slot);
  if (!call.live) return;
  if (block_index() == 0 && thread_index() == 0) claim_call(call);
  Work work;
  for (int number = block_index(); cursor.find(number, work); number += num_blocks()) {
    const int item = item_number(args, work), rows = rows_of(args, item);
    if (work.refused && work.item == 0 && work.number == 0 && thread_index() == 0)
      give_up(call, StatusCode::kBadInput, kSiteLength, -1, static_cast<std::uint64_t>(args.max_pages * args.page_size),
              static_cast<std::uint64_t>(std::int64_t{work.given}));
    WaveState<dim> state;
    attend(call, args, block, work, state);
    const bool direct = goes_to_out(args, work);
    const Partials partials(args, item, dim);
    merge_waves<Block, dim>(block, rows, of_keys(args, args.scale_log2, item), state,
                            [&](int row, int column, Statistics of, const FourOf& four) {
                              if (direct) {
                                store_result<T>(args, item, row, column, of, four);
                                return;
                              }
                              store(Global<Vec16>(reinterpret_cast<Vec16*>(partials.at(work.number, row, column).raw)),
                                    std::bit_cast<Vec16>(four));
                              if (column == 0)
                                store(partials.statistics_at(work.number, row), std::bit_cast<std::uint64_t>(of));
                            });
    if (direct) continue;
    drain_stores();
    block_sync();
    if (thread_index() == 0) store(block.last_word(), arrives_last(args, call, work, block.refused()) ? 1u : 0u);
    block_sync();  // the next work's word follows the barriers of merge_waves()
    if (load(block.last_word()) != 0)
      merge_item<T, dim>(args, call, CountedItem::of(args, work), warp_index(), kMfmaWaves);
  }
  if (args.exchange != Exchange::kNone) collect<T, dim>(call, args, warp_index(), kMfmaWaves);
  end_call(call, 0);
}

}  // namespace farwarp::FARWARP_TARGET::decode
