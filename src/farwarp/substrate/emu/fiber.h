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
  /// Only this many stacks have guard pages. Each guard splits a mapping in two, and Linux allows 65,530 mappings.
  static constexpr int kGuardedStacks = 20'000;

  /// Creates stacks until at least `count` are free.
  Status reserve(int count);
  /// Returns a fiber that runs `entry(argument)` when first resumed, and leaves when `entry` returns.
  Fiber create(void (*entry)(void*), void* argument);
  /// Called by the engine: runs the fiber until it calls suspend() or leave().
  void resume(Fiber& fiber);
  /// Called by the running fiber: switches to the engine.
  void suspend();
  /// Called by the running fiber: ends it and switches to the engine.
  [[noreturn]] void leave();
  /// Frees the fiber's stack. If the fiber has not called leave(), the objects on its stack are not destroyed.
  void destroy(Fiber& fiber);
  /// Bytes of stack that remain to the running fiber, which calls this.
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
