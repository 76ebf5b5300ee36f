// Where things lie in the shared memory of a block. The plan takes the size from here, the kernel the offsets.
#pragma once

#include "farwarp/ops/flash_decode/schedule.h"

namespace farwarp::decode {

/// kTensor: pages are copied in boxes. kRows: page size 1, rows are copied one by one.
enum class Source : std::uint8_t { kTensor, kRows };

// ---- Hopper
inline constexpr int kThreads = 384;                  ///< a warpgroup that loads and counts, two that multiply
inline constexpr int kMultipliers = 2;                ///< warpgroups that multiply
inline constexpr int kQueryBuffers = 2;               ///< of rows of q
inline constexpr int kPanelBytes = kStageKeys * 128;  ///< 64 keys of 64 elements, swizzled
inline constexpr int kMaxSharedBytes = 227 * 1024;    ///< of a block
inline constexpr int kGroupRows = 16;                 ///< most rows of an item whose works may have several splits
inline constexpr int kMaxListed = 64;                 ///< items that a block merges after its works
inline constexpr int kBarrierBytes = 512;             ///< barriers and words

struct DecodeShared {
  int dim = 128;  ///< 64 or 128: head_dim, padded
  int rows = 8;   ///< 8, 16 or 64: most rows of an item, the columns of a wgmma
  Source source = Source::kTensor;
  bool fp8 = false;

  /// The matrix unit reads keys and values from registers, because it cannot read them as they lie in a stage.
  constexpr bool through_registers() const { return fp8 || source == Source::kRows; }
  /// fp8 rows of 128 bytes are swizzled as well, so that threads read them without bank conflicts.
  constexpr bool swizzled() const { return source == Source::kTensor && (!fp8 || dim == 128); }
  constexpr int panels() const { return dim / 64; }
  /// From key to key of a stage that is read through registers. Rows that are copied one by one lie 16 bytes apart,
  /// against bank conflicts.
  constexpr int row_pitch() const { return dim * (fp8 ? 1 : 2) + (source == Source::kRows ? 16 : 0); }
  /// Keys, then values.
  constexpr int stage_bytes() const {
    return 2 * (through_registers() ? kStageKeys * row_pitch() : panels() * kPanelBytes);
  }
  /// As many as fit, each multiplier as many as the other: up to 4. More copies in flight make all other accesses wait
  /// longer (MEASURED.md).
  constexpr int stages() const {
    const int fit = (kMaxSharedBytes - kBarrierBytes - kMaxListed * 8 - kQueryBuffers * query_bytes() -
                     kMultipliers * (probability_bytes() + warp_bytes()) - handed_bytes()) /
                    stage_bytes();
    return fit < 4 ? fit / kMultipliers * kMultipliers : 4;
  }
  constexpr int queries() const { return stages() * stage_bytes(); }
  constexpr int query_panel_bytes() const { return rows * 128; }
  constexpr int query_bytes() const { return panels() * query_panel_bytes(); }
  /// Of each multiplier: P of a stage, [rows][64 keys], swizzled.
  constexpr int probabilities() const { return queries() + kQueryBuffers * query_bytes(); }
  constexpr int probability_bytes() const { return rows * 128; }
  /// Of each multiplier: maxima of its warps, then sums, [4 warps][rows] fp32.
  constexpr int of_warps() const { return probabilities() + kMultipliers * probability_bytes(); }
  constexpr int warp_bytes() const { return 2 * 4 * rows * 4; }
  /// The sums of multiplier 1 of a split, for multiplier 0: [panels][elements of a fragment][128 threads] fp32, then
  /// [rows] maximum | sum.
  constexpr int handed() const { return of_warps() + kMultipliers * warp_bytes(); }
  constexpr int handed_bytes() const { return rows * dim * 4 + rows * 8; }
  /// Items that the block merges after its works.
  constexpr int listed() const { return handed() + handed_bytes(); }
  constexpr int barriers() const { return listed() + kMaxListed * 8; }
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
