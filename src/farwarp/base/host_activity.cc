#include "farwarp/base/host_activity.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <mutex>
#include <utility>

namespace farwarp {
namespace {

struct Activity {
  std::mutex mutex;
  std::vector<const HostThread*> active;
  std::uint64_t changes = 0;
  std::function<void()> listener;
};

Activity& activity() {
  static Activity* instance = new Activity;  // outlives every thread that may still be counted at exit
  return *instance;
}

thread_local const HostThread* registered = nullptr;

void add(const HostThread* thread) {
  std::lock_guard lock(activity().mutex);
  activity().active.push_back(thread);
  ++activity().changes;
}

void remove(const HostThread* thread) {
  std::function<void()> listener;
  {
    std::lock_guard lock(activity().mutex);
    std::erase(activity().active, thread);
    ++activity().changes;
    if (activity().active.empty()) listener = activity().listener;
  }
  if (listener) listener();
}

}  // namespace

HostThreadScope::HostThreadScope(std::string name) : registered_(registered == nullptr) {
  if (!registered_) return;
  thread_ = {std::move(name), static_cast<int>(syscall(SYS_gettid))};
  registered = &thread_;
  add(&thread_);
}

HostThreadScope::~HostThreadScope() {
  if (!registered_) return;
  registered = nullptr;
  remove(&thread_);
}

HostBlockedScope::HostBlockedScope() : counted_(registered) {
  if (counted_ == nullptr) return;
  // Inside another such scope the thread is already blocked.
  {
    std::lock_guard lock(activity().mutex);
    if (std::ranges::find(activity().active, counted_) == activity().active.end()) counted_ = nullptr;
  }
  if (counted_ != nullptr) remove(counted_);
}

HostBlockedScope::~HostBlockedScope() { wake(); }

void HostBlockedScope::wake() {
  if (const HostThread* const thread = std::exchange(counted_, nullptr)) add(thread);
}

int active_host_threads() {
  std::lock_guard lock(activity().mutex);
  return static_cast<int>(activity().active.size());
}

std::vector<HostThread> list_active_host_threads() {
  std::lock_guard lock(activity().mutex);
  std::vector<HostThread> threads;
  for (const HostThread* const thread : activity().active) threads.push_back(*thread);
  return threads;
}

std::uint64_t host_activity_changes() {
  std::lock_guard lock(activity().mutex);
  return activity().changes;
}

void set_host_idle_listener(std::function<void()> listener) {
  std::lock_guard lock(activity().mutex);
  activity().listener = std::move(listener);
}

}  // namespace farwarp
