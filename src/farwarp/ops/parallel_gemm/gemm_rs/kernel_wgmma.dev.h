// gemm-rs on Hopper: the blocks of gemm_reduce; owners add up into y.
#pragma once

#include "farwarp/ops/parallel_gemm/gemm_reduce/roles_wgmma.dev.h"

namespace farwarp::FARWARP_TARGET::gemm_rs {

using farwarp::gemm_reduce::Args;
using farwarp::tile::Turns;

template <class T, int columns, bool swap_ab>
struct ReduceScatter : gemm_reduce::ByBoxes<T, columns, swap_ab> {
  using Base = gemm_reduce::ByBoxes<T, columns, swap_ab>;
  using Base::args;
  using typename Base::Block;

  template <class WaitBarrier>
  FARWARP_DEVICE void reduce(const Block& block, const WaitBarrier& wait) const {
    gemm_reduce::reduce_into_y<T, Base::kBandColumns, gemm_reduce::kReduceWarpVectors>(
        args, gemm_reduce::TakenChunks(block.taken()), gemm_reduce::band_waiter(args, block, wait));
  }
  template <class WaitBarrier>
  FARWARP_DEVICE void run_multiplier(const Block& block, int multiplier, Turns turns, const WaitBarrier& wait) const {
    gemm_reduce::multiply_for_store_warp<swap_ab>(args, block, multiplier, turns, wait);
    gemm_reduce::reduce_into_y<T, Base::kBandColumns, gemm_reduce::kMultiplierWarpVectors<Base::kBandColumns>>(
        args, gemm_reduce::TakenChunks(block.taken()), gemm_reduce::band_waiter(args, block, wait));
  }
};

template <class T, int columns, bool swap_ab>
FARWARP_DEVICE void gemm_rs_wgmma(const Args& args) {
  gemm_reduce::run_block(args, ReduceScatter<T, columns, swap_ab>{{args}});
}

/// Partial sums are sent as words.
template <class T, int columns, bool swap_ab>
FARWARP_DEVICE void gemm_rs_words_wgmma(const Args& args) {
  if constexpr (swap_ab) {
    gemm_reduce::run_block(args, gemm_reduce::SwapAbByWords<T, columns, gemm_reduce::RowsToOwners>{args});
  } else {
    gemm_reduce::run_block(args, gemm_reduce::StraightByWords<T, columns>{args});
  }
}

}  // namespace farwarp::FARWARP_TARGET::gemm_rs
