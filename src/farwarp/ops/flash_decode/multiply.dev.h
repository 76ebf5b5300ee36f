// A multiplier: a warpgroup that takes every second stage of a split. For each stage it computes S^T = K * q^T (64 keys
// x rows), exp2 of the scaled difference from the running maximum, and adds V^T * P^T to its sums. P^T goes through
// shared memory.
#pragma once

#include "farwarp/ops/flash_decode/merge.dev.h"
#include "farwarp/ops/flash_decode/stage.dev.h"

namespace farwarp::FARWARP_TARGET::decode {

/// A thread's sums of one split or several. Row r of the thread is the item's row_of(first_element(r)).
template <class Block>
struct Sums {
  float maximum[Block::kThreadRows];  ///< running, of scores that are not scaled
  float sum[Block::kThreadRows];      ///< of exponentials: the thread's own keys until the split ends
  Fragment<Block> of[Block::kPanels];

  FARWARP_DEVICE void clear() {
#pragma unroll
    for (int row = 0; row < Block::kThreadRows; ++row) maximum[row] = kNone, sum[row] = 0;
#pragma unroll
    for (auto& panel : of) {
#pragma unroll
      for (float& value : panel) value = 0;
    }
  }
  /// As Merged::add_if().
  FARWARP_DEVICE void add(const Sums& other, float scale_log2) {
#pragma unroll
    for (int row = 0; row < Block::kThreadRows; ++row) {
      const Weights weights = weights_of(maximum[row], other.maximum[row], scale_log2);
      maximum[row] = weights.highest;
      sum[row] = add_weighted(sum[row], other.sum[row], weights);
#pragma unroll
      for (int i = first_element(row); i < first_element(row) + 4; i += 2) {
#pragma unroll
        for (int panel = 0; panel < Block::kPanels; ++panel)
          of[panel][i] = add_weighted(of[panel][i], other.of[panel][i], weights);
      }
    }
  }
  /// Of the thread's row `row`, in a fragment; the second element is two later.
  static constexpr FARWARP_DEVICE int first_element(int row) { return 4 * (row / 2) + row % 2; }
};

/// Keys of a work's sequence.
struct VisibleKeys {
  std::int32_t first_of_all, end_of_all;    ///< keys that some token sees
  std::int32_t first_of_each, end_of_each;  ///< keys that every token sees
};

FARWARP_DEVICE int end_for(const Args& args, const Work& work, int token) {
  return work.length - args.rule.query_tokens + token + 1;
}
FARWARP_DEVICE int first_for(const Args& args, const Work& work, int token) {
  const int first = end_for(args, work, token) - args.rule.window;
  return args.rule.window > 0 && first > 0 ? first : 0;
}
FARWARP_DEVICE VisibleKeys visible_keys(const Args& args, const Work& work) {
  const int last = args.rule.query_tokens - 1;
  return {first_for(args, work, 0), end_for(args, work, last), first_for(args, work, last), end_for(args, work, 0)};
}

/// [thread] Hides the keys that a row does not see. `key`: the stage's first.
template <class Block>
FARWARP_DEVICE void mask(const Args& args, const Work& work, int key, Fragment<Block>& scores) {
#pragma unroll
  for (int row = 0; row < Block::kThreadRows; ++row) {
    const int first = Sums<Block>::first_element(row), last = args.rule.query_tokens - 1;
    const int wanted = args.by_group.quotient(first_row_of(args, work.item) + row_of(first));
    const int token = wanted < last ? wanted : last;  // of a row that the item lacks: any
    const int begin = first_for(args, work, token), end = end_for(args, work, token);
#pragma unroll
    for (int i = first; i < first + 4; i += 2) {
      if (key + key_of(i) < begin || key + key_of(i) >= end) scores[i] = kNone;
    }
  }
}

/// [warpgroup] What all warps have of the thread's rows, combined in the order of the warps. `values`: the thread's
/// own. `memory` may be written again after a further barrier of the warpgroup.
template <class Block, class Combine>
FARWARP_DEVICE void combine_warps(Shared<float> memory, int multiplier, float (&values)[Block::kThreadRows],
                                  const Combine& combine) {
#pragma unroll
  for (int row = 0; row < Block::kThreadRows; ++row) {
#pragma unroll
    for (int lanes = 4; lanes < 32; lanes *= 2) values[row] = combine(values[row], shuffle_xor(values[row], lanes));
  }
#pragma unroll
  for (int row = 0; row < Block::kThreadRows; ++row) {
    const int place = row_of(Sums<Block>::first_element(row));
    if (lane_index() < 4) store(memory + (group_thread() / 32 * Block::kRows + place), values[row]);
  }
  group_sync(1 + multiplier, 128);
#pragma unroll
  for (int row = 0; row < Block::kThreadRows; ++row) {
    const int place = row_of(Sums<Block>::first_element(row));
    values[row] = load(memory + place);
#pragma unroll
    for (int warp = 1; warp < 4; ++warp)
      values[row] = combine(values[row], load(memory + (warp * Block::kRows + place)));
  }
}

/// [warpgroup] Scores -> P in shared memory; what has been summed shrinks. `scale`: from scores to units of log2.
template <class Block>
FARWARP_DEVICE void exponentiate(const Block& block, int multiplier, const Fragment<Block>& scores, float scale,
                                 Sums<Block>& sums) {
  float highest[Block::kThreadRows];
#pragma unroll
  for (int row = 0; row < Block::kThreadRows; ++row) {
    const int i = Sums<Block>::first_element(row);
    highest[row] = maximum(scores[i], scores[i + 2]);
  }
  combine_warps<Block>(block.maxima(multiplier), multiplier, highest, [](float a, float b) { return maximum(a, b); });
  const Shared<std::byte> p = block.probabilities(multiplier);
#pragma unroll
  for (int row = 0; row < Block::kThreadRows; ++row) {
    const float before = sums.maximum[row];
    sums.maximum[row] = maximum(before, highest[row]);
    const auto base = tile::ExponentBase::of(sums.maximum[row], scale);
    const float shrink = exp2(base.exponent_of_highest(before, scale));
    float sum = 0;
#pragma unroll
    for (int i = Sums<Block>::first_element(row); i < Sums<Block>::first_element(row) + 4; i += 2) {
      const float number = exp2(base.exponent(scores[i], scale));
      sum = add(sum, number);
      store(word_at<std::uint16_t>(p, swizzled_offset(row_of(i), 2 * key_of(i))),
            round_to<typename Block::T>(number).bits);
#pragma unroll
      for (int panel = 0; panel < Block::kPanels; ++panel) sums.of[panel][i] = multiply(sums.of[panel][i], shrink);
    }
    sums.sum[row] = fused_multiply_add(sums.sum[row], shrink, sum);
  }
  proxy_fence();
  group_sync(1 + multiplier, 128);
}

/// [warpgroup] One stage.
template <class Block>
FARWARP_DEVICE void multiply_stage(const Args& args, const Block& block, int multiplier, const Work& work,
                                   const VisibleKeys& keys, float scale, int key, int stage, Shared<std::byte> q,
                                   Sums<Block>& sums) {
  const SeenKeys seen{keys.first_of_all - key, keys.end_of_all - key,
                      key >= keys.first_of_all && key + kStageKeys <= keys.end_of_all};
  ValueFragments<Block> values;
  constexpr bool kEarly = Block::kThroughRegisters && Block::kRows < 64;  // else there are not enough registers
  if (!seen.all) clear_unseen(block, stage, seen, multiplier);
  Fragment<Block> scores;
  multiply_keys(args, block, stage, q, scores, [&] {
    if constexpr (kEarly) load_values(block, stage, values);
  });
  if (key < keys.first_of_each || key + kStageKeys > keys.end_of_each) mask<Block>(args, work, key, scores);
  exponentiate(block, multiplier, scores, scale, sums);
  if constexpr (Block::kThroughRegisters && !kEarly) load_values(block, stage, values);
  multiply_values(block, stage, block.probabilities(multiplier), values, sums.of);
  if constexpr (!Block::kThroughRegisters) {
    if (lane_index() == 0) mbarrier_arrive(block.empty(stage));
  }
}

/// [warpgroup] The stages of a split that are this multiplier's: every second of the `stages` from `first` on.
template <class Block>
FARWARP_DEVICE void multiply_split(const Args& args, const Block& block, BlockWaits& waits, int multiplier,
                                   const Work& work, const VisibleKeys& keys, float scale, int first, int stages,
                                   Turn<Block::kRing>& turn, Shared<std::byte> q, Sums<Block>& sums) {
  for (int i = multiplier; i < stages; i += kMultipliers, ++turn.count) {
    const int stage = Block::stage_at(turn, multiplier);
    wait_mbarrier(waits, args.view, block.full(stage), turn.parity());
    multiply_stage(args, block, multiplier, work, keys, scale, (first + i) * kStageKeys, stage, q, sums);
  }
  if (stages > multiplier)
    combine_warps<Block>(block.sums(multiplier), multiplier, sums.sum, [](float a, float b) { return add(a, b); });
}

/// Number of a work's splits that both multipliers have had stages of: positions of handed_full() and handed_empty().
using Handed = Turn<1>;

/// [warpgroup] Multiplier 1: gives its sums of a split to multiplier 0.
template <class Block>
FARWARP_DEVICE void hand_over(const Args& args, const Block& block, BlockWaits& waits, Handed& handed,
                              const Sums<Block>& sums) {
  wait_mbarrier(waits, args.view, block.handed_empty(), handed.parity() ^ 1);
#pragma unroll
  for (int panel = 0; panel < Block::kPanels; ++panel) {
#pragma unroll
    for (int i = 0; i < Block::kElements; ++i) store(block.handed(panel, i), sums.of[panel][i]);
  }
#pragma unroll
  for (int row = 0; row < Block::kThreadRows; ++row) {
    if (group_thread() < 4)
      store(block.handed_statistics(row_of(Sums<Block>::first_element(row))),
            std::bit_cast<std::uint64_t>(Statistics{sums.maximum[row], sums.sum[row]}));
  }
  if (waits.expired) fetch_add(block.refused(), 1u);  // what has been computed is no result
  mbarrier_arrive(block.handed_full());
  ++handed.count;
}

/// [warpgroup] Multiplier 0: adds those of multiplier 1 to its own.
template <class Block>
FARWARP_DEVICE void take_over(const Args& args, const Block& block, BlockWaits& waits, Handed& handed, float scale,
                              Sums<Block>& sums) {
  wait_mbarrier(waits, args.view, block.handed_full(), handed.parity());
  Sums<Block> other;
#pragma unroll
  for (int panel = 0; panel < Block::kPanels; ++panel) {
#pragma unroll
    for (int i = 0; i < Block::kElements; ++i) other.of[panel][i] = load(block.handed(panel, i));
  }
#pragma unroll
  for (int row = 0; row < Block::kThreadRows; ++row) {
    const auto of = std::bit_cast<Statistics>(load(block.handed_statistics(row_of(Sums<Block>::first_element(row)))));
    other.maximum[row] = of.maximum;
    other.sum[row] = of.sum;
  }
  sums.add(other, scale);
  mbarrier_arrive(block.handed_empty());
  ++handed.count;
}

/// [warpgroup] A work, split by split. Multiplier 0 has the work's sums in the end. If a work has several splits, they
/// are added in groups, and then the groups, as merge_partials() does.
template <class Block>
FARWARP_DEVICE void multiply_work(const Args& args, const Block& block, BlockWaits& waits, int multiplier,
                                  const Work& work, Turn<Block::kRing>& turn, Handed& handed, Shared<std::byte> q,
                                  Sums<Block>& sums) {
  constexpr bool kSeveral = Block::kRows <= kGroupRows;
  const VisibleKeys keys = visible_keys(args, work);
  const float scale = of_keys(args, args.scale_log2, work.item);
  std::conditional_t<kSeveral, Sums<Block>, int> group{}, total{};
  if constexpr (kSeveral) group.clear(), total.clear();
  for (int begin = 0, split = 1;; begin += work.chunk, ++split) {
    const int rest = work.stages - begin, stages = rest < work.chunk ? rest : work.chunk;
    sums.clear();
    multiply_split(args, block, waits, multiplier, work, keys, scale, work.first + begin, stages, turn, q, sums);
    if (stages > 1 && multiplier == 1) hand_over(args, block, waits, handed, sums);
    if (stages > 1 && multiplier == 0) take_over(args, block, waits, handed, scale, sums);
    if constexpr (!kSeveral) {
      return;
    } else {
      const bool last = rest <= work.chunk;
      if (last && split == 1) return;  // to add it to empty sums would change no bit of what is merged
      group.add(sums, scale);
      if (split % kGroupSplits == 0 || last) {
        total.add(group, scale);
        group.clear();
      }
      if (!last) continue;
      sums = total;
      return;
    }
  }
}

}  // namespace farwarp::FARWARP_TARGET::decode
