// The shared memory of a block on Hopper: the ring of stages, the rows of q, and the call.
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
/// The stage at a position of multiplier `multiplier`'s ring. Each has its own: copies arrive in any order, and a multiplier that is ahead would
/// test a phase of a stage before the other one's earlier phase has completed.
template <int size>
FARWARP_DEVICE int stage_at(Turn<size> turn, int multiplier) {
  return turn.place() * kMultipliers + multiplier;
}

template <class T_, int dim, Source source, bool fp8>
struct Block {
  using T = T_;
  static constexpr DecodeShared kShared{dim, source, fp8};
  static constexpr int kDim = dim;
  static constexpr Source kSource = source;
  static constexpr bool kFp8 = fp8;
  static constexpr int kStages = kShared.stages();
  static constexpr int kRing = kStages / kMultipliers;  ///< stages of a multiplier
  static constexpr int kPanels = kShared.panels();
  static constexpr int kSums = dim / 2;  ///< of a thread: its fragment of 64 x dim

  Shared<std::byte> memory;

  // -- memory
  /// As it was loaded: K, then V.
  FARWARP_DEVICE Shared<std::byte> stage(int number) const { return memory + number * kShared.stage_bytes(); }
  /// A stage that multiplier number `multiplier` has converted.
  FARWARP_DEVICE Shared<std::byte> ready(int multiplier) const {
    return memory + (kShared.ready() + multiplier * kShared.ready_bytes());
  }
  FARWARP_DEVICE Shared<std::byte> queries(int buffer) const {
    return memory + (kShared.queries() + buffer * kShared.query_bytes());
  }

  FARWARP_DEVICE Shared<Vec16> group(int multiplier) const {
    return at<Vec16>(kShared.groups() + multiplier * (kShared.group_bytes() / kMultipliers));
  }

  // -- barriers
  FARWARP_DEVICE Shared<Mbarrier> full(int stage) const { return barrier(stage); }
  FARWARP_DEVICE Shared<Mbarrier> empty(int stage) const { return barrier(kStages + stage); }
  FARWARP_DEVICE Shared<Mbarrier> queries_full(int buffer) const { return barrier(2 * kStages + buffer); }
  FARWARP_DEVICE Shared<Mbarrier> queries_empty(int buffer) const { return barrier(2 * kStages + 2 + buffer); }
  FARWARP_DEVICE Shared<Mbarrier> stored() const { return barrier(2 * kStages + 4); }
  FARWARP_DEVICE Shared<Mbarrier> counted() const { return barrier(2 * kStages + 5); }
  FARWARP_DEVICE Shared<Mbarrier> published() const { return barrier(2 * kStages + 6); }
  /// Not 0: a page index was not allowed. The loader adds to it before it arrives at full() of the stage.
  FARWARP_DEVICE Shared<std::uint32_t> refused() const { return at<std::uint32_t>(kWords); }
  /// 1: the block's work has arrived last. Written before the arrival at counted().
  FARWARP_DEVICE Shared<std::uint32_t> last_word() const { return at<std::uint32_t>(kWords + 4); }

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
    mbarrier_init(stored(), 4 * kMultipliers);
    mbarrier_init(counted(), 1);
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
  /// [thread] Waits until the call has been published, and returns it. If the wait expires, the returned call is not live.
  FARWARP_DEVICE Call await_call(const Args& args, BlockWaits& waits) const {
    if (!wait_mbarrier(waits, args.view, published(), 0)) return {args.view, args.slot, 0, 0, 0, 0, false};
    const Shared<std::uint64_t> words = at<std::uint64_t>(kWords + 8);
    const std::uint64_t first = load(words);
    return {args.view,       args.slot,       static_cast<std::uint32_t>(first >> 32), load(words + 1),
            load(words + 2), load(words + 3), static_cast<std::uint32_t>(first) != 0};
  }

 private:
  static constexpr int kWords = kShared.barriers() + (2 * kStages + 7) * 8;
  static_assert(kWords + 40 <= kShared.total() && kShared.total() <= kMostSharedBytes);
  static_assert(kRing >= 2);

  FARWARP_DEVICE Shared<Mbarrier> barrier(int number) const { return at<Mbarrier>(kShared.barriers()) + number; }
  template <class Word>
  FARWARP_DEVICE Shared<Word> at(int offset) const {
    return Shared<Word>(reinterpret_cast<Word*>((memory + offset).raw));
  }
};

/// The address of vector `vector` (8 elements) of row `row` of swizzled panels of 64 columns.
FARWARP_DEVICE Shared<Vec16> vector_of(Shared<std::byte> panels, int row, int vector) {
  return Shared<Vec16>(
      reinterpret_cast<Vec16*>((panels + (vector / 8 * kPanelBytes + swizzled_offset(row, vector % 8 * 16))).raw));
}

}  // namespace farwarp::FARWARP_TARGET::decode
