// attention on Hopper: persistent blocks of a warpgroup that loads and two or three that attend, 64 queries each. Jay
// Shah et al., "FlashAttention-3" (arXiv 2407.08608): they take turns to issue their products, so that one multiplies
// while another computes its softmax; and a warpgroup issues the scores of a step before the values of the step before.
#pragma once

#include "farwarp/ops/attention/args.h"
#include "farwarp/ops/attention/block_wgmma.dev.h"
#include "farwarp/ops/attention/loader_wgmma.dev.h"
#include "farwarp/ops/attention/sequence.dev.h"
#include "farwarp/ops/attention/softmax.dev.h"
#include "farwarp/ops/attention/store.dev.h"

namespace farwarp::FARWARP_TARGET::attention {

/// Registers of a thread with `warpgroups` that attend.
template <int warpgroups>
struct Registers {
  static constexpr int kLaunched = 65536 / wgmma_threads(warpgroups) / 8 * 8;
  static constexpr int kLoader = warpgroups == 2 ? 40 : 32, kAttending = warpgroups == 2 ? 232 : 160;
  // All warps together may not have more than the block was launched with, or raise_registers() waits for ever.
  static_assert(kLoader + warpgroups * kAttending <= (1 + warpgroups) * kLaunched);
};

// Numbers of group_sync(). Barrier kTurn + w: warpgroup w may issue its products.
inline constexpr int kMostWarpgroups = 3;
inline constexpr int kTurn = 1, kValuesCleared = kTurn + kMostWarpgroups;

/// The attending warpgroup number `warpgroup`, from 0. It and ring positions of wgmma's operands are uniform(): ptxas
/// then computes descriptors in uniform registers, which takes 50 instructions less in a step.
template <class Block, bool capped, class WaitBarrier>
class Attending {
 public:
  using T = typename Block::Element;

  FARWARP_DEVICE Attending(const Args& args, const Block& block, int warpgroup, const WaitBarrier& wait)
      : args_(args), block_(block), warpgroup_(warpgroup), wait_(wait) {}

  /// [warpgroup] All works of the block.
  FARWARP_DEVICE void run() {
    if (warpgroup_ == Block::kWarpgroups - 1) group_arrive(kTurn, 256);
    for (;; advance(q_at_)) {
      if (!wait_(block_.q_ring().full(q_at_.stage), q_at_.parity)) break;
      const int number = uniform(load(block_.number(q_at_.stage)));
      if (number < 0) break;
      BadInput bad;
      const TraceStart start = trace_start();
      attend(work_of(args_, number, Block::kQueries, bad));
      trace_warp(start, TraceWork::kAttend, number);
    }
    if (warpgroup_ == 0) group_sync(kTurn, 256);  // the last arrival of the last warpgroup
  }

 private:
  template <class AnyPosition>
  FARWARP_DEVICE static void advance(AnyPosition& position) {
    position.advance();
    position.stage = uniform(position.stage);
  }
  FARWARP_DEVICE void take_turn() const { group_sync(kTurn + warpgroup_, 256); }
  FARWARP_DEVICE void give_turn() const {
    group_arrive(kTurn + (warpgroup_ + 1 == Block::kWarpgroups ? 0 : warpgroup_ + 1), 256);
  }
  FARWARP_DEVICE void give_back(Shared<Mbarrier> empty) const {
    if (lane_index() == 0) mbarrier_arrive(empty);
  }

  /// [warpgroup] scores = q * k^T of the step in the next stage of keys.
  FARWARP_DEVICE void multiply_keys() {
    wait_(block_.k_ring().full(k_at_.stage), k_at_.parity);
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < Block::kHeadDim; k += 16)
      wgmma<T, Block::kKeys>(scores_, block_.q(q_at_.stage, k / 64, warpgroup_), block_.k(k_at_.stage, k / 64), k % 64,
                             k > 0);
    wgmma_commit();
  }
  /// [warpgroup] out += probabilities * v of the step in the next stage of values.
  FARWARP_DEVICE void multiply_values() {
    wait_(block_.v_ring().full(v_at_.stage), v_at_.parity);
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < Block::kKeys / 16; ++i)
      wgmma_rs<T, Block::kHeadDim>(out_, probabilities_[i], block_.v(v_at_.stage), Block::kPanelBytes, 16 * i, true);
    wgmma_commit();
  }
  FARWARP_DEVICE void keys_read() {
    give_back(block_.k_ring().empty(k_at_.stage));
    advance(k_at_);
  }
  FARWARP_DEVICE void values_read() {
    give_back(block_.v_ring().empty(v_at_.stage));
    advance(v_at_);
  }

  /// [warpgroup] What a thread's rows see of a step.
  FARWARP_DEVICE Visible visible(const BlockWork& work, int step) const {
    const MatrixIndex at = wgmma_sum(thread_index() % 128, 0);
    const int column = step * Block::kKeys + at.column;
    Visible visible;
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      const int query = work.row + 64 * warpgroup_ + at.row + 8 * row;
      visible.first[row] = first_key_of(args_, work.sequence, query) - column;
      visible.end[row] = end_key_of(args_, work.sequence, query) - column;
    }
    return visible;
  }

  /// [warpgroup] Steps end - 1 down to `first` of a work, from its second on. Their rows see all of their keys unless
  /// `masked`.
  template <bool masked>
  FARWARP_DEVICE void steps(const BlockWork& work, int first, int end, Softmax& softmax) {
    for (int step = end - 1; step >= first; --step) {
      take_turn();
      multiply_keys();
      multiply_values();
      give_turn();
      wgmma_wait_sums<1>(scores_);
      keys_read();
      if constexpr (capped) cap_scores(args_.cap_log2, scores_);
      if constexpr (masked) mask_scores(visible(work, step), scores_);
      wgmma_wait_sums<0>(out_);
      values_read();
      softmax.template step<T>(scores_, probabilities_, out_);
    }
  }

  /// [warpgroup] The first step of a work, whose keys may end in it.
  FARWARP_DEVICE void first_step(const BlockWork& work, int step, Softmax& softmax) {
    take_turn();
    multiply_keys();
    give_turn();
    wgmma_wait_sums<0>(scores_);
    keys_read();
    clear_values(work, step);
    if constexpr (capped) cap_scores(args_.cap_log2, scores_);
    mask_scores(visible(work, step), scores_);
#pragma unroll
    for (int i = 0; i < Block::kHeadDim / 2; ++i) out_[i] = 0;
    softmax.template first_step<T>(scores_, probabilities_, out_);
  }

  /// [warpgroup] Rows of values after the sequence's end, or before the keys that its queries see, may hold anything,
  /// and a NaN times the probability 0 is a NaN. They become zeros, unless the copy has already made them so.
  FARWARP_DEVICE void clear_values(const BlockWork& work, int step) {
    const int end = work.sequence.keys - step * Block::kKeys;
    const bool may_hold_others = args_.key_starts != nullptr || args_.key_counts != nullptr;
    if (may_hold_others && end < Block::kKeys) clear_rows(end, Block::kKeys);
  }
  FARWARP_DEVICE void clear_unseen_values(const BlockWork& work, int step) {
    const int first = first_key_of(args_, work.sequence, 0) - step * Block::kKeys;
    if (first > 0) clear_rows(0, first);
  }
  /// [warpgroup] Of the next stage of values.
  FARWARP_DEVICE void clear_rows(int first, int end) {
    wait_(block_.v_ring().full(v_at_.stage), v_at_.parity);
    const int vectors = (end - first) * 8;  // of a panel
    for (int i = thread_index() - 128; i < vectors * Block::kPanels; i += Block::kAttendingThreads) {
      const int panel = i / vectors, vector = i % vectors;
      const Shared<std::byte> at = block_.v(v_at_.stage, panel) + (first * 128 + vector * 16);
      store(Shared<Vec16>(reinterpret_cast<Vec16*>(at.raw)), Vec16{0, 0});
    }
    proxy_fence();
    group_sync(kValuesCleared, Block::kAttendingThreads);
  }

  FARWARP_DEVICE void attend(const BlockWork& work) {
    Softmax softmax{args_.scale_log2};
    if (work.keys.end <= work.keys.first) {
      give_back(block_.q_ring().empty(q_at_.stage));
      return store_empty(work, softmax);
    }
    const int row = work.row + 64 * warpgroup_;
    const int first = work.keys.first / Block::kKeys, end = (work.keys.end + Block::kKeys - 1) / Block::kKeys;
    // Steps from `whole_first` to `whole_end` - 1 are seen by all rows of the warpgroup.
    const int whole_first =
        clamp((first_key_of(args_, work.sequence, row + 63) + Block::kKeys - 1) / Block::kKeys, first, end - 1);
    const int whole_end = clamp(floor_steps(end_key_of(args_, work.sequence, row)), whole_first, end - 1);
    first_step(work, end - 1, softmax);
    steps<true>(work, whole_end, end - 1, softmax);
    steps<false>(work, whole_first, whole_end, softmax);
    steps<true>(work, first, whole_first, softmax);
    give_back(block_.q_ring().empty(q_at_.stage));
    clear_unseen_values(work, first);
    multiply_values();
    float factor[2], logarithm[2];
    softmax.finish(sink_of(work), args_.scale, factor, logarithm);
    wgmma_wait_sums<0>(out_);
    values_read();
#pragma unroll
    for (int i = 0; i < Block::kHeadDim / 2; ++i) out_[i] = multiply(out_[i], factor[row_of_sum(i)]);
    store_rows<T>(args_, work, 64 * warpgroup_, out_, logarithm);
  }

  /// [warpgroup] The results of queries that see no key.
  FARWARP_DEVICE void store_empty(const BlockWork& work, const Softmax& softmax) const {
    float factor[2], logarithm[2];
    softmax.finish(sink_of(work), args_.scale, factor, logarithm);
    const float zeros[Block::kHeadDim / 2] = {};
    store_rows<T>(args_, work, 64 * warpgroup_, zeros, logarithm);
  }

  FARWARP_DEVICE static int clamp(int value, int least, int most) {
    return value < least ? least : value > most ? most : value;
  }
  /// Whole steps before key `end`, which may be negative.
  FARWARP_DEVICE static int floor_steps(int end) { return end < 0 ? 0 : end / Block::kKeys; }
  FARWARP_DEVICE float sink_of(const BlockWork& work) const {
    if (args_.sinks == nullptr) return kNoScore;
    return load(Global<const float>(args_.sinks + work.place.head));
  }

  const Args& args_;
  const Block& block_;
  int warpgroup_;
  const WaitBarrier& wait_;
  typename Block::QPosition q_at_;
  Position k_at_, v_at_;
  float scores_[Block::kKeys / 2];
  float out_[Block::kHeadDim / 2];
  std::uint32_t probabilities_[Block::kKeys / 16][4];
};

template <class T, int head_dim, int keys, int warpgroups, bool capped>
FARWARP_DEVICE void attention_wgmma(const Args& args) {
  using B = Block<T, head_dim, keys, warpgroups>;
  const B block{block_shared()};
  if (thread_index() == 0) block.initialise();
  block_sync();
  BlockWaits waits;
  const auto wait = [&](Shared<Mbarrier> barrier, std::uint32_t parity) {
    const bool arrived = wait_mbarrier(waits, args.view, barrier, parity);
    if (!waits.expired) waits.until = 0;  // the deadline is that of a wait: a launch may take longer
    return arrived;
  };
  const int warpgroup = uniform(thread_index() / 128);
  if (warpgroup == 0) {
    lower_registers<Registers<warpgroups>::kLoader>();
    if (thread_index() == 0) load_role(args, block, wait);
  } else {
    raise_registers<Registers<warpgroups>::kAttending>();
    Attending<B, capped, decltype(wait)> attending(args, block, warpgroup - 1, wait);
    attending.run();
  }
  report_expired(waits, args.view, args.slot, kSiteStage);
}

}  // namespace farwarp::FARWARP_TARGET::attention
