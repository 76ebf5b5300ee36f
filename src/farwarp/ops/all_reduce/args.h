// The arguments of the kernels of the all-reduce, and where things are in the heap.
#pragma once

#include <cstdint>

#include "farwarp/world/view.h"

namespace farwarp::all_reduce {

/// Wait sites of the ledger.
enum Site : std::uint32_t { kSiteWords, kSitePartials, kSiteFinished, kSites };
inline constexpr const char* kSiteNames[kSites] = {"a peer's vector", "a peer's partial sums",
                                                   "a peer's finished sums"};

inline constexpr int kVectorBytes = 16;
inline constexpr int kMaxThreads = 512;      ///< of a block, with the warp that keeps the operator's cells
inline constexpr int kOneShotThreads = 256;  ///< that send and add up, while there are multiprocessors for more blocks
/// A chunk, which one signal tells of: a power of two in between.
inline constexpr int kLeastChunkVectors = 64, kMaxChunkVectors = 256;
inline constexpr int kPartAlignment = 8;  ///< vectors: a part begins with a line of 128 bytes

/// What a chunk holds, as an index.
enum Kind : std::int32_t { kPartials, kFinished, kKinds };

struct Args {
  WorldView view;
  std::uint32_t slot;      ///< of the operator in its World
  std::uint32_t drop_put;  ///< 1 + the vector (one-shot) or chunk (two-shot) that this rank sends nobody; 0: sends all
  std::int64_t elements;
  std::int64_t vectors;        ///< of the tensor
  std::int64_t part_vectors;   ///< of a part of this call
  std::int32_t chunk_vectors;  ///< of a chunk of a part
  std::int32_t groups;  ///< warps that share the sending and collecting of a chunk of all parts, each for some peers
  // Offsets in every heap, and their pitches: those of the largest call.
  std::int64_t words;         ///< words [2 parities][source][word_pitch]
  std::int64_t word_pitch;    ///< vectors
  std::int64_t parts;         ///< vectors [Kind][source][part_pitch]
  std::int64_t part_pitch;    ///< vectors
  std::int64_t signals;       ///< cells [Kind][source][signal_pitch]
  std::int64_t signal_pitch;  ///< chunks
  const void* in;
  void* out;
};

}  // namespace farwarp::all_reduce
