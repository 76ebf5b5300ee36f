// Comm blocks with boxes: they send pieces of this rank's x to all ranks, and store all ranks' x as a result.
#pragma once

#include <initializer_list>
#include <type_traits>

#include "farwarp/ops/parallel_gemm/ag_gemm/args.h"
#include "farwarp/ops/parallel_gemm/ag_gemm/arrival.dev.h"
#include "farwarp/tile/gemm/shape_wgmma.h"
#include "farwarp/world/device/call.dev.h"
#include "farwarp/world/device/put_row.dev.h"

namespace farwarp::FARWARP_TARGET::ag_gemm {

using namespace farwarp::ag_gemm;

// ---- one piece: read once, written once per rank --------------------------------------------------------------------

/// [thread] Calls `put(rank)` for every rank that gets this rank's pieces. It begins with the rank after this one, so
/// that not all ranks send to the same peer first.
template <class Put>
FARWARP_DEVICE void for_each_target(const Args& args, const Put& put) {
  const int ranks = args.view.size;
  for (int i = 1; i < ranks; ++i) put((args.view.rank + i) % ranks);
  if (args.own_read_directly == 0) put(args.view.rank);
}

/// Sends by tensor copies through shared memory. One thread of the warp issues them.
class TensorBoxPut {
 public:
  static constexpr int kBufferBytes = kMaxPieceRows * kBoxDepth * 2;
  static constexpr int kWarps = 12;

  /// [warp] A block_sync() must follow before put().
  FARWARP_DEVICE explicit TensorBoxPut(Shared<std::byte> memory)
      : buffer_(memory + warp_index() * kBufferBytes),
        barrier_(reinterpret_cast<Mbarrier*>((memory + kWarps * kBufferBytes).raw) + warp_index()) {
    if (lane_index() != 0) return;
    mbarrier_init(barrier_, 1);
    mbarrier_init_fence();
  }

  /// [warp] Starts reading the first box of a piece. x was written before the call, so this needs no Call.
  FARWARP_DEVICE void start(const Args& args, PieceIndex piece) {
    if (lane_index() == 0) load_box(args, piece.row * args.pieces.rows, piece.depth * args.pieces.depth);
  }

  /// [warp] Writes the piece that start() was called for. If it returns true, a signal_after_warp() after it publishes
  /// the piece.
  FARWARP_DEVICE bool put(Call& call, const Args& args, PieceIndex piece) {
    if (lane_index() != 0) return true;
    const int row = piece.row * args.pieces.rows;
    const int first = piece.depth * args.pieces.depth;
    const int end = first + args.pieces.depth < args.k ? first + args.pieces.depth : args.k;
    for (int column = first; column < end; column += kBoxDepth) {
      if (column > first) {
        bulk_wait_read();  // the copies of the previous box have read the staging buffer
        load_box(args, row, column);
      }
      if (!await_box(call)) break;
      for_each_target(
          args, [&](int rank) { tensor_store(args.target[args.parity(call.epoch)][rank], row, column, buffer_); });
      bulk_commit();
    }
    bulk_wait_all();
    return call.live;
  }

  /// [warp] Instead of put(), if the piece must not be sent. Waits for its first box, so that the copy ends before the
  /// block does.
  FARWARP_DEVICE void drop(Call& call) {
    if (lane_index() == 0) await_box(call);
  }

 private:
  FARWARP_DEVICE void load_box(const Args& args, int row, int column) {
    mbarrier_arrive_expect(barrier_, args.pieces.rows * kBoxDepth * 2);
    tensor_load(buffer_, args.source, row, column, barrier_);
  }
  FARWARP_DEVICE bool await_box(Call& call) {
    const bool loaded = wait_mbarrier(call, barrier_, parity_, kSitePiece);
    parity_ ^= 1;
    return loaded;
  }

  Shared<std::byte> buffer_;
  Shared<Mbarrier> barrier_;
  std::uint32_t parity_ = 0;
};
static_assert(TensorBoxPut::kWarps * (TensorBoxPut::kBufferBytes + 8) <=
              200 * 1024);  // the shared memory of a kernel with any tile is at least so large

/// Sends vectors through registers. All lanes of the warp take part.
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
    const std::int64_t pitch = std::int64_t{args.k} * 2;
    const std::int64_t from = first_row * pitch + std::int64_t{first} * 2;
    const std::int64_t shard = args.view.rank * (args.shard_rows * pitch);
    Peer<std::byte> to[kMaxRanks];
    std::uint32_t wanted = 0;
    for_each_target(args, [&](int rank) { wanted |= 1u << rank; });
#pragma unroll
    for (int rank = 0; rank < kMaxRanks; ++rank) {
      if (wanted >> rank & 1)
        to[rank] = Peer<std::byte>(args.view.heap[rank] + args.gathered_of(call.epoch) + shard + from);
    }
    VectorRowPut({}, 0, {}).put_rows(Global<const std::byte>(static_cast<const std::byte*>(args.own_x) + from),
                                     end_row - first_row, args.k * 2, columns * 2, to, wanted);
    return call.live;
  }
};

using BoxPut = std::conditional_t<Target::kHasBulkCopy, TensorBoxPut, VectorBoxPut>;

// ---- x as a result --------------------------------------------------------------------------------------------------
//
// Comm blocks copy pieces that have arrived to all_x, after they have sent their own.

/// [warp] Copies a piece of `source`'s x, which has arrived, to all_x. Four rows at a time, so that several loads are
/// in flight.
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
#pragma unroll 1  // loads of four rows in flight are enough
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

/// [warp] Copies the warp's share of all ranks' pieces to all_x, in the order of arrival: this rank's first piece, the
/// first of each peer, then the second of each rank, and so on. The warp must have sent all of its own pieces before.
FARWARP_DEVICE void return_role(Call& call, const Args& args) {
  const int ranks = args.view.size;
  const int items = args.piece_order.positions * ranks;
  const int warps = args.comm_blocks * (num_threads() / Target::kWarpSize);
  for (int item = warp_index() * args.comm_blocks + block_index(); item < items; item += warps) {
    const PieceIndex piece = args.piece_order.at(item / ranks);
    if (piece.row >= args.pieces.row_count || piece.depth >= args.pieces.depth_count) continue;
    const int source = (args.view.rank + item % ranks) % ranks;
    const int row = source * args.shard_rows + piece.row * args.pieces.rows;
    if (source != args.view.rank) await_rows(call, args, row, row + 1, piece.depth, piece.depth + 1);
    if (ballot(!call.live) != 0) return;  // no more pieces arrive
    return_piece(args, call.epoch, source, piece);
  }
}

// ---- the order of pieces --------------------------------------------------------------------------------------------

/// [warp] Writes the flag of a piece of this rank at all ranks that get the piece. Releases the warp's writes of it;
/// await_rows() acquires.
FARWARP_DEVICE void signal_arrival(const Args& args, std::uint32_t epoch, PieceIndex piece) {
  const int number = (args.view.rank * args.pieces.row_count + piece.row) * args.pieces.depth_count + piece.depth;
  signal_after_warp([&] {
    for_each_target(args, [&](int rank) {
      signal_cell<Order::relaxed>(peer_address<ArrivalCell>(args.view, rank, args.arrived_of(epoch)) + number,
                                  tagged(epoch, 0));
    });
  });
}

/// The pieces of the shard that one warp of a comm block sends. Consecutive pieces go to different blocks, so that few
/// pieces are spread over all blocks. Only Args::sending_warps warps send: pieces in flight share the links, and with
/// more of them the first arrives later.
class PiecesToSend {
 public:
  FARWARP_DEVICE explicit PiecesToSend(const Args& args)
      : args_(args),
        positions_(args.view.size == 1 || warp_index() >= args.sending_warps ? 0 : args.piece_order.positions),
        position_(warp_index() * args.comm_blocks + block_index()) {
    skip();
  }

  FARWARP_DEVICE bool is_done() const { return position_ >= positions_; }
  FARWARP_DEVICE PieceIndex piece() const { return piece_; }
  FARWARP_DEVICE void next() {
    position_ += args_.comm_blocks * args_.sending_warps;
    skip();
  }

 private:
  /// Advances to the next position that has a piece.
  FARWARP_DEVICE void skip() {
    for (; position_ < positions_; position_ += args_.comm_blocks * args_.sending_warps) {
      piece_ = args_.piece_order.at(position_);
      if (piece_.row < args_.pieces.row_count && piece_.depth < args_.pieces.depth_count) return;
    }
  }

  const Args& args_;
  int positions_;
  int position_;
  PieceIndex piece_{};
};

FARWARP_DEVICE bool is_dropped(const Args& args, PieceIndex piece) {
  const int number = piece.row * args.pieces.depth_count + piece.depth;
  return args.drop_put == static_cast<std::uint32_t>(number) + 1;
}

/// [warp] Sends the warp's pieces. The caller has called start() for the first piece. The next piece is read while
/// flags are written.
FARWARP_DEVICE void send_role(Call& call, const Args& args, BoxPut& box, PiecesToSend& to_send) {
  while (!to_send.is_done()) {
    const PieceIndex piece = to_send.piece();
    const TraceStart start = trace_start();
    const bool dropped = !call.live || is_dropped(args, piece);
    if (dropped) {
      box.drop(call);
    } else if (const bool written = box.put(call, args, piece); ballot(!written) != 0) {
      return;
    }
    to_send.next();
    if (ballot(!call.live) != 0) return;
    if (!to_send.is_done()) box.start(args, to_send.piece());
    if (!dropped) signal_arrival(args, call.epoch, piece);
    trace_warp(start, TraceWork::kSend, piece.row);
  }
}

/// [block] A comm block.
FARWARP_DEVICE void comm_block_boxes(const Args& args) {
  BoxPut box(block_shared());
  PiecesToSend to_send(args);
  if (!to_send.is_done()) box.start(args, to_send.piece());  // in flight while join_call() reads its cells
  Call call = join_call(args.view, args.slot);
  if (!call.live) {
    if (!to_send.is_done()) box.drop(call);
    return;
  }
  if (block_index() == 0 && thread_index() == 0) claim_call(call);
  call.live = ballot(!call.live) == 0;  // a failed claim ends the call for this warp; other warps see the abort
  send_role(call, args, box, to_send);
  if (args.all_x != nullptr) return_role(call, args);
  end_call(call, 0);
}

}  // namespace farwarp::FARWARP_TARGET::ag_gemm
