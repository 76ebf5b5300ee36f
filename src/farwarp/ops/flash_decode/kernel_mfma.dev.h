// flash-decode on CDNA: persistent blocks of four waves. A wave takes 16 keys of every stage. It computes S^T = K * q^T and O^T += V^T * P^T
// with mfma: the S^T that a lane holds is the P^T that it has to give. K goes from memory to registers, V through LDS, which transposes it.
#pragma once

#include "farwarp/base/fragments.h"
#include "farwarp/ops/flash_decode/exchange.dev.h"
#include "farwarp/ops/flash_decode/layout.h"
#include "farwarp/ops/flash_decode/merge.dev.h"

namespace farwarp::FARWARP_TARGET::decode {

/// What a lane holds: row lane % 16 of the item, its columns 16 * j + 4 * (lane / 16) to + 3. The sum of exponentials is that of the
/// lane's own keys, until the waves are merged.
template <int dim>
struct WaveState {
  Statistics of{kNone, 0};
  float sums[dim / 16][4] = {};
};

/// Eight numbers of the cache as eight of T.
template <class T, bool fp8>
FARWARP_DEVICE Vec16 load_eight(const void* base, std::int64_t element) {
  if constexpr (!fp8) {
    return load<Cache::streaming>(
        Global<const Vec16>(reinterpret_cast<const Vec16*>(static_cast<const T*>(base) + element)));
  } else {
    const auto eight = load<Cache::streaming>(Global<const std::uint64_t>(
        reinterpret_cast<const std::uint64_t*>(static_cast<const std::byte*>(base) + element)));
    float first[4], second[4];
    from_fp8(static_cast<std::uint32_t>(eight), first);
    from_fp8(static_cast<std::uint32_t>(eight >> 32), second);
    const std::uint64_t pairs[4] = {round_pair<T>(first[0], first[1]), round_pair<T>(first[2], first[3]),
                                    round_pair<T>(second[0], second[1]), round_pair<T>(second[2], second[3])};
    return {pairs[1] << 32 | pairs[0], pairs[3] << 32 | pairs[2]};
  }
}

template <class T_, int dim, bool fp8>
struct WaveBlock {
  using T = T_;
  static constexpr DecodeMfmaShared kShared{dim};
  static constexpr int kVectors = dim / 8;
  Shared<std::byte> memory;

  FARWARP_DEVICE Shared<std::byte> values() const { return memory + warp_index() * kShared.value_bytes(); }
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

/// [warp] The element of each operand's row where key `key` begins; less than 0: the key is not there, or its page is not allowed.
FARWARP_DEVICE std::int64_t find_key(Call& call, const Args& args, const Work& work, Shared<std::uint32_t> refused,
                                     int key, int first_seen) {
  if (key < first_seen || key >= work.length) return -1;
  const int page = load(Global<const std::int32_t>(args.block_table) +
                        (std::int64_t{work.sequence} * args.max_pages + key / args.page_size));
  if (page < 0 || page >= args.pages) {
    if (fetch_add(refused, 1u) == 0 && call.live)
      give_up(call, StatusCode::kBadInput, kSitePage, -1, static_cast<std::uint64_t>(args.pages - 1),
              static_cast<std::uint64_t>(std::int64_t{page}));
    return -1;
  }
  return page * args.page_pitch + key % args.page_size * args.row_pitch + kv_head_of(args, work.item) * args.head_pitch;
}

/// The rows of q as an operand: vector i of lane: elements 32 * i + 8 * (lane / 16) to + 7 of row lane % 16. Two mfma take it.
template <class T, int dim>
FARWARP_DEVICE void load_queries(const Args& args, int item, Vec16 (&q)[dim / 32]) {
  const int row = lane_index() % 16, rows = rows_of(args, item);
  const std::int64_t from = row < rows ? place_of(args, item, row).row * args.head_dim : 0;
#pragma unroll
  for (int i = 0; i < dim / 32; ++i) {
    const int element = 32 * i + 8 * (lane_index() / 16);
    q[i] = row < rows && element < args.head_dim ? load_eight<T, false>(args.q, from + element) : Vec16{0, 0};
  }
}

/// [warp] S^T of the wave's 16 keys: element i is key 4 * (lane / 16) + i, row lane % 16. `from`: find_key() of key lane % 16.
template <class T, int dim, bool fp8>
FARWARP_DEVICE void multiply_keys(const Args& args, const Vec16 (&q)[dim / 32], std::int64_t from, float (&scores)[4]) {
  Vec16 k[dim / 32];
#pragma unroll
  for (int i = 0; i < dim / 32; ++i) {
    const int element = 32 * i + 8 * (lane_index() / 16);
    k[i] = from >= 0 && element < args.head_dim ? load_eight<T, fp8>(args.k_pages, from + element) : Vec16{0, 0};
  }
#pragma unroll
  for (int i = 0; i < dim / 32; ++i) {
    mfma<T>(scores, k[i].lo, q[i].lo);
    mfma<T>(scores, k[i].hi, q[i].hi);
  }
}

/// [warp] The wave's 16 rows of V -> LDS. Rows that are not there become zero.
template <class Block, int dim, bool fp8>
FARWARP_DEVICE void load_values(const Args& args, const Block& block, std::int64_t from) {
  using T = typename Block::T;
  warp_sync();  // all lanes have read the rows before
#pragma unroll
  for (int i = 0; i < kMfmaKeys * Block::kVectors / Target::kWarpSize; ++i) {
    const int vector = i * Target::kWarpSize + lane_index();
    const int row = vector / Block::kVectors, element = vector % Block::kVectors * 8;
    const std::int64_t at = shuffle(from, row);
    const Vec16 eight =
        at >= 0 && element < args.head_dim ? load_eight<T, fp8>(args.v_pages, at + element) : Vec16{0, 0};
    store(Shared<Vec16>(
              reinterpret_cast<Vec16*>((block.values() + (row * Block::kShared.value_pitch() + element * 2)).raw)),
          eight);
  }
  warp_sync();
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
  state.of.maximum = maximum(before, multiply(highest, scale));
  const float base = state.of.maximum == kNone ? 0.0f : state.of.maximum;
  const float shrink = exp2(add(before, -base));
  state.of.sum = multiply(state.of.sum, shrink);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    scores[i] = exp2(fused_multiply_add(scores[i], scale, -base));
    state.of.sum = add(state.of.sum, scores[i]);
  }
#pragma unroll
  for (int j = 0; j < dim / 16; ++j) {
#pragma unroll
    for (int i = 0; i < 4; ++i) state.sums[j][i] = multiply(state.sums[j][i], shrink);
  }
  return static_cast<std::uint64_t>(round_pair<T>(scores[2], scores[3])) << 32 | round_pair<T>(scores[0], scores[1]);
}

/// [warp] O^T += V^T * P^T.
template <class Block, int dim>
FARWARP_DEVICE void multiply_values(const Block& block, std::uint64_t p, WaveState<dim>& state) {
#pragma unroll
  for (int j = 0; j < dim / 16; ++j) {
    std::uint64_t v = 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int row = 4 * (lane_index() / 16) + i, column = 16 * j + lane_index() % 16;
      const auto element = load(Shared<const std::uint16_t>(reinterpret_cast<const std::uint16_t*>(
          (block.values() + (row * Block::kShared.value_pitch() + column * 2)).raw)));
      v |= static_cast<std::uint64_t>(element) << (16 * i);
    }
    mfma<typename Block::T>(state.sums[j], v, p);
  }
}

/// [warp] The wave's keys of a work.
template <class Block, int dim, bool fp8>
FARWARP_DEVICE void attend(Call& call, const Args& args, const Block& block, const Work& work, WaveState<dim>& state) {
  using T = typename Block::T;
  const int item = item_number(args, work), tokens = args.rule.query_tokens, window = args.rule.window;
  Vec16 q[dim / 32];
  load_queries<T, dim>(args, item, q);
  float scale = args.scale_log2;
  if (args.k_scale != nullptr)
    scale = multiply(scale, load(Global<const float>(args.k_scale) + kv_head_of(args, work.item)));
  const int token = (work.item % args.row_blocks * args.block_rows + lane_index() % 16) / args.group;
  const int end = work.length - tokens + (token < tokens ? token : tokens - 1) + 1;
  const int first = window > 0 ? end - window : 0;
  const int first_seen = window > 0 ? work.length - tokens + 1 - window : 0;  // by any token
  for (int i = 0; i < work.stages; ++i) {
    const int key = (work.first + i) * kStageKeys + warp_index() * kMfmaKeys;
    const std::int64_t from = find_key(call, args, work, block.refused(), key + lane_index() % 16, first_seen);
    float scores[4] = {};
    multiply_keys<T, dim, fp8>(args, q, from, scores);
    load_values<Block, dim, fp8>(args, block, from);
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int at = key + 4 * (lane_index() / 16) + j;
      if (at < first || at >= end) scores[j] = kNone;
    }
    multiply_values<Block, dim>(block, exponentiate<T, dim>(scores, scale, state), state);
  }
#pragma unroll
  for (int lanes = 16; lanes < 64; lanes *= 2) state.of.sum = add(state.of.sum, shuffle_xor(state.of.sum, lanes));
}

/// [block] The waves' sums -> those of the split, in the order of the waves: visit(row, column, statistics, four columns).
template <class Block, int dim, class Visit>
FARWARP_DEVICE void merge_waves(const Block& block, int rows, const WaveState<dim>& state, const Visit& visit) {
  const int row = lane_index() % 16, wave = warp_index();
#pragma unroll
  for (int j = 0; j < dim / 16; ++j)
    store(block.sums(wave, row, 16 * j + 4 * (lane_index() / 16)),
          std::bit_cast<Vec16>(FourOf{{state.sums[j][0], state.sums[j][1], state.sums[j][2], state.sums[j][3]}}));
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
      const float weight = weight_of(all[w].maximum, total.maximum);
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
    if (work.refused && work.item == 0 && work.split == 0 && thread_index() == 0)
      give_up(call, StatusCode::kBadInput, kSiteLength, -1, static_cast<std::uint64_t>(args.max_pages * args.page_size),
              static_cast<std::uint64_t>(std::int64_t{work.given}));
    WaveState<dim> state;
    attend<Block, dim, fp8>(call, args, block, work, state);
    const bool direct = work.splits == 1 && args.exchange == Exchange::kNone;
    const Partials partials(args, item, dim);
    merge_waves<Block, dim>(block, rows, state, [&](int row, int column, Statistics of, const FourOf& four) {
      if (direct) {
        store_result<T>(args, item, row, column, of, four);
        return;
      }
      store(Global<Vec16>(reinterpret_cast<Vec16*>(partials.at(work.split, row, column).raw)),
            std::bit_cast<Vec16>(four));
      if (column == 0) store(partials.statistics_at(work.split, row), std::bit_cast<std::uint64_t>(of));
    });
    if (direct) continue;
    if (arrives_last(args, call, work, thread_index(), block.refused(), block.last_word(), [] { block_sync(); }))
      merge_item<T, dim>(args, call, work, partials, thread_index(), kMfmaThreads);
  }
  if (args.exchange != Exchange::kNone) collect<T, dim>(call, args, warp_index(), kMfmaWaves);
  end_call(call, 0);
}

}  // namespace farwarp::FARWARP_TARGET::decode
