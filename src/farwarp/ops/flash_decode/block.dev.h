// The shared memory of a block on Hopper: the rings of stages, the rows of q, P, the list of items, barriers and the
// call.
#pragma once

#include "farwarp/base/swizzle.h"
#include "farwarp/ops/flash_decode/layout.h"
#include "farwarp/ops/flash_decode/works.dev.h"
#include "farwarp/world/device/wait.dev.h"

namespace farwarp::FARWARP_TARGET::decode {

// Warps of the loading warpgroup.
inline constexpr int kKeyWarp = 0, kQueryWarp = 1, kCountWarp = 2, kValueWarp = 3;

/// A position in a ring of `size`: stages or buffers of q.
template <int size>
struct Turn {
  std::uint32_t count = 0;
  FARWARP_DEVICE int place() const { return static_cast<int>(count % size); }
  FARWARP_DEVICE std::uint32_t parity() const { return count / size & 1; }
};

/// The word at byte `offset` of shared memory.
template <class Word>
FARWARP_DEVICE Shared<Word> word_at(Shared<std::byte> memory, int offset) {
  return Shared<Word>(reinterpret_cast<Word*>((memory + offset).raw));
}

/// [warp] wait_mbarrier(); false on all lanes if one of them has expired, so that none waits for the others in vain.
FARWARP_DEVICE bool wait_together(BlockWaits& waits, const WorldView& view, Shared<Mbarrier> barrier,
                                  std::uint32_t parity) {
  return ballot(!wait_mbarrier(waits, view, barrier, parity)) == 0;
}

template <class T_, int dim, int rows, Source source, bool fp8>
struct Block {
  using T = T_;
  static constexpr DecodeShared kShared{dim, rows, source, fp8};
  static constexpr int kDim = dim;
  static constexpr int kRows = rows;  ///< most rows of an item: the columns of its products
  static constexpr Source kSource = source;
  static constexpr bool kFp8 = fp8;
  static constexpr bool kThroughRegisters = kShared.through_registers();
  static constexpr int kStages = kShared.stages();
  static constexpr int kRing = kStages / kMultipliers;  ///< stages of a multiplier
  static constexpr int kPanels = kShared.panels();
  static constexpr int kElements = rows / 2;    ///< of a thread: its fragment of 64 x rows
  static constexpr int kThreadRows = rows / 4;  ///< rows of the item that a thread has elements of

  Shared<std::byte> memory;

  /// The stage at a position of multiplier `multiplier`'s ring. Each has its own: copies arrive in any order, and a
  /// multiplier that is ahead would test a phase of a stage before another one's earlier phase has completed.
  FARWARP_DEVICE static int stage_at(Turn<kRing> turn, int multiplier) {
    return turn.place() * kMultipliers + multiplier;
  }

  // -- memory
  FARWARP_DEVICE Shared<std::byte> keys(int stage) const { return memory + stage * kShared.stage_bytes(); }
  FARWARP_DEVICE Shared<std::byte> values(int stage) const { return keys(stage) + kShared.stage_bytes() / 2; }
  FARWARP_DEVICE Shared<std::byte> queries(int buffer) const {
    return memory + (kShared.queries() + buffer * kShared.query_bytes());
  }
  FARWARP_DEVICE Shared<std::byte> probabilities(int multiplier) const {
    return memory + (kShared.probabilities() + multiplier * kShared.probability_bytes());
  }
  /// [warps][rows]: of each warp of a multiplier, the maxima of a stage.
  FARWARP_DEVICE Shared<float> maxima(int multiplier) const {
    return at<float>(kShared.of_warps() + multiplier * kShared.warp_bytes());
  }
  /// [warps][rows]: the sums of exponentials of a split.
  FARWARP_DEVICE Shared<float> sums(int multiplier) const { return maxima(multiplier) + 4 * rows; }

  /// The thread's place for element `i` of its fragment of panel `panel`.
  FARWARP_DEVICE Shared<float> handed(int panel, int i) const {
    return at<float>(kShared.handed()) + ((panel * kElements + i) * 128 + thread_index() % 128);
  }
  /// The maximum and the sum of exponentials of an item's row.
  FARWARP_DEVICE Shared<std::uint64_t> handed_statistics(int row) const {
    return at<std::uint64_t>(kShared.handed() + rows * dim * 4) + row;
  }

  // -- barriers
  FARWARP_DEVICE Shared<Mbarrier> full(int stage) const { return barrier(stage); }
  FARWARP_DEVICE Shared<Mbarrier> empty(int stage) const { return barrier(kStages + stage); }
  FARWARP_DEVICE Shared<Mbarrier> queries_full(int buffer) const { return barrier(2 * kStages + buffer); }
  FARWARP_DEVICE Shared<Mbarrier> queries_empty(int buffer) const { return barrier(2 * kStages + 2 + buffer); }
  /// The sums of a split of multiplier 1 are in handed(): each of its threads arrives.
  FARWARP_DEVICE Shared<Mbarrier> handed_full() const { return barrier(2 * kStages + 8); }
  /// Multiplier 0 has read them: each of its threads arrives.
  FARWARP_DEVICE Shared<Mbarrier> handed_empty() const { return barrier(2 * kStages + 9); }
  /// A counted work's partial output is in memory: each warp of multiplier 0 arrives.
  FARWARP_DEVICE Shared<Mbarrier> stored() const { return barrier(2 * kStages + 4); }
  /// The count warp has seen that phase of stored(), so the next one may complete.
  FARWARP_DEVICE Shared<Mbarrier> counted() const { return barrier(2 * kStages + 5); }
  /// The list is complete.
  FARWARP_DEVICE Shared<Mbarrier> all_counted() const { return barrier(2 * kStages + 6); }
  FARWARP_DEVICE Shared<Mbarrier> published() const { return barrier(2 * kStages + 7); }
  /// Not 0: a page index was not allowed, or a multiplier's wait has expired. The loader adds to it before it arrives
  /// at full() of the stage.
  FARWARP_DEVICE Shared<std::uint32_t> refused() const { return at<std::uint32_t>(kWords); }
  /// How many items are listed(). Written before the arrival at all_counted().
  FARWARP_DEVICE Shared<std::uint32_t> list_length() const { return at<std::uint32_t>(kWords + 4); }
  /// CountedItem number `number` of the list.
  FARWARP_DEVICE Shared<std::uint64_t> listed(int number) const { return at<std::uint64_t>(kShared.listed()) + number; }

  /// [thread] One thread, before a block_sync().
  FARWARP_DEVICE void initialise() const {
    for (int i = 0; i < kStages; ++i) {
      mbarrier_init(full(i), 2);   // the two loading warps, and the bytes of their copies
      mbarrier_init(empty(i), 4);  // one multiplier reads a stage
    }
    for (int i = 0; i < kQueryBuffers; ++i) {
      mbarrier_init(queries_full(i), 1);
      mbarrier_init(queries_empty(i), 4 * kMultipliers);
    }
    mbarrier_init(handed_full(), 128);
    mbarrier_init(handed_empty(), 128);
    mbarrier_init(stored(), 4);
    mbarrier_init(counted(), 1);
    mbarrier_init(all_counted(), 1);
    mbarrier_init(published(), 1);
    mbarrier_init_fence();
    store(refused(), 0u);
  }

  /// [thread] One thread gives the call, whose cells it has read, to the others.
  FARWARP_DEVICE void publish(const Call& call) const {
    const Shared<std::uint64_t> words = at<std::uint64_t>(kWords + 8);
    store(words, std::uint64_t{call.epoch} << 32 | (call.live ? 1u : 0u));
    store(words + 1, call.started_ns);
    store(words + 2, call.deadline_ns);
    store(words + 3, call.grace_ns);
    mbarrier_arrive(published());
  }
  /// [thread] Waits until the call has been published, and returns it. If the wait expires, the returned call is not
  /// live.
  FARWARP_DEVICE Call await_call(const Args& args, BlockWaits& waits) const {
    if (!wait_mbarrier(waits, args.view, published(), 0)) return {args.view, args.slot, 0, 0, 0, 0, false};
    const Shared<std::uint64_t> words = at<std::uint64_t>(kWords + 8);
    const std::uint64_t first = load(words);
    return {args.view,       args.slot,       static_cast<std::uint32_t>(first >> 32), load(words + 1),
            load(words + 2), load(words + 3), static_cast<std::uint32_t>(first) != 0};
  }

 private:
  static constexpr int kWords = kShared.barriers() + (2 * kStages + 10) * 8;
  static_assert(kWords + 40 <= kShared.total() && kShared.total() <= kMaxSharedBytes);
  static_assert(kRing >= 2);

  FARWARP_DEVICE Shared<Mbarrier> barrier(int number) const { return at<Mbarrier>(kShared.barriers()) + number; }
  template <class Word>
  FARWARP_DEVICE Shared<Word> at(int offset) const {
    return word_at<Word>(memory, offset);
  }
};

}  // namespace farwarp::FARWARP_TARGET::decode
