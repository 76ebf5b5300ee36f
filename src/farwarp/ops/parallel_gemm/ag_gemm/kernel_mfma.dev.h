// ag-gemm on CDNA. Comm blocks send this rank's x to all ranks. The other blocks multiply as in gemm, and each of their
// waves waits for the rows that it loads.
#pragma once

#include "farwarp/ops/parallel_gemm/ag_gemm/arrival.dev.h"
#include "farwarp/ops/parallel_gemm/ag_gemm/pieces.dev.h"
#include "farwarp/tile/gemm/block_mfma.dev.h"
#include "farwarp/tile/gemm/epilogue_mfma.dev.h"

namespace farwarp::FARWARP_TARGET::ag_gemm {

using farwarp::tile::Work;

template <class Tile>
class Operands {
 public:
  using T = typename Tile::Element;
  FARWARP_DEVICE Operands(Call& call, const Args& args) : call_(call), args_(args) {}

  FARWARP_DEVICE void open(const Work& work, tile::TileSource<Tile>& source) {
    row_ = args_.order.at(work.at.row) * Tile::kRows;
    end_ = row_ + Tile::kRows < args_.m ? row_ + Tile::kRows : args_.m;
    depth_arrived_ = 0;
    const int own_row = args_.view.rank * args_.shard_rows;
    own_ = args_.own_read_directly != 0 && row_ >= own_row && end_ <= own_row + args_.shard_rows;
    const auto* const all =
        reinterpret_cast<const T*>(args_.view.heap[args_.view.rank] + args_.gathered_of(call_.epoch));
    const tile::Operand<T> mine{static_cast<const T*>(args_.own_x), args_.k, args_.shard_rows};
    const tile::Operand<T> x = own_ ? mine : tile::Operand<T>{all, args_.k, args_.m};
    source.open(x, {static_cast<const T*>(args_.own_w), args_.k, args_.n}, own_ ? row_ - own_row : row_,
                work.at.column * Tile::kColumns);
  }

  /// Each wave waits itself, because its loads need its own acquires.
  FARWARP_DEVICE void need(const Work& work, int step) {
    const int depth = step * Tile::kStepDepth / args_.pieces.depth;
    if (own_ || depth < depth_arrived_) return;
    const int last_step = work.steps.first + work.steps.count - 1;
    depth_arrived_ = await_rows(call_, args_, row_, end_, depth, last_step * Tile::kStepDepth / args_.pieces.depth + 1);
  }

 private:
  Call& call_;
  const Args& args_;
  int row_ = 0, end_ = 0;
  int depth_arrived_ = 0;  // all pieces of K before this one have arrived
  bool own_ = false;
};

template <class T, tile::MfmaShape shape>
FARWARP_DEVICE void multiply_block(const Args& args) {
  Call call = begin_call(args.view, args.slot, 0);
  if (!call.live) return;
  using Tile = tile::MfmaTile<T, shape>;
  const tile::Result<T> out{
      {args.m, args.n, Global<const T>(static_cast<const T*>(args.bias))}, static_cast<T*>(args.y), args.n};
  const tile::SplitSpace space{own_address<Vec16>(args.view, args.partials),
                               own_address<std::uint32_t>(args.view, args.counters), args.grid.splits, call.epoch};
  const tile::BlockWork share{
      args.grid, {block_index() - args.comm_blocks, num_blocks() - args.comm_blocks}, args.xcds, args.k};
  tile::multiply_tiles(Tile{block_shared()}, share, space, Operands<Tile>(call, args),
                       [&](const Work& work, const float(&sums)[Tile::kSums]) {
                         tile::store_sums<Tile>(out, args.order.at(work.at.row) * Tile::kRows,
                                                work.at.column * Tile::kColumns, sums);
                       });
  end_call(call, 0);
}

template <class T, tile::MfmaShape shape>
FARWARP_DEVICE void ag_gemm_mfma(const Args& args) {
  if (block_index() < args.comm_blocks) {
    comm_block_boxes(args);
  } else {
    multiply_block<T, shape>(args);
  }
}

}  // namespace farwarp::FARWARP_TARGET::ag_gemm
