#include "farwarp/substrate/emu/host_sleep.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <charconv>
#include <optional>
#include <string_view>

#include "farwarp/base/host_activity.h"

namespace farwarp::emu {
namespace {

constexpr std::chrono::milliseconds kLook{10};
constexpr std::chrono::milliseconds kLongSleep{20};

/// How often the thread has gone to sleep. nullopt if it does not sleep now, or if the system does not tell.
std::optional<std::uint64_t> sleeps_of(int thread) {
  char buffer[4096];
  const int file = open(fmt::format("/proc/self/task/{}/status", thread).c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return std::nullopt;
  const ssize_t bytes = read(file, buffer, sizeof(buffer));
  close(file);
  const std::string_view text(buffer, bytes > 0 ? static_cast<std::size_t>(bytes) : 0);
  if (text.find("\nState:\tS") == std::string_view::npos) return std::nullopt;
  constexpr std::string_view kField = "\nvoluntary_ctxt_switches:\t";
  const std::size_t field = text.find(kField);
  if (field == std::string_view::npos) return std::nullopt;
  std::uint64_t switches = 0;
  const char* const first = text.data() + field + kField.size();
  if (std::from_chars(first, text.data() + text.size(), switches).ec != std::errc()) return std::nullopt;
  return switches;
}

}  // namespace

bool HostSleep::all_asleep() {
  const std::uint64_t changes = host_activity_changes();
  if (changes == changes_ && Clock::now() - looked_ < kLook) return asleep_;
  changes_ = changes;
  asleep_ = look();
  looked_ = Clock::now();
  return asleep_;
}

bool HostSleep::look() {
  std::map<int, Sleep> before;
  before.swap(sleeping_);
  bool all = true;
  for (const HostThread& thread : list_active_host_threads()) {
    const auto switches = sleeps_of(thread.id);
    const auto now = Clock::now();
    const auto known = before.find(thread.id);
    if (switches) {
      const bool goes_on = known != before.end() && known->second.switches == *switches;
      sleeping_[thread.id] = {*switches, goes_on ? known->second.since : now};
    }
    all = all && switches && now - sleeping_[thread.id].since >= kLongSleep;
  }
  return all;
}

}  // namespace farwarp::emu
