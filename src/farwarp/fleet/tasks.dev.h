// A worker's list of tasks, and how its warps get them.
#pragma once

#include "farwarp/fleet/product.dev.h"
#include "farwarp/tile/ring.dev.h"
#include "farwarp/world/device/wait.dev.h"

namespace farwarp::FARWARP_TARGET::fleet {

inline constexpr int kTaskWords = sizeof(Task) / 16;

struct TaskWords {
  Vec16 of[kTaskWords];
};

FARWARP_DEVICE std::uint64_t uniform_half(std::uint64_t word) {
  if constexpr (!kMfma) return word;  // only CDNA keeps it in other registers
  const int low = uniform(static_cast<int>(word)), high = uniform(static_cast<int>(word >> 32));
  return static_cast<std::uint32_t>(low) | static_cast<std::uint64_t>(static_cast<std::uint32_t>(high)) << 32;
}

/// [warp] All lanes have the same task, and the compiler is told so.
FARWARP_DEVICE Task uniform_task(TaskWords words) {
#pragma unroll
  for (Vec16& word : words.of) word = {uniform_half(word.lo), uniform_half(word.hi)};
  return std::bit_cast<Task>(words);
}

/// The tasks of a token, which follow each other again for the next token.
struct TaskList {
  Global<const Vec16> memory;
  int first, end;

  /// [thread]
  FARWARP_DEVICE TaskWords load_at(int index) const {
    TaskWords words;
    const Global<const Vec16> from = memory + std::int64_t{index} * kTaskWords;
#pragma unroll
    for (int i = 0; i < kTaskWords; ++i) words.of[i] = load(from + i);
    return words;
  }
  FARWARP_DEVICE int after(int index) const { return index + 1 < end ? index + 1 : first; }
};

/// Where there is a loading thread, it hands tasks over in shared memory: a task takes a flight to load, and registers
/// until it begins. `memory`: kTaskRingBytes.
struct SharedTasks {
  Shared<std::byte> memory;

  using Ring = tile::Ring<kTaskPlaces>;
  using Position = tile::RingPosition<kTaskPlaces>;

  FARWARP_DEVICE Ring ring() const { return Ring(memory + kTaskPlaces * static_cast<int>(sizeof(Task))); }
  FARWARP_DEVICE Shared<Vec16> words(int place) const {
    return Shared<Vec16>(reinterpret_cast<Vec16*>(memory.raw)) + place * kTaskWords;
  }

  /// [thread] The loading thread's side. False if a wait has expired.
  FARWARP_DEVICE bool put(BlockWaits& waits, const WorldView& view, Position& position, const TaskWords& task) const {
    if (!wait_mbarrier(waits, view, ring().empty(position.stage), position.parity ^ 1)) return false;
#pragma unroll
    for (int i = 0; i < kTaskWords; ++i) store(words(position.stage) + i, task.of[i]);
    mbarrier_arrive(ring().full(position.stage));
    position.advance();
    return true;
  }
  /// [warp] The other warps' side. False if the wait has expired; `waits` are of these waits alone, so that it is the
  /// same task for all warps.
  FARWARP_DEVICE bool get(BlockWaits& waits, const WorldView& view, Position& position, Task& task) const {
    if (!wait_mbarrier(waits, view, ring().full(position.stage), position.parity)) return false;
    task = task_at(position.stage);
    warp_sync();
    if (lane_index() == 0) mbarrier_arrive(ring().empty(position.stage));
    position.advance();
    return true;
  }
  /// [thread] The same, of a warp of which one thread has work.
  FARWARP_DEVICE bool get_alone(BlockWaits& waits, const WorldView& view, Position& position, Task& task) const {
    if (!wait_mbarrier(waits, view, ring().full(position.stage), position.parity)) return false;
    task = task_at(position.stage);
    mbarrier_arrive(ring().empty(position.stage));
    position.advance();
    return true;
  }

 private:
  FARWARP_DEVICE Task task_at(int place) const {
    TaskWords got;
#pragma unroll
    for (int i = 0; i < kTaskWords; ++i) got.of[i] = load(words(place) + i);
    return std::bit_cast<Task>(got);
  }
};

}  // namespace farwarp::FARWARP_TARGET::fleet
