// The two products of a stage. The keys, then the head dimension, are the 64 rows of a wgmma; the rows of q are its
// columns:
//
//   S^T [64 keys x rows]            = K [64 keys x head_dim]  * q^T
//   O^T [64 of head_dim x rows]    += V^T [64 x 64 keys]      * P^T      for each 64 of head_dim
//
// The matrix unit reads 16-bit keys and values of boxes as they lie in shared memory. Others go through registers. A
// thread then loads bytes that lie together, so its rows and columns of A are not those that base/fragments.h says: the
// products do not depend on the order of head_dim or keys as long as both operands have the same one. So q is stored in
// that order, and dim_of() says whose sums a thread has.
#pragma once

#include "farwarp/base/fragments.h"
#include "farwarp/ops/flash_decode/block.dev.h"

namespace farwarp::FARWARP_TARGET::decode {

/// The thread's part of a product.
template <class Block>
using Fragment = float[Block::kElements];

FARWARP_DEVICE int group_thread() { return thread_index() % 128; }

/// The item's row that element `i` of a fragment belongs to.
FARWARP_DEVICE int row_of(int i) { return wgmma_sum(group_thread(), i).column; }
/// The key of a stage that element `i` of a fragment of S^T belongs to.
FARWARP_DEVICE int key_of(int i) { return wgmma_sum(group_thread(), i).row; }
/// The column of head_dim that element `i` of panel `panel` of O^T belongs to.
template <class Block>
FARWARP_DEVICE int dim_of(int panel, int i) {
  if constexpr (!Block::kThroughRegisters) return 64 * panel + wgmma_sum(group_thread(), i).row;
  return Block::kDim / 4 * (group_thread() / 32) + Block::kDim / 32 * (lane_index() / 4) + 2 * panel + i / 2 % 2;
}

/// [thread] Stores vector `vector` (8 columns of head_dim) of row `row` of q, in the order in which multiply_keys()
/// takes them.
template <class Block>
FARWARP_DEVICE void store_query(Shared<std::byte> q, int row, int vector, Vec16 numbers) {
  constexpr int kPanel = Block::kShared.query_panel_bytes();
  if constexpr (!Block::kThroughRegisters) {
    store(word_at<Vec16>(q, vector / 8 * kPanel + swizzled_offset(row, vector % 8 * 16)), numbers);
    return;
  }
  // Thread t of four has columns t * kDim / 4 on. Words 2n and 2n + 1 of them are columns 2t and 8 + 2t of step n.
  constexpr int kVectors = Block::kDim / 32;  // of a thread
  const int thread = vector / kVectors;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const std::uint64_t four = i < 2 ? numbers.lo : numbers.hi;
    auto words = static_cast<std::uint32_t>(four >> (i % 2 * 32));
    if constexpr (Block::kFp8)  // widen_fp8() gives columns 0 and 2, then 1 and 3
      words = static_cast<std::uint32_t>(four >> (i % 2 * 16) & 0xffff) |
              static_cast<std::uint32_t>(four >> (i % 2 * 16 + 32)) << 16;
    const int word = vector % kVectors * 4 + i, column = 16 * (word / 2) + 8 * (word % 2) + 2 * thread;
    store(word_at<std::uint32_t>(q, column / 64 * kPanel + swizzled_offset(row, column % 64 * 2)), words);
  }
}

/// Keys of a stage that some token sees.
struct SeenKeys {
  std::int32_t first, end;
  bool all;
  FARWARP_DEVICE bool has(int key) const { return all || (key >= first && key < end); }
};

/// The address of byte `byte` of row `row` of keys or values that are read through registers.
template <class Block, class Word>
FARWARP_DEVICE Shared<Word> row_word(Shared<std::byte> rows, int row, int byte) {
  return word_at<Word>(
      rows, Block::kShared.swizzled() ? swizzled_offset(row, byte) : row * Block::kShared.row_pitch() + byte);
}

/// Eight bytes of a row -> words of two T. fp8: in the order of widen_fp8(), which store_query() has, too.
template <class Block, int count>
FARWARP_DEVICE void widen(std::uint64_t bits, std::uint32_t (&words)[count]) {
  static_assert(count == (Block::kFp8 ? 4 : 2));
  if constexpr (Block::kFp8) {
    widen_fp8<typename Block::T>(static_cast<std::uint32_t>(bits), words[0], words[1]);
    widen_fp8<typename Block::T>(static_cast<std::uint32_t>(bits >> 32), words[2], words[3]);
  } else {
    words[0] = static_cast<std::uint32_t>(bits);
    words[1] = static_cast<std::uint32_t>(bits >> 32);
  }
}

/// Numbers of `count` columns of two keys -> for each column a word of T, the first key's in its lower half.
template <class Block, class Bits, int count>
FARWARP_DEVICE void pair_keys(Bits first, Bits second, std::uint32_t (&words)[count]) {
#pragma unroll
  for (int i = 0; i < count; i += 2) {
    if constexpr (Block::kFp8) {
      const std::uint32_t four = static_cast<std::uint32_t>(first >> (8 * i) & 0xffff) |
                                 static_cast<std::uint32_t>(second >> (8 * i) & 0xffff) << 16;
      widen_fp8<typename Block::T>(four, words[i], words[i + 1]);
    } else {
      const auto of_first = static_cast<std::uint32_t>(first >> (16 * i)),
                 of_second = static_cast<std::uint32_t>(second >> (16 * i));
      words[i] = (of_first & 0xffff) | of_second << 16;
      words[i + 1] = of_first >> 16 | (of_second & 0xffff0000);
    }
  }
}

/// A of all steps of a product, as a thread holds it.
template <class Block>
using KeyFragments = std::uint32_t[Block::kDim / 16][4];
template <class Block>
using ValueFragments = std::uint32_t[Block::kPanels * kStageKeys / 16][4];

/// [thread] kDim / 4 columns, from the thread's first on, of the two keys that are its rows of A.
template <class Block>
FARWARP_DEVICE void load_keys(const Args& args, Shared<std::byte> keys, KeyFragments<Block>& a) {
  constexpr int kNumbers = Block::kFp8 ? 16 : 8;        // of 16 bytes
  constexpr int kVectors = Block::kDim / 4 / kNumbers;  // of a thread
  constexpr int kWords = kNumbers / 4;                  // of half a vector, widened
  const int row = wgmma_sum(group_thread(), 0).row, first = lane_index() % 4 * kVectors;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      const int vector = first + i;
      // Columns of rows that were copied one by one hold anything after head_dim.
      const bool exists = Block::kSource != Source::kRows || vector * kNumbers < args.head_dim;
      const Vec16 bits = exists ? load(row_word<Block, const Vec16>(keys, row + 8 * half, 16 * vector)) : Vec16{0, 0};
      std::uint32_t words[2][kWords];
      widen<Block>(bits.lo, words[0]);
      widen<Block>(bits.hi, words[1]);
#pragma unroll
      for (int j = 0; j < 2 * kWords; ++j) {
        const int word = 2 * kWords * i + j;
        a[word / 2][2 * (word % 2) + half] = words[j / kWords][j % kWords];
      }
    }
  }
}

/// [warp] The thread's part of values: kDim / 32 columns of four keys of each step, two keys a word. Releases the
/// stage: load_keys() precedes.
template <class Block>
FARWARP_DEVICE void load_values(const Block& block, int stage, ValueFragments<Block>& a) {
  constexpr int kColumns = Block::kDim / 32, kBytes = kColumns * (Block::kFp8 ? 1 : 2);
  constexpr int kPitch = Block::kShared.row_pitch();
  using Bits =
      std::conditional_t<kBytes == 8, std::uint64_t, std::conditional_t<kBytes == 4, std::uint32_t, std::uint16_t>>;
  const int byte = (group_thread() / 32 * 8 + lane_index() / 4) * kBytes;
  Shared<const Bits> from[2] = {row_word<Block, const Bits>(block.values(stage), lane_index() % 4 * 2, byte),
                                row_word<Block, const Bits>(block.values(stage), lane_index() % 4 * 2 + 1, byte)};
#pragma unroll
  for (int step = 0; step < kStageKeys / 16; ++step) {
#pragma unroll
    for (int pair = 0; pair < 2; ++pair) {
      constexpr int kWordPitch = kPitch / kBytes;  // the swizzle repeats after 8 rows
      const int rows = 16 * step + 8 * pair;
      std::uint32_t words[kColumns];
      pair_keys<Block>(load(from[0] + rows * kWordPitch), load(from[1] + rows * kWordPitch), words);
#pragma unroll
      for (int i = 0; i < kColumns; ++i) a[i / 2 * (kStageKeys / 16) + step][2 * pair + i % 2] = words[i];
    }
  }
  warp_sync();
  if (lane_index() == 0) mbarrier_arrive(block.empty(stage));
}

/// [warpgroup] S^T of a stage. `meanwhile()` is called while the matrix unit works.
template <class Block, class Meanwhile>
FARWARP_DEVICE void multiply_keys(const Args& args, const Block& block, int stage, Shared<std::byte> q,
                                  Fragment<Block>& scores, const Meanwhile& meanwhile) {
  constexpr int kQueryPanel = Block::kShared.query_panel_bytes();
  const Shared<std::byte> keys = block.keys(stage);
  KeyFragments<Block> a;
  if constexpr (Block::kThroughRegisters) load_keys<Block>(args, keys, a);
  if constexpr (Block::kThroughRegisters && !Block::kFp8) {
    wgmma_fence_loaded(a);
  } else {
    wgmma_fence();
  }
#pragma unroll
  for (int step = 0; step < Block::kDim / 16; ++step) {
    const int panel = step / 4, k = step % 4 * 16;
    if constexpr (Block::kThroughRegisters) {
      wgmma_rs<typename Block::T, Block::kRows>(scores, a[step], q + panel * kQueryPanel, k, step > 0);
    } else {
      wgmma<typename Block::T, Block::kRows>(scores, keys + panel * kPanelBytes, q + panel * kQueryPanel, k, step > 0);
    }
  }
  wgmma_commit();
  meanwhile();
  wgmma_wait_all(scores);
}

/// [warpgroup] sums = sums + V^T * P^T. `a`: the values, if they go through registers.
template <class Block>
FARWARP_DEVICE void multiply_values(const Block& block, int stage, Shared<std::byte> p, const ValueFragments<Block>& a,
                                    Fragment<Block> (&sums)[Block::kPanels]) {
  wgmma_fence();
#pragma unroll
  for (int panel = 0; panel < Block::kPanels; ++panel) {
#pragma unroll
    for (int step = 0; step < kStageKeys / 16; ++step) {
      if constexpr (Block::kThroughRegisters) {
        wgmma_rs<typename Block::T, Block::kRows>(sums[panel], a[panel * (kStageKeys / 16) + step], p, 16 * step, true);
      } else {
        wgmma_mn<typename Block::T, Block::kRows>(sums[panel], block.values(stage) + panel * kPanelBytes, p, 16 * step,
                                                  true);
      }
    }
  }
  wgmma_commit();
#pragma unroll
  for (int panel = 0; panel < Block::kPanels; ++panel) wgmma_wait_sums<0>(sums[panel]);
}

/// [warpgroup] Sets the values of keys that no token sees to zero in shared memory: P is zero there, but memory may
/// hold NaN.
template <class Block>
FARWARP_DEVICE void clear_unseen(const Block& block, int stage, SeenKeys seen, int multiplier) {
  constexpr int kVectors = Block::kDim / (Block::kFp8 ? 16 : 8);
  const Shared<std::byte> values = block.values(stage);
  for (int i = group_thread(); i < kStageKeys * kVectors; i += 128) {
    const int key = i / kVectors, vector = i % kVectors;
    if (seen.has(key)) continue;
    const Shared<Vec16> to =
        Block::kThroughRegisters
            ? row_word<Block, Vec16>(values, key, 16 * vector)
            : word_at<Vec16>(values, vector / 8 * kPanelBytes + swizzled_offset(key, vector % 8 * 16));
    store(to, Vec16{0, 0});
  }
  proxy_fence();
  group_sync(1 + multiplier, 128);
}

}  // namespace farwarp::FARWARP_TARGET::decode
