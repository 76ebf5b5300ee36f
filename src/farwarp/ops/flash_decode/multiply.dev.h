// A multiplier: a warpgroup that takes every second stage of a split. For each stage it computes S = q * K^T (64 rows x 64 keys), exp2 of
// the scaled difference from the running maximum, and adds P * V to its sums. P stays in registers.
#pragma once

#include "farwarp/base/fragments.h"
#include "farwarp/ops/flash_decode/block.dev.h"
#include "farwarp/ops/flash_decode/merge.dev.h"

namespace farwarp::FARWARP_TARGET::decode {

/// What a thread knows of its two rows (lane / 4, and 8 rows below) of its warp's 16: the running maximum in units of log2, and the sum of
/// its own columns' exponentials.
struct RowState {
  float maximum[2] = {kNone, kNone};
  float sum[2] = {0, 0};
};

/// A thread's sums of one split or several.
template <class Block>
struct Sums {
  RowState state;
  float of[Block::kSums] = {};
};

/// The sums of a group's earlier splits. Each thread keeps its own in shared memory; only those of an item's 16 rows at most, the first warp's.
template <class Block>
struct GroupSums {
  Shared<Vec16> memory;  ///< vector i of lane: [i][lane]
  RowState state;

  FARWARP_DEVICE static bool has_rows() { return thread_index() % 128 < Target::kWarpSize; }
  FARWARP_DEVICE void put(const Sums<Block>& sums) {
    state = sums.state;
    if (!has_rows()) return;
#pragma unroll
    for (int i = 0; i < Block::kSums / 4; ++i)
      store(memory + (i * Target::kWarpSize + lane_index()),
            std::bit_cast<Vec16>(FourOf{{sums.of[4 * i], sums.of[4 * i + 1], sums.of[4 * i + 2], sums.of[4 * i + 3]}}));
  }
  /// sums = these + sums, as Merged::add_if().
  FARWARP_DEVICE void add_to(Sums<Block>& sums) const {
    Weights weights[2];
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      weights[row] = weights_of(state.maximum[row], sums.state.maximum[row]);
      sums.state.maximum[row] = weights[row].highest;
      sums.state.sum[row] = add_weighted(state.sum[row], sums.state.sum[row], weights[row]);
    }
    if (!has_rows()) return;
#pragma unroll
    for (int i = 0; i < Block::kSums; ++i) {
      const auto four = std::bit_cast<FourOf>(load(memory + (i / 4 * Target::kWarpSize + lane_index())));
      sums.of[i] = add_weighted(four.value[i % 4], sums.of[i], weights[i / 2 % 2]);
    }
  }
};

/// The keys that the thread's rows see.
struct VisibleKeys {
  std::int32_t first[2], end[2];
  std::int32_t first_of_all, end_of_all;    ///< keys that some token sees
  std::int32_t first_of_each, end_of_each;  ///< keys that every token sees
};

FARWARP_DEVICE VisibleKeys visible_keys(const Args& args, const Work& work) {
  const int tokens = args.rule.query_tokens, window = args.rule.window;
  const auto end_for = [&](int token) { return work.length - tokens + token + 1; };
  const auto first_for = [&](int token) {
    const int first = end_for(token) - window;
    return window > 0 && first > 0 ? first : 0;
  };
  VisibleKeys keys;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int row = first_row_of(args, work.item) + thread_index() % 128 / 32 * 16 + lane_index() / 4 + 8 * i;
    const int wanted = args.by_group.quotient(row), token = wanted < tokens ? wanted : tokens - 1;
    keys.first[i] = first_for(token);
    keys.end[i] = end_for(token);
  }
  keys.first_of_all = first_for(0);
  keys.end_of_all = end_for(tokens - 1);
  keys.first_of_each = first_for(tokens - 1);
  keys.end_of_each = end_for(0);
  return keys;
}

/// [warpgroup] Sets the rows of V that no token sees to zero: P is zero there, but memory may hold NaN.
template <class Block>
FARWARP_DEVICE void clear_unseen(Shared<std::byte> v, int key, const VisibleKeys& keys, int multiplier) {
  constexpr int kVectors = Block::kDim / 8;
  for (int i = thread_index() % 128; i < kStageKeys * kVectors; i += 128) {
    const int row = i / kVectors;
    if (key + row < keys.first_of_all || key + row >= keys.end_of_all)
      store(vector_of(v, row, i % kVectors), Vec16{0, 0});
  }
  proxy_fence();
  group_sync(1 + multiplier, 128);
}

/// Sixteen fp8 numbers -> two vectors of T, exactly.
template <class T>
FARWARP_DEVICE void widen(Vec16 sixteen, Vec16 (&wide)[2]) {
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const std::uint64_t eight = i == 0 ? sixteen.lo : sixteen.hi;
    float first[4], second[4];
    from_fp8(static_cast<std::uint32_t>(eight), first);
    from_fp8(static_cast<std::uint32_t>(eight >> 32), second);
    const std::uint64_t pairs[4] = {round_pair<T>(first[0], first[1]), round_pair<T>(first[2], first[3]),
                                    round_pair<T>(second[0], second[1]), round_pair<T>(second[2], second[3])};
    wide[i] = {pairs[1] << 32 | pairs[0], pairs[3] << 32 | pairs[2]};
  }
}

/// [warpgroup] A stage as it was loaded, rows one after the other, -> as the matrix unit reads it. Rows that no token sees and columns that
/// do not exist become zero; memory may hold anything there.
template <class Block>
FARWARP_DEVICE void convert(const Args& args, Shared<std::byte> loaded, Shared<std::byte> ready, int key,
                            const VisibleKeys& keys, int multiplier) {
  constexpr int kNumbers = Block::kFp8 ? 16 : 8;  // in a vector as it was loaded
  constexpr int kVectors = Block::kDim / kNumbers;
  group_sync(1 + multiplier, 128);  // the warpgroup's instructions have read what the buffer held before
  const Shared<const Vec16> from(reinterpret_cast<const Vec16*>(loaded.raw));
#pragma unroll 4
  for (int i = thread_index() % 128; i < 2 * kStageKeys * kVectors; i += 128) {
    const int row = i / kVectors % kStageKeys, vector = i % kVectors;
    const Shared<std::byte> to = ready + i / (kVectors * kStageKeys) * (Block::kShared.ready_bytes() / 2);
    const bool seen =
        key + row >= keys.first_of_all && key + row < keys.end_of_all && vector * kNumbers < args.head_dim;
    const Vec16 numbers = seen ? load(from + i) : Vec16{0, 0};
    if constexpr (Block::kFp8) {
      Vec16 wide[2];
      widen<typename Block::T>(numbers, wide);
      store(vector_of(to, row, 2 * vector), wide[0]);
      store(vector_of(to, row, 2 * vector + 1), wide[1]);
    } else {
      store(vector_of(to, row, vector), numbers);
    }
  }
  proxy_fence();
  group_sync(1 + multiplier, 128);
}

/// [warpgroup] S of a stage, for the 64 rows of q.
template <class Block>
FARWARP_DEVICE void multiply_keys(Shared<std::byte> q, Shared<std::byte> k, float (&scores)[kStageKeys / 2]) {
  wgmma_fence();
#pragma unroll
  for (int step = 0; step < Block::kDim; step += 16) {
    const int panel = step / 64 * kPanelBytes;
    wgmma<typename Block::T, kStageKeys>(scores, q + panel, k + panel, step % 64, step > 0);
  }
  wgmma_commit();
  wgmma_wait_all(scores);
}

/// [warp] Hides the keys that a row does not see.
FARWARP_DEVICE void mask(float (&scores)[kStageKeys / 2], int key, const VisibleKeys& keys) {
#pragma unroll
  for (int i = 0; i < kStageKeys / 2; ++i) {
    const int row = i / 2 % 2, at = key + 8 * (i / 4) + 2 * (lane_index() % 4) + i % 2;
    if (at < keys.first[row] || at >= keys.end[row]) scores[i] = kNone;
  }
}

/// P as the matrix unit takes it from registers: words of two numbers, of 16 keys at a time.
using Probabilities = std::uint32_t[kStageKeys / 16][4];

/// [warp] Scores -> exponentials; what has been summed shrinks. `scale`: from scores to units of log2.
template <class Block>
FARWARP_DEVICE void exponentiate(float (&scores)[kStageKeys / 2], float scale, RowState& state,
                                 float (&sums)[Block::kSums], Probabilities& p) {
#pragma unroll
  for (int row = 0; row < 2; ++row) {
    float highest = kNone;
#pragma unroll
    for (int i = 2 * row; i < kStageKeys / 2; i += 4) highest = maximum(highest, maximum(scores[i], scores[i + 1]));
#pragma unroll
    for (int lanes = 1; lanes < 4; lanes *= 2) highest = maximum(highest, shuffle_xor(highest, lanes));
    const float before = state.maximum[row];
    state.maximum[row] = maximum(before, multiply(highest, scale));
    // While a row has seen nothing, its maximum is minus infinity, and the difference from it would be a NaN.
    const float base = state.maximum[row] == kNone ? 0.0f : state.maximum[row];
    const float shrink = exp2(add(before, -base));
    float sum = 0;
#pragma unroll
    for (int i = 2 * row; i < kStageKeys / 2; i += 4) {
      const float first = exp2(fused_multiply_add(scores[i], scale, -base));
      const float second = exp2(fused_multiply_add(scores[i + 1], scale, -base));
      sum = add(sum, add(first, second));
      p[i / 8][i / 2 % 4] = round_pair<typename Block::T>(first, second);
    }
    state.sum[row] = fused_multiply_add(state.sum[row], shrink, sum);
#pragma unroll
    for (int i = 2 * row; i < Block::kSums; i += 4) {
      sums[i] = multiply(sums[i], shrink);
      sums[i + 1] = multiply(sums[i + 1], shrink);
    }
  }
}

/// [warpgroup] sums = sums + P * V.
template <class Block>
FARWARP_DEVICE void multiply_values(const Probabilities& p, Shared<std::byte> v, float (&sums)[Block::kSums]) {
  wgmma_fence();
#pragma unroll
  for (int step = 0; step < kStageKeys / 16; ++step)
    wgmma_rs<typename Block::T, Block::kDim>(sums, p[step], v, kPanelBytes, 16 * step, true);
  wgmma_commit();
  wgmma_wait_all(sums);
}

/// [warpgroup] The stages of a split that are this multiplier's: every second one of the `stages` from `first` on.
template <class Block>
FARWARP_DEVICE void multiply_split(const Args& args, const Block& block, BlockWaits& waits, int multiplier,
                                   const VisibleKeys& keys, float scale, int first, int stages,
                                   Turn<Block::kRing>& turn, Shared<std::byte> q, Sums<Block>& sums) {
  for (int i = multiplier; i < stages; i += kMultipliers, ++turn.count) {
    const int key = (first + i) * kStageKeys, stage = stage_at(turn, multiplier);
    wait_mbarrier(waits, args.view, block.full(stage), turn.parity());
    constexpr bool kConverts = Block::kShared.converts();
    const Shared<std::byte> k = kConverts ? block.ready(multiplier) : block.stage(stage);
    const Shared<std::byte> v = k + Block::kShared.ready_bytes() / 2;
    if constexpr (kConverts) {
      convert<Block>(args, block.stage(stage), k, key, keys, multiplier);
      if (lane_index() == 0) mbarrier_arrive(block.empty(stage));
    } else if (key < keys.first_of_all || key + kStageKeys > keys.end_of_all) {
      clear_unseen<Block>(v, key, keys, multiplier);
    }
    float scores[kStageKeys / 2];
    multiply_keys<Block>(q, k, scores);
    if (key < keys.first_of_each || key + kStageKeys > keys.end_of_each) mask(scores, key, keys);
    Probabilities p;
    exponentiate<Block>(scores, scale, sums.state, sums.of, p);
    multiply_values<Block>(p, v, sums.of);
    if constexpr (!kConverts) {
      if (lane_index() == 0) mbarrier_arrive(block.empty(stage));
    }
  }
#pragma unroll
  for (int row = 0; row < 2; ++row) {
#pragma unroll
    for (int lanes = 1; lanes < 4; lanes *= 2)
      sums.state.sum[row] = add(sums.state.sum[row], shuffle_xor(sums.state.sum[row], lanes));
  }
}

/// [warpgroup] A work: split by split, which are added in order.
template <class Block>
FARWARP_DEVICE void multiply_work(const Args& args, const Block& block, BlockWaits& waits, int multiplier,
                                  const Work& work, Turn<Block::kRing>& turn, Shared<std::byte> q, Sums<Block>& sums) {
  const VisibleKeys keys = visible_keys(args, work);
  float scale = args.scale_log2;
  if (args.k_scale != nullptr)
    scale = multiply(scale, load(Global<const float>(args.k_scale) + kv_head_of(args, work.item)));
  GroupSums<Block> group{block.group(multiplier), {}};
  for (int begin = 0;; begin += work.chunk) {
    const int rest = work.stages - begin, stages = rest < work.chunk ? rest : work.chunk;
    sums = {};
    multiply_split(args, block, waits, multiplier, keys, scale, work.first + begin, stages, turn, q, sums);
    if (begin > 0) group.add_to(sums);
    if (rest <= work.chunk) break;
    group.put(sums);
  }
}

}  // namespace farwarp::FARWARP_TARGET::decode
