// The arguments of the kernels of moe_layer.
#pragma once

#include <cstdint>

#include "farwarp/base/divisor.h"
#include "farwarp/base/tensor_map.h"
#include "farwarp/ops/moe_layer/plan.h"
#include "farwarp/world/view.h"

namespace farwarp::moe_layer {

/// Wait sites and complaints, as the ledger names them.
enum Site : std::uint32_t {
  kSiteStage,     ///< a stage of operands
  kSiteHeader,    ///< a source's number of tokens
  kSiteEntry,     ///< a source's expert and weight
  kSiteRow,       ///< a source's row of x
  kSiteCounts,    ///< entries of the experts, counted by other blocks
  kSiteRowIds,    ///< rows of the experts, listed by other blocks
  kSiteX,         ///< rows of x that other blocks copy
  kSiteH,         ///< activated products of other blocks
  kSiteY,         ///< products with w2 of other blocks
  kSiteReturn,    ///< an owner's sum
  kSiteTokens,    ///< complaint: token count outside 0 .. max_tokens
  kSiteExpert,    ///< complaint: expert outside -1 .. num_experts - 1
  kSiteCapacity,  ///< complaint: more entries than max_rows
  kSites,
};
inline constexpr const char* kSiteNames[kSites] = {"a stage of operands",
                                                   "token count of a peer",
                                                   "top-k entry",
                                                   "row of x",
                                                   "counts of entries",
                                                   "rows of experts",
                                                   "copied rows of x",
                                                   "activated products",
                                                   "products with w2",
                                                   "returned sum",
                                                   "token count",
                                                   "expert index",
                                                   "max_rows"};

// How deep waits are (Wait::depth): what a peer sends has depth 0. Waits on blocks of this launch may have the depth of
// what those wait for: if nothing of a peer is missing, the products take longer than the deadline, wherever that is
// seen.
inline constexpr std::uint32_t kRoutingDepth = 1, kProductsDepth = 2, kReturnDepth = 3;

inline constexpr int kMaxTopK = 32;  ///< lanes of a warp
/// Five bytes of shared memory for each are what the tiles leave.
inline constexpr int kMaxLocalExperts = 384;
inline constexpr int kBoxes = 2;              ///< of a warpgroup
inline constexpr int kEntriesOfSlice = 1024;  ///< that a block counts, if there are enough blocks
inline constexpr int kLeastPart = 256;        ///< elements of a part of a row
/// Tags of packets and flags that a call does not use are renewed once in so many calls of its parity, so that none is
/// ever 2^32 - 4 calls old.
inline constexpr std::uint32_t kRetagPeriod = 1u << 16;

// Counters, u32, which begin at kNoneCounted: all ones, so that World::recover() restores them after an aborted call. A
// call clears those of the other parity.
inline constexpr std::uint32_t kNoneCounted = ~std::uint32_t{0};
/// What a counter is after `count` additions of 1.
constexpr std::uint32_t counted_to(int count) { return kNoneCounted + static_cast<std::uint32_t>(count); }
inline constexpr int kCounted = 0, kListed = 1;  ///< slices
inline constexpr int kXParts = 2, kHParts = 3;   ///< of all tiles, what is counted of each
/// By tile of rows: rows of x that are copied; then multipliers that have stored a part of h; then of y.
inline constexpr int kTileCounters = 4;
constexpr std::int64_t counters_of(std::int64_t row_tiles) { return kTileCounters + 3 * row_tiles; }

inline constexpr int kBoxHeights = 5;
constexpr int box_rows(int height) { return 8 << height; }
/// The least height with so many rows, at least 1.
constexpr int box_height(int rows) { return rows <= 8 ? 0 : rows <= 16 ? 1 : rows <= 32 ? 2 : rows <= 64 ? 3 : 4; }

struct Args {
  TensorMap w1;  ///< [local experts * 2 * intermediate, hidden]; boxes of half a tile's columns x 64
  TensorMap w2;  ///< [local experts * hidden, intermediate]; boxes of a tile's columns x 64
  // Boxes of box_rows(i) rows x 64, so that rows that no tile has are not moved.
  TensorMap x_or_y[kBoxHeights];  ///< [rows, hidden]
  TensorMap h[kBoxHeights];       ///< [rows, intermediate]
  WorldView view;
  std::uint32_t slot;
  std::int32_t num_experts, first_expert, local_experts;
  std::int32_t first_experts[kMaxRanks];  ///< of each rank; beyond the last: num_experts
  std::int32_t k, hidden, intermediate, max_tokens;
  std::int32_t steps_of_hidden, steps_of_inter, h_columns, y_columns;
  std::int32_t row_tiles, max_slices, max_parts;
  Divisor by_max_tokens;
  std::int32_t clamped;       ///< Activation::kClampedSwiGlu
  std::int32_t wide_indices;  ///< 1: topk holds int64
  std::uint32_t max_rows;
  std::int64_t workspace;     ///< offset of the first buffer in every heap
  std::int64_t ones;          ///< of the second
  MoeLayerWorkspace offsets;  ///< relative to them
  // Of a call.
  const void* x;
  const void* topk;
  std::int32_t tokens;
  const std::int32_t* tokens_on_device;  ///< or null
  const float* weights;
  const void *bias1, *bias2;  ///< [local experts, 2 * intermediate], [local experts, hidden], or null
  void* out;
  std::uint32_t drop_put;  ///< fault injection: this rank drops the row of this token, counted from 1; 0: none
};

}  // namespace farwarp::moe_layer
