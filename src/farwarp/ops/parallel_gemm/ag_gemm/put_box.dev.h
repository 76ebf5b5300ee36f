// Putting a piece of this rank's x into the memory of all ranks: read once, written once per rank.
#pragma once

#include <initializer_list>
#include <type_traits>

#include "farwarp/ops/parallel_gemm/ag_gemm/args.h"
#include "farwarp/tile/gemm/shape_wgmma.h"
#include "farwarp/world/device/put_row.dev.h"

namespace farwarp::FARWARP_TARGET::ag_gemm {

using farwarp::ag_gemm::Args;
using farwarp::ag_gemm::PieceIndex;

/// [thread] Calls `put(rank)` for every rank that gets this one's pieces, its successor first, so that no rank is everybody's first.
template <class Put>
FARWARP_DEVICE void for_each_target(const Args& args, const Put& put) {
  const int ranks = args.view.size;
  for (int i = 1; i < ranks; ++i) put((args.view.rank + i) % ranks);
  if (args.own_apart == 0) put(args.view.rank);
}

/// By tensor copies through shared memory, one thread of the warp issuing.
class TensorBoxPut {
 public:
  static constexpr int kStageBytes = farwarp::ag_gemm::kMostPieceRows * farwarp::ag_gemm::kBoxDepth * 2;
  static constexpr int kWarps = 12;

  /// [warp] A block_sync() must follow before put().
  FARWARP_DEVICE explicit TensorBoxPut(Shared<std::byte> memory)
      : stage_(memory + warp_index() * kStageBytes),
        barrier_(reinterpret_cast<Mbarrier*>((memory + kWarps * kStageBytes).raw) + warp_index()) {
    if (lane_index() != 0) return;
    mbarrier_init(barrier_, 1);
    mbarrier_init_fence();
  }

  /// [warp] Starts reading a piece: its first box. x is there from the start, so this needs no call.
  FARWARP_DEVICE void start(const Args& args, PieceIndex piece) {
    if (lane_index() == 0) load_box(args, piece.row * args.pieces.rows, piece.depth * args.pieces.depth);
  }

  /// [warp] Writes the piece that was started. When it returns true a following signal_after_warp() publishes it.
  FARWARP_DEVICE bool put(Call& call, const Args& args, PieceIndex piece) {
    if (lane_index() != 0) return true;
    const int row = piece.row * args.pieces.rows;
    const int first = piece.depth * args.pieces.depth;
    const int end = first + args.pieces.depth < args.k ? first + args.pieces.depth : args.k;
    for (int column = first; column < end; column += farwarp::ag_gemm::kBoxDepth) {
      if (column > first) {
        bulk_wait_read();  // the box before has left the stage
        load_box(args, row, column);
      }
      if (!await_box(call)) break;
      for_each_target(args,
                      [&](int rank) { tensor_store(args.target[args.parity(call.epoch)][rank], row, column, stage_); });
      bulk_commit();
    }
    bulk_wait_all();
    return call.live;
  }

  /// [warp] In the place of put(), where the piece is not to be sent: its first box does not outlive the block.
  FARWARP_DEVICE void drop(Call& call) {
    if (lane_index() == 0) await_box(call);
  }

 private:
  FARWARP_DEVICE void load_box(const Args& args, int row, int column) {
    mbarrier_arrive_expect(barrier_, args.pieces.rows * farwarp::ag_gemm::kBoxDepth * 2);
    tensor_load(stage_, args.source, row, column, barrier_);
  }
  FARWARP_DEVICE bool await_box(Call& call) {
    const bool loaded = wait_mbarrier(call, barrier_, parity_, farwarp::ag_gemm::kSitePiece);
    parity_ ^= 1;
    return loaded;
  }

  Shared<std::byte> stage_;
  Shared<Mbarrier> barrier_;
  std::uint32_t parity_ = 0;
};
static_assert(TensorBoxPut::kWarps * (TensorBoxPut::kStageBytes + 8) <=
              200 * 1024);  // any tile's shared memory holds it

/// Through registers, all lanes of the warp.
class VectorBoxPut {
 public:
  FARWARP_DEVICE explicit VectorBoxPut(Shared<std::byte>) {}

  FARWARP_DEVICE void start(const Args&, PieceIndex) {}
  FARWARP_DEVICE void drop(Call&) {}

  FARWARP_DEVICE bool put(Call& call, const Args& args, PieceIndex piece) {
    const int first_row = piece.row * args.pieces.rows;
    const int end_row = first_row + args.pieces.rows < args.shard_rows ? first_row + args.pieces.rows : args.shard_rows;
    const int first = piece.depth * args.pieces.depth;
    const int columns = args.k - first < args.pieces.depth ? args.k - first : args.pieces.depth;
    VectorRowPut put({}, 0, {});
    for (int row = first_row; row < end_row; ++row) {
      const std::int64_t from = (static_cast<std::int64_t>(row) * args.k + first) * 2;
      const std::int64_t shard = static_cast<std::int64_t>(args.view.rank) * args.shard_rows * args.k * 2;
      Peer<std::byte> to[kMaxRanks];
      std::uint32_t wanted = 0;
      for_each_target(args, [&](int rank) { wanted |= 1u << rank; });
#pragma unroll
      for (int rank = 0; rank < kMaxRanks; ++rank) {
        if (wanted >> rank & 1)
          to[rank] = Peer<std::byte>(args.view.heap[rank] + args.gathered_of(call.epoch) + shard + from);
      }
      const Global<const std::byte> source(static_cast<const std::byte*>(args.own_x) + from);
      put.put(call, source, columns * 2, to, wanted, farwarp::ag_gemm::kSitePiece);
    }
    return call.live;
  }
};

using BoxPut = std::conditional_t<Target::kHasBulkCopy, TensorBoxPut, VectorBoxPut>;

}  // namespace farwarp::FARWARP_TARGET::ag_gemm
