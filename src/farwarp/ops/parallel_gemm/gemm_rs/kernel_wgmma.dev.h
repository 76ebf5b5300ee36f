// gemm-rs on Hopper: the blocks of gemm_reduce, whose owners add up into y.
#pragma once

#include "farwarp/ops/parallel_gemm/gemm_reduce/roles_wgmma.dev.h"

namespace farwarp::FARWARP_TARGET::gemm_rs {

using farwarp::gemm_reduce::Args;
using farwarp::tile::Turns;

template <class T, int columns, bool swapped>
struct ReduceScatter : gemm_reduce::ToOwners<T, columns, swapped> {
  using Base = gemm_reduce::ToOwners<T, columns, swapped>;
  using Base::args;
  using typename Base::Block;

  template <class Wait>
  FARWARP_DEVICE void reduce(const Block& block, const Wait& wait) const {
    gemm_reduce::reduce_into_y<T, Base::kBandColumns, gemm_reduce::kKeeperVectors>(
        args, gemm_reduce::TakenUnits(block.taken()), gemm_reduce::awaiting(args, block, wait));
  }
  template <class Wait>
  FARWARP_DEVICE void multiply(const Block& block, int multiplier, Turns turns, const Wait& wait) const {
    gemm_reduce::multiply_for_storer<swapped>(args, block, multiplier, turns, wait);
    gemm_reduce::reduce_into_y<T, Base::kBandColumns, gemm_reduce::kMultiplierVectors<Base::kBandColumns>>(
        args, gemm_reduce::TakenUnits(block.taken()), gemm_reduce::awaiting(args, block, wait));
  }
};

template <class T, int columns, bool swapped>
FARWARP_DEVICE void gemm_rs_wgmma(const Args& args) {
  gemm_reduce::run_block(args, ReduceScatter<T, columns, swapped>{{args}});
}

/// Partial sums as words; `few` rows of x.
template <class T, int columns, bool few>
FARWARP_DEVICE void gemm_rs_words_wgmma(const Args& args) {
  if constexpr (few) {
    gemm_reduce::run_block(args, gemm_reduce::FewByWords<T, columns, gemm_reduce::RowsToOwners>{args});
  } else {
    gemm_reduce::run_block(args, gemm_reduce::ManyByWords<T, columns>{args});
  }
}

}  // namespace farwarp::FARWARP_TARGET::gemm_rs
