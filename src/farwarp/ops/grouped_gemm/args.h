// The arguments of the kernels of grouped_gemm.
#pragma once

#include <cstdint>

#include "farwarp/base/tensor_map.h"
#include "farwarp/tile/gemm/scales.h"
#include "farwarp/world/view.h"

namespace farwarp::grouped_gemm {

/// Wait sites of the ledger, and what kBadInput names.
enum Site : std::uint32_t { kSiteStage, kSiteRows, kSites };
inline constexpr const char* kSiteNames[kSites] = {"a stage of operands", "rows of a group"};

/// 128 bytes of shared memory remain for counters of traces.
inline constexpr int kMostGroups = 480;

inline constexpr int kBoxes = 2;  ///< of a warpgroup

struct Args {
  TensorMap x;  ///< boxes of a tile's rows x 64 words
  TensorMap w;  ///< [groups * rows of a group's w, k]; boxes of a tile's columns x 64 words, gated of half of them
  TensorMap y;  ///< boxes of 64 x 64
  WorldView view;
  std::uint32_t slot;
  std::int32_t groups, n, steps;
  std::int32_t max_rows;                  ///< masked: room of a group; else rows of x
  std::int32_t column_tiles;              ///< of y
  std::int32_t masked;                    ///< `rows` are the groups' counts of rows; else where their rows begin
  std::int32_t clamped;                   ///< gated: Activation::kClampedSwiGlu
  const std::int32_t* rows;               ///< [groups], or not masked [groups + 1]
  const void* bias;                       ///< [groups, rows of a group's w], or null
  void* y_rows;                           ///< [rows of x, n]
  tile::ScaleStrides x_scales, w_scales;  ///< of e4m3 operands; of w those of the first group
  std::int32_t w_scales_of_matrix;        ///< elements from one group's to the next; gated: gate's, then up's
};

}  // namespace farwarp::grouped_gemm
