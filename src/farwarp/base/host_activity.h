// Which host threads are active. The emulator runs kernels only while every registered thread waits; so its schedules
// do not depend on the operating system's. Real devices do not use this.
//
// What a program has to declare:
// - A rank's thread: nothing. Its first collective call registers it; run_ranks() registers its threads at their start.
//   Waits inside the library are known.
// - A wait of a registered thread for another thread outside the library (a barrier, a mutex, a condition, join()):
//   nothing, if the thread sleeps in the operating system. The emulator notices after 20 ms. A HostBlockedScope around
//   the wait saves the 20 ms and makes the schedule repeatable.
// - A wait that spins: a HostBlockedScope. Without one, kernels run only after the timeout of a synchronize() (at least
//   2 s) has passed in which no thread began or ended a wait.
// - Another thread that enqueues work: a HostThreadScope, if the schedule has to be repeatable or if ranks wait for
//   that work.
//
// While a thread waits undeclared, kernels that wait for work which it may still enqueue wait in the host's time. They
// end at their deadline, and World::status() names the threads.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace farwarp {

/// A registered thread.
struct HostThread {
  std::string name;
  int id = 0;  ///< the operating system's (gettid)
};

/// Registers the calling thread for its scope: one for each rank's thread of an in-process group. Inside another such
/// scope it does nothing.
class HostThreadScope {
 public:
  explicit HostThreadScope(std::string name = {});
  ~HostThreadScope();
  HostThreadScope(const HostThreadScope&) = delete;
  HostThreadScope& operator=(const HostThreadScope&) = delete;

 private:
  HostThread thread_;
  bool registered_;
};

/// Marks the calling thread as blocked, from construction until wake() or destruction, whichever is first. The thread
/// that ends the wait calls wake() *before* it may block itself. Otherwise all threads could look blocked for a moment
/// although one has been released.
class HostBlockedScope {
 public:
  HostBlockedScope();
  ~HostBlockedScope();
  HostBlockedScope(const HostBlockedScope&) = delete;
  HostBlockedScope& operator=(const HostBlockedScope&) = delete;
  void wake();

 private:
  const HostThread* counted_ = nullptr;
};

/// Registered threads that are not blocked.
int active_host_threads();
std::vector<HostThread> list_active_host_threads();
/// How often a thread has become active or inactive.
std::uint64_t host_activity_changes();
/// Called (without locks held by this module) whenever the number of active threads drops to zero.
void set_host_idle_listener(std::function<void()> listener);

}  // namespace farwarp
