// gemm-ar on CDNA: gemm-rs's blocks, whose owners hand out what they have added up; or for very few rows, words to all.
#pragma once

#include "farwarp/ops/parallel_gemm/gemm_ar/share.dev.h"
#include "farwarp/ops/parallel_gemm/gemm_ar/words.dev.h"
#include "farwarp/ops/parallel_gemm/gemm_rs/kernel_mfma.dev.h"

namespace farwarp::FARWARP_TARGET::gemm_ar {

using farwarp::tile::Work;

/// [block] Multiplies the block's tiles and sends them to all ranks, as words.
template <class Tile>
FARWARP_DEVICE void multiply_and_send_words(Call& call, const Args& args, const Tile& tile) {
  using T = typename Tile::Element;
  const tile::Extent<T> extent{args.rows, args.rs.n, Global<const T>(static_cast<const T*>(args.rs.bias))};
  gemm_rs::multiply(call, args.rs, tile, [&](const Work& work, const float(&sums)[Tile::kSums]) {
    if (static_cast<std::uint32_t>(work.tile) + 1 == args.rs.drop_tile) return;
    tile::round_sums<Tile>(extent, args.rs.order.at(work.at.row) * Tile::kRows, work.at.column * Tile::kColumns, sums,
                           [&](int row, int column, Vec16 eight) {
                             RowsToAll::send(call, args.rs, row, column / gemm_rs::WordInbox::kElements, eight);
                           });
  });
}

template <class T, tile::MfmaShape shape>
FARWARP_DEVICE void gemm_ar_mfma(const Args& args) {
  Call call = begin_call(args.rs.view, args.rs.slot, 0);
  if (!call.live) return;
  const tile::MfmaTile<T, shape> tile{block_shared()};
  if (args.rs.words.rows != 0) {
    multiply_and_send_words(call, args, tile);
    const gemm_rs::PieceShare share{num_threads() * block_index() + thread_index(), num_threads() * num_blocks()};
    gemm_rs::for_each_piece(call, args.rs.words, args.rs.words.rows, share, [&](int row, int piece) {
      gemm_rs::reduce_piece<T, Failure::called>(call, args.rs, row, piece, gemm_rs::IntoY{args.rs});
    });
  } else {
    if (block_index() == 0 && warp_index() == 0) announce_entry(call, args.rs.at.entries);
    gemm_rs::multiply_and_send(call, args.rs, tile);
    constexpr int kWaves = shape.threads() / Target::kWarpSize;
    const int wave = kWaves * block_index() + warp_index(), waves = kWaves * num_blocks();
    gemm_rs::EvenShare share(args.rs, wave, waves);
    reduce_and_share<T, shape.columns, 1>(args, share, call.epoch, [&](gemm_rs::Cover cover) {
      return gemm_rs::await_bands<Failure::called>(call, args.rs, cover);
    });
    collect<shape.columns, Failure::called>(call, args, wave, waves);
  }
  end_call(call, 0);
}

}  // namespace farwarp::FARWARP_TARGET::gemm_ar
