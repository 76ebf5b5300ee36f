// The engine: one thread that executes every block of every emulated device.
//
// Host threads call the engine through the Machine (machine.cc) and hold `mutex_`. Fibers call it through device_api.h,
// on the engine's own thread, which holds `mutex_` while it runs. Parts: schedule.h picks the next thread.
// memory_model.cc and knowledge.cc execute accesses. barriers.cc, mbarrier.cc, bulk_copy.cc and matrix.cc execute the
// rest of the vocabulary. streams.cc starts and ends work. report.cc writes the messages of failures. tracing.cc keeps
// what kernels record of themselves.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "farwarp/base/host_activity.h"
#include "farwarp/substrate/emu/entities.h"
#include "farwarp/substrate/emu/host_sleep.h"
#include "farwarp/substrate/emu/schedule.h"

namespace farwarp::emu {

/// The newest release that guards a 4-byte word, and the release before it. A load that returns the previous value
/// pairs with the latter.
struct WordRecord {
  SnapshotRef newest;
  SnapshotRef previous;
  Time written = 0;
};

/// The exception that ends a thread after a misuse. It never leaves the thread's fiber.
struct Fault {};

class Engine {
 public:
  Engine();
  Engine(const Engine&) = delete;

  // ---- for host threads; see machine.h
  Status open_device(TargetKind personality, int ordinal, const MachineShape& shape);
  Device* find_device(TargetKind personality, int ordinal);
  Status enqueue_launch(Device& device, StreamId stream, const KernelRecord& kernel, LaunchShape shape,
                        const void* args);
  void enqueue(Device& device, StreamId stream, WorkItem item);
  Status synchronize(Device& device, StreamId stream, std::chrono::nanoseconds patience);
  Status synchronize_all(Device& device, std::chrono::nanoseconds patience);
  bool has_stream(Device& device, StreamId stream);
  class HostLock;
  /// Unlike synchronize_all() the host learns of no write.
  void wait_until_idle(HostLock& held, Device& device, std::chrono::nanoseconds patience);
  void host_write(void* destination, const void* source, std::size_t bytes);
  void host_fill(void* destination, std::uint8_t byte, std::size_t bytes);
  void set_schedule(const ScheduleOptions& options);
  ScheduleReport report() const;

  /// Stops the engine while it exists. On the engine's own thread (host work items) it does nothing.
  class HostLock {
   public:
    explicit HostLock(Engine& engine);
    std::unique_lock<std::mutex>& lock() { return lock_; }

   private:
    std::unique_lock<std::mutex> lock_;
  };

  // ---- for the parts of the engine
  Thread& running() { return *running_; }
  /// Counts a step. Switches to another thread if the running thread's slice is over.
  void step() {
    if (schedule.step()) yield();
  }
  void yield();
  /// Called when a thread wrote or synchronised. If threads only read for too long, they are reported as spinning.
  void note_progress() { last_progress_ = schedule.now(); }
  /// Suspends the running thread until make_ready().
  void block(Wait wait, const void* site);
  /// Aborts all work on the running thread's device; synchronize() then reports `what`. Throws, to unwind this thread.
  /// The launch's other threads are abandoned where they are suspended; their stacks own nothing.
  [[noreturn]] void fault(const std::string& what);
  /// The same, called by an event on the engine's stack. Does not throw.
  void fault(Launch& launch, std::string what);
  void wake(Thread& thread);
  /// Registers a deadline, in time of the virtual clock.
  void expect_deadline(std::uint64_t nanoseconds) {
    earliest_deadline_ns_ = std::min(earliest_deadline_ns_, nanoseconds);
  }

  const LaunchInfo* launch_info(Uid uid) const { return warps_[uid >> 6].info.get(); }
  Uid block_uid(Uid uid) const { return warps_[uid >> 6].block; }
  int xcc_of(Uid uid) const { return warps_[uid >> 6].xcc; }
  Thread* find_thread(Uid uid) const;

  // memory_model.cc
  void wake_watchers(Granule granule);
  void watch(Thread& thread, Granule granule);
  void unwatch(Thread& thread);
  /// The time at which `thread` sees the newest write of the granule; kForever if only synchronisation makes it
  /// visible.
  Time visible_at(const Thread& thread, Granule granule, Stamp stamp) const;

  /// Adds to `load_records`, if there are any.
  void note_load(const Thread& thread, const CopyBox& box) const;

  // bulk_copy.cc
  void advance_copy(std::uint32_t id);
  void check_block_end(Block& block);
  void drop_copies(Launch& launch);

  // tracing.cc
  void begin_trace(Launch& launch) const;
  void end_trace(const Block& block) const;

  // matrix.cc
  void advance_matrix(std::uint32_t id);

  // report.cc
  std::string where(const Thread& thread) const;
  /// Lists which threads wait, where and for which value.
  std::string stall_report() const;
  /// Records a description of the schedule's first data race.
  enum class Reading : std::uint8_t { load, bulk_copy, wgmma };
  void note_race(const Thread& reader, Reading how, const void* address, unsigned bytes, Stamp write);

  Arena arena;
  Schedule schedule;
  std::unordered_map<std::uint64_t, WordRecord> records;  ///< by address / 4; exists if the shadow has Stamp::kRecord
  std::unordered_map<Granule, Watch*> watched;       ///< first of the list; exists if the shadow has Stamp::kWatched
  std::unordered_map<std::uint32_t, Block*> copies;  ///< in flight, by id
  std::unordered_map<std::uint32_t, Warpgroup*> matrix_ops;  ///< issued but not executed, by id
  std::uint32_t next_copy = 1;
  std::uint32_t next_matrix_op = 1;
  /// Another process shares memory. There is no global order, so every load returns the value in memory.
  bool several_processes = false;
  std::vector<LoadRecord>* load_records = nullptr;

 private:
  struct WarpEntry {
    Warp* warp = nullptr;  ///< null after its launch has ended
    Uid block = 0;
    int xcc = 0;
    std::shared_ptr<LaunchInfo> info;
  };
  struct Waiter {
    Device* device;
    StreamId stream;
    HostBlockedScope* scope;
    std::chrono::nanoseconds patience;
    std::condition_variable wake;
    bool done = false;
  };

  // engine.cc
  void main();
  void poke();
  bool may_run();
  bool waited_long_enough();
  void run();
  void wait_until_empty(HostLock& held, Device& device, StreamId stream, std::chrono::nanoseconds patience);
  bool make_time_pass();
  void pass_deadlines();
  void run_thread();
  void let_host_in();
  void poll_other_processes();
  void let_real_time_pass();
  void abort_all(const std::string& why);
  std::string spinning();
  static void thread_main(void* thread);
  void thread_exited(Thread& thread);

  // report.cc
  struct WaitingGroup;
  std::string describe_group(const WaitingGroup& group) const;
  static std::string name_active_host_threads();

  // streams.cc
  void start_items();
  bool start_item(StreamQueue& queue);
  bool place(Launch& launch);
  void unplace(Launch& launch);
  bool number_threads(Launch& launch);
  Status start_launch(Launch& launch);
  void finish_launch(Launch& launch);
  void abandon(Launch& launch);
  void abort_everything(const Status& why);
  void abort_device(Device& device, const std::string& why, StatusCode code = StatusCode::kInternal);
  void complete_waiters();
  bool any_running() const;

  // knowledge.cc
  void note_quiet();
  void note_host_synchronised(Device& device);
  ClockRef known_to(const Launch& launch);

  std::mutex mutex_;
  std::atomic<int> host_waiting_{0};
  std::mutex wake_mutex_;
  std::condition_variable wake_;
  bool poked_ = false;
  std::thread thread_;
  std::thread::id thread_id_;

  FiberPool fibers_;
  Thread* running_ = nullptr;
  std::map<std::pair<TargetKind, int>, std::unique_ptr<Device>> devices_;
  std::vector<WarpEntry> warps_;
  Uid next_warp_ = 1;
  std::list<Waiter*> waiters_;
  bool streams_changed_ = false;
  bool host_changed_ = false;
  HostSleep host_sleep_;
  std::uint64_t host_changes_ = 0;                              ///< host_activity_changes() when may_run() last looked
  std::chrono::steady_clock::time_point host_unchanged_since_;  ///< since when it has had this value
  std::uint64_t earliest_deadline_ns_ = kForever;  ///< a lower bound for the deadlines of parked threads and delays
  Time last_progress_ = 0;
  Time quiet_ = 0;
  ClockRef host_known_;
  Launch* faulted_ = nullptr;
  std::string fault_text_;
  double seconds_ = 0;
  std::string stall_;
  std::string late_host_threads_;  ///< ScheduleReport::host_threads
  std::string race_;
};

Engine& engine();

}  // namespace farwarp::emu
