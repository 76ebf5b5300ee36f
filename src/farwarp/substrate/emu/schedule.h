// Decides which thread runs next and when events happen. No other part of the emulator makes choices. Every decision
// depends on the seed, so a schedule replays exactly; `hash()` covers every decision.
#pragma once

#include <cstdint>
#include <queue>
#include <vector>

#include "farwarp/substrate/emu/entities.h"
#include "farwarp/substrate/emu/machine.h"

namespace farwarp::emu {

constexpr std::uint64_t mix(std::uint64_t x) {  // the finaliser of splitmix64
  x ^= x >> 30;
  x *= 0xbf58476d1ce4e5b9ull;
  x ^= x >> 27;
  x *= 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

class Random {
 public:
  explicit Random(std::uint64_t seed = 1) : state_(mix(seed + 0x9e3779b97f4a7c15ull)) {}
  std::uint64_t next() { return mix(state_ += 0x9e3779b97f4a7c15ull); }
  /// 0 .. bound-1
  std::uint32_t below(std::uint32_t bound) { return static_cast<std::uint32_t>((next() >> 32) * bound >> 32); }
  /// 0 .. 2^bits-1, each power of two equally likely.
  std::uint64_t log_uniform(std::uint32_t bits) { return next() >> (63 - below(bits)); }

 private:
  std::uint64_t state_;
};

/// An event at a step of the machine.
struct StepEvent {
  enum class Kind : std::uint8_t { wake, copy, matrix };
  Time time;
  std::uint64_t order;  ///< number of the event; of events with equal time the oldest comes first
  Kind kind;
  std::uint32_t id;  ///< wake: the thread's uid; copy, matrix: the operation's id
  std::uint32_t park_number;
  friend bool operator>(const StepEvent& a, const StepEvent& b) {
    return a.time != b.time ? a.time > b.time : a.order > b.order;
  }
};

class Schedule {
 public:
  void reset(const ScheduleOptions& options);
  const ScheduleOptions& options() const { return options_; }

  Time now() const { return now_; }
  /// Steps since reset(), without the jumps over idle time.
  std::uint64_t steps() const { return now_ - started_at_ - skipped_; }
  std::uint64_t hash() const { return hash_; }
  Random& random() { return random_; }

  /// Counts a step of the running thread. True if its slice is over.
  bool step() { return ++now_ >= slice_end_; }

  /// The virtual clock. A step takes kStepNanoseconds divided by the number of runnable threads, because on a GPU they
  /// all run at once. The clock jumps over idle time.
  std::uint64_t nanoseconds() const { return (clock_ + (now_ - clock_at_) * tick_) >> kFraction; }
  void advance_clock_to(std::uint64_t nanoseconds);
  void jump_to(Time time);

  /// Gives the launch's warps their speeds, then makes its threads ready.
  void admit(Launch& launch);
  void make_ready(Thread& thread);
  void make_unready(Thread& thread);
  bool any_ready() const { return !ready_.empty(); }
  /// Returns the thread to run next and sets its slice. any_ready() must be true.
  Thread* pick();

  void at(Time time, StepEvent::Kind kind, std::uint32_t id, std::uint32_t park_number = 0);
  bool has_event() const { return !events_.empty(); }
  Time next_event() const { return events_.top().time; }
  StepEvent take_event();

  /// Steps until an atomic store, made at `written`, becomes visible to a reader that nothing orders after it: 0 for
  /// about half of the readers, otherwise up to 4095 (63 in the fast schedule). A pure function, so a reader never sees
  /// an older value after a newer one.
  Time visibility_delay(Uid reader, Granule granule, Time written) const;
  /// True if such a reader sees a plain store before anything orders the two.
  bool sees_weak(Uid reader, Granule granule, Time written) const;
  /// A random number of steps until a bulk copy advances, unless a wait needs it earlier.
  Time copy_delay();

 private:
  static constexpr int kFraction = 20;
  static constexpr std::uint64_t kStepNanoseconds = 100;  ///< time of one step of one thread

  void take_out(Warp& warp);
  Warp* pick_warp_at_random();
  int random_bit(std::uint64_t mask);
  void begin_turn();
  int take_lane();
  bool starved(const Warp& warp) const;
  void maybe_starve();
  std::uint64_t visibility_hash(Uid reader, Granule granule, Time written) const;

  ScheduleOptions options_;
  Random random_;
  Time now_ = 1;
  Time started_at_ = 1;
  Time skipped_ = 0;
  Time slice_end_ = 0;
  std::uint64_t clock_ = std::uint64_t{1000} << kFraction;
  Time clock_at_ = 1;
  std::uint64_t tick_ = 0;
  std::uint64_t hash_ = 0;

  std::vector<Warp*> ready_;
  int ready_threads_ = 0;
  const Warp* turn_warp_ = nullptr;  ///< the warp whose lanes run in turn
  std::uint64_t turn_ = 0;           ///< its lanes that have not run yet
  int next_lane_ = -1;               ///< the lane that runs next; -1: not chosen yet
  int turns_ = 0;                    ///< fast schedule: that the warp has had, one after the other
  std::uint32_t cursor_ = 0;         ///< fast schedule: its place in ready_

  const Block* starved_block_ = nullptr;
  const Device* starved_device_ = nullptr;
  Time starved_until_ = 0;

  std::priority_queue<StepEvent, std::vector<StepEvent>, std::greater<>> events_;
  std::uint64_t next_order_ = 0;
};

}  // namespace farwarp::emu
