// Arguments and variants of the small kernels of the emulator's tests (litmus_test.dev.cc, litmus_bulk_test.dev.cc).
#pragma once

#include <cstddef>
#include <cstdint>

namespace farwarp {

/// Arguments of all kernels. Every device has 64 KB of memory; memory[i] is the memory of device i.
struct LitmusArgs {
  std::byte* memory[3];
  std::int32_t rank;
  std::int32_t variant;
  std::int32_t count;
};

inline constexpr std::size_t kLitmusBytes = 64 << 10;

// Offsets in a device's memory.
inline constexpr int kLitmusData = 0;     ///< up to 4 KB
inline constexpr int kLitmusFlag = 8192;  ///< cells, 64 bytes apart
inline constexpr int kLitmusPackets = 16384;
inline constexpr int kLitmusResult = 32768;

/// How the sender releases a message, and how the reader acquires it.
enum LitmusOrder : std::int32_t {
  kRight = 0,
  kReleaseStoreAcquireLoad = 0,
  kFences = 1,  ///< release fence + relaxed store; relaxed load + acquire fence
  kNoRelease = 2,
  kNoAcquire = 3,
  kScopeTooNarrow = 4,
  kNoDrain = 5,  ///< a barrier without a drain before it
  kNoProxyFence = 6,
  kWaitReadOnly = 7,  ///< bulk_wait_read() although bulk_wait_all() is needed
  kNoWait = 8,
  kNoBarrier = 9,
  kNewerPending = 10,   ///< bulk_wait_all<1>(), with a group after the one that it must cover
  kWaitOlderOnly = 11,  ///< bulk_wait_all<1>(), which does not cover the newest group
};

/// What litmus_misuse does wrong.
enum LitmusMisuse : std::int32_t {
  kExitBeforeBarrier,
  kExitAfterArrival,
  kDividedWarp,
  kMixedWarpOps,
  kPastTheEnd,
  kMisaligned,
  kUnallocated,
  kOtherDevice,
  kBadShared,
  kBadLane,
  kWaitForever,
  kUninitialisedMbarrier,
  kCopyOutstanding,
  kSpin,
  kNothing
};

}  // namespace farwarp
