#include "farwarp/substrate/emu/fiber.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <boost/context/detail/fcontext.hpp>
#include <cerrno>
#include <cstring>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

namespace farwarp::emu {
namespace {

using boost::context::detail::fcontext_t;
using boost::context::detail::jump_fcontext;
using boost::context::detail::make_fcontext;
using boost::context::detail::transfer_t;

constexpr std::size_t kStride = FiberPool::kStackBytes + FiberPool::kGuardBytes;

struct Start {
  FiberPool* pool;
  void (*entry)(void*);
  void* argument;
};

}  // namespace

std::byte* FiberPool::bottom_of(int stack) const {
  return slab_ + static_cast<std::size_t>(stack) * kStride + kGuardBytes;
}

Status FiberPool::reserve(int count) {
  if (slab_ == nullptr) {
    void* slab = mmap(nullptr, kMaxStacks * kStride, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (slab == MAP_FAILED) return {StatusCode::kOutOfMemory, "no address space for the threads' stacks"};
    slab_ = static_cast<std::byte*>(slab);
  }
  while (static_cast<int>(free_.size()) < count) {
    if (created_ == kMaxStacks) {
      return {StatusCode::kOutOfMemory,
              fmt::format("more than {} GPU threads at once; fewer ranks, fewer multiprocessors "
                          "(FARWARP_EMU_MULTIPROCESSORS) or a smaller max_sms need fewer",
                          kMaxStacks)};
    }
    const bool guarded = created_ < kGuardedStacks;
    std::byte* from = guarded ? bottom_of(created_) : bottom_of(created_) - kGuardBytes;
    if (mprotect(from, guarded ? kStackBytes : kStride, PROT_READ | PROT_WRITE) != 0) {
      return {StatusCode::kOutOfMemory, fmt::format("no memory for stack {}: {}", created_, std::strerror(errno))};
    }
    free_.push_back(created_++);
  }
  return {};
}

Fiber FiberPool::create(void (*entry)(void*), void* argument) {
  Fiber fiber;
  fiber.stack = free_.back();
  free_.pop_back();
  // Stacks start at different offsets in their pages, because equal offsets would compete for the same cache sets.
  const std::size_t colour = static_cast<std::size_t>(fiber.stack % 16) * 128;
  std::byte* top = bottom_of(fiber.stack) + kStackBytes - colour - sizeof(Start);
  auto* start = reinterpret_cast<Start*>(top);
  *start = {this, entry, argument};
  fiber.context = make_fcontext(top, static_cast<std::size_t>(top - bottom_of(fiber.stack)), [](transfer_t from) {
    const Start begin = *static_cast<Start*>(from.data);
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(nullptr, &begin.pool->engine_stack_bottom_, &begin.pool->engine_stack_bytes_);
#endif
    begin.pool->engine_context_ = from.fctx;
    begin.entry(begin.argument);
    begin.pool->leave();
  });
  return fiber;
}

void FiberPool::resume(Fiber& fiber) {
  running_ = &fiber;
  std::byte* top =
      bottom_of(fiber.stack) + kStackBytes - static_cast<std::size_t>(fiber.stack % 16) * 128 - sizeof(Start);
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(&engine_fake_stack_, bottom_of(fiber.stack), kStackBytes);
#endif
  const transfer_t back = jump_fcontext(fiber.context, top);  // `top` is only used by the first resume
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(engine_fake_stack_, nullptr, nullptr);
#endif
  fiber.context = back.fctx;
  running_ = nullptr;
}

void FiberPool::suspend() {
#if defined(__SANITIZE_ADDRESS__)
  void* fake_stack = nullptr;
  __sanitizer_start_switch_fiber(&fake_stack, engine_stack_bottom_, engine_stack_bytes_);
#endif
  const transfer_t from = jump_fcontext(engine_context_, nullptr);
  engine_context_ = from.fctx;
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(fake_stack, &engine_stack_bottom_, &engine_stack_bytes_);
#endif
}

void FiberPool::leave() {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(nullptr, engine_stack_bottom_, engine_stack_bytes_);
#endif
  jump_fcontext(engine_context_, nullptr);
  __builtin_unreachable();
}

void FiberPool::destroy(Fiber& fiber) {
  if (fiber.stack < 0) return;
#if defined(__SANITIZE_ADDRESS__)
  __asan_unpoison_memory_region(bottom_of(fiber.stack), kStackBytes);
#endif
  free_.push_back(fiber.stack);
  fiber = {};
}

std::size_t FiberPool::stack_left() const {
  return static_cast<std::size_t>(static_cast<std::byte*>(__builtin_frame_address(0)) - bottom_of(running_->stack));
}

}  // namespace farwarp::emu
