// The arguments of the kernels of ag-gemm.
#pragma once

#include <cstdint>

#include "farwarp/base/divisor.h"
#include "farwarp/base/tensor_map.h"
#include "farwarp/tile/gemm/raster.h"
#include "farwarp/tile/gemm/shape_wgmma.h"
#include "farwarp/world/view.h"

namespace farwarp::ag_gemm {

/// Wait sites of the ledger.
enum Site : std::uint32_t { kSiteStage, kSitePiece, kSiteArrival, kSites };
inline constexpr const char* kSiteNames[kSites] = {"a stage of operands", "a piece of x on its way to the peers",
                                                   "a piece of a peer's x"};

/// Elements of K in a box, which one copy moves to a peer: rows of 512 bytes.
inline constexpr int kBoxDepth = 256;
/// Rows of a piece, at most. A box of 32 rows has 16 KB; with it 8 blocks reach 315 of 343 GB/s (8 H200s, 2026-11).
inline constexpr int kMaxPieceRows = 32;

/// Inboxes for words of x; the epoch selects one. ORDER.md, "Words: why every read is ordered".
inline constexpr int kInboxes = 4;
/// Offsets in an inbox are 32 bits wide.
inline constexpr std::int64_t kMaxInboxBytes = std::int64_t{1} << 30;
/// Elements of a row that a warp sends at a time as words: 16 bytes a lane.
inline constexpr int kWordsDepth = 256;
/// Threads of a block of the kernels that exchange words. One warp copies w, three clear, eight or four load x, eight
/// multiply.
constexpr int words_threads(int columns) { return columns > 64 ? 512 : 640; }

/// Offsets within a tile of the mfma kernels are 32 bits wide.
inline constexpr int kMfmaMostPitch = 1 << 22;

/// How each rank's rows of x, a shard, are cut into pieces. One warp sends a piece, and one flag guards it.
struct Pieces {
  std::int32_t rows;         ///< of a piece
  std::int32_t depth;        ///< elements of K: a multiple of kBoxDepth
  std::int32_t row_count;    ///< pieces down the shard
  std::int32_t depth_count;  ///< pieces along K

  constexpr int count() const { return row_count * depth_count; }
};

struct PieceIndex {
  int row;
  int depth;
};

/// The order in which a shard's pieces are sent: one group of rows of pieces after another (the rows of one round of
/// tiles), within a group along K. So a tile can multiply K as it arrives. With K in splits, the splits alternate. A
/// row or depth outside of Pieces is no piece.
struct PieceOrder {
  std::int32_t positions;  ///< at() accepts 0 .. positions - 1
  std::int32_t per_split;  ///< pieces along K in a split
  Divisor by_group;        ///< pieces of a group
  Divisor by_rows;         ///< rows of pieces in a group
  Divisor by_splits;

  constexpr PieceIndex at(int position) const {
    const int group = by_group.quotient(position), in_group = position - group * by_group.value;
    const int order = by_rows.quotient(in_group), row = in_group - order * by_rows.value;
    const int place = by_splits.quotient(order), split = order - place * by_splits.value;
    return {group * by_rows.value + row, split * per_split + place};
  }
};
constexpr PieceOrder make_piece_order(const Pieces& pieces, int group, int splits) {
  const int groups = (pieces.row_count + group - 1) / group;
  const int per_split = (pieces.depth_count + splits - 1) / splits;
  const int per_group = per_split * splits * group;
  return {groups * per_group, per_split, Divisor(per_group), Divisor(group), Divisor(splits)};
}

/// The order in which a rank multiplies rows of tiles. If each shard is whole rows of tiles: the own rows, then the
/// first of each peer, the second of each peer, and so on, which is the order of arrival. Else: in ascending order,
/// cyclically from `first`.
struct RowOrder {
  std::int32_t rank, ranks;
  std::int32_t per_shard;  ///< rows of tiles; 0: a row of tiles may have rows of several shards
  std::int32_t first;      ///< the row of tiles with the first own row; used if per_shard is 0
  std::int32_t count;      ///< rows of tiles

  constexpr int at(int position) const {
    if (per_shard == 0) return (position + first) % count;
    if (position < per_shard) return rank * per_shard + position;
    const int of_peers = position - per_shard;
    const int peer = (rank + 1 + of_peers % (ranks - 1)) % ranks;
    return peer * per_shard + of_peers / (ranks - 1);
  }
};

/// The arguments of every kernel of ag-gemm. A kernel uses only some of them.
struct Args {
  TensorMap x;              ///< wgmma: this rank's x [shard_rows, k], boxes of tile rows (swap_ab: tile columns) x 64
  TensorMap gathered_x[2];  ///< wgmma: all ranks' x [m, k] in the heap, the same boxes; by the parity of the epoch
  TensorMap x_last, gathered_x_last[2];  ///< wgmma: the same, boxes of last.rows x 64
  TensorMap w;                           ///< wgmma: [n, k], boxes of tile columns (swap_ab: tile rows) x 64
  TensorMap out;                         ///< wgmma: y [m, n], boxes as in gemm
  TensorMap source;                      ///< wgmma: this rank's x in boxes of a piece's rows x kBoxDepth
  TensorMap target
      [2]
      [kMaxRanks];  ///< wgmma: this rank's shard in `gathered` of each rank, by parity of the epoch; boxes as `source`
  WorldView view;
  std::uint32_t slot;
  std::int32_t m, n, k;  ///< of this rank's product: n is the number of rows of its w
  std::int32_t shard_rows;
  tile::LastTile last;         ///< wgmma, without swap_ab: of the gathered x
  std::int32_t comm_blocks;    ///< the first blocks of the launch, which multiply nothing
  std::int32_t sending_warps;  ///< warps of a comm block that send
  std::int32_t xcds;           ///< mfma: XCDs; the hardware assigns consecutive blocks to them in turn
  tile::TileGrid grid;
  RowOrder order;
  Pieces pieces;
  PieceOrder piece_order;
  std::uint32_t
      own_read_directly;   ///< 1: tiles of own rows are read from x itself, and a rank sends no pieces to itself
  std::uint32_t drop_put;  ///< fault injection: number of the piece (from 1) that is not sent; 0: all are sent
  // Offsets in the heap.
  std::int64_t gathered;  ///< [2, m, k], by the parity of the epoch
  std::int64_t arrived;   ///< [2, ranks, pieces.row_count, pieces.depth_count] cells of 8 bytes: epoch << 32
  std::int64_t
      inbox;  ///< wgmma, if x crosses as words: [kInboxes, m, k], by the epoch; all ones where nothing has arrived
  std::int64_t partials;  ///< mfma: partial sums of splits (tile/gemm/split_k.dev.h)
  std::int64_t counters;
  const void* own_x;  ///< [shard_rows, k]
  const void* own_w;  ///< [n, k]
  const void* bias;   ///< [n], or null
  void* y;            ///< [m, n]
  void* all_x;        ///< [m, k], if x of all ranks is a result; else null

  /// Which of the two copies of gathered and arrived the call uses.
  constexpr std::uint32_t parity(std::uint32_t epoch) const { return epoch & 1; }
  constexpr std::int64_t gathered_of(std::uint32_t epoch) const {
    return gathered + parity(epoch) * (std::int64_t{2} * m * k);
  }
  constexpr std::int64_t arrived_of(std::uint32_t epoch) const {
    return arrived + parity(epoch) * (std::int64_t{8} * view.size * pieces.count());
  }
  constexpr std::int64_t inbox_of(std::uint32_t epoch) const {
    return inbox + epoch % kInboxes * (std::int64_t{2} * m * k);
  }
};

}  // namespace farwarp::ag_gemm
