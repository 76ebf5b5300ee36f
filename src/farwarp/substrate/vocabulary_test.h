// What vocabulary_test.dev.cc and vocabulary_test.cc share.
#pragma once

#include <cstddef>
#include <cstdint>

namespace farwarp {

inline constexpr int kVocabularyThreads = 128;

/// The values each thread reports, as 64-bit words.
enum VocabularyResult : int {
  kPacketData,
  kWords,
  kEvenLanes,
  kSameLanes,
  kLanesBelow,
  kBitCount,
  kLowestBit,
  kHighestBit,
  kShuffled,
  kShuffledXor,
  kShuffledNarrow,
  kFp8Bytes,
  kFp8Sum,
  kWidenedFp8,
  kQuotientBits,
  kHalfBits,
  kBf16Bits,
  kRoundedPairs,
  kBoundedHalves,
  kBoundedBf16,
  kPairedBits,
  kHalvesOfWords,
  kLoadedFrom,
  kRecomputed,
  kFusedBits,
  kUnfusedBits,
  kMultipliedHalf,
  kMultipliedBf16,
  kMaximum,    ///< of a NaN and a number, and of two numbers
  kExp2Right,  ///< exact where results are powers of 2, 0 of minus infinity, within its bound of the host's elsewhere
  kLog2Right,
  kReciprocalRight,
  kUniform,
  kAnyThread,
  kNoThread,
  kCounted,
  kClocksRun,
  kVocabularyResults,
};

/// The ways a block copies `source` into `copies`.
enum VocabularyCopy : int { kThroughShared, kStreaming, kKeep, kBulk, kVocabularyCopies };

/// Memory of one block.
struct VocabularyBlock {
  alignas(16) std::byte source[kVocabularyThreads][16];
  alignas(16) std::byte copies[kVocabularyCopies][kVocabularyThreads][16];
  alignas(16) std::uint64_t packets[kVocabularyThreads][2];
  alignas(16) std::uint64_t words[4];
  std::uint64_t results[kVocabularyThreads][kVocabularyResults];
};

struct VocabularyArgs {
  VocabularyBlock* blocks;
};

/// Shared memory of a block: a bounce buffer and one mbarrier.
inline constexpr int kVocabularySharedBytes = kVocabularyThreads * 16 + 16;

}  // namespace farwarp
