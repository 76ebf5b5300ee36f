// The arguments of the kernels of gemm.
#pragma once

#include <cstdint>

#include "farwarp/base/tensor_map.h"
#include "farwarp/tile/gemm/raster.h"
#include "farwarp/tile/gemm/scales.h"
#include "farwarp/world/view.h"

namespace farwarp::gemm {

/// Wait sites of the ledger.
enum Site : std::uint32_t { kSiteStage, kSites };
inline constexpr const char* kSiteNames[kSites] = {"a stage of operands"};

/// Offsets within a tile of the mfma kernels are 32 bits wide.
inline constexpr std::int64_t kMfmaMostPitch = std::int64_t{1} << 22;

/// The argument block of every kernel of gemm; a kernel reads what it needs.
struct Args {
  TensorMap a;         ///< wgmma: the operand whose rows are a tile's rows; boxes of these rows of it x 64
  TensorMap b;         ///< wgmma: the other operand; boxes of its rows in a tile x 64
  TensorMap out;       ///< wgmma: y; boxes of first_box_rows() x 64
  TensorMap out_rest;  ///< wgmma: y; boxes of the x_rows - first_box_rows() other rows, if any, x 64
  WorldView view;
  std::uint32_t slot;  ///< of the operator in its World
  std::int32_t m, n, k;
  std::int32_t x_rows;  ///< wgmma: rows of x in a tile
  tile::TileGrid grid;
  std::int32_t xcds;      ///< mfma: how many XCDs blocks are assigned to, round robin; tile/gemm/xcd.h
  std::int64_t partials;  ///< mfma: offset in the heap: [tiles, splits, rows, columns of a tile] fp32, by fragments
  std::int64_t counters;  ///< mfma: [tiles] words: epoch << 8 | how many splits have arrived
  const void* x;          ///< [m, k]
  const void* w;          ///< [n, k]
  const void* bias;       ///< [n], or null
  void* y;                ///< [m, n]
  std::int64_t x_pitch, w_pitch, y_pitch;  ///< elements from row to row
  tile::ScaleStrides x_scales, w_scales;   ///< of e4m3 operands
  const float* column_scales;              ///< [n] factors of the sums of e4m3 operands, or null
};

}  // namespace farwarp::gemm
