// Which host threads are doing something. The emulator runs kernels only while every registered thread is blocked, which makes
// its schedules independent of the operating system's. On real devices this costs nothing: nobody listens.
#pragma once

#include <functional>

namespace farwarp {

/// Registers the calling thread for its scope: one per rank thread of an in-process group.
class HostThreadScope {
 public:
  HostThreadScope();
  ~HostThreadScope();
  HostThreadScope(const HostThreadScope&) = delete;
  HostThreadScope& operator=(const HostThreadScope&) = delete;
};

/// Marks the calling thread as blocked, from construction until wake() or destruction, whichever comes first. Whoever
/// satisfies what the thread waits for calls wake() *before* it may block itself, so that no moment exists in which all
/// threads look blocked although one has been released.
class HostBlockedScope {
 public:
  HostBlockedScope();
  ~HostBlockedScope();
  HostBlockedScope(const HostBlockedScope&) = delete;
  HostBlockedScope& operator=(const HostBlockedScope&) = delete;
  void wake();

 private:
  bool counted_ = false;
};

/// Registered threads that are not blocked.
int active_host_threads();
/// Called (without locks held by this module) whenever the number of active threads drops to zero.
void set_host_idle_listener(std::function<void()> listener);

}  // namespace farwarp
