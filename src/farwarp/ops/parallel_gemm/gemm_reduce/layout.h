// Who owns which rows of the sum, in which parts rows are sent and signalled, and in which order they are computed.
#pragma once

#include <cstdint>

#include "farwarp/base/divisor.h"
#include "farwarp/tile/gemm/raster.h"

namespace farwarp::gemm_reduce {

/// Ranks `first` to `last`.
struct OwnerRange {
  std::int32_t first, last;
};

inline constexpr int kChunkRows = 8;  ///< rows of a chunk, by a band's columns: what a warp adds up at a time
/// A chunk of words, kWordChunkRows x kWordChunkVectors: a vector for each lane. A store warp stores as much at once.
inline constexpr int kWordChunkRows = 4;
inline constexpr int kWordChunkVectors = 8;

/// A band is the part of a tile that is sent and flagged as one: what one warpgroup (wgmma) or the block (mfma) stores.
struct Bands {
  std::int32_t rows, columns;  ///< of a band
  std::int32_t row_count;      ///< row bands that hold rows of one owner, at most
  std::int32_t column_count;
  std::int32_t m;            ///< rows of the whole sum
  std::int32_t owned;        ///< m / ranks: rank r owns rows r * owned ...
  std::int32_t chunk_group;  ///< rows of chunks in a group; tile_at() numbers chunks with it
  Divisor by_owned;

  /// The owners of the rows of the band that begins at row `row`, which is less than m.
  constexpr OwnerRange owners_of(int row) const {
    const int end = row + rows < m ? row + rows : m;
    return {row / owned, (end - 1) / owned};
  }
  /// The row band that holds the owner's first row; the owner counts row bands from it.
  constexpr int first_of(int owner) const { return owner * owned / rows; }
  /// The index of the flag of `source`'s band among the owner's flags; `row_band` is counted from the owner's first.
  constexpr std::int64_t flag(int source, int row_band, int column_band) const {
    return (std::int64_t{source} * row_count + row_band) * column_count + column_band;
  }
};

/// Where partial sums, or in gemm-ar finished rows, arrive as words, in vectors of eight neighbours of a row: [2][sources][rows][vectors],
/// the first index by the parity of the epoch. A buffer of its own, which holds all ones where nothing has arrived.
struct WordInbox {
  static constexpr int kVectorBytes = 16;
  static constexpr int kElements = 8;  ///< of a vector

  std::int64_t at;                      ///< offset in every heap
  std::int32_t sources, rows, vectors;  ///< 0 rows: sums go by boxes and flags
  std::int32_t chunk_group;             ///< as in Bands

  constexpr std::int64_t bytes() const { return 2 * half() * kVectorBytes; }
  constexpr std::int64_t row_bytes() const { return std::int64_t{vectors} * kVectorBytes; }
  /// Offset in the heap.
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

/// Chunks of one owner's rows.
constexpr int chunks_of(const Bands& bands) { return (bands.owned + kChunkRows - 1) / kChunkRows * bands.column_count; }

/// A chunk's first row, counted from the owner's first, and its band of columns. Chunks are numbered in groups of rows, column by column.
/// Groups of a band's height: a wait for one chunk's bands mostly serves the next chunk too. Groups of the rows that the sources compute
/// together (chunk_group_of()): chunks are numbered in the order in which their bands arrive.
struct ChunkPlace {
  int row;
  int column;
};
constexpr ChunkPlace chunk_at(const Bands& bands, int chunk) {
  const int heights = (bands.owned + kChunkRows - 1) / kChunkRows;
  const auto at = tile::tile_at(chunk, heights, bands.column_count, bands.chunk_group);
  return {at.row * kChunkRows, at.column};
}

/// The same for words: chunks are kWordChunkRows by kWordChunkVectors, and ChunkPlace::column is a vector's. Counts all rows of the inbox.
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

/// The order in which rows of tiles are computed. Where each owner's rows fill whole rows of tiles, owners take turns: the first row of
/// tiles of each owner, then the second of each, and so on, each time from the rank after to this rank. So no two ranks begin with the same
/// owner, and all links are in use from the first tile on. Otherwise rows of tiles follow one another, from the one that holds the first
/// row of the rank after.
struct RowOrder {
  std::int32_t count;      ///< rows of tiles
  std::int32_t ranks;      ///< owners that take turns; 0: rows of tiles follow one another
  std::int32_t per_owner;  ///< rows of tiles, where owners take turns
  std::int32_t first;      ///< the owner, or the row of tiles, to begin with

  constexpr int at(int turn) const {
    if (ranks != 0) return (first + turn % ranks) % ranks * per_owner + turn / ranks;
    return turn + first < count ? turn + first : turn + first - count;
  }
};

/// `tile_rows`: rows of tiles of the whole product, each of `rows` rows of the sum.
constexpr RowOrder make_row_order(int rows, int tile_rows, int m, int rank, int ranks) {
  const int owned = m / ranks, next = (rank + 1) % ranks;
  if (owned % rows == 0) return {tile_rows, ranks, owned / rows, next};
  return {tile_rows, 0, 0, next * owned / rows};
}
/// For rows of tiles that are rows of w: every tile goes to all owners, so the order does not matter.
constexpr RowOrder in_order(int tile_rows) { return {tile_rows, 0, 0, 0}; }

/// How many rows of chunks, each `chunk_rows` high, arrive together at an owner, one column of tiles after another. Sources compute `group`
/// rows of tiles together (tile/gemm/raster.h), each of `rows` rows.
constexpr int chunk_group_of(const RowOrder& order, int rows, int group, int chunk_rows = kChunkRows) {
  const int of_owner = order.ranks == 0 ? group : group > order.ranks ? group / order.ranks : 1;
  return of_owner * rows / chunk_rows;
}

}  // namespace farwarp::gemm_reduce
