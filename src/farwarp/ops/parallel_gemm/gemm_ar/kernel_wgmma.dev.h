// gemm-ar on Hopper: the blocks of gemm_reduce. Two-shot: owners send what they have added up to all ranks, as words or
// as boxes with flags. One-shot, for few rows: partial sums are sent to all ranks as words.
#pragma once

#include "farwarp/ops/parallel_gemm/gemm_ar/gather_boxes.dev.h"
#include "farwarp/ops/parallel_gemm/gemm_ar/gather_words.dev.h"
#include "farwarp/ops/parallel_gemm/gemm_reduce/roles_wgmma.dev.h"

namespace farwarp::FARWARP_TARGET::gemm_ar {

using farwarp::tile::Turns;

/// Two-shot by boxes and flags.
template <class T, int columns, bool swap_ab>
struct TwoShotByBoxes : gemm_reduce::ByBoxes<T, columns, swap_ab> {
  using Base = gemm_reduce::ByBoxes<T, columns, swap_ab>;
  using typename Base::Block;

  const Args& all;

  template <class WaitBarrier>
  FARWARP_DEVICE void reduce(const Block& block, const WaitBarrier& wait) const {
    reduce_and_send<gemm_reduce::kReduceWarpVectors>(block, wait);
  }
  template <class WaitBarrier>
  FARWARP_DEVICE void run_multiplier(const Block& block, int multiplier, Turns turns, const WaitBarrier& wait) const {
    gemm_reduce::multiply_for_store_warp<swap_ab>(all.reduce, block, multiplier, turns, wait);
    reduce_and_send<gemm_reduce::kMultiplierWarpVectors<Base::kBandColumns>>(block, wait);
    Call call = block.await_call(all.reduce.view, all.reduce.slot, wait);
    collect<Base::kBandColumns, Failure::inlined>(call, all, 8 * block_index() + warp_index() - 4, 8 * num_blocks());
  }

 private:
  template <int vectors, class WaitBarrier>
  FARWARP_DEVICE void reduce_and_send(const Block& block, const WaitBarrier& wait) const {
    gemm_ar::reduce_and_send<T, Base::kBandColumns, vectors>(
        all, gemm_reduce::TakenChunks(block.taken()), block.await_call(all.reduce.view, all.reduce.slot, wait).epoch,
        gemm_reduce::band_waiter(all.reduce, block, wait));
  }
};

template <class T, int columns, bool swap_ab>
FARWARP_DEVICE void gemm_ar_wgmma(const Args& args) {
  gemm_reduce::run_block(args.reduce, TwoShotByBoxes<T, columns, swap_ab>{{args.reduce}, args});
}

/// Two-shot by words with swap_ab.
template <class T, int columns>
struct SwapAbByOwners : gemm_reduce::SwapAbByWords<T, columns, gemm_reduce::RowsToOwners> {
  using Base = gemm_reduce::SwapAbByWords<T, columns, gemm_reduce::RowsToOwners>;
  using typename Base::Block;

  const Args& all;

  template <class WaitBarrier>
  FARWARP_DEVICE void after_done(const Block& block, const WaitBarrier& wait) const {
    Call call = block.await_call(all.reduce.view, all.reduce.slot, wait);
    gemm_reduce::for_each_vector(
        call, all.reduce.word_inbox, rows_of(all, all.reduce.view.rank), Base::share(),
        [&](int row, int vector) { reduce_and_send_vector<T, Failure::inlined>(call, all, row, vector); });
    gemm_reduce::for_each_vector(
        call, all.finished_inbox, all.finished_inbox.rows, Base::share(),
        [&](int row, int vector) { collect_vector<Failure::inlined>(call, all, row, vector); });
  }
};

/// Two-shot by words with straight tiles.
template <class T, int columns>
struct StraightTwoShotByWords : gemm_reduce::StraightByWords<T, columns> {
  using Base = gemm_reduce::StraightByWords<T, columns>;
  using typename Base::Block;

  const Args& all;

  template <class WaitBarrier>
  FARWARP_DEVICE void reduce(const Block& block, const WaitBarrier& wait) const {
    Call call = block.await_call(all.reduce.view, all.reduce.slot, wait);
    if (!call.live) return;
    const gemm_reduce::TakenChunks next(block.taken());
    gemm_reduce::for_each_vector_of_chunks(
        call, all.reduce.word_inbox, rows_of(all, all.reduce.view.rank), next,
        [&](int row, int vector) { reduce_and_send_vector<T, Failure::inlined>(call, all, row, vector); });
  }
  template <class WaitBarrier>
  FARWARP_DEVICE void after_done(const Block& block, const WaitBarrier& wait) const {
    reduce(block, wait);
    Call call = block.await_call(all.reduce.view, all.reduce.slot, wait);
    if (!call.live) return;
    const int warps = 8 * num_blocks();
    int chunk = (warp_index() - 4) * num_blocks() + block_index() - warps;
    const auto next = [&] { return chunk += warps; };
    gemm_reduce::for_each_vector_of_chunks(
        call, all.finished_inbox, all.finished_inbox.rows, next,
        [&](int row, int vector) { collect_vector<Failure::inlined>(call, all, row, vector); });
  }
};

/// One-shot, with swap_ab.
template <class T, int columns>
FARWARP_DEVICE void gemm_ar_one_shot_words_wgmma(const Args& args) {
  gemm_reduce::run_block(args.reduce, gemm_reduce::SwapAbByWords<T, columns, RowsToAllRanks>{args.reduce});
}

/// Two-shot by words.
template <class T, int columns, bool swap_ab>
FARWARP_DEVICE void gemm_ar_words_wgmma(const Args& args) {
  if constexpr (swap_ab) {
    gemm_reduce::run_block(args.reduce, SwapAbByOwners<T, columns>{{args.reduce}, args});
  } else {
    gemm_reduce::run_block(args.reduce, StraightTwoShotByWords<T, columns>{{args.reduce}, args});
  }
}

}  // namespace farwarp::FARWARP_TARGET::gemm_ar
