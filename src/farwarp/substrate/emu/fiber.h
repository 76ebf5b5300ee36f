// Fibers: one stack per GPU thread, in one slab, switched by Boost.Context.
#pragma once

#include <cstddef>
#include <vector>

#include "farwarp/base/status.h"

namespace farwarp::emu {

/// A suspended fiber, or the engine's own thread while a fiber runs.
struct Fiber {
  void* context = nullptr;
  int stack = -1;
};

class FiberPool {
 public:
#if defined(__SANITIZE_ADDRESS__)
  static constexpr std::size_t kStackBytes = std::size_t{256} << 10;  // instrumented frames are several times larger
#else
  static constexpr std::size_t kStackBytes = std::size_t{64} << 10;
#endif
  static constexpr std::size_t kGuardBytes = 4096;
  static constexpr int kMaxStacks = 1 << 18;
  /// Each guard splits a mapping in two and Linux allows 65,530 mappings: stacks beyond these have no guard.
  static constexpr int kGuardedStacks = 20'000;

  /// Makes at least `count` stacks free.
  Status reserve(int count);
  /// A fiber that will run `entry(argument)` when first resumed. `entry` must not return: it calls leave().
  Fiber create(void (*entry)(void*), void* argument);
  /// From the engine: runs the fiber until it suspends or leaves.
  void resume(Fiber& fiber);
  /// From the running fiber: back to the engine.
  void suspend();
  /// From the running fiber: back to the engine for good.
  [[noreturn]] void leave();
  /// Gives the stack back. A fiber that has not left is abandoned where it stands; nothing on its stack is destroyed.
  void destroy(Fiber& fiber);
  /// Bytes of stack that the caller, on the running fiber, has left.
  std::size_t stack_left() const;

 private:
  std::byte* bottom_of(int stack) const;

  std::byte* slab_ = nullptr;
  int created_ = 0;
  std::vector<int> free_;
  Fiber* running_ = nullptr;
  void* engine_context_ = nullptr;
  void* engine_fake_stack_ = nullptr;
  const void* engine_stack_bottom_ = nullptr;
  std::size_t engine_stack_bytes_ = 0;
};

}  // namespace farwarp::emu
