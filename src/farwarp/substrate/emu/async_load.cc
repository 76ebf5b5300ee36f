// async_load(): the emulator performs a load at once or when the thread waits for it, whichever the schedule chooses, as
// accesses of the thread.
#include <fmt/format.h>

#include <algorithm>

#include "farwarp/substrate/emu/async_proxy.h"
#include "farwarp/substrate/emu/engine.h"

namespace farwarp::emu {
namespace {

void perform(const AsyncLoad& load) {
  std::uint64_t halves[2] = {};
  if (load.from != nullptr) read16(load.from, halves, {.space = Space::global, .bytes = 8});
  write16(load.to, halves, {.space = Space::shared, .bytes = 8});
}

}  // namespace

void async_load(void* shared_destination, const void* source, bool zeros) {
  Thread& thread = enter_async_proxy("async_load");
  const AsyncLoad load{shared_destination, zeros ? nullptr : source, thread.open_async_group};
  const Schedule& schedule = engine().schedule;
  if (schedule.options().adversarial && engine().schedule.random().below(2) == 0) {
    perform(load);
  } else {
    thread.async_loads.push_back(load);
  }
}

void async_commit() { ++enter_async_proxy("async_commit").open_async_group; }

void async_wait(int pending) {
  Thread& thread = enter_async_proxy("async_wait");
  const int last = thread.open_async_group - pending;
  std::vector<AsyncLoad> due;
  std::erase_if(thread.async_loads, [&](const AsyncLoad& load) {
    if (load.group >= last) return false;
    due.push_back(load);
    return true;
  });
  for (const AsyncLoad& load : due) perform(load);
}

}  // namespace farwarp::emu
