// The loaders of x that crosses the links as words. Their warps poll the words; the load that finds them has fetched x.
// They then store x into the stages in the layout of tensor copies.
#pragma once

#include "farwarp/ops/parallel_gemm/ag_gemm/exchange_words.dev.h"
#include "farwarp/ops/parallel_gemm/ag_gemm/multiplier_wgmma.dev.h"

namespace farwarp::FARWARP_TARGET::ag_gemm {

using namespace farwarp::ag_gemm;

/// The addresses of a lane's words of a step: one vector of 16 bytes in every fourth row.
struct WordsOfStep {
  std::uint32_t first;   ///< offset of the first vector in all ranks' x, in bytes
  std::uint32_t inside;  ///< a bit for each vector: 1 if it is inside x; others are zeros
  bool own;              ///< they are this rank's, and are read from x itself
  bool returned;         ///< this work stores them to all_x; of all works that load these words, only one does
  bool exists;           ///< false after the block's last step
};

/// [thread] Iterates over the steps of all works of the block. The warp loads 4 * `vectors` rows of each step, from row
/// `first_row` of the tile.
template <class Tile, bool swap_ab, int vectors>
class Steps {
 public:
  FARWARP_DEVICE Steps(const Args& args, int first_row)
      : args_(args),
        turns_(turns_of(args)),
        first_row_(first_row + lane_index() / 8),
        number_(turns_.first - turns_.stride) {}

  /// Call advance() before the first present(), by the number of steps that the warps before this one load first.
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
    const Place place = place_of<Tile, swap_ab>(args_, work);
    row_ = place.x_row + first_row_;
    const int left = (args_.m - row_ + 3) / 4;  // vectors inside x
    constexpr std::uint32_t kAll = static_cast<std::uint32_t>((std::uint64_t{1} << vectors) - 1);
    inside_ = args_.m <= row_ ? 0 : left >= vectors ? kAll : (1u << left) - 1;
    own_ = place.own;
    returned_ = args_.all_x != nullptr && (swap_ab ? work.at.row : work.at.column) == 0;
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

/// [warp] Loads x of every n-th step. Each `sharing` of the `warps` loading warps share the rows of one step, and the
/// groups of warps take steps in turn. A warp that waits for one of its loads waits for all of them, so only different
/// warps can have several steps in flight.
template <class Tile, bool swap_ab, int warps, int sharing, class WaitBarrier>
class WordLoader {
 public:
  /// `number`: the warp's index among the loading warps.
  FARWARP_DEVICE WordLoader(const Args& args, const Tile& tile, int number, Call& call, const WaitBarrier& wait)
      : args_(args),
        tile_(tile),
        number_(number),
        call_(call),
        wait_(wait),
        inbox_(args.view.heap[args.view.rank] + args.inbox_of(call.epoch)),
        own_(static_cast<const std::byte*>(args.own_x) - std::int64_t{2} * args.view.rank * args.shard_rows * args.k) {}

  /// Stores x of the warp's steps into their stages when these are free.
  FARWARP_DEVICE void run() {
    constexpr int kGroups = warps / sharing;
    static_assert(kGroups - 1 <= Tile::kStages);
    const int first_row = number_ % sharing * kRows;
    Steps<Tile, swap_ab, kVectors> steps(args_, first_row);
    steps.advance(number_ / sharing);
    at_.advance(number_ / sharing);
    for (; (step_ = steps.present()).exists; steps.advance(kGroups)) {
      begin();
      await();
      fill_stage(first_row);
      at_.advance(kGroups - 1);
    }
  }

 private:
  static constexpr int kRows = (swap_ab ? Tile::kColumns : Tile::kRows) / sharing;
  static constexpr int kVectors = kRows / 4;
  static_assert(kVectors <= 16, "registers");
  static constexpr std::uint32_t kAllVectors = (1u << kVectors) - 1;
  static constexpr int kFew = 8;  ///< so many missing vectors, or fewer, are all loaded again while more of them arrive

  /// The address of vector `vector` of the step.
  FARWARP_DEVICE Global<const Vec16> words_at(int vector) const {
    const std::byte* const first = (step_.own ? own_ : inbox_) + step_.first;
    return Global<const Vec16>(reinterpret_cast<const Vec16*>(first + offset_of(vector)));
  }
  /// Bytes from vector 0 to vector `vector`.
  FARWARP_DEVICE std::int64_t offset_of(int vector) const {
    return static_cast<std::int64_t>(std::uint64_t{static_cast<std::uint32_t>(args_.k) * 8} *
                                     static_cast<std::uint32_t>(vector));
  }

  /// Starts the loads of a step.
  FARWARP_DEVICE void begin() {
    if (ballot(step_.inside != kAllVectors) == 0) {  // most steps take this path: two instructions per load
#pragma unroll
      for (int i = 0; i < kVectors; ++i) words_[i] = load_words(words_at(i));
      return;
    }
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      words_[i] = {};
      if (step_.inside >> i & 1) words_[i] = load_words(words_at(i));
    }
  }

  /// [warp] Waits until the words of all lanes have arrived. In an aborted call nothing counts as missing: its results
  /// are not used. If more than kFew vectors are missing, or none has arrived since the last load, a lane polls only
  /// the last missing one: rows are sent in order, and this saves L2 traffic and code. Then it loads all missing
  /// vectors again.
  FARWARP_DEVICE void await() {
    std::uint32_t before = 0;
    while (ballot(!all_arrived(words_)) != 0) {
      std::uint32_t missing = 0;
#pragma unroll
      for (int i = 0; i < kVectors; ++i) {
        if (!has_arrived(words_[i])) missing |= 1u << i;
      }
      missing = call_.live && !step_.own ? missing & step_.inside : 0;
      if (ballot(missing != 0) == 0) return;
      const bool polls = missing == before || count_bits(missing) > kFew;
      if (missing != 0 && polls) await_vector(highest_bit(missing));
      before = missing;
#pragma unroll
      for (int i = 0; i < kVectors; ++i) {
        if (missing >> i & 1) words_[i] = load_words(words_at(i));
      }
    }
  }

  /// [thread] Waits until a vector has arrived, or the call is over.
  FARWARP_DEVICE void await_vector(int vector) {
    const Global<const Vec16> from[1] = {words_at(vector)};
    const int row = static_cast<int>((step_.first + static_cast<std::uint32_t>(offset_of(vector))) /
                                     (2 * static_cast<std::uint32_t>(args_.k)));
    Vec16 data[1];
    wait_words<1, Failure::inlined>(call_, from, 1, data, {.site = kSiteArrival, .peer = row / args_.shard_rows});
  }

  /// [warp] Waits until the next stage is free and stores the step's words into it. Also stores them to all_x if
  /// step_.returned.
  FARWARP_DEVICE void fill_stage(int first_row) {
    const bool is_free = wait_(tile_.ring.empty(at_.stage), at_.parity ^ 1);  // the first turn finds every stage empty
    broken_ = broken_ || ballot(!is_free) != 0;
    if (!broken_) {
      const Shared<std::byte> x = swap_ab ? tile_.right(at_.stage) : tile_.left(at_.stage);
      const int row = first_row + lane_index() / 8, byte = lane_index() % 8 * 16;
      const int offset[2] = {swizzled_offset(row, byte), swizzled_offset(row + 4, byte)};
#pragma unroll
      for (int i = 0; i < kVectors; ++i) {  // the swizzle repeats every 8 rows
        const Shared<std::byte> to = x + (offset[i % 2] + i / 2 * 8 * kSwizzleRowBytes);
        store(Shared<Vec16>(reinterpret_cast<Vec16*>(to.raw)), words_[i]);
      }
      proxy_fence();
      warp_sync();
      if (lane_index() == 0) mbarrier_arrive(tile_.ring.full(at_.stage));
    }
    at_.advance();
    if (!step_.returned) return;
    auto* const all_x = static_cast<std::byte*>(args_.all_x) + step_.first;
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      if (step_.inside >> i & 1) store(Global<Vec16>(reinterpret_cast<Vec16*>(all_x + offset_of(i))), words_[i]);
    }
  }

  const Args& args_;
  const Tile tile_;
  const int number_;
  Call& call_;
  const WaitBarrier& wait_;
  /// Bases of WordsOfStep::first: the call's inbox, and the address that makes this rank's rows lie at own_x.
  const std::byte *inbox_, *own_;
  WordsOfStep step_;
  Vec16 words_[kVectors];
  tile::RingPosition<Tile::kStages> at_;
  bool broken_ = false;  ///< a wait for a stage has expired: nothing more is stored
};

}  // namespace farwarp::FARWARP_TARGET::ag_gemm
