// Runs litmus kernels on emulated devices with many seeds.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <string>
#include <vector>

#include "farwarp/substrate/emu/litmus_test.h"
#include "farwarp/substrate/emu/machine.h"

namespace farwarp::emu {

inline constexpr TargetKind kPersonalities[] = {TargetKind::kEmuSm90, TargetKind::kEmuGfx942};
inline constexpr int kSeeds = 500;

/// Three devices of one personality with kLitmusBytes each.
class Rig {
 public:
  explicit Rig(TargetKind personality, int multiprocessors = 8) : personality_(personality) {
    open(multiprocessors, 1);
    for (int i = 0; i < 3; ++i) {
      auto memory = machine_.allocate(personality, i, kLitmusBytes);
      EXPECT_TRUE(memory.ok()) << memory.status().to_string();
      memory_[static_cast<std::size_t>(i)] = static_cast<std::byte*>(*memory);
    }
  }
  ~Rig() {
    for (std::byte* memory : memory_) machine_.release(memory);
  }

  /// Block b of a launch is on multiprocessor b % multiprocessors, and on XCD b % xcds.
  void open(int multiprocessors, int xcds) {
    const MachineShape shape{
        .target = personality_, .traits = traits_of(personality_), .multiprocessors = multiprocessors, .xcds = xcds};
    for (int i = 0; i < 3; ++i) EXPECT_TRUE(machine_.open_device(personality_, i, shape).ok());
  }

  void start(std::uint64_t seed, bool adversarial = true) {
    machine_.set_schedule({seed, adversarial});
    for (std::byte* memory : memory_) machine_.host_fill(memory, 0, kLitmusBytes);
  }

  LitmusArgs args(int rank, int variant, int count = 0) const {
    return {{memory_[0], memory_[1], memory_[2]}, rank, variant, count};
  }

  Status launch(const char* kernel, int rank, int variant, LaunchShape shape = {}, int count = 0, StreamId stream = 0) {
    const KernelRecord* record = find_kernel(kernel, personality_);
    if (record == nullptr) return unavailable(kernel);
    const LitmusArgs arguments = args(rank, variant, count);
    return machine_.launch(personality_, rank, stream, *record, shape, &arguments);
  }

  Status synchronize(int rank, StreamId stream = 0) { return machine_.synchronize(personality_, rank, stream); }

  /// Runs the kernel on ranks 0 .. ranks-1 at the same time. Returns the first failure.
  Status run(const char* kernel, int ranks, int variant, LaunchShape shape = {}, int count = 0) {
    for (int rank = 0; rank < ranks; ++rank) {
      if (Status status = launch(kernel, rank, variant, shape, count); !status.ok()) return status;
    }
    Status first;
    for (int rank = 0; rank < ranks; ++rank) {
      Status status = synchronize(rank);
      if (first.ok()) first = status;
    }
    return first;
  }

  std::uint64_t result(int rank, int index = 0) const {
    std::uint64_t value;
    std::memcpy(&value, memory_[static_cast<std::size_t>(rank)] + kLitmusResult + 8 * index, 8);
    return value;
  }

  Machine& machine() { return machine_; }
  std::byte* memory(int rank) const { return memory_[static_cast<std::size_t>(rank)]; }
  TargetKind personality() const { return personality_; }

 private:
  Machine& machine_ = Machine::instance();
  TargetKind personality_;
  std::array<std::byte*, 3> memory_{};
};

}  // namespace farwarp::emu
