// What host and device share of the probes: argument blocks, sizes, and the words that are moved about.
#pragma once

#include <cstdint>

#include "farwarp/base/pointers.h"
#include "farwarp/world/view.h"

namespace farwarp::probes {

inline constexpr int kStreamThreads = 256;          ///< of a block that moves memory
inline constexpr int kBlocksPerMultiprocessor = 8;  ///< at most: 2048 threads fill the largest multiprocessor
inline constexpr int kUnroll = 4;                   ///< accesses of 16 bytes that a thread has in flight
inline constexpr int kTileVectors = kStreamThreads * kUnroll;
inline constexpr int kTileBytes = kTileVectors * 16;  ///< what a block moves at a time, and the size of a bulk copy
inline constexpr int kTileWords = kTileBytes / 8;
inline constexpr int kSyncThreads = 64;  ///< of the one block that exchanges flags: at least one warp on every target

/// Word j of memory that a probe fills. The seed differs for each (probe, writer), so a word shows who wrote it. The
/// stride is odd, so no two words are equal.
inline constexpr std::uint64_t kStride = 0x9e3779b97f4a7c15u;
inline constexpr std::uint64_t kInverseStride = 0xf1de83e19937733du;  ///< kStride * kInverseStride == 1
static_assert(kStride * kInverseStride == 1);
constexpr std::uint64_t word_at(std::uint64_t seed, std::uint64_t j) { return seed + j * kStride; }

/// For the kernels that move or read tiles.
struct StreamArgs {
  const Vec16* source;        ///< read, copy, check: `tiles` tiles
  Vec16* targets[kMaxRanks];  ///< fill, store, bulk: `tiles` tiles each; copy: the first one
  std::int32_t target_count;
  std::int32_t tiles;
  std::uint64_t seed;        ///< of the words written, or expected by check
  std::int32_t tile_stride;  ///< in words: tile t holds the words from t * tile_stride; 0 if all tiles are alike
  std::uint64_t* out;        ///< for each warp, read: the sum of its words; check: the number of wrong ones
};

/// For the kernels that exchange flags, packets or barriers. Each round has cells of its own, tagged with the epoch, so
/// nothing has to be reset (see probes.dev.h).
struct SyncArgs {
  WorldView view;
  std::uint32_t slot;
  std::int32_t rounds;
  std::int64_t packets;   ///< offset of Packet [rounds]
  std::int64_t flags;     ///< offset of u64 cells [rounds]
  std::int64_t barriers;  ///< offset of u64 cells [rounds][ranks]
  std::uint64_t* out;     ///< [1 + kMaxRanks]: nanoseconds of the counted rounds, then the sum of what each rank sent
};

inline constexpr int kWarmUpRounds = 2;  ///< not counted: ranks start at different times
inline constexpr int kLeastRounds = 4;

enum Site : std::uint32_t { kSiteFlag, kSitePacket, kSiteBarrier, kSiteWeights, kSites };
inline constexpr const char* kSiteNames[kSites] = {"flag", "packet", "barrier", "weights"};

inline constexpr int kMatrixThreads = 256;
inline constexpr int kMatrixColumns = 256;  ///< of a tile of 128 rows; wgmma
inline constexpr int kMatrixDepth = 64;

/// Element (row, k) of both operands of the matrix probe, in units of 1/8. The values vary, so that the unit is as busy
/// as with other numbers, and sums of their products are exact in fp32.
constexpr int matrix_value(int row, int k) { return (row * 7 + k * 13 + row * k % 11) % 15 - 7; }

struct MatrixArgs {
  std::int32_t rounds;
  std::uint64_t* out;  ///< [blocks, kMatrixThreads]: the sum of each thread's sums, in units of 1/64
};

// A layer is four matrices and, between the first two, the attention, which counts as a matrix without bytes.
inline constexpr int kLayerMatrices = 5;
inline constexpr int kAttention = 1;
inline constexpr int kWeightCopyBytes = 8 << 10;
inline constexpr int kWeightStages = 26;    ///< of kWeightCopyBytes
inline constexpr int kWeightsInFlight = 8;  ///< copies of a block
inline constexpr int kWeightThreads = 128;
inline constexpr int kWeightBlocks = 256;  ///< at most
inline constexpr int kBlockPackets = 8;    ///< that a block sends at an edge: 32 numbers of 16 bits
inline constexpr int kWeightShared = kWeightStages * (kWeightCopyBytes + 16);  ///< stages, and the ring's mbarriers
inline constexpr std::uint64_t kStepWords =
    262'147;  ///< from a load of the attention to the next one: over 2 MB, a page of the GPU

struct WeightsArgs {
  struct Matrix {
    std::int64_t begin;       ///< in a layer, in bytes
    std::int32_t copies;      ///< of each block
    std::int32_t copy_bytes;  ///< a multiple of 128, at most kWeightCopyBytes
  };
  WorldView view;
  std::uint32_t slot;
  const std::byte* weights;  ///< word j is word_at(seed, j)
  std::uint64_t seed;
  std::int32_t layers, kept_layers;  ///< layer l lies in memory as layer l % kept_layers
  std::int64_t layer_bytes;
  Matrix matrices[kLayerMatrices];
  std::int32_t edges;            ///< 0: no block waits for another one, and there is no attention
  std::int32_t attention_loads;  ///< one after the other
  std::uint64_t words;           ///< that they may read
  /// offset of Packet [layers * kLayerMatrices][blocks][kBlockPackets]: the block has ended the matrix before
  std::int64_t ended;
  std::uint64_t* out;  ///< [blocks][kWeightThreads]
};

/// The first word that a block's attention loads, and the one after `word`.
constexpr std::uint64_t first_word(const WeightsArgs& args, int layer, int block) {
  return (static_cast<std::uint64_t>(layer) * 1'000'003 + static_cast<std::uint64_t>(block) * 4'099) % args.words;
}
constexpr std::uint64_t next_word(const WeightsArgs& args, std::uint64_t word) {
  return ((word - args.seed) * kInverseStride + kStepWords) % args.words;
}
/// The data of packet `packet` (of all blocks) before matrix number `number`.
constexpr std::uint64_t ended_data(int number, int packet) {
  return static_cast<std::uint64_t>(number) * (kWeightBlocks * kBlockPackets) + static_cast<std::uint64_t>(packet);
}

struct EmptyArgs {
  std::uint32_t unused;
};

}  // namespace farwarp::probes
