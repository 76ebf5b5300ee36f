// What worker_test.dev.cc and worker_test.cc share.
#pragma once

#include <cstddef>
#include <cstdint>

#include "farwarp/fleet/layout.h"
#include "farwarp/world/view.h"

namespace farwarp::fleet {

inline constexpr int kLoaderTestColumns = 16;
inline constexpr int kLoaderTestThreads = 64;  ///< the first thread loads; the first of the second warp reads

/// Loads a task's vector or weights, of which a reader frees some; then drain(), and the block ends.
struct LoaderTestArgs {
  WorldView view;
  Task task;             ///< its vector is the first plain buffer
  std::byte* data;       ///< plain buffers, or the weights
  std::int32_t freed;    ///< slices of the vector, or slots of weights, that the reader gives back
  std::int32_t* loaded;  ///< 1: no wait has expired
};

inline constexpr int kSquaresTestColumns = 64;
inline constexpr int kSquaresTestThreads =
    (kWarps + 2) * 32;  ///< of which the last two warps have a loading thread each
inline constexpr int kSquaresTestBytes =
    ring_bytes(kSquaresTestColumns, true) + ProjectShared<kSquaresTestColumns, true>::kBytes;
/// Multiplies a vector by one tile, and stores the inverse root of its columns' squares.
struct SquaresTestArgs {
  WorldView view;
  Task task;           ///< of one tile; its vector is the first plain buffer
  std::byte* vector;   ///< plain buffers: the vector with its squares
  std::byte* weights;  ///< of the tile
  float epsilon;
  float* inverses;  ///< [columns]
};

}  // namespace farwarp::fleet
