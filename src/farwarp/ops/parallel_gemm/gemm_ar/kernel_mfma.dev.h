// gemm-ar on CDNA. Two-shot by boxes and flags: gemm-rs's blocks, and owners send what they have added up to all ranks.
// One-shot by words, for very few rows.
#pragma once

#include "farwarp/ops/parallel_gemm/gemm_ar/gather_boxes.dev.h"
#include "farwarp/ops/parallel_gemm/gemm_ar/gather_words.dev.h"
#include "farwarp/ops/parallel_gemm/gemm_reduce/send_mfma.dev.h"

namespace farwarp::FARWARP_TARGET::gemm_ar {

using farwarp::tile::Work;

/// [block] Multiplies the block's tiles and sends the sums to all ranks as words.
template <class Tile>
FARWARP_DEVICE void multiply_and_send_words(Call& call, const Args& args, const Tile& tile) {
  using T = typename Tile::Element;
  const tile::Extent<T> extent{args.rows, args.reduce.n, Global<const T>(static_cast<const T*>(args.reduce.bias))};
  gemm_reduce::multiply_works(call, args.reduce, tile, [&](const Work& work, const float(&sums)[Tile::kSums]) {
    if (static_cast<std::uint32_t>(work.tile) + 1 == args.reduce.drop_put) return;
    tile::round_sums<Tile>(extent, args.reduce.order.at(work.at.row) * Tile::kRows, work.at.column * Tile::kColumns,
                           sums, [&](int row, int column, Vec16 eight) {
                             RowsToAllRanks::send(call, args.reduce, row, column / gemm_reduce::WordInbox::kElements,
                                                  eight);
                           });
  });
}

template <class T, tile::MfmaShape shape>
FARWARP_DEVICE void gemm_ar_mfma(const Args& args) {
  Call call = begin_call(args.reduce.view, args.reduce.slot, 0);
  if (!call.live) return;
  const tile::MfmaTile<T, shape> tile{block_shared()};
  if (args.reduce.word_inbox.rows != 0) {
    multiply_and_send_words(call, args, tile);
    const gemm_reduce::VectorShare share{num_threads() * block_index() + thread_index(), num_threads() * num_blocks()};
    gemm_reduce::for_each_vector(call, args.reduce.word_inbox, args.reduce.word_inbox.rows, share,
                                 [&](int row, int vector) {
                                   gemm_reduce::reduce_vector<T, Failure::called>(call, args.reduce, row, vector,
                                                                                  gemm_reduce::IntoY{args.reduce});
                                 });
  } else {
    if (block_index() == 0 && warp_index() == 0) announce_ready(call, args.reduce.offsets.ready_cells);
    gemm_reduce::multiply_and_send(call, args.reduce, tile);
    constexpr int kWaves = shape.threads() / Target::kWarpSize;
    const int wave = kWaves * block_index() + warp_index(), waves = kWaves * num_blocks();
    gemm_reduce::EvenChunks share(args.reduce, wave, waves);
    reduce_and_send<T, shape.columns, 1>(args, share, call.epoch, [&](gemm_reduce::BandRange bands) {
      return gemm_reduce::await_bands<Failure::called>(call, args.reduce, bands);
    });
    collect<shape.columns, Failure::called>(call, args, wave, waves);
  }
  end_call(call, 0);
}

}  // namespace farwarp::FARWARP_TARGET::gemm_ar
