#include "farwarp/substrate/emu/schedule.h"

#include <algorithm>
#include <bit>
#include <functional>

namespace farwarp::emu {
namespace {

constexpr Time kFastSlice = 256;
constexpr int kFastTurns = 64;

}  // namespace

void Schedule::reset(const ScheduleOptions& options) {
  options_ = options;
  random_ = Random(options.seed);
  const std::uint64_t whole = nanoseconds() + 1;
  clock_ = whole << kFraction;
  started_at_ = clock_at_ = ++now_;
  skipped_ = 0;
  hash_ = mix(options.seed ^ (options.adversarial ? 0x5a : 0xa5));
  cursor_ = 0;
  turn_ = 0;
  turn_warp_ = nullptr;
  turns_ = 0;
  starved_until_ = 0;
  events_ = {};  // while nothing runs, old events have no effect
  next_order_ = 0;
}

void Schedule::advance_clock_to(std::uint64_t nanoseconds) {
  if (nanoseconds <= this->nanoseconds()) return;
  clock_ = nanoseconds << kFraction;
  clock_at_ = now_;
}

void Schedule::jump_to(Time time) {
  if (time <= now_) return;
  clock_ += (now_ - clock_at_) * tick_;
  clock_at_ = time;
  skipped_ += time - now_;
  now_ = time;
}

void Schedule::admit(Launch& launch) {
  // A rank, each of its blocks and each of its warps run at full, half, quarter ... speed.
  const auto slow = [this](int odds) {
    return random_.below(static_cast<std::uint32_t>(odds)) == 0 ? 1 + random_.below(4) : 0;
  };
  const std::uint32_t of_rank = options_.adversarial ? slow(4) : 0;
  for (Block& block : launch.blocks) {
    const std::uint32_t of_block = options_.adversarial ? slow(4) : 0;
    for (Warp& warp : block.warps) {
      const std::uint32_t of_warp = options_.adversarial ? slow(3) : 0;
      warp.speed = static_cast<std::uint8_t>(255u >> std::min(of_rank + of_block + of_warp, 6u));
    }
  }
  std::vector<Warp*> warps;
  for (Block& block : launch.blocks) {
    for (Warp& warp : block.warps) warps.push_back(&warp);
  }
  for (std::size_t i = warps.size(); i > 1; --i) {
    std::swap(warps[i - 1], warps[random_.below(static_cast<std::uint32_t>(i))]);
  }
  for (Warp* warp : warps) {
    for (std::uint64_t left = warp->present; left != 0; left &= left - 1)
      make_ready(warp->threads[std::countr_zero(left)]);
  }
}

void Schedule::make_ready(Thread& thread) {
  Warp& warp = *thread.warp;
  thread.wait = Wait::none;
  if (warp.runnable == 0) {
    warp.ready_index = static_cast<int>(ready_.size());
    ready_.push_back(&warp);
  }
  warp.runnable |= std::uint64_t{1} << thread.lane_index;
  ++ready_threads_;
}

void Schedule::make_unready(Thread& thread) {
  Warp& warp = *thread.warp;
  const std::uint64_t lane = std::uint64_t{1} << thread.lane_index;
  if (!(warp.runnable & lane)) return;
  warp.runnable &= ~lane;
  --ready_threads_;
  if (warp.runnable == 0) take_out(warp);
}

void Schedule::take_out(Warp& warp) {
  const auto index = static_cast<std::size_t>(warp.ready_index);
  ready_[index] = ready_.back();
  ready_[index]->ready_index = warp.ready_index;
  ready_.pop_back();
  warp.ready_index = -1;
  if (turn_warp_ == &warp) turn_warp_ = nullptr;
}

bool Schedule::starved(const Warp& warp) const {
  return now_ < starved_until_ && (warp.block == starved_block_ || warp.block->launch->device == starved_device_);
}

void Schedule::maybe_starve() {
  if (now_ < starved_until_ || random_.below(2048) != 0) return;
  const Warp& victim = *ready_[random_.below(static_cast<std::uint32_t>(ready_.size()))];
  const bool whole_rank = random_.below(2) == 0;
  starved_block_ = whole_rank ? nullptr : victim.block;
  starved_device_ = whole_rank ? victim.block->launch->device : nullptr;
  starved_until_ = now_ + random_.log_uniform(16);
}

int Schedule::random_bit(std::uint64_t mask) {
  for (auto skip = random_.below(static_cast<std::uint32_t>(std::popcount(mask))); skip > 0; --skip) mask &= mask - 1;
  return std::countr_zero(mask);
}

Warp* Schedule::pick_warp_at_random() {
  maybe_starve();
  Warp* warp = nullptr;
  for (int tries = 0; tries < 16; ++tries) {
    warp = ready_[random_.below(static_cast<std::uint32_t>(ready_.size()))];
    if (!starved(*warp) && random_.below(256) <= warp->speed) break;
  }
  return warp;
}

/// Chooses the warp whose ready lanes run next, one after the other. Adversarial: a random warp, and half the time only
/// one lane of it.
/// Fast: a warp has several turns, because its stacks are in the processor's cache then.
void Schedule::begin_turn() {
  if (options_.adversarial) {
    turn_warp_ = pick_warp_at_random();
    turn_ = turn_warp_->runnable;
    if (random_.below(2) == 0) turn_ = std::uint64_t{1} << random_bit(turn_);
  } else if (turn_warp_ != nullptr && ++turns_ < kFastTurns) {
    turn_ = turn_warp_->runnable;
  } else {
    turns_ = 0;
    const std::uint32_t next = turn_warp_ ? static_cast<std::uint32_t>(turn_warp_->ready_index) + 1 : cursor_;
    cursor_ = next % static_cast<std::uint32_t>(ready_.size());
    turn_warp_ = ready_[cursor_];
    turn_ = turn_warp_->runnable;
  }
  next_lane_ = -1;
}

/// Returns the lane that the previous call chose, and chooses the next lane. That lane's stack is prefetched while this
/// lane runs:
/// switching fibers takes a third of the emulator's time, nearly all of it in cache misses.
int Schedule::take_lane() {
  turn_ &= turn_warp_->runnable;
  const int lane = next_lane_ >= 0 && (turn_ >> next_lane_ & 1) ? next_lane_ : random_bit(turn_);
  turn_ &= ~(std::uint64_t{1} << lane);
  next_lane_ = turn_ == 0 ? -1 : random_bit(turn_);
  if (next_lane_ >= 0) {
    const auto* stack = static_cast<const char*>(turn_warp_->threads[next_lane_].fiber.context);
    for (int line = 0; line < 4; ++line) __builtin_prefetch(stack + 64 * line);
  }
  return lane;
}

Thread* Schedule::pick() {
  clock_ += (now_ - clock_at_) * tick_;
  clock_at_ = now_;
  tick_ = (kStepNanoseconds << kFraction) / static_cast<std::uint64_t>(ready_threads_);

  if (turn_warp_ == nullptr || (turn_ & turn_warp_->runnable) == 0) begin_turn();
  const int lane = take_lane();
  Time slice = kFastSlice;
  if (options_.adversarial) {
    slice = 1 + random_.below(16);
    if (random_.below(16) == 0) slice *= 16;
  }
  slice_end_ = now_ + slice;
  if (has_event()) slice_end_ = std::min(slice_end_, std::max(next_event(), now_ + 1));
  Thread* thread = turn_warp_->threads + lane;
  hash_ = mix(hash_ ^ (static_cast<std::uint64_t>(thread->uid) << 32 | (now_ - started_at_)));
  return thread;
}

void Schedule::at(Time time, StepEvent::Kind kind, std::uint32_t id, std::uint32_t park_number) {
  events_.push({std::max(time, now_ + 1), next_order_++, kind, id, park_number});
  slice_end_ = std::min(slice_end_, std::max(time, now_ + 1));
}

StepEvent Schedule::take_event() {
  const StepEvent event = events_.top();
  events_.pop();
  hash_ = mix(hash_ ^ (static_cast<std::uint64_t>(event.id) << 32 | (now_ - started_at_)));
  return event;
}

std::uint64_t Schedule::visibility_hash(Uid reader, Granule granule, Time written) const {
  return mix(mix(options_.seed * 0x9e3779b97f4a7c15ull + reader) ^
             mix(granule * 0xd6e8feb86659fd93ull + (written - started_at_)));
}

Time Schedule::visibility_delay(Uid reader, Granule granule, Time written) const {
  const std::uint64_t hash = visibility_hash(reader, granule, written);
  if (hash & 1) return 0;
  const std::uint64_t bits = options_.adversarial ? 12 : 6;
  return (hash >> 8) & ((std::uint64_t{1} << (1 + (hash >> 1) % bits)) - 1);
}

bool Schedule::sees_weak(Uid reader, Granule granule, Time written) const {
  return visibility_hash(reader, granule, written) & 1;
}

Time Schedule::copy_delay() {
  if (!options_.adversarial) return 1 + random_.below(32);
  return 1 + random_.log_uniform(random_.below(2) == 0 ? 5 : 13);
}

}  // namespace farwarp::emu
