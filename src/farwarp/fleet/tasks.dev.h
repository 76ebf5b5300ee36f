// A worker's list of tasks.
#pragma once

#include "farwarp/fleet/product.dev.h"

namespace farwarp::FARWARP_TARGET::fleet {

struct TaskWords {
  Vec16 of[sizeof(Task) / 16];
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
  FARWARP_DEVICE TaskWords load_at(int number) const {
    TaskWords words;
    const Global<const Vec16> from = memory + std::int64_t{number} * static_cast<int>(sizeof(Task) / 16);
#pragma unroll
    for (int i = 0; i < static_cast<int>(sizeof(Task) / 16); ++i) words.of[i] = load(from + i);
    return words;
  }
  FARWARP_DEVICE int after(int number) const { return number + 1 < end ? number + 1 : first; }
};

}  // namespace farwarp::FARWARP_TARGET::fleet
