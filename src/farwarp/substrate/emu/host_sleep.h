// Tells whether the active host threads sleep in waits that the library does not know.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>

namespace farwarp::emu {

class HostSleep {
 public:
  /// True if each active host thread (base/host_activity.h) has slept in the operating system, without an interruption,
  /// for 20 ms. A thread that computes, or waits for a processor, does not sleep, however loaded the machine is. Cheap:
  /// looks every 10 ms.
  bool all_asleep();

 private:
  using Clock = std::chrono::steady_clock;
  struct Sleep {
    /// how often the thread has gone to sleep; if two looks find the same number, it has not woken between them
    std::uint64_t switches = 0;
    Clock::time_point since;
  };
  bool look();

  std::map<int, Sleep> sleeping_;  ///< by the thread's id
  std::uint64_t changes_ = 0;      ///< host_activity_changes() of the last look
  Clock::time_point looked_;
  bool asleep_ = false;
};

}  // namespace farwarp::emu
