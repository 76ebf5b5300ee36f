// One device of any target: memory, streams, kernels, graphs, and sharing of memory between ranks. A single-GPU kernel
// needs nothing else; world/host builds the symmetric heap from it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "farwarp/base/machine_shape.h"
#include "farwarp/base/status.h"
#include "farwarp/base/tensor_map.h"
#include "farwarp/runtime/device_trace.h"

namespace farwarp {

/// A native handle (CUstream, hipStream_t, or the emulator's number), not owned. The default is the target's default
/// stream.
struct Stream {
  void* handle = nullptr;
};

struct LaunchConfig {
  int blocks = 1;
  int threads = 1;
  std::size_t shared_bytes = 0;
  int cluster = 1;  ///< consecutive blocks that reach each other's shared memory; divides `blocks`
};

/// A kernel found in the device's loaded module. Valid while the Device lives.
struct Kernel {
  void* handle = nullptr;
  std::size_t args_bytes = 0;  ///< size of its argument block, as the code object states it
  std::string name;
};

/// How one rank shares device memory with others. Every handle of allocate_shareable() also carries the owner's
/// address, and import() uses that address if it is set. So clear it (and replace `fd`) before a handle is given to
/// another process.
struct MemoryHandle {
  enum class Kind : std::uint8_t { kNone, kPosixFd, kIpc, kAddress };
  Kind kind = Kind::kNone;
  std::uint64_t bytes = 0;     ///< allocated: the request rounded up
  int fd = -1;                 ///< kPosixFd: a VMM allocation (CUDA) or a memfd (emulator); sent by SCM_RIGHTS
  unsigned char ipc[64] = {};  ///< kIpc: CUDA's or HIP's IPC handle
  void* address = nullptr;     ///< the owner's, valid in the owner's process; kAddress has nothing else
};

class Graph {
 public:
  virtual ~Graph() = default;
  /// Kernels, fills and whatever else the graph enqueues.
  virtual Result<std::size_t> launches() const = 0;
};

class Event {
 public:
  virtual ~Event() = default;
};

/// Host threads may share a Device. Everything made by it (memory, streams, events, graphs) must be destroyed before it
/// is.
class Device : public std::enable_shared_from_this<Device> {
 public:
  /// Opens a device and loads the kernels built for its target, or returns the Device that is already open. An NVIDIA
  /// GPU stays open until the process ends; after a fatal error of its driver only a new process can use it.
  /// kUnavailable says what is missing.
  static Result<std::shared_ptr<Device>> open(TargetKind target, int ordinal);
  /// Devices of a target on this machine; 0 where its driver is missing. The emulator has 8.
  static int count(TargetKind target);

  virtual ~Device() = default;

  TargetKind target() const { return shape_.target; }
  int ordinal() const { return ordinal_; }
  const MachineShape& shape() const { return shape_; }
  const std::string& name() const { return name_; }
  /// What kind of device it is, as its driver calls it: "NVIDIA H200".
  const std::string& model() const { return model_; }

  /// Runs `calls` with this device current on the calling thread, then restores the previously current one: for
  /// libraries that use the current device (NCCL, cuBLAS). The emulator has no current device and just runs `calls`.
  virtual Status while_current(const std::function<Status()>& calls) = 0;

  // -- memory; every pointer is a device pointer unless its name says host
  virtual Result<void*> allocate(std::size_t bytes) = 0;
  virtual void release(void* pointer) = 0;
  /// Host memory that kernels may write; *device_pointer is its address on the device. Zeroed.
  virtual Result<void*> allocate_host(std::size_t bytes, void** device_pointer) = 0;
  virtual void release_host(void* host_pointer) = 0;
  /// Ordered in the stream; returns once the host buffer may be reused. Copies cannot be captured.
  virtual Status copy_in(void* destination, const void* host_source, std::size_t bytes, Stream stream) = 0;
  /// Ordered in the stream; returns once the bytes have arrived.
  virtual Status copy_out(void* host_destination, const void* source, std::size_t bytes, Stream stream) = 0;
  /// Ordered in the stream, asynchronous.
  virtual Status fill(void* destination, std::uint8_t byte, std::size_t bytes, Stream stream) = 0;

  // -- sharing between ranks: the owner calls allocate_shareable, the others import. The owner's Device keeps the file
  // descriptor of a handle until release_shareable; import keeps none. Within one process an import is valid as long as
  // the owner's memory.
  virtual Result<void*> allocate_shareable(std::size_t bytes, MemoryHandle* handle) = 0;
  virtual Result<void*> import(const MemoryHandle& handle, int owner_ordinal) = 0;
  virtual void release_import(void* pointer, const MemoryHandle& handle) = 0;
  virtual void release_shareable(void* pointer, const MemoryHandle& handle) = 0;
  /// How memory is shared, and why so, in words for `farwarp doctor`.
  virtual std::string sharing_path() const = 0;

  // -- streams and events
  virtual Result<Stream> create_stream() = 0;
  virtual void destroy_stream(Stream stream) = 0;
  /// Waits at most `timeout_ns`; kDeadline if the stream is still busy then, kInternal with the driver's message after
  /// a fault. On the emulator the time does not count while kernels run; base/host_activity.h says when they run.
  virtual Status synchronize(Stream stream, std::uint64_t timeout_ns) = 0;
  /// synchronize() for everything that this process has enqueued on the device so far, in any stream. A stream's fault
  /// is still reported by the stream's own synchronize(). Must not be called while a stream is captured.
  virtual Status synchronize_all(std::uint64_t timeout_ns) = 0;
  /// Delays what is enqueued next on the stream by about this long (fault injection: a late rank).
  virtual Status enqueue_delay(Stream stream, std::uint64_t nanoseconds) = 0;
  virtual Result<std::unique_ptr<Event>> create_event() = 0;
  virtual Status record(Event& event, Stream stream) = 0;
  virtual Result<double> microseconds_between(Event& start, Event& end) = 0;

  // -- kernels; launches are asynchronous and may be captured
  virtual Result<Kernel> kernel(std::string_view name) = 0;
  /// kInvalidArgument if args_bytes differs from what the code object states, or the grid cannot be co-resident.
  virtual Status launch(const Kernel& kernel, const LaunchConfig& config, const void* args, std::size_t args_bytes,
                        Stream stream) = 0;
  /// Blocks of this kernel that one multiprocessor holds at once.
  virtual Result<int> blocks_per_multiprocessor(const Kernel& kernel, int threads, std::size_t shared_bytes) = 0;

  // -- graphs: capture the launches, fills and delays of one stream, which must not be the default stream
  virtual Status begin_capture(Stream stream) = 0;
  virtual Result<std::unique_ptr<Graph>> end_capture(Stream stream) = 0;
  virtual Status launch(Graph& graph, Stream stream) = 0;
  /// A graph that contains those of end_capture() without an order among them: they may run at the same time. They
  /// must outlive it. kUnavailable on the emulator, which runs a graph's work one after the other.
  virtual Result<std::unique_ptr<Graph>> unordered(const std::vector<Graph*>& graphs) = 0;

  // -- traces
  /// From now on what is launched on `stream` records itself (base/trace.h), until stop_trace(). Forgets what was
  /// recorded before. On a GPU a copy of 32 bytes precedes each recorded launch; the first call allocates 1 GiB and
  /// waits. kUnavailable if this build's kernels for the target have no stamps. Graphs must have been captured while
  /// nothing records.
  virtual Status start_trace(Stream stream);
  /// May be called while the recorded launches are in flight.
  virtual Status stop_trace(Stream stream);
  /// After stop_trace(), when the stream is idle: what was recorded. Releases the memory.
  virtual Result<DeviceTrace> take_trace();

  /// The map of a matrix for tensor_load() and tensor_store(). kInvalidArgument names the field, its value and what is
  /// allowed; kUnavailable where the target has no tensor copies.
  Result<TensorMap> encode(const TensorMapDesc& desc) const;

  /// Emulator: the host threads that could have enqueued something while the latest deadline passed, but did not. Ready
  /// to print; empty if there were none.
  virtual std::string late_host_threads() const { return {}; }

  /// Whether this build has kernels for the target. Decompresses none.
  static bool has_kernels(TargetKind target);
  /// Names of the kernels built for this target, sorted. Decompresses all.
  static std::vector<std::string> kernel_names(TargetKind target);

 protected:
  virtual Result<TensorMap> encode_checked(const TensorMapDesc& desc) const;

  int ordinal_ = 0;
  MachineShape shape_;
  std::string name_;
  std::string model_;
};

template <class Args>
Status launch(Device& device, const Kernel& kernel, const LaunchConfig& config, const Args& args, Stream stream) {
  return device.launch(kernel, config, &args, sizeof(Args), stream);
}

/// What `enqueue` enqueues on `stream`, as a graph. The stream does not stay in capture after an error.
Result<std::unique_ptr<Graph>> capture(Device& device, Stream stream, const std::function<Status()>& enqueue);

}  // namespace farwarp
