// Who owns which rows of the sum, in which vectors they are told of, and in which order they are computed.
#pragma once

#include <cstdint>

#include "farwarp/base/divisor.h"
#include "farwarp/tile/gemm/raster.h"

namespace farwarp::gemm_reduce {

/// Ranks `first` to `last`.
struct OwnerRange {
  std::int32_t first, last;
};

inline constexpr int kChunkRows = 8;  ///< of y, by a band's columns: what a warp adds up at a time
inline constexpr int kWordChunkRows =
    4;  ///< ... where sums come as words: a vector for each lane, and what a store warp
inline constexpr int kWordChunkVectors = 8;  ///< sends at once

/// A band is what is sent and told of as one: of a tile, what one warpgroup (wgmma) or the block (mfma) stores.
struct Bands {
  std::int32_t rows, columns;  ///< of a band
  std::int32_t row_count;      ///< bands that the rows of one owner meet, at most
  std::int32_t column_count;
  std::int32_t m;            ///< rows of the whole sum
  std::int32_t owned;        ///< m / ranks: rank r owns rows r * owned ...
  std::int32_t chunk_group;  ///< heights of chunks whose columns come before the next heights
  Divisor by_owned;

  /// Whose rows are among those of the band that begins at row `row`, which lies inside.
  constexpr OwnerRange owners_of(int row) const {
    const int end = row + rows < m ? row + rows : m;
    return {row / owned, (end - 1) / owned};
  }
  /// The band that holds the owner's first row: the owner counts from it.
  constexpr int first_of(int owner) const { return owner * owned / rows; }
  /// The flag of `source`'s band (row band counted from the owner's first) among the owner's flags.
  constexpr std::int64_t flag(int source, int row_band, int column_band) const {
    return (std::int64_t{source} * row_count + row_band) * column_count + column_band;
  }
};

/// Where partial sums, or an owner's whole ones (gemm-ar), arrive as words, in vectors of eight neighbours of a row: [2][sources][rows][vectors], by the parity of the epoch. A
/// memory of its own, which holds all ones where nothing has come.
struct WordInbox {
  static constexpr int kVectorBytes = 16;
  static constexpr int kElements = 8;  ///< of a vector

  std::int64_t at;                      ///< offset in every heap
  std::int32_t sources, rows, vectors;  ///< without rows, partial sums go by boxes and flags
  std::int32_t chunk_group;             ///< heights of chunks whose columns come before the next heights

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

/// Units of one owner.
constexpr int chunks_of(const Bands& bands) { return (bands.owned + kChunkRows - 1) / kChunkRows * bands.column_count; }

/// First of the owned rows, and band of columns, of a chunk. Groups of a band's height: what has been awaited for one chunk mostly serves
/// the next. Groups of what the sources compute together (chunk_group_of()): chunks follow one another as their bands arrive.
struct ChunkPlace {
  int row;
  int column;
};
constexpr ChunkPlace chunk_at(const Bands& bands, int chunk) {
  const int heights = (bands.owned + kChunkRows - 1) / kChunkRows;
  const auto at = tile::tile_at(chunk, heights, bands.column_count, bands.chunk_group);
  return {at.row * kChunkRows, at.column};
}

/// The same of words: chunks are kWordChunkRows by kWordChunkVectors, and a place's column is that of a vector. As many as a heap has room for.
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

/// Which row of tiles comes in turn. Where each owner's rows are whole rows of tiles: the first of each owner, the second of each,
/// ..., every time beginning with the next rank and ending with this one, so that no two ranks begin with the same owner and all
/// links are in use from the first tile on. Else all in a row, beginning with the one that holds the next rank's first row.
struct RowOrder {
  std::int32_t count;      ///< rows of tiles
  std::int32_t ranks;      ///< owners that take turns; 0: all in a row
  std::int32_t per_owner;  ///< rows of tiles, where owners take turns
  std::int32_t first;      ///< the owner, or the row of tiles, that comes first

  constexpr int at(int turn) const {
    if (ranks != 0) return (first + turn % ranks) % ranks * per_owner + turn / ranks;
    return turn + first < count ? turn + first : turn + first - count;
  }
};

/// `tile_rows`: of the whole product, `rows` rows of the sum each.
constexpr RowOrder make_row_order(int rows, int tile_rows, int m, int rank, int ranks) {
  const int owned = m / ranks, next = (rank + 1) % ranks;
  if (owned % rows == 0) return {tile_rows, ranks, owned / rows, next};
  return {tile_rows, 0, 0, next * owned / rows};
}
/// Where rows of tiles are rows of w, their order is nobody's matter.
constexpr RowOrder in_order(int tile_rows) { return {tile_rows, 0, 0, 0}; }

/// Heights of chunks of `chunk_rows` in which an owner's rows arrive together, one column of tiles after the other, where `group` rows of
/// tiles of `rows` rows each run together (tile/gemm/raster.h).
constexpr int chunk_group_of(const RowOrder& order, int rows, int group, int chunk_rows = kChunkRows) {
  const int of_owner = order.ranks == 0 ? group : group > order.ranks ? group / order.ranks : 1;
  return of_owner * rows / chunk_rows;
}

}  // namespace farwarp::gemm_reduce
