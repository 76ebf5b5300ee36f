// The shared memory of a block that sends: the main loop's, the boxes that multipliers fill for store warps, and the
// call that one warp has read for all.
#pragma once

#include "farwarp/ops/parallel_gemm/gemm_reduce/args.h"
#include "farwarp/tile/gemm/mainloop_wgmma.dev.h"
#include "farwarp/world/device/wait.dev.h"

namespace farwarp::FARWARP_TARGET::gemm_reduce {

using farwarp::tile::WgmmaShared;

// Warps of the loading warpgroup.
inline constexpr int kLoadWarp = 0, kFirstStoreWarp = 1, kReduceWarp = 3;

/// Registers of a thread after setmaxnreg. Together they must not exceed what the block was launched with, or
/// setmaxnreg never returns.
struct RegisterBudget {
  int loading, multiplying;
  consteval RegisterBudget(int of_loading, int of_multiplying) : loading(of_loading), multiplying(of_multiplying) {
    if (128 * loading + 256 * multiplying > farwarp::tile::kWgmmaThreads * 168) throw "more than there are";
  }
};

/// The boxes between one multiplier, which fills them in turn, and its store warp, which sends them in turn and gives
/// them back.
template <int boxes>
struct BoxPipeline {
  static constexpr int kCount = boxes;
  Shared<std::byte> memory;
  Shared<Mbarrier>
      barriers;  ///< [2][boxes]: full (an arrival of each warp that fills), empty (one arrival of the store warp)
  Shared<std::uint32_t> marks;  ///< [boxes]

  FARWARP_DEVICE Shared<std::byte> box(int number) const { return memory + number * WgmmaShared::kBoxBytes; }
  FARWARP_DEVICE Shared<Mbarrier> full(int number) const { return barriers + number; }
  FARWARP_DEVICE Shared<Mbarrier> empty(int number) const { return barriers + boxes + number; }
  /// The mark of a box, written if K is split. Only that of a work's first box means something; nobody reads the
  /// others. 1: the box begins a tile.
  /// 0: another block sends the tile of this work, and the box holds nothing.
  FARWARP_DEVICE Shared<std::uint32_t> mark(int number) const { return marks + number; }
};

template <class T, int columns, int boxes_of_256 = farwarp::tile::kSendBoxesOf256>
struct SendingBlock : tile::WgmmaBlock<T, columns, farwarp::tile::wgmma_boxes(columns, boxes_of_256)> {
  using Base = tile::WgmmaBlock<T, columns, farwarp::tile::wgmma_boxes(columns, boxes_of_256)>;
  using typename Base::Tile;
  static constexpr int kBuffers = Base::kBuffers;
  static constexpr int kFillingWarps = 4;  ///< warps that fill a box
  using Boxes = BoxPipeline<kBuffers>;

  FARWARP_DEVICE Boxes boxes_of(int multiplier) const {
    return {this->boxes(multiplier), at<Mbarrier>(kBoxBarriers) + multiplier * 2 * kBuffers,
            at<std::uint32_t>(kBoxMarks) + multiplier * kBuffers};
  }
  /// One arrival: the call has been published.
  FARWARP_DEVICE Shared<Mbarrier> published() const { return at<Mbarrier>(kPublished); }
  /// The block may leave the call: an arrival of each multiplying warp (after Roles::run_multiplier()), of each store
  /// warp, and of `others`.
  FARWARP_DEVICE Shared<Mbarrier> done() const { return at<Mbarrier>(kDone); }
  /// How many chunks of y the block's warps have taken.
  FARWARP_DEVICE Shared<std::uint32_t> taken() const { return at<std::uint32_t>(kTaken); }

  /// [thread] One thread, before a block_sync().
  FARWARP_DEVICE void initialise(int others) const {
    for (int multiplier = 0; multiplier < Tile::kMultipliers; ++multiplier) {
      const Boxes boxes = boxes_of(multiplier);
      for (int box = 0; box < kBuffers; ++box) {
        mbarrier_init(boxes.full(box), kFillingWarps);
        mbarrier_init(boxes.empty(box), 1);
      }
    }
    mbarrier_init(published(), 1);
    mbarrier_init(done(), Tile::kReadingWarps + Tile::kMultipliers + others);
    store(taken(), 0u);
    Base::initialise();
  }

  /// [thread] One thread gives the call, whose cells it has read, to the others.
  FARWARP_DEVICE void publish(const Call& call) const {
    const Shared<std::uint64_t> fields = at<std::uint64_t>(kCall);
    store(fields, std::uint64_t{call.epoch} << 32 | (call.live ? 1u : 0u));
    store(fields + 1, call.started_ns);
    store(fields + 2, call.deadline_ns);
    store(fields + 3, call.grace_ns);
    mbarrier_arrive(published());
  }
  /// [thread] Waits until the call has been published, and returns it. If the wait expires, the returned call is not
  /// live.
  template <class WaitBarrier>
  FARWARP_DEVICE Call await_call(const WorldView& view, std::uint32_t slot, const WaitBarrier& wait) const {
    if (!wait(published(), 0)) return {view, slot, 0, 0, 0, 0, false};
    const Shared<std::uint64_t> fields = at<std::uint64_t>(kCall);
    const std::uint64_t first = load(fields);
    return {view,
            slot,
            static_cast<std::uint32_t>(first >> 32),
            load(fields + 1),
            load(fields + 2),
            load(fields + 3),
            static_cast<std::uint32_t>(first) != 0};
  }

 private:
  // Offsets from kOperatorOffset.
  static constexpr int kBoxBarriers = 0;
  static constexpr int kBoxMarks = kBoxBarriers + Tile::kMultipliers * 2 * kBuffers * 8;
  static constexpr int kCall = kBoxMarks + Tile::kMultipliers * kBuffers * 4;
  static constexpr int kPublished = kCall + 4 * 8, kDone = kPublished + 8, kTaken = kDone + 8;
  static_assert(kCall % 8 == 0 && WgmmaShared::kOperatorOffset + kTaken + 4 <= WgmmaShared::kArrivedLast);

  template <class Word>
  FARWARP_DEVICE Shared<Word> at(int offset) const {
    return Shared<Word>(reinterpret_cast<Word*>((this->barriers() + (WgmmaShared::kOperatorOffset + offset)).raw));
  }
};

/// [warpgroup] A multiplier's end of its boxes, with the interface of tile::BoxWriter: the store warp sends the boxes.
/// `copied`: it sends them by tensor copies, which read shared memory through the async proxy.
template <bool copied, class Boxes, class WaitBarrier>
class BoxProducer {
 public:
  FARWARP_DEVICE BoxProducer(const Boxes& boxes, bool split, const WaitBarrier& wait)
      : boxes_(boxes), split_(split), wait_(wait) {}

  /// Fills boxes 0 to count - 1 of a tile. After a wait that gave up it goes on: the results of an aborted call are not
  /// used.
  template <int count, class Write, class SendBox>
  FARWARP_DEVICE void write_boxes(const Write& write, const SendBox&) {
    if constexpr (count <=
                  Boxes::
                      kCount) {  // a loop, not unrolled: the code of several waits would need registers that hold sums
      auto position = next_;
#pragma unroll 1
      for (int i = 0; i < count; ++i) {
        open(position);
        position.advance();
      }
    }
#pragma unroll
    for (int i = 0; i < count; ++i) {
      if constexpr (count > Boxes::kCount) open(next_);
      write(i, boxes_.box(next_.stage));
      close(i == 0);
    }
  }
  /// Says that this block has nothing to send of the work: another block has its tile.
  FARWARP_DEVICE void skip() {
    open(next_);
    close(false);
  }
  /// Stores two neighbours of a row, which are rounded, in a box.
  template <class T>
  FARWARP_DEVICE void put(Shared<std::uint32_t> to, std::uint32_t pair) const {
    store(to, pair);
  }

 private:
  /// Waits until the box has been read, by its copy or by the store warp's lanes. What was read may still be on its way
  /// to the owners. In the first round all boxes are empty.
  FARWARP_DEVICE void open(tile::RingPosition<Boxes::kCount> position) const {
    wait_(boxes_.empty(position.stage), position.parity ^ 1);
  }
  FARWARP_DEVICE void close(bool starts_tile) {
    if constexpr (copied) proxy_fence();
    warp_sync();
    if (split_ && thread_index() % 128 == 0) store(boxes_.mark(next_.stage), starts_tile ? 1u : 0u);
    if (lane_index() == 0) mbarrier_arrive(boxes_.full(next_.stage));
    next_.advance();
  }

  const Boxes boxes_;
  bool split_;
  const WaitBarrier& wait_;
  tile::RingPosition<Boxes::kCount> next_;
};

}  // namespace farwarp::FARWARP_TARGET::gemm_reduce
