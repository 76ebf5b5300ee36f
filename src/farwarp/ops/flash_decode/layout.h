// Where things lie in the shared memory of a block. The plan takes the size from here, the kernel the offsets.
#pragma once

#include "farwarp/ops/flash_decode/schedule.h"

namespace farwarp::decode {

/// kTensor: pages are copied in boxes that are ready for the matrix unit. kRows: page size 1, rows are copied one by one. kRows and fp8 need
/// a second copy inside shared memory, which swizzles and converts.
enum class Source : std::uint8_t { kTensor, kRows };

// ---- Hopper
inline constexpr int kItemRows = 64;                  ///< most rows of an item: those of a wgmma
inline constexpr int kThreads = 384;                  ///< a warpgroup that loads and counts, two that multiply
inline constexpr int kMultipliers = 2;                ///< warpgroups that multiply
inline constexpr int kQueryBuffers = 2;               ///< of rows of q
inline constexpr int kPanelBytes = kStageKeys * 128;  ///< 64 rows of 64 elements, swizzled
inline constexpr int kMostSharedBytes = 227 * 1024;   ///< of a block
inline constexpr int kGroupRows = 16;                 ///< most rows of an item whose works are groups: those of a warp
inline constexpr int kBarrierBytes = 512;             ///< barriers and words

struct DecodeShared {
  int dim = 128;  ///< 64 or 128: head_dim, padded
  Source source = Source::kTensor;
  bool fp8 = false;

  constexpr bool converts() const { return fp8 || source == Source::kRows; }
  constexpr int panels() const { return dim / 64; }
  /// A stage of K and V, as the matrix unit reads it.
  constexpr int ready_bytes() const { return 2 * panels() * kPanelBytes; }
  constexpr int stage_bytes() const { return fp8 ? ready_bytes() / 2 : ready_bytes(); }
  /// As many as fit, each multiplier as many as the other: 4 to 8.
  constexpr int stages() const {
    const int fit =
        (kMostSharedBytes - kBarrierBytes - kQueryBuffers * query_bytes() - group_bytes() - all_ready_bytes()) /
        stage_bytes();
    return fit < 8 ? fit / kMultipliers * kMultipliers : 8;
  }
  constexpr int ready() const { return stages() * stage_bytes(); }  ///< converted stages, one for each multiplier
  constexpr int all_ready_bytes() const { return converts() ? kMultipliers * ready_bytes() : 0; }
  constexpr int queries() const { return ready() + all_ready_bytes(); }
  constexpr int query_bytes() const { return panels() * kPanelBytes; }
  constexpr int groups() const { return queries() + kQueryBuffers * query_bytes(); }  ///< sums of groups of splits
  /// Works may be groups of splits. With pages of one key a fourth stage is worth more.
  constexpr bool has_groups() const { return source == Source::kTensor || fp8; }
  constexpr int group_bytes() const { return has_groups() ? kMultipliers * kGroupRows * dim * 4 : 0; }
  constexpr int barriers() const { return groups() + group_bytes(); }
  constexpr int total() const { return barriers() + kBarrierBytes; }
};

// ---- CDNA
inline constexpr int kMfmaItemRows = 16;  ///< most rows of an item: those of an mfma
inline constexpr int kMfmaWaves = 4;      ///< each takes kMfmaKeys keys of every stage
inline constexpr int kMfmaThreads = 64 * kMfmaWaves;
inline constexpr int kMfmaKeys = kStageKeys / kMfmaWaves;

struct DecodeMfmaShared {
  int dim = 128;

  constexpr int sums() const { return 0; }  ///< [waves][rows][dim] fp32
  constexpr int statistics() const { return sums() + kMfmaWaves * kMfmaItemRows * dim * 4; }  ///< [waves][rows]
  constexpr int words() const { return statistics() + kMfmaWaves * kMfmaItemRows * 8; }       ///< refused, last
  constexpr int total() const { return words() + 16; }
};

}  // namespace farwarp::decode
