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
  Task task;             ///< its vector is the first of the heap
  std::byte* data;       ///< the vector, as StreamWorker has it, or the weights
  std::int32_t freed;    ///< stages of the vector, or slots of weights, that the reader gives back
  std::int32_t* loaded;  ///< 1: no wait has expired
};

inline constexpr int kInversesTestColumns = 64;
/// Computes the inverses of a vector; then each warp stores other numbers where it would store its partial sums of a tile.
struct InversesTestArgs {
  WorldView view;
  std::byte* vector;  ///< the data of packets, as StreamWorker has them
  std::int32_t rows;
  float epsilon;
  float* inverses;  ///< [columns]
};

}  // namespace farwarp::fleet
