// The loaders of x where it crosses the links as words: a warpgroup polls them, and the loads that find them are those that fetch x. What
// they bring is stored into the stages as tensor copies would have laid it there.
#pragma once

#include "farwarp/ops/parallel_gemm/ag_gemm/multiplier_wgmma.dev.h"
#include "farwarp/ops/parallel_gemm/ag_gemm/words.dev.h"

namespace farwarp::FARWARP_TARGET::ag_gemm {

/// Where a thread's words of a step lie: chunks of 16 bytes in rows 16 apart.
struct WordsOfStep {
  std::uint32_t first;   ///< offset of the first chunk in all ranks' x, in bytes
  std::uint32_t inside;  ///< a bit for each chunk: x has it, else it is zeros
  std::uint32_t own;     ///< it is of this rank's rows, and comes from x itself
  bool returned;         ///< of all works with these words, this is the one that gives them to the caller
  bool exists;           ///< there is such a step
};

/// [thread] The steps of K of all the block's works, one after the other.
template <class Tile, bool swapped>
class Steps {
 public:
  static constexpr int kRows = swapped ? Tile::kColumns : Tile::kRows;
  static constexpr int kChunks = kRows / 16;

  FARWARP_DEVICE explicit Steps(const Args& args) : args_(args), turns_(turns_of(args)), number_(turns_.first) {
    enter();
  }

  FARWARP_DEVICE WordsOfStep next() {
    if (number_ >= args_.grid.works()) return {};
    const int column = step_ * Tile::kStepDepth + thread_index() % 8 * 8;
    const auto first = static_cast<std::uint32_t>(row_) * args_.k + column;
    const WordsOfStep words{first * 2, column < args_.k ? inside_ : 0, own_, returned_, true};
    if (++step_ == end_) {
      number_ += turns_.stride;
      enter();
    }
    return words;
  }

 private:
  FARWARP_DEVICE void enter() {
    if (number_ >= args_.grid.works()) return;
    const Work work = farwarp::tile::work_at(args_.grid, number_);
    row_ = place_of<Tile, swapped>(args_, work).x_row + thread_index() % 128 / 8;
    inside_ = 0;
    own_ = 0;
    for (int i = 0; i < kChunks; ++i) {
      const int row = row_ + 16 * i;
      if (row < args_.m) inside_ |= 1u << i;
      if (row / args_.shard_rows == args_.view.rank) own_ |= 1u << i;
    }
    returned_ = args_.all_x != nullptr && (swapped ? work.at.row : work.at.column) == 0;
    step_ = work.steps.first;
    end_ = work.steps.first + work.steps.count;
  }

  const Args& args_;
  Turns turns_;
  int number_;
  int row_ = 0, step_ = 0, end_ = 0;
  std::uint32_t inside_ = 0, own_ = 0;
  bool returned_ = false;
};

/// [warpgroup] `ahead` steps are on their way at a time, each in registers of its own, a slot. Where the slot that is next lacks words, a
/// thread polls little while nothing comes: one chunk, or of few rows its chunks of the slot. When that has come it loads again what any slot
/// lacks, all at once: words that come one after the other are found in one round trip.
template <class Tile, bool swapped, int ahead, class Wait>
class WordLoader {
 public:
  FARWARP_DEVICE WordLoader(const Args& args, const Tile& tile, Call& call, const Wait& wait)
      : args_(args),
        tile_(tile),
        call_(call),
        wait_(wait),
        inbox_(args.view.heap[args.view.rank] + args.inbox_of(call.epoch)),
        own_(static_cast<const std::byte*>(args.own_x) - std::int64_t{args.view.rank} * args.shard_rows * pitch()) {}

  /// Stores x of all steps into the stages as they come free. Only what works on a slot's registers is there once for each slot.
  FARWARP_DEVICE void run() {
    Steps<Tile, swapped> steps(args_);
    WordsOfStep next = steps.next();
    int turn = 0, used = 0;  // the slot that is next; slots in use
    bool stage_is_free = false;
    for (std::uint32_t tries = 0; used > 0 || next.exists;) {
      const bool due = used == ahead || !next.exists;  // this slot is in use
      if (due && !stage_is_free) await_stage();
      stage_is_free = due;
      bool done = true;
#pragma unroll
      for (int slot = 0; slot < ahead; ++slot) {
        if (slot != turn) continue;
        done = !due || has_come(slot);
        if (!done) continue;
        if (due) put(slot);
        begin(slot, next);
      }
      if (!done) {
        look_again(turn, tries++);
        continue;
      }
      if (watched_ != 0) load_again(missing_ & ~(kSlotBits << (turn * kChunks)));  // what came behind it
      watched_ = 0;
      tries = 0;
      stage_is_free = false;
      used += (next.exists ? 1 : 0) - (due ? 1 : 0);
      if (due) at_.advance();
      if (next.exists) next = steps.next();
      const bool all_begun = !due && !next.exists;  // fewer steps than slots
      turn = turn + 1 == ahead || all_begun ? 0 : turn + 1;
    }
  }

 private:
  static constexpr int kChunks = Steps<Tile, swapped>::kChunks;
  static_assert(ahead * kChunks <= 32, "a bit for each");
  static constexpr std::uint32_t bit(int slot, int chunk) { return 1u << (slot * kChunks + chunk); }
  static constexpr std::uint32_t kSlotBits = (1u << kChunks) - 1;
  static constexpr std::uint32_t kWatching = 1u << 31;

  FARWARP_DEVICE std::uint32_t pitch() const { return static_cast<std::uint32_t>(args_.k) * 2; }
  FARWARP_DEVICE std::int64_t offset_of(std::uint32_t first, int chunk) const {
    return std::int64_t{first} + chunk * 16 * pitch();
  }
  FARWARP_DEVICE static Global<const Vec16> words_at(const std::byte* address) {
    return Global<const Vec16>(reinterpret_cast<const Vec16*>(address));
  }

  /// Starts the loads of a step.
  FARWARP_DEVICE void begin(int slot, const WordsOfStep& words) {
    first_[slot] = words.first;
    const std::uint32_t awaited = call_.live ? words.inside & ~words.own : 0;
    missing_ = (missing_ & ~(kSlotBits << (slot * kChunks))) | awaited << (slot * kChunks);
    returned_ = (returned_ & ~(kSlotBits << (slot * kChunks))) | (words.returned ? words.inside : 0)
                                                                     << (slot * kChunks);
#pragma unroll
    for (int i = 0; i < kChunks; ++i) {
      words_[slot][i] = {};
      const std::byte* const x = words.own >> i & 1 ? own_ : inbox_;
      if (words.inside >> i & 1) words_[slot][i] = load_words(words_at(x + offset_of(words.first, i)));
    }
  }

  /// [warp] Whether the slot's words have come, those of all lanes.
  FARWARP_DEVICE bool has_come(int slot) {
#pragma unroll
    for (int i = 0; i < kChunks; ++i) {
      if (farwarp::FARWARP_TARGET::have_come(words_[slot][i])) missing_ &= ~bit(slot, i);
    }
    return ballot((missing_ >> (slot * kChunks) & kSlotBits) != 0) == 0;
  }

  FARWARP_DEVICE void load_again(std::uint32_t chunks) {
#pragma unroll
    for (int slot = 0; slot < ahead; ++slot) {
#pragma unroll
      for (int i = 0; i < kChunks; ++i) {
        if ((chunks & bit(slot, i)) != 0) words_[slot][i] = load_words(words_at(inbox_ + offset_of(first_[slot], i)));
      }
    }
  }

  /// [warp] Looks again for what the slot `awaited` lacks. In an aborted call nothing is lacking: what comes out counts for nothing.
  FARWARP_DEVICE void look_again(int awaited, std::uint32_t tries) {
    const std::uint32_t lacks = missing_ >> (awaited * kChunks) & kSlotBits;
    const bool begins = watched_ == 0;
    if (begins) watched_ = kWatching | (swapped ? kSlotBits : lacks & (0 - lacks));
    const std::uint32_t polled = lacks & watched_;
    std::uint32_t wanted = polled << (awaited * kChunks);
    if (!swapped && !begins && ballot(polled != 0) == 0) {
      watched_ = 0;
      wanted = missing_;
    } else if (polled != 0) {
      rest(awaited, polled, tries);
    }
    if (!call_.live) missing_ = wanted = 0;
    load_again(wanted);
  }

  /// [thread] Between two looks: the deadline, and the abort.
  FARWARP_DEVICE void rest(int awaited, std::uint32_t polled, std::uint32_t tries) {
    std::uint32_t first = 0;
#pragma unroll
    for (int slot = 0; slot < ahead; ++slot) first = slot == awaited ? first_[slot] : first;
    const void* addresses[2 * kChunks + 1] = {abort_cell(call_).raw};
    int watched = 1;
#pragma unroll
    for (int i = 0; i < kChunks; ++i) {
      if ((polled >> i & 1) == 0) continue;
      const Global<const Vec16> from = words_at(inbox_ + offset_of(first, i));
      addresses[watched++] = &from.raw->lo;  // either half may be the one that is missing
      addresses[watched++] = &from.raw->hi;
    }
    if (!park(addresses, watched, call_.deadline_ns, tries)) return;
    const auto row = static_cast<int>(static_cast<std::uint32_t>(offset_of(first, lowest_bit(polled))) / pitch());
    may_wait_on<Failure::in_place>(call_, {farwarp::ag_gemm::kSiteArrival, row / args_.shard_rows}, 0, kAbsent);
  }

  /// [warp] Until the stage that is next is free.
  FARWARP_DEVICE void await_stage() {
    const bool is_free = wait_(tile_.ring.empty(at_.stage), at_.parity ^ 1);  // the first turn finds every stage empty
    broken_ = broken_ || ballot(!is_free) != 0;
  }

  /// [warp] Stores a slot into the stage, and to the caller where he wants it.
  FARWARP_DEVICE void put(int slot) {
    if (!broken_) {
      const Shared<std::byte> x = swapped ? tile_.right(at_.stage) : tile_.left(at_.stage);
      const Shared<std::byte> mine = x + swizzled_offset(thread_index() % 128 / 8, thread_index() % 8 * 16);
#pragma unroll
      for (int i = 0; i < kChunks; ++i)  // the swizzle repeats every 8 rows
        store(Shared<Vec16>(reinterpret_cast<Vec16*>((mine + i * 16 * kSwizzleRowBytes).raw)), words_[slot][i]);
      proxy_fence();
      warp_sync();
      if (lane_index() == 0) mbarrier_arrive(tile_.ring.full(at_.stage));
    }
    if (args_.all_x == nullptr) return;
    auto* const all_x = static_cast<std::byte*>(args_.all_x);
#pragma unroll
    for (int i = 0; i < kChunks; ++i) {
      std::byte* const to = all_x + offset_of(first_[slot], i);
      if ((returned_ & bit(slot, i)) != 0) store(Global<Vec16>(reinterpret_cast<Vec16*>(to)), words_[slot][i]);
    }
  }

  const Args& args_;
  const Tile tile_;
  Call& call_;
  const Wait& wait_;
  const std::byte *inbox_, *own_;  ///< where all ranks' x begins, and would begin around this rank's
  Vec16 words_[ahead][kChunks];
  std::uint32_t first_[ahead] = {};           ///< WordsOfStep::first
  std::uint32_t watched_ = 0;                 ///< kWatching, and which chunks of the slot that is next; 0: none
  std::uint32_t missing_ = 0, returned_ = 0;  ///< a bit for each chunk of each slot
  tile::RingPosition<Tile::kStages> at_;
  bool broken_ = false;  ///< a stage has not come free: nothing more is stored
};

}  // namespace farwarp::FARWARP_TARGET::ag_gemm
