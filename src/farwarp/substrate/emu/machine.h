// The emulated machine as the host sees it: devices, memory, streams of work. runtime/ is its only caller.
//
// One engine thread per process executes all blocks of all emulated devices on fibers. A work item (a launch, a copy, a
// fill) belongs to a stream and starts when its predecessors in the stream are done. The engine makes progress only
// while some thread waits in synchronize() and every registered host thread is blocked (base/host_activity.h), and
// starts work in the order (device, stream, position): so a schedule depends on the seed alone, not on how the
// operating system ran the host threads. Threads that wait outside of the library are found asleep (host_sleep.h).
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "farwarp/base/machine_shape.h"
#include "farwarp/base/status.h"
#include "farwarp/base/tensor_map.h"
#include "farwarp/substrate/emu/registry.h"

namespace farwarp::emu {

struct ScheduleOptions {
  std::uint64_t seed = 1;
  /// true: threads are switched at random accesses, warps and ranks run at unequal random speeds, reads that nothing
  /// orders may return the previous value. false: a fast, still weakly ordered schedule for large shapes.
  bool adversarial = true;
};

struct ScheduleReport {
  std::uint64_t hash = 0;          ///< of every scheduling decision since set_schedule()
  std::uint64_t thread_steps = 0;  ///< memory accesses and synchronisations executed
  double seconds = 0;              ///< wall time the engine was running fibers
  /// The first plain load whose bytes a write changed that nothing orders before it: who read what of whom; or empty.
  /// Such a load is a data race, whatever value it happened to return.
  std::string race;
  std::string stall;  ///< the first "nothing can progress" report: who waits for whom, where, for which value; or empty
  /// The host threads that were neither blocked nor enqueued anything while the latest deadline passed; empty if all were blocked.
  std::string host_threads;
};

/// How long registered host threads that are awake keep the engine from running, from their last change (host_activity_changes()).
inline constexpr std::chrono::nanoseconds kPatience = std::chrono::seconds(10);

struct LaunchShape {
  int blocks = 1;
  int threads = 1;
  std::size_t shared_bytes = 0;
  int cluster = 1;  ///< consecutive blocks that reach each other's shared memory
};

using StreamId = std::uint32_t;

/// What tensor copies of the emulator take: a checked description (Device::encode()).
TensorMap encode(const TensorMapDesc& desc);

class Machine {
 public:
  static Machine& instance();

  /// Devices are numbered per personality from 0; the same ordinal opened twice is the same device.
  Status open_device(TargetKind personality, int ordinal, const MachineShape& shape);

  /// Memory of a device; fresh memory is poisoned. Pointers may be used by the host directly while no work is in
  /// flight.
  Result<void*> allocate(TargetKind personality, int ordinal, std::size_t bytes);
  /// The same over a memfd, zeroed instead of poisoned, so that other processes can map it. *fd stays owned by the
  /// machine.
  Result<void*> allocate_shared(TargetKind personality, int ordinal, std::size_t bytes, int* fd);
  /// Maps another process's memfd as memory of a peer device; from then on schedules are no longer exact (no global
  /// order of two processes exists): waits poll, and time is the host's clock.
  Result<void*> map_shared(int fd, std::size_t bytes);
  void release(void* pointer);

  StreamId create_stream(TargetKind personality, int ordinal);
  void destroy_stream(TargetKind personality, int ordinal, StreamId stream);
  Status launch(TargetKind personality, int ordinal, StreamId stream, const KernelRecord& kernel, LaunchShape shape,
                const void* args);
  /// Runs `work` on the host, in stream order; host writes to device memory go through host_write so that the memory
  /// model sees them.
  void enqueue_host(TargetKind personality, int ordinal, StreamId stream, std::function<void()> work);
  /// The stream's next item starts only once the virtual clock has advanced by this much.
  void enqueue_delay(TargetKind personality, int ordinal, StreamId stream, std::uint64_t nanoseconds);
  /// Blocks until the stream is empty. Never hangs: a launch that cannot progress advances the virtual clock to the
  /// next deadline of a parked thread; if there is none, the launch is aborted and this returns kInternal with the
  /// stall report.
  Status synchronize(TargetKind personality, int ordinal, StreamId stream,
                     std::chrono::nanoseconds patience = kPatience);
  /// Blocks until all streams of the device are empty. Their errors stay with them.
  Status synchronize_all(TargetKind personality, int ordinal, std::chrono::nanoseconds patience = kPatience);

  void host_write(void* destination, const void* source, std::size_t bytes);
  void host_fill(void* destination, std::uint8_t byte, std::size_t bytes);

  std::uint64_t nanoseconds();                        ///< the virtual clock
  void set_schedule(const ScheduleOptions& options);  ///< also resets the report; call while idle
  ScheduleReport report();

 private:
  Machine();
  ~Machine();
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace farwarp::emu
