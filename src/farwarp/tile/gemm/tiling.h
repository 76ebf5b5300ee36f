// Sizes of a product + machine -> how it is cut into tiles and splits. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "farwarp/base/half.h"
#include "farwarp/base/machine_shape.h"
#include "farwarp/base/status.h"
#include "farwarp/base/tensor_map.h"
#include "farwarp/tile/gemm/raster.h"
#include "farwarp/tile/gemm/variants.h"

namespace farwarp::tile {

/// Whether a tile's rows are rows of w and its columns rows of x, or the other way round.
enum class SwapAb : std::int8_t {
  kFewRows,  ///< up to kMaxSwapAbRows rows of x, which are all in one tile
  kAuto,     ///< if it is estimated faster
  kNo,
  kYes,
};
inline constexpr int kMaxSwapAbRows = 64;

/// Bytes that a block loads in a clock while L2 serves all 132 multiprocessors at once.
inline constexpr double kL2BytesPerClock = 51;

/// Clocks that copies take to store a column of a tile of 128 rows.
inline constexpr double kStoreColumnClocks = 4.5;

struct TilingRequest {
  int m, n, k;
  DType dtype;
  std::span<const Variant> kernels;           ///< the operator's, for the machine's matrix unit
  int blocks;                                 ///< blocks that multiply at the same time
  int columns = 0;                            ///< of a tile (rows of w, or of x if swap_ab); 0: the best
  int splits = 0;                             ///< parts of k that different blocks sum, 1 to 16; 0: the best
  bool clusters = false;                      ///< splits are the blocks of a cluster
  int rows = 0;                               ///< of a tile: 64, 128 or 256; 0: the best
  int boxes_of_256 = 0;                       ///< wgmma_boxes()
  double bytes_per_clock = kL2BytesPerClock;  ///< bytes that a block loads in a clock
  bool all_resident = false;                  ///< blocks wait for each other: all clusters must run at once
  /// Clocks of the epilogue for each column of a tile. With `clusters` and `all_resident` each block of a cluster takes
  /// its part of them.
  double column_clocks = kStoreColumnClocks;
  SwapAb swap_ab = SwapAb::kFewRows;
  /// Nothing is sent meanwhile. The estimate is then another, and tiles share the rows of x evenly: at most one row for
  /// each row of tiles is outside x. Such rows cost more than others (ops/gemm/MEASURED.md, "What bounds it").
  bool alone = false;
};

struct Tiling {
  /// A tile's rows are rows of w and its columns are rows of x. The matrix unit takes multiples of 64 rows, but of 8
  /// columns.
  bool swap_ab = false;
  int rows = 0, columns = 0, depth = 0;           ///< of a tile and a step of K
  int x_rows = 0;                                 ///< rows of x from one tile to the next, at most what a tile has
  int tile_row_count = 0, tile_column_count = 0;  ///< rows and columns of tiles
  int group = 0;                                  ///< rows of tiles that run side by side: raster.h
  int splits = 1;
  int cluster = 1;  ///< blocks that share a tile's K and reach each other's shared memory: `splits`, or 1
  int steps = 0;    ///< of K
  int blocks = 0;
  double clocks = 0;  ///< wgmma: an estimate of the launch's
  int threads = 0;
  std::int64_t shared_bytes = 0;
  std::int64_t partial_sums_bytes = 0;  ///< sums of splits; the workspace has them first, then their counters
  std::int64_t workspace_bytes = 0;
  std::string kernel;  ///< the kernel's name
  std::string why;     ///< how the tile was chosen

  std::int64_t tiles() const { return std::int64_t{tile_row_count} * tile_column_count; }
  /// wgmma, without swap_ab.
  LastTile last_tile(std::int64_t rows_of_x) const;
  /// wgmma: maps of x [rows_of_x, k] and w [rows_of_w, k], with a tile's step as a box. `pitch`: elements from one row
  /// to the next.
  TensorMapDesc map_of_x(const void* x, std::int64_t rows_of_x, std::int64_t k, std::int64_t pitch) const;
  /// wgmma: the same with boxes for a last tile that is not full. Such a tile's box has no rows outside x.
  TensorMapDesc map_of_last_x(const void* x, std::int64_t rows_of_x, std::int64_t k, std::int64_t pitch,
                              const LastTile& last) const;
  TensorMapDesc map_of_w(const void* w, std::int64_t rows_of_w, std::int64_t k, std::int64_t pitch) const;
  /// wgmma: rows of y in the first box of a tile.
  int box_rows() const;
  TileGrid grid() const { return grid_of(tile_row_count, tile_column_count, group, splits, steps); }
  std::string to_string() const;
};

/// How many of an H200's `blocks` multiprocessors are busy if they run clusters of `cluster` blocks, as many as fit at
/// once. A cluster lies within one part (GPC) of 14 to 18 multiprocessors, so some may stay idle.
int blocks_at_once(int blocks, int cluster);

/// kInvalidArgument names `desc`.tile_rows, .tile_columns, .splits or .m, its value and what is allowed.
Result<Tiling> tile_product(const TilingRequest& request, const MachineShape& shape, const char* desc);

}  // namespace farwarp::tile
