// The emulated machine as the host sees it: devices, memory, streams of work. runtime/ is its only caller.
//
// One engine thread per process executes all blocks of all emulated devices on fibers. A work item (a launch, a copy, a
// fill) belongs to a stream and starts when its predecessors in the stream are done. The engine makes progress only
// while some thread waits in synchronize() and every registered host thread is blocked (base/host_activity.h). It
// starts work in the order (device, stream, position). So a schedule depends only on the seed, not on how the operating
// system ran the host threads. host_sleep.h finds threads that wait outside of the library.
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
#include "farwarp/base/trace.h"
#include "farwarp/substrate/emu/registry.h"

namespace farwarp::emu {

struct ScheduleOptions {
  std::uint64_t seed = 1;
  /// true: the engine switches threads at random accesses and runs warps and ranks at unequal random speeds; a read
  /// that nothing orders after a write may return the previous value. false: a fast schedule for large shapes, still
  /// weakly ordered.
  bool adversarial = true;
};

struct ScheduleReport {
  std::uint64_t hash = 0;          ///< hash of every scheduling decision since set_schedule()
  std::uint64_t thread_steps = 0;  ///< memory accesses and synchronisations executed
  double seconds = 0;              ///< wall time during which the engine ran fibers
  /// The first data race: a plain load of bytes that a write has changed and that nothing orders after this write. It
  /// is a race whatever value the load returned. Names the reader, the address and the writer. Empty if there was none.
  std::string race;
  /// The first stall (no thread can progress): which threads wait, where and for which value. Empty if there was none.
  std::string stall;
  /// The host threads that were not blocked and enqueued nothing while the latest deadline passed. Empty if all were
  /// blocked.
  std::string host_threads;
};

/// How long registered host threads that are awake can stop the engine, counted from their last change
/// (host_activity_changes()).
inline constexpr std::chrono::nanoseconds kPatience = std::chrono::seconds(10);

/// What a bulk or tensor load read of global memory: rows of bytes. Rows and columns outside the matrix are not read;
/// rows 0: all are outside.
struct LoadRecord {
  int ordinal = 0;  ///< of the device
  int block = 0;
  const std::byte* first = nullptr;  ///< address of the first row
  std::int64_t pitch = 0;            ///< bytes from row to row
  int rows = 0;
  int row_bytes = 0;
};

struct LaunchShape {
  int blocks = 1;
  int threads = 1;
  std::size_t shared_bytes = 0;
  int cluster = 1;  ///< blocks per cluster
};

using StreamId = std::uint32_t;

/// What a launch recorded of itself. Times are steps of the schedule, from 1.
struct LaunchTrace {
  const KernelRecord* kernel = nullptr;  ///< null: it has not started
  struct BlockTime {
    int multiprocessor;
    std::uint64_t begin, end;  ///< `end` 0: it did not end
  };
  std::vector<BlockTime> blocks;
  struct Entry {
    int block, warp;
    TraceRecord record;
  };
  std::vector<Entry> entries;
};

/// The emulator's map for tensor copies. Device::encode() calls it and has checked `desc`.
TensorMap encode(const TensorMapDesc& desc);

class Machine {
 public:
  static Machine& instance();

  /// Each personality numbers its devices from 0. Opening an ordinal twice gives the same device.
  Status open_device(TargetKind personality, int ordinal, const MachineShape& shape);

  /// Allocates memory of a device and fills it with poison. The host may use the pointer directly while no work is in
  /// flight.
  Result<void*> allocate(TargetKind personality, int ordinal, std::size_t bytes);
  /// Allocates memory in a memfd, so that other processes can map it. It is zeroed, not poisoned. The machine owns *fd.
  Result<void*> allocate_shared(TargetKind personality, int ordinal, std::size_t bytes, int* fd);
  /// Maps another process's memfd as memory of a peer device. From then on schedules are not exact, because two
  /// processes have no global order: waits poll, and time is the host's clock.
  Result<void*> map_shared(int fd, std::size_t bytes);
  void release(void* pointer);
  /// After everything that the device's streams have, which may use the memory.
  void release(TargetKind personality, int ordinal, void* pointer);

  StreamId create_stream(TargetKind personality, int ordinal);
  bool has_stream(TargetKind personality, int ordinal, StreamId stream);
  void destroy_stream(TargetKind personality, int ordinal, StreamId stream);
  Status launch(TargetKind personality, int ordinal, StreamId stream, const KernelRecord& kernel, LaunchShape shape,
                const void* args);
  /// Runs `work` on the host, in stream order. `work` must write device memory through host_write(), so that the memory
  /// model sees it.
  void enqueue_host(TargetKind personality, int ordinal, StreamId stream, std::function<void()> work);
  /// The stream's next item starts when the virtual clock has advanced by this much.
  void enqueue_delay(TargetKind personality, int ordinal, StreamId stream, std::uint64_t nanoseconds);
  /// Blocks until the stream is empty. Never hangs: if no thread can progress, the virtual clock advances to the next
  /// deadline of a parked thread. If there is none, the launch is aborted and this function returns kInternal with the
  /// stall report.
  Status synchronize(TargetKind personality, int ordinal, StreamId stream,
                     std::chrono::nanoseconds patience = kPatience);
  /// Blocks until all streams of the device are empty. Does not report their errors; synchronize() of each stream does.
  Status synchronize_all(TargetKind personality, int ordinal, std::chrono::nanoseconds patience = kPatience);

  void host_write(void* destination, const void* source, std::size_t bytes);
  void host_fill(void* destination, std::uint8_t byte, std::size_t bytes);

  std::uint64_t nanoseconds();                        ///< the virtual clock
  void set_schedule(const ScheduleOptions& options);  ///< also resets the report; call it while no work is in flight
  ScheduleReport report();
  /// From now on appends a record of each bulk and tensor load to `records`, in the order in which kernels issue them;
  /// nullptr: no longer. Call it while no work is in flight.
  void record_loads(std::vector<LoadRecord>* records);
  /// From now on a device's launches record themselves, if `on` is true when they are enqueued. Changes no schedule.
  void set_tracing(TargetKind personality, int ordinal, bool on);
  /// What they recorded, in the order in which they were enqueued. Call it while none of them is in flight.
  std::vector<LaunchTrace> take_traces(TargetKind personality, int ordinal);

 private:
  Machine();
  ~Machine();
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace farwarp::emu
