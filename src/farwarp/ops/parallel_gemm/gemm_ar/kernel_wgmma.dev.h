// gemm-ar on Hopper: gemm-rs's blocks, whose owners hand out what they have added up; or for very few rows, words to all.
#pragma once

#include "farwarp/ops/parallel_gemm/gemm_ar/share.dev.h"
#include "farwarp/ops/parallel_gemm/gemm_rs/kernel_wgmma.dev.h"

namespace farwarp::FARWARP_TARGET::gemm_ar {

using farwarp::tile::Turns;

/// The roles of a block whose owners hand out what they have added up.
template <class T, int columns, bool swapped>
struct OwnersToAll : gemm_rs::ToOwners<T, columns, swapped> {
  using Base = gemm_rs::ToOwners<T, columns, swapped>;
  using typename Base::Block;

  const Args& all;

  template <class Wait>
  FARWARP_DEVICE void reduce(const Block& block, const Wait& wait) const {
    reduce_and_share<gemm_rs::kKeeperVectors>(block, wait);
  }
  template <class Wait>
  FARWARP_DEVICE void multiply(const Block& block, int multiplier, Turns turns, const Wait& wait) const {
    gemm_rs::multiply_for_storer<swapped>(all.rs, block, multiplier, turns, wait);
    reduce_and_share<gemm_rs::kMultiplierVectors<Base::kBandColumns>>(block, wait);
    Call call = block.call(all.rs.view, all.rs.slot, wait);
    collect<Base::kBandColumns, Failure::in_place>(call, all, 8 * block_index() + warp_index() - 4, 8 * num_blocks());
  }

 private:
  template <int vectors, class Wait>
  FARWARP_DEVICE void reduce_and_share(const Block& block, const Wait& wait) const {
    gemm_ar::reduce_and_share<T, Base::kBandColumns, vectors>(all, gemm_rs::TakenUnits(block.taken()),
                                                              block.call(all.rs.view, all.rs.slot, wait).epoch,
                                                              gemm_rs::awaiting(all.rs, block, wait));
  }
};

template <class T, int columns, bool swapped>
FARWARP_DEVICE void gemm_ar_wgmma(const Args& args) {
  if constexpr (swapped && columns <= farwarp::gemm_ar::kMostOneShotRows) {
    gemm_rs::run_block(args.rs, gemm_rs::FewByWords<T, columns, RowsToAll>{args.rs});
  } else {
    gemm_rs::run_block(args.rs, OwnersToAll<T, columns, swapped>{{args.rs}, args});
  }
}

}  // namespace farwarp::FARWARP_TARGET::gemm_ar
