#include "farwarp/substrate/emu/engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "farwarp/substrate/emu/knowledge.h"

namespace farwarp::emu {
namespace {

std::uint64_t host_nanoseconds() {
  return static_cast<std::uint64_t>(
      std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count());
}

/// After this many steps without a write or a synchronisation a kernel is assumed to spin. It is far more than kernels
/// take between two stores (8 x 8 x 256 threads that read 8192 words each), and takes a few seconds.
constexpr Time kLongestReading = Time{1} << 27;

/// How often the engine checks whether active host threads sleep.
constexpr std::chrono::milliseconds kLook{10};

}  // namespace

const ThreadIds* running_ids = nullptr;

Engine& engine() {
  static Engine* instance = new Engine;  // never destroyed: its thread may outlive static destructors
  return *instance;
}

Uid block_uid(Uid uid) { return engine().block_uid(uid); }

Engine::Engine() : warps_(kMaxWarps) {
  set_host_idle_listener([this] { poke(); });
  thread_ = std::thread([this] { main(); });
  thread_id_ = thread_.get_id();
  thread_.detach();
}

Engine::HostLock::HostLock(Engine& engine) {
  if (std::this_thread::get_id() == engine.thread_id_) return;
  engine.host_waiting_.fetch_add(1);
  lock_ = std::unique_lock(engine.mutex_);
  engine.host_waiting_.fetch_sub(1);
}

// ---- the loop -------------------------------------------------------------------------------------------------------

void Engine::poke() {
  std::lock_guard lock(wake_mutex_);
  poked_ = true;
  wake_.notify_one();
}

void Engine::main() {
  for (bool held_up = false;;) {
    {
      std::unique_lock lock(wake_mutex_);
      const auto poked = [this] { return poked_; };
      if (held_up) {
        wake_.wait_for(lock, kLook, poked);
      } else {
        wake_.wait(lock, poked);
      }
      poked_ = false;
    }
    std::lock_guard lock(mutex_);
    const auto start = std::chrono::steady_clock::now();
    run();
    seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    held_up = !waiters_.empty();
  }
}

/// True if a host thread waits for work and no registered host thread is expected to add any: all are blocked, or sleep
/// elsewhere, or the engine has waited for them long enough.
bool Engine::may_run() {
  if (waiters_.empty()) return false;
  return active_host_threads() == 0 || host_sleep_.all_asleep() || waited_long_enough();
}

bool Engine::waited_long_enough() {
  const auto now = std::chrono::steady_clock::now();
  if (const std::uint64_t changes = host_activity_changes(); changes != host_changes_) {
    host_changes_ = changes;
    host_unchanged_since_ = now;
  }
  return std::ranges::any_of(waiters_,
                             [&](const Waiter* waiter) { return now - host_unchanged_since_ >= waiter->patience; });
}

void Engine::run() {
  if (!may_run()) return;
  for (std::uint32_t turn = 1;; ++turn) {
    if (host_waiting_.load(std::memory_order_relaxed) > 0) let_host_in();
    if (several_processes) schedule.advance_clock_to(host_nanoseconds());
    if (streams_changed_) start_items();
    if (host_changed_ || turn % 1024 == 0) {
      host_changed_ = false;
      if (!may_run()) return;
      if (schedule.any_ready() && schedule.now() - last_progress_ > kLongestReading) abort_all(spinning());
    }
    while (schedule.has_event() && schedule.next_event() <= schedule.now()) {
      const StepEvent event = schedule.take_event();
      if (event.kind == StepEvent::Kind::copy) {
        advance_copy(event.id);
      } else if (event.kind == StepEvent::Kind::matrix) {
        advance_matrix(event.id);
      } else if (Thread* thread = find_thread(event.id); thread && thread->park_number == event.park_number) {
        wake(*thread);
      }
    }
    if (schedule.nanoseconds() >= earliest_deadline_ns_) pass_deadlines();
    if (schedule.any_ready()) {
      run_thread();
    } else if (!streams_changed_ && !make_time_pass()) {
      return;
    }
    if (faulted_) {
      Device& device = *faulted_->device;
      faulted_ = nullptr;
      abort_device(device, fault_text_);
    }
  }
}

/// Names one of the threads that run without progress.
std::string Engine::spinning() {
  return fmt::format(
      "{}: for {} million steps nobody has written or synchronised: a loop outside the wait primitives?{}",
      where(*schedule.pick()), kLongestReading >> 20, stall_report());
}

/// Called when no thread can run. Advances to the next time at which something can run. False if no work is left.
bool Engine::make_time_pass() {
  if (schedule.has_event()) {
    schedule.jump_to(schedule.next_event());
    return true;
  }
  if (several_processes && any_running()) {
    poll_other_processes();
    return true;
  }
  pass_deadlines();  // makes earliest_deadline_ns_ exact: it may still be the deadline of a thread that was woken early
  if (earliest_deadline_ns_ != kForever) {
    if (several_processes) {
      poll_other_processes();  // a delay between kernels: the clock is the host's
    } else if (active_host_threads() > 0) {
      let_real_time_pass();
    } else {
      schedule.advance_clock_to(earliest_deadline_ns_);
      late_host_threads_.clear();
    }
    return true;
  }
  if (schedule.any_ready() || streams_changed_) return true;
  if (!any_running()) return false;
  if (active_host_threads() > 0 && !waited_long_enough()) {
    let_real_time_pass();
    return true;
  }
  late_host_threads_ = name_active_host_threads();
  abort_all("nothing can progress and no wait has a deadline:" + stall_report() +
            (late_host_threads_.empty() ? "" : "\n  host threads outside of the library: " + late_host_threads_));
  return true;
}

void Engine::abort_all(const std::string& why) {
  if (stall_.empty()) stall_ = why;
  for (auto& [key, device] : devices_) {
    if (!device->running.empty()) abort_device(*device, why);
  }
}

/// Wakes threads whose deadline has passed, marks streams whose delay has ended, and finds the next such time.
void Engine::pass_deadlines() {
  const std::uint64_t now = schedule.nanoseconds();
  earliest_deadline_ns_ = kForever;
  for (auto& [key, device] : devices_) {
    for (auto& [id, queue] : device->streams) {
      if (queue.items.empty() || queue.items.front().kind != WorkItem::Kind::delay || !queue.items.front().started)
        continue;
      if (queue.items.front().nanoseconds > now) {
        expect_deadline(queue.items.front().nanoseconds);
      } else {
        streams_changed_ = true;
      }
    }
    for (Launch* launch : device->running) {
      for (int i = 0; i < launch->thread_count; ++i) {
        Thread& thread = launch->threads[static_cast<std::size_t>(i)];
        if (thread.wait != Wait::parked) continue;
        if (thread.deadline_ns <= now) {
          wake(thread);
        } else {
          expect_deadline(thread.deadline_ns);
        }
      }
    }
  }
}

void Engine::run_thread() {
  Thread* thread = schedule.pick();
  running_ = thread;
  running_ids = thread;
  fibers_.resume(thread->fiber);
  running_ = nullptr;
  running_ids = nullptr;
  if (thread->wait == Wait::exited) thread_exited(*thread);
}

void Engine::let_host_in() {
  mutex_.unlock();
  while (host_waiting_.load() > 0) std::this_thread::yield();
  mutex_.lock();
  host_changed_ = true;
}

/// Other processes may have written what our threads wait for, so all parked threads poll again.
void Engine::poll_other_processes() {
  mutex_.unlock();
  std::this_thread::sleep_for(std::chrono::microseconds(50));
  mutex_.lock();
  host_changed_ = true;
  for (auto& [key, device] : devices_) {
    for (Launch* launch : device->running) {
      for (int i = 0; i < launch->thread_count; ++i) {
        Thread& thread = launch->threads[static_cast<std::size_t>(i)];
        if (thread.wait == Wait::parked) wake(thread);
      }
    }
  }
}

/// A host thread that waits outside the library may still enqueue what kernels wait for. So deadlines and delays take
/// time of the host's clock.
void Engine::let_real_time_pass() {
  if (schedule.any_ready() || streams_changed_) return;
  const std::uint64_t start = host_nanoseconds();
  mutex_.unlock();
  {
    std::unique_lock lock(wake_mutex_);
    wake_.wait_for(lock, std::chrono::milliseconds(1), [this] { return poked_; });
    poked_ = false;
  }
  mutex_.lock();
  host_changed_ = true;
  schedule.advance_clock_to(std::min(earliest_deadline_ns_, schedule.nanoseconds() + host_nanoseconds() - start));
  if (schedule.nanoseconds() >= earliest_deadline_ns_) late_host_threads_ = name_active_host_threads();
}

// ---- on fibers ------------------------------------------------------------------------------------------------------

void Engine::yield() {
  constexpr std::size_t kEnoughToReport = 8192;
  if (fibers_.stack_left() < kEnoughToReport) fault("stack overflow of the emulated thread");
  fibers_.suspend();
}

void Engine::block(Wait wait, const void* site) {
  Thread& thread = running();
  schedule.make_unready(thread);
  thread.wait = wait;
  thread.site = site;
  thread.waiting_since_ns = schedule.nanoseconds();
  fibers_.suspend();
}

void Engine::fault(const std::string& what) {
  Thread& thread = running();
  fault(*thread.launch, fmt::format("{}: {}", where(thread), what));
  throw Fault();
}

void Engine::fault(Launch& launch, std::string what) {
  if (faulted_) return;
  faulted_ = &launch;
  fault_text_ = std::move(what);
}

void Engine::wake(Thread& thread) {
  if (thread.wait != Wait::parked) return;
  unwatch(thread);
  ++thread.park_number;
  schedule.make_ready(thread);
}

Thread* Engine::find_thread(Uid uid) const {
  Warp* warp = warps_[uid >> 6].warp;
  return warp ? warp->threads + (uid & 63) : nullptr;
}

void Engine::thread_main(void* argument) {
  auto* thread = static_cast<Thread*>(argument);
  try {
    thread->launch->kernel->body(thread->launch->args.data());
    thread->wait = Wait::exited;
  } catch (const Fault&) {
    // The loop aborts the launch.
  }
}

// ---- for host threads -----------------------------------------------------------------------------------------------

void Engine::wait_until_empty(HostLock& held, Device& device, StreamId stream, std::chrono::nanoseconds patience) {
  HostBlockedScope blocked;
  Waiter waiter{&device, stream, &blocked, patience, {}, false};
  waiters_.push_back(&waiter);
  poke();
  waiter.wake.wait(held.lock(), [&waiter] { return waiter.done; });
  host_waiting_.fetch_sub(1);  // complete_waiters() has counted this thread, so that the engine gives it the mutex
}

Status Engine::synchronize_all(Device& device, std::chrono::nanoseconds patience) {
  if (std::this_thread::get_id() == thread_id_) {
    return {StatusCode::kMisuse, "emulator: synchronize_all() called from work that runs in a stream"};
  }
  HostLock held(*this);
  wait_until_idle(held, device, patience);
  note_host_synchronised(device);
  return {};
}

bool Engine::has_stream(Device& device, StreamId stream) {
  HostLock held(*this);
  return device.streams.contains(stream);
}

void Engine::wait_until_idle(HostLock& held, Device& device, std::chrono::nanoseconds patience) {
  if (std::this_thread::get_id() == thread_id_) return;
  const auto is_busy = [](const auto& stream) { return !stream.second.items.empty(); };
  for (auto busy = std::ranges::find_if(device.streams, is_busy); busy != device.streams.end();
       busy = std::ranges::find_if(device.streams, is_busy)) {
    wait_until_empty(held, device, busy->first, patience);
  }
}

Status Engine::synchronize(Device& device, StreamId stream, std::chrono::nanoseconds patience) {
  if (std::this_thread::get_id() == thread_id_) {
    return {StatusCode::kMisuse, "emulator: synchronize() called from work that runs in a stream"};
  }
  HostLock held(*this);
  const auto queue = device.streams.find(stream);
  if (queue == device.streams.end()) {
    return invalid_argument(
        fmt::format("emulator: stream is {}, which does not exist on device {}", stream, device.ordinal));
  }
  if (!queue->second.items.empty()) wait_until_empty(held, device, stream, patience);
  note_host_synchronised(device);
  return std::exchange(queue->second.error, Status{});
}

void Engine::set_schedule(const ScheduleOptions& options) {
  HostLock held(*this);
  schedule.reset(options);
  next_warp_ = 1;
  seconds_ = 0;
  stall_.clear();
  late_host_threads_.clear();
  race_.clear();
}

void Engine::note_load(const Thread& thread, const CopyBox& box) const {
  if (load_records == nullptr) return;
  LoadRecord record{thread.launch->device->ordinal, thread.block_index};
  if (box.first_row < box.end_row && box.first_unit < box.end_unit) {
    record.first = box.outside(box.first_row * box.row_units + box.first_unit);
    record.pitch = box.pitch;
    record.rows = box.end_row - box.first_row;
    record.row_bytes = 16 * (box.end_unit - box.first_unit);
  }
  load_records->push_back(record);
}

ScheduleReport Engine::report() const {
  return {schedule.hash(), schedule.steps(), seconds_, race_, stall_, late_host_threads_};
}

}  // namespace farwarp::emu
