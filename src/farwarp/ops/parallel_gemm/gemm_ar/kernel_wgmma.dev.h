// gemm-ar on Hopper: gemm-rs's blocks, whose owners hand out what they have added up, as words or by boxes and flags; or with few rows,
// words to all.
#pragma once

#include "farwarp/ops/parallel_gemm/gemm_ar/share.dev.h"
#include "farwarp/ops/parallel_gemm/gemm_ar/words.dev.h"
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
  gemm_rs::run_block(args.rs, OwnersToAll<T, columns, swapped>{{args.rs}, args});
}

/// The roles of a block for few rows whose sums go to owners as words, and from there to all.
template <class T, int columns>
struct FewByOwners : gemm_rs::FewByWords<T, columns, gemm_rs::RowsToOwners> {
  using Base = gemm_rs::FewByWords<T, columns, gemm_rs::RowsToOwners>;
  using typename Base::Block;

  const Args& all;

  template <class Wait>
  FARWARP_DEVICE void collect(const Block& block, const Wait& wait) const {
    Call call = block.call(all.rs.view, all.rs.slot, wait);
    gemm_rs::for_each_piece(call, all.rs.words, rows_of(all, all.rs.view.rank), Base::share(), [&](int row, int piece) {
      reduce_and_send_piece<T, Failure::in_place>(call, all, row, piece);
    });
    gemm_rs::for_each_piece(call, all.finished, all.finished.rows, Base::share(),
                            [&](int row, int piece) { collect_piece<Failure::in_place>(call, all, row, piece); });
  }
};

/// The same of more rows.
template <class T, int columns>
struct ManyByOwners : gemm_rs::ManyByWords<T, columns> {
  using Base = gemm_rs::ManyByWords<T, columns>;
  using typename Base::Block;

  const Args& all;

  template <class Wait>
  FARWARP_DEVICE void reduce(const Block& block, const Wait& wait) const {
    Call call = block.call(all.rs.view, all.rs.slot, wait);
    if (!call.live) return;
    const gemm_rs::TakenUnits next(block.taken());
    gemm_rs::for_each_piece_of_units(call, all.rs.words, rows_of(all, all.rs.view.rank), next, [&](int row, int piece) {
      reduce_and_send_piece<T, Failure::in_place>(call, all, row, piece);
    });
  }
  template <class Wait>
  FARWARP_DEVICE void collect(const Block& block, const Wait& wait) const {
    reduce(block, wait);
    Call call = block.call(all.rs.view, all.rs.slot, wait);
    if (!call.live) return;
    const int warps = 8 * num_blocks();
    int unit = (warp_index() - 4) * num_blocks() + block_index() - warps;
    const auto next = [&] { return unit += warps; };
    gemm_rs::for_each_piece_of_units(call, all.finished, all.finished.rows, next, [&](int row, int piece) {
      collect_piece<Failure::in_place>(call, all, row, piece);
    });
  }
};

/// Few rows, partial sums as words to all ranks.
template <class T, int columns>
FARWARP_DEVICE void gemm_ar_words_to_all_wgmma(const Args& args) {
  gemm_rs::run_block(args.rs, gemm_rs::FewByWords<T, columns, RowsToAll>{args.rs});
}

/// Partial sums as words to owners; `few` rows of x.
template <class T, int columns, bool few>
FARWARP_DEVICE void gemm_ar_words_wgmma(const Args& args) {
  if constexpr (few) {
    gemm_rs::run_block(args.rs, FewByOwners<T, columns>{{args.rs}, args});
  } else {
    gemm_rs::run_block(args.rs, ManyByOwners<T, columns>{{args.rs}, args});
  }
}

}  // namespace farwarp::FARWARP_TARGET::gemm_ar
