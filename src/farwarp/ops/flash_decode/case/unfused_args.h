// The arguments of the kernels that merge ranks' outputs after a local flash-decode.
#pragma once

#include <cstdint>

#include "farwarp/base/pointers.h"
#include "farwarp/world/view.h"

namespace farwarp::decode {

inline constexpr int kUnfusedThreads = 256;
inline constexpr int kUnfusedSiteOutput = 0;
inline constexpr const char* kUnfusedSiteNames[] = {"a peer's output of its own keys"};
inline constexpr int kUnfusedVectors = 16;  ///< most words of a row, of 8 columns each; the LSE has the one after them

/// A part is the output of one rank's keys: [rows][head_dim] of the dtype, then at `lse_offset` [rows] fp32.
struct UnfusedArgs {
  WorldView view;
  std::uint32_t slot;  ///< of the operator in its World
  std::int32_t ranks;
  std::int32_t rows;  ///< batch * query_heads
  std::int32_t query_heads;
  std::int32_t head_dim;
  std::int64_t part_bytes;
  std::int64_t lse_offset;
  std::int64_t inbox;      ///< in the heap: words [2 parities][source][rows][kUnfusedVectors + 1] of 16 bytes
  const std::byte* parts;  ///< bsp: of all ranks; fused-wait: of this one
  const float* sinks;      ///< [query_heads], or null
  void* out;               ///< [rows][head_dim]
  float* lse;              ///< [rows], or null
};

}  // namespace farwarp::decode
