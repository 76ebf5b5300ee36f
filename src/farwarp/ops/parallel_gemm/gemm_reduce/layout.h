// Which rank owns which rows of the sum, where partial sums lie in inboxes, which flags guard them, and the order of
// tiles and chunks.
#pragma once

#include <cstdint>

#include "farwarp/base/divisor.h"
#include "farwarp/tile/gemm/raster.h"

namespace farwarp::gemm_reduce {

/// Ranks `first` to `last`.
struct OwnerRange {
  std::int32_t first, last;
};

/// A chunk is so many rows of y by a band's columns.
inline constexpr int kChunkRows = 8;
/// If sums are sent as words, a chunk is so many rows by so many vectors: a vector for each lane.
inline constexpr int kWordChunkRows = 4, kWordChunkVectors = 8;

/// A band is the part of a tile that is sent and flagged as one: what a warpgroup multiplies (wgmma) or the block
/// stores (mfma). Also who owns which rows (m, owned, by_owned): set and used with words, too.
struct Bands {
  std::int32_t rows, columns;  ///< of a band
  std::int32_t row_count;      ///< the most bands that have rows of one owner
  std::int32_t column_count;
  std::int32_t m;      ///< rows of the whole sum
  std::int32_t owned;  ///< m / ranks: rank r owns rows r * owned ...
  std::int32_t
      chunk_group;  ///< rows of chunks that are added up side by side, column by column: the `group` of tile_at()
  Divisor by_owned;

  /// The owners of the rows of the band that begins at row `row`, which is less than m.
  constexpr OwnerRange owners_of(int row) const {
    const int end = row + rows < m ? row + rows : m;
    return {row / owned, (end - 1) / owned};
  }
  /// The row of bands that has the owner's first row. The owner's flags count rows of bands from it.
  constexpr int first_of(int owner) const { return owner * owned / rows; }
  /// Index of the flag of `source`'s band among the owner's flags. `row_band` counts from first_of(owner).
  constexpr std::int64_t flag_index(int source, int row_band, int column_band) const {
    return (std::int64_t{source} * row_count + row_band) * column_count + column_band;
  }
};

/// The inbox of partial sums, or of finished rows (gemm-ar), that are sent as words: vectors of eight neighbours of a
/// row, [2][sources][rows][vectors], the first index by the parity of the epoch. It holds all ones where nothing has
/// arrived.
struct WordInbox {
  static constexpr int kVectorBytes = 16;
  static constexpr int kElements = 8;  ///< of a vector

  std::int64_t at;                      ///< offset in every heap
  std::int32_t sources, rows, vectors;  ///< rows is 0: partial sums are sent as boxes with flags
  std::int32_t chunk_group;             ///< as in Bands

  constexpr std::int64_t bytes() const { return 2 * half() * kVectorBytes; }
  constexpr std::int64_t row_bytes() const { return std::int64_t{vectors} * kVectorBytes; }
  /// Of a vector: its offset in the heap.
  constexpr std::int64_t place(std::uint32_t epoch, int source, int row, int vector) const {
    const std::int64_t in_half = (std::int64_t{source} * rows + row) * vectors + vector;
    return at + ((epoch & 1) * half() + in_half) * kVectorBytes;
  }

 private:
  constexpr std::int64_t half() const { return std::int64_t{sources} * rows * vectors; }
};

constexpr Bands make_bands(int rows, int columns, int m, int n, int ranks) {
  Bands bands{rows,
              columns,
              0,
              (n + columns - 1) / columns,
              m,
              m / ranks,
              rows > kChunkRows ? rows / kChunkRows : 1,
              Divisor(m / ranks)};
  for (int owner = 0; owner < ranks; ++owner) {
    const int last_row = (owner + 1) * bands.owned - 1;
    const int count = last_row / rows - bands.first_of(owner) + 1;
    bands.row_count = count > bands.row_count ? count : bands.row_count;
  }
  return bands;
}

/// How many chunks an owner adds up.
constexpr int chunks_of(const Bands& bands) { return (bands.owned + kChunkRows - 1) / kChunkRows * bands.column_count; }

/// Where a chunk begins: `row` among the owned rows, `column` counted in bands. On Hopper with straight tiles chunks
/// follow one another in the order in which their bands arrive (chunk_group_of()), otherwise one row of bands after the
/// other (make_bands()). Consecutive chunks mostly have the same bands. On CDNA, whose waves take consecutive chunks,
/// these are then awaited once; on Hopper consecutive chunks go to different blocks.
struct ChunkPlace {
  int row;
  int column;
};
constexpr ChunkPlace chunk_at(const Bands& bands, int chunk) {
  const int heights = (bands.owned + kChunkRows - 1) / kChunkRows;
  const auto at = tile::tile_at(chunk, heights, bands.column_count, bands.chunk_group);
  return {at.row * kChunkRows, at.column};
}

/// The same for words: chunks of kWordChunkRows rows by kWordChunkVectors vectors. `column` counts vectors.
constexpr int chunks_of(const WordInbox& inbox) {
  return (inbox.rows + kWordChunkRows - 1) / kWordChunkRows *
         ((inbox.vectors + kWordChunkVectors - 1) / kWordChunkVectors);
}
constexpr ChunkPlace chunk_at(const WordInbox& inbox, int chunk) {
  const int heights = (inbox.rows + kWordChunkRows - 1) / kWordChunkRows;
  const int columns = (inbox.vectors + kWordChunkVectors - 1) / kWordChunkVectors;
  const auto at = tile::tile_at(chunk, heights, columns, inbox.chunk_group);
  return {at.row * kWordChunkRows, at.column * kWordChunkVectors};
}

/// The order in which rows of tiles are computed. If each owner's rows are whole rows of tiles: the first row of tiles
/// of each owner, then the second of each, and so on. Each time the rank after this one is first and this rank is last.
/// So a position in this order has another owner on each rank, and all links are in use from the first tile on.
/// Otherwise, and if `own_last` is asked for: in order, beginning with the row of tiles that has the first row of the
/// rank after this one.
struct RowOrder {
  std::int32_t count;      ///< rows of tiles
  std::int32_t ranks;      ///< owners whose rows alternate; 0: none do
  std::int32_t per_owner;  ///< rows of tiles of an owner, if owners alternate
  std::int32_t first;      ///< the first owner, or the first row of tiles

  constexpr int at(int position) const {
    if (ranks != 0) return (first + position % ranks) % ranks * per_owner + position / ranks;
    return position + first < count ? position + first : position + first - count;
  }
};

/// `tile_rows`: rows of tiles of the whole product, each of `rows` rows of the sum.
constexpr RowOrder make_row_order(int rows, int tile_rows, int m, int rank, int ranks, bool own_last = false) {
  const int owned = m / ranks, next = (rank + 1) % ranks;
  if (owned % rows == 0 && !own_last) return {tile_rows, ranks, owned / rows, next};
  return {tile_rows, 0, 0, next * owned / rows};
}
/// If rows of tiles are rows of w (swap_ab), each has rows of all owners, and any order will do.
constexpr RowOrder in_order(int tile_rows) { return {tile_rows, 0, 0, 0}; }

/// The chunk_group that follows the order of arrival: how many rows of chunks, of `chunk_rows` rows each, arrive side
/// by side at an owner if `group` rows of tiles of `rows` rows are computed side by side (tile/gemm/raster.h).
constexpr int chunk_group_of(const RowOrder& order, int rows, int group, int chunk_rows = kChunkRows) {
  const int of_owner = order.ranks == 0 ? group : group > order.ranks ? group / order.ranks : 1;
  return of_owner * rows / chunk_rows;
}

}  // namespace farwarp::gemm_reduce
