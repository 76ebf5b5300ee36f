#include "farwarp/base/host_activity.h"

#include <mutex>
#include <utility>

namespace farwarp {
namespace {

struct Activity {
  std::mutex mutex;
  int active = 0;
  std::function<void()> listener;
};

Activity& activity() {
  static Activity* instance = new Activity;  // outlives every thread that may still be counted at exit
  return *instance;
}

thread_local bool registered = false;

void change_active(int by) {
  std::function<void()> listener;
  {
    std::lock_guard lock(activity().mutex);
    activity().active += by;
    if (activity().active == 0) listener = activity().listener;
  }
  if (listener) listener();
}

}  // namespace

HostThreadScope::HostThreadScope() {
  registered = true;
  change_active(+1);
}

HostThreadScope::~HostThreadScope() {
  registered = false;
  change_active(-1);
}

HostBlockedScope::HostBlockedScope() : counted_(registered) {
  if (counted_) change_active(-1);
}

HostBlockedScope::~HostBlockedScope() { wake(); }

void HostBlockedScope::wake() {
  if (std::exchange(counted_, false)) change_active(+1);
}

int active_host_threads() {
  std::lock_guard lock(activity().mutex);
  return activity().active;
}

void set_host_idle_listener(std::function<void()> listener) {
  std::lock_guard lock(activity().mutex);
  activity().listener = std::move(listener);
}

}  // namespace farwarp
