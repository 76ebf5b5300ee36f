// Which host threads are doing something. The emulator runs kernels only while every registered thread waits, which makes its
// schedules independent of the operating system's. On real devices this costs nothing: nobody listens.
//
// What a program declares. A rank's thread is registered by its first collective call, that of run_ranks() from its start; waits
// inside the library are known. A registered thread that waits for another one elsewhere (a barrier, a mutex, a condition, join())
// declares nothing as long as it sleeps in the operating system: the emulator notices after 20 ms. A HostBlockedScope around such a
// wait saves these, and makes the schedule repeatable. A wait that spins should have one: without it kernels run only once the timeout
// of a synchronize() (at least 2 s) has passed without any thread having entered or left a wait. Another thread that enqueues work
// declares a HostThreadScope, if the schedule is to be repeatable, or if ranks wait for that work.
//
// While a thread waits undeclared, kernels that wait for what it may still enqueue do so in the host's time: they end at their
// deadline, and World::status() names the threads.
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

/// Registers the calling thread for its scope: one per rank thread of an in-process group. Inside of another one it does nothing.
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
  const HostThread* counted_ = nullptr;
};

/// Registered threads that are not blocked.
int active_host_threads();
std::vector<HostThread> list_active_host_threads();
/// How often a thread has become active or ceased to be.
std::uint64_t host_activity_changes();
/// Called (without locks held by this module) whenever the number of active threads drops to zero.
void set_host_idle_listener(std::function<void()> listener);

}  // namespace farwarp
