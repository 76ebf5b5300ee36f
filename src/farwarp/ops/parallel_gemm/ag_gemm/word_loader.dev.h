// The loaders of x where it crosses the links as words: warps that poll them, and the loads that find them are those that fetch x. What
// they bring is stored into the stages as tensor copies would have laid it there.
#pragma once

#include "farwarp/ops/parallel_gemm/ag_gemm/multiplier_wgmma.dev.h"
#include "farwarp/ops/parallel_gemm/ag_gemm/words.dev.h"

namespace farwarp::FARWARP_TARGET::ag_gemm {

/// Where a lane's words of a step lie: chunks of 16 bytes in rows 4 apart.
struct WordsOfStep {
  std::uint32_t first;   ///< offset of the first chunk in all ranks' x, in bytes
  std::uint32_t inside;  ///< a bit for each chunk: x has it, else it is zeros
  bool own;              ///< they are this rank's, and come from x itself
  bool returned;         ///< of all works with these words, this is the one that gives them to the caller
  bool exists;           ///< there is such a step
};

/// [thread] The steps of K of all the block's works, one after the other, for a warp that loads `chunks` times 4 rows of each, from row
/// `first_row` of the tile.
template <class Tile, bool swapped, int chunks>
class Steps {
 public:
  FARWARP_DEVICE Steps(const Args& args, int first_row)
      : args_(args),
        turns_(turns_of(args)),
        first_row_(first_row + lane_index() / 8),
        number_(turns_.first - turns_.stride) {}

  /// Before the first step, advance() by those that others load.
  FARWARP_DEVICE WordsOfStep present() const {
    if (number_ >= args_.grid.works()) return {};
    const int column = step_ * Tile::kStepDepth + lane_index() % 8 * 8;
    const auto first = static_cast<std::uint32_t>(row_) * args_.k + column;
    return {first * 2, column < args_.k ? inside_ : 0, own_, returned_, true};
  }
  FARWARP_DEVICE void advance(int count) {
    for (step_ += count; step_ >= end_ && number_ < args_.grid.works();) {
      const int over = step_ - end_;
      number_ += turns_.stride;
      enter();
      step_ += over;
    }
  }

 private:
  FARWARP_DEVICE void enter() {
    if (number_ >= args_.grid.works()) return;
    const Work work = farwarp::tile::work_at(args_.grid, number_);
    const Place place = place_of<Tile, swapped>(args_, work);
    row_ = place.x_row + first_row_;
    const int left = (args_.m - row_ + 3) / 4;  // chunks
    constexpr std::uint32_t kAll = static_cast<std::uint32_t>((std::uint64_t{1} << chunks) - 1);
    inside_ = args_.m <= row_ ? 0 : left >= chunks ? kAll : (1u << left) - 1;
    own_ = place.own;
    returned_ = args_.all_x != nullptr && (swapped ? work.at.row : work.at.column) == 0;
    step_ = work.steps.first;
    end_ = work.steps.first + work.steps.count;
  }

  const Args& args_;
  Turns turns_;
  int first_row_, number_;
  int row_ = 0, step_ = 0, end_ = 0;
  std::uint32_t inside_ = 0;
  bool own_ = false, returned_ = false;
};

/// [warp] Loads x of some steps: `warps` of the four loading warps share the rows of a step, and load `batch` steps at a time. The others load
/// those that follow meanwhile: a warp that waits for its loads waits for all of them, so what is on its way at the same time belongs
/// to several warps.
template <class Tile, bool swapped, int warps, int batch, class Wait>
class WordLoader {
 public:
  FARWARP_DEVICE WordLoader(const Args& args, const Tile& tile, Call& call, const Wait& wait)
      : args_(args),
        tile_(tile),
        call_(call),
        wait_(wait),
        inbox_(args.view.heap[args.view.rank] + args.inbox_of(call.epoch)),
        own_(static_cast<const std::byte*>(args.own_x) - std::int64_t{2} * args.view.rank * args.shard_rows * args.k) {}

  /// Stores x of the warp's steps into the stages as they come free.
  FARWARP_DEVICE void run() {
    constexpr int kOthers = (4 / warps - 1) * batch;  // steps that other warps load
    static_assert(kOthers <= Tile::kStages);
    const int first_row = warp_index() % warps * kRows;
    Steps<Tile, swapped, kChunks> steps(args_, first_row);
    steps.advance(warp_index() % 4 / warps * batch);
    at_.advance(warp_index() % 4 / warps * batch);
    for (;;) {
      bool some = false;
#pragma unroll
      for (int i = 0; i < batch; ++i) {
        if (i > 0) steps.advance(1);
        of_[i] = steps.present();
        some = some || of_[i].exists;
        begin(i);
      }
      if (!some) return;
      await();
#pragma unroll
      for (int i = 0; i < batch; ++i) {
        if (of_[i].exists) put(i, first_row);
      }
      steps.advance(1 + kOthers);
      at_.advance(kOthers);
    }
  }

 private:
  static constexpr int kRows = (swapped ? Tile::kColumns : Tile::kRows) / warps;
  static constexpr int kChunks = kRows / 4;
  static constexpr int kPolledAtOnce = 8;
  static constexpr std::uint32_t kAllChunks = static_cast<std::uint32_t>((std::uint64_t{1} << kChunks) - 1);
  static_assert(batch * kChunks <= 32, "a bit for each");
  static constexpr std::uint32_t bit(int step, int chunk) { return 1u << (step * kChunks + chunk); }

  /// From chunk 0 of a step to `chunk`.
  FARWARP_DEVICE std::int64_t offset_of(int chunk) const {
    return static_cast<std::int64_t>(std::uint64_t{static_cast<std::uint32_t>(args_.k) * 8} * chunk);
  }
  static FARWARP_DEVICE Global<const Vec16> words_at(const std::byte* address) {
    return Global<const Vec16>(reinterpret_cast<const Vec16*>(address));
  }
  FARWARP_DEVICE const std::byte* first_of(int step) const {
    return (of_[step].own ? own_ : inbox_) + of_[step].first;
  }

  /// Starts the loads of a step.
  FARWARP_DEVICE void begin(int step) {
    const std::uint32_t inside = of_[step].inside;
    const std::byte* const first = first_of(step);
    if (ballot(inside != kAllChunks) == 0) {  // most steps: a load is two instructions
#pragma unroll
      for (int i = 0; i < kChunks; ++i) words_[step][i] = load_words(words_at(first + offset_of(i)));
      return;
    }
#pragma unroll
    for (int i = 0; i < kChunks; ++i) {
      words_[step][i] = {};
      if (inside >> i & 1) words_[step][i] = load_words(words_at(first + offset_of(i)));
    }
  }

  /// [warp] Until all lanes' words have come. In an aborted call nothing is missing: what comes out counts for nothing.
  FARWARP_DEVICE void await() {
    bool come = true;
#pragma unroll
    for (int step = 0; step < batch; ++step) come = have_all_come(words_[step]) && come;
    if (ballot(!come) == 0) return;
    missing_ = 0;
#pragma unroll
    for (int step = 0; step < batch; ++step) {
      if (call_.live && !of_[step].own) missing_ |= of_[step].inside << (step * kChunks);
    }
    await_missing();
  }

  FARWARP_DEVICE void await_missing() {
    std::uint32_t watched = 0, polled = ~0u;  // `polled`: what has just been loaded
    for (std::uint32_t tries = 0;; ++tries) {
#pragma unroll
      for (int step = 0; step < batch; ++step) {
#pragma unroll
        for (int i = 0; i < kChunks; ++i) {
          if (have_come(words_[step][i])) missing_ &= ~bit(step, i);
        }
      }
      if (ballot(missing_ != 0) == 0) return;
      // Polls take little of L2 while nothing comes: one chunk, and when that has come, what else is missing.
      const bool found = watched != 0 && (watched & missing_) == 0;
      const bool all = found || count_bits(missing_) <= kPolledAtOnce;
      watched = all ? 0 : missing_ & (0 - missing_);
      const std::uint32_t next = all ? missing_ : watched;
      if (next != 0 && (next & ~polled) == 0) rest(next, tries);
      polled = next;
      if (!call_.live) missing_ = 0;
#pragma unroll
      for (int step = 0; step < batch; ++step) {
#pragma unroll
        for (int i = 0; i < kChunks; ++i) {
          if ((polled & missing_ & bit(step, i)) != 0) words_[step][i] = load_words(words_at(first_of(step) + offset_of(i)));
        }
      }
    }
  }

  /// [thread] Between two looks: the deadline, and the abort.
  FARWARP_DEVICE void rest(std::uint32_t polled, std::uint32_t tries) {
    const void* addresses[2 * kPolledAtOnce + 1] = {abort_cell(call_).raw};
    int watched = 1;
    std::uint32_t lowest = 0;  // offset in all ranks' x
#pragma unroll
    for (int step = batch - 1; step >= 0; --step) {
#pragma unroll
      for (int i = kChunks - 1; i >= 0; --i) {
        if ((polled & bit(step, i)) == 0) continue;
        lowest = of_[step].first + static_cast<std::uint32_t>(offset_of(i));
        const Global<const Vec16> from = words_at(first_of(step) + offset_of(i));
        if (watched > 2 * kPolledAtOnce - 1) continue;  // any that changes wakes
        addresses[watched++] = &from.raw->lo;           // either half may be the one that is missing
        addresses[watched++] = &from.raw->hi;
      }
    }
    if (!park(addresses, watched, call_.deadline_ns, tries)) return;
    const auto row = static_cast<int>(lowest / (2 * static_cast<std::uint32_t>(args_.k)));
    may_wait_on<Failure::in_place>(call_, {farwarp::ag_gemm::kSiteArrival, row / args_.shard_rows}, 0, kAbsent);
  }

  /// [warp] Stores a step's words into the stage that is its turn's, when that is free, and to the caller where he wants them.
  FARWARP_DEVICE void put(int step, int first_row) {
    const bool is_free = wait_(tile_.ring.empty(at_.stage), at_.parity ^ 1);  // the first turn finds every stage empty
    broken_ = broken_ || ballot(!is_free) != 0;
    if (!broken_) {
      const Shared<std::byte> x = swapped ? tile_.right(at_.stage) : tile_.left(at_.stage);
      const int row = first_row + lane_index() / 8, byte = lane_index() % 8 * 16;
      const int offset[2] = {swizzled_offset(row, byte), swizzled_offset(row + 4, byte)};
#pragma unroll
      for (int i = 0; i < kChunks; ++i) {  // the swizzle repeats every 8 rows
        const Shared<std::byte> to = x + (offset[i % 2] + i / 2 * 8 * kSwizzleRowBytes);
        store(Shared<Vec16>(reinterpret_cast<Vec16*>(to.raw)), words_[step][i]);
      }
      proxy_fence();
      warp_sync();
      if (lane_index() == 0) mbarrier_arrive(tile_.ring.full(at_.stage));
    }
    at_.advance();
    if (!of_[step].returned) return;
    auto* const all_x = static_cast<std::byte*>(args_.all_x);
#pragma unroll
    for (int i = 0; i < kChunks; ++i) {
      std::byte* const to = all_x + (of_[step].first + offset_of(i));
      if (of_[step].inside >> i & 1) store(Global<Vec16>(reinterpret_cast<Vec16*>(to)), words_[step][i]);
    }
  }

  const Args& args_;
  const Tile tile_;
  Call& call_;
  const Wait& wait_;
  const std::byte *inbox_, *own_;  ///< where all ranks' x begins, and would begin around this rank's
  WordsOfStep of_[batch];
  Vec16 words_[batch][kChunks];
  std::uint32_t missing_ = 0;  ///< a bit for each chunk of each step
  tile::RingPosition<Tile::kStages> at_;
  bool broken_ = false;  ///< a stage has not come free: nothing more is stored
};

}  // namespace farwarp::FARWARP_TARGET::ag_gemm
