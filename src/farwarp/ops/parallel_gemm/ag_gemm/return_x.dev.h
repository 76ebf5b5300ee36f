// All ranks' x as a result: communicators copy what has come, once they have sent what is theirs.
#pragma once

#include "farwarp/ops/parallel_gemm/ag_gemm/arrival.dev.h"

namespace farwarp::FARWARP_TARGET::ag_gemm {

using farwarp::ag_gemm::PieceIndex;

/// [warp] A piece of `source`'s x that has come: four rows at a time, so that several loads are under way.
FARWARP_DEVICE void return_piece(const Args& args, std::uint32_t epoch, int source, PieceIndex piece) {
  constexpr int kRows = 4;
  const int first = piece.row * args.pieces.rows;
  const int end = first + args.pieces.rows < args.shard_rows ? first + args.pieces.rows : args.shard_rows;
  const int depth = piece.depth * args.pieces.depth;
  const int bytes = 2 * (args.k - depth < args.pieces.depth ? args.k - depth : args.pieces.depth);
  const std::int64_t pitch = std::int64_t{args.k} * 2;
  const std::int64_t shard = source * args.shard_rows * pitch;
  const auto* const whole =
      reinterpret_cast<const std::byte*>(args.view.heap[args.view.rank] + args.gathered_of(epoch) + shard);
  const auto* const own = static_cast<const std::byte*>(args.own_x);
  const Global<const std::byte> from((source == args.view.rank ? own : whole) + first * pitch + depth * 2);
  const Global<std::byte> to(static_cast<std::byte*>(args.all_x) + shard + first * pitch + depth * 2);
  for (int row = 0; row < end - first; row += kRows) {
#pragma unroll 1  // four rows are enough under way
    for (int offset = lane_index() * 16; offset < bytes; offset += Target::kWarpSize * 16) {
      Vec16 values[kRows] = {};
#pragma unroll
      for (int i = 0; i < kRows; ++i) {
        if (row + i < end - first)
          values[i] = load(Global<const Vec16>(reinterpret_cast<const Vec16*>(from.raw + (row + i) * pitch + offset)));
      }
#pragma unroll
      for (int i = 0; i < kRows; ++i) {
        if (row + i < end - first)
          store(Global<Vec16>(reinterpret_cast<Vec16*>(to.raw + (row + i) * pitch + offset)), values[i]);
      }
    }
  }
}

/// [warp] The warp's share of all pieces, in the order in which they come: this rank's first piece, the first of each peer, the second
/// of each, ... All that it sends must have been sent before.
FARWARP_DEVICE void return_role(Call& call, const Args& args) {
  const int ranks = args.view.size;
  const int units = args.piece_order.turns * ranks;
  const int warps = args.communicators * (num_threads() / Target::kWarpSize);
  for (int unit = warp_index() * args.communicators + block_index(); unit < units; unit += warps) {
    const PieceIndex piece = args.piece_order.at(unit / ranks);
    if (piece.row >= args.pieces.row_count || piece.depth >= args.pieces.depth_count) continue;
    const int source = (args.view.rank + unit % ranks) % ranks;
    const int row = source * args.shard_rows + piece.row * args.pieces.rows;
    if (source != args.view.rank) await_rows(call, args, row, row + 1, piece.depth, piece.depth + 1);
    if (ballot(!call.live) != 0) return;  // nothing more comes
    return_piece(args, call.epoch, source, piece);
  }
}

}  // namespace farwarp::FARWARP_TARGET::ag_gemm
