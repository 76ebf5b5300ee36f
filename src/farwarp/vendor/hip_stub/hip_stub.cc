// A HIP library for machines without AMD devices: the part of the API that hip_runtime.h opens, on the emulated gfx942.
// Its kernels are the emulated ones of the same names; it does not read code objects.
//
// It contains an emulator of its own, which does not know the program's host threads and therefore runs on the host's
// clock. Deviations from HIP: every call that queries a stream waits for the stream; a host function runs when it is
// enqueued.
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>

#include "farwarp/runtime/device.h"
#include "farwarp/vendor/hip_runtime.h"

#define FARWARP_EXPORT extern "C" __attribute__((visibility("default")))

namespace farwarp::hip {
namespace {

constexpr int kDevices = 8;
constexpr TargetKind kPersonality = TargetKind::kEmuGfx942;

struct State {
  std::mutex mutex;
  std::shared_ptr<Device> devices[kDevices];
  std::map<void*, MemoryHandle> shareable;
  std::set<StreamHandle> capturing;
};

State& state() {
  static State* instance = new State;
  return *instance;
}

thread_local int current = 0;
thread_local Error last = Error::kSuccess;
thread_local std::string last_message;

Error fail(Error error, std::string message) {
  last = error;
  last_message = std::move(message);
  return error;
}

Error error_of(const Status& status) {
  switch (status.code()) {
    case StatusCode::kOk: return Error::kSuccess;
    case StatusCode::kOutOfMemory: return fail(Error::kOutOfMemory, status.message());
    case StatusCode::kInvalidArgument: return fail(Error::kInvalidValue, status.message());
    case StatusCode::kUnavailable: return fail(Error::kNotFound, status.message());
    case StatusCode::kMisuse: return fail(Error::kNotReady, status.message());
    default: return fail(Error::kLaunchFailure, status.message());
  }
}

/// Stores the value of `result` in *target, if there is one.
template <class T, class Target>
Error deliver(Result<T> result, Target* target) {
  if (!result.ok()) return error_of(result.status());
  *target = std::move(*result);
  return Error::kSuccess;
}

/// With its virtual clock the emulator would jump to the next deadline when no kernel can go on, although a host thread
/// that it does not know may be about to launch what they wait for. Memory mapped from a descriptor makes it use the
/// host's clock.
void use_host_clock(Device& device) {
  MemoryHandle handle;
  if (!device.allocate_shareable(1, &handle).ok()) return;
  handle.address = nullptr;
  (void)device.import(handle, device.ordinal());
}

Device& device() {
  std::lock_guard lock(state().mutex);
  std::shared_ptr<Device>& opened = state().devices[current];
  if (!opened) {
    // It can fail only if FARWARP_EMU_MULTIPROCESSORS is wrong: an error of the test, for which HIP has no error code.
    opened = std::move(*Device::open(kPersonality, current));
    use_host_clock(*opened);
  }
  return *opened;
}

Stream stream_of(StreamHandle handle) { return {handle}; }

/// The contents of our IPC handles: where another process finds the memfd.
struct IpcRecord {
  pid_t process;
  int fd;
  std::uint64_t bytes;
  void* address;
};
static_assert(sizeof(IpcRecord) <= sizeof(IpcHandle));

}  // namespace

FARWARP_EXPORT Error hipInit(unsigned) { return Error::kSuccess; }

FARWARP_EXPORT Error hipGetLastError() { return std::exchange(last, Error::kSuccess); }

FARWARP_EXPORT Error hipDrvGetErrorName(Error error, const char** name) {
  switch (error) {
    case Error::kOutOfMemory: *name = "hipErrorOutOfMemory"; break;
    case Error::kInvalidValue: *name = "hipErrorInvalidValue"; break;
    case Error::kInvalidDevice: *name = "hipErrorInvalidDevice"; break;
    case Error::kNotFound: *name = "hipErrorNotFound"; break;
    case Error::kLaunchFailure: *name = "hipErrorLaunchFailure"; break;
    default: *name = nullptr;
  }
  return Error::kSuccess;
}

FARWARP_EXPORT Error hipDrvGetErrorString(Error, const char** text) {
  *text = last_message.c_str();
  return Error::kSuccess;
}

// ---- devices

FARWARP_EXPORT Error hipGetDeviceCount(int* count) {
  *count = kDevices;
  return Error::kSuccess;
}

FARWARP_EXPORT Error hipGetDevice(int* device) {
  *device = current;
  return Error::kSuccess;
}

FARWARP_EXPORT Error hipSetDevice(int ordinal) {
  if (ordinal < 0 || ordinal >= kDevices) return fail(Error::kInvalidDevice, fmt::format("device is {}", ordinal));
  current = ordinal;
  return Error::kSuccess;
}

FARWARP_EXPORT Error hipGetDevicePropertiesR0600(DeviceProperties* properties, int) {
  std::memset(properties, 0, offsetof(DeviceProperties, reserve));
  std::strcpy(properties->name, "emulated gfx942 behind the HIP stub");
  std::strcpy(properties->gcn_arch_name, "gfx942:sramecc+:xnack-");
  return Error::kSuccess;
}

FARWARP_EXPORT Error hipDeviceGetAttribute(int* value, int attribute, int) {
  switch (attribute) {
    case kMultiprocessorCount: *value = device().shape().multiprocessors; return Error::kSuccess;
    case kNumberOfXccs: *value = device().shape().xcds; return Error::kSuccess;
    default: return fail(Error::kInvalidValue, fmt::format("attribute {} is not in the stub", attribute));
  }
}

FARWARP_EXPORT Error hipDeviceEnablePeerAccess(int peer, unsigned) {
  static std::set<std::pair<int, int>> enabled;  // the second call fails, as HIP's does
  std::lock_guard lock(state().mutex);
  if (peer < 0 || peer >= kDevices || peer == current) {
    return fail(Error::kInvalidDevice, fmt::format("peer is {}", peer));
  }
  if (!enabled.emplace(current, peer).second) return fail(Error::kPeerAccessAlreadyEnabled, "already enabled");
  return Error::kSuccess;
}

// ---- kernels; a function handle is a Kernel, which lives as long as the process

FARWARP_EXPORT Error hipModuleLoadData(ModuleHandle* module, const void* image) {
  *module = static_cast<ModuleHandle>(const_cast<void*>(image));
  return Error::kSuccess;
}

FARWARP_EXPORT Error hipModuleUnload(ModuleHandle) { return Error::kSuccess; }

FARWARP_EXPORT Error hipModuleGetGlobal(void**, std::size_t*, ModuleHandle, const char*) { return Error::kNotFound; }

FARWARP_EXPORT Error hipModuleGetFunction(FunctionHandle* function, ModuleHandle, const char* name) {
  Result<Kernel> kernel = device().kernel(name);
  if (!kernel.ok()) return error_of(kernel.status());
  *function = reinterpret_cast<FunctionHandle>(new Kernel(std::move(*kernel)));
  return Error::kSuccess;
}

FARWARP_EXPORT Error hipModuleOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, FunctionHandle function,
                                                                        int threads, std::size_t shared_bytes) {
  return deliver(device().blocks_per_multiprocessor(*reinterpret_cast<Kernel*>(function), threads, shared_bytes),
                 blocks);
}

FARWARP_EXPORT Error hipModuleLaunchKernel(FunctionHandle function, unsigned grid_x, unsigned, unsigned,
                                           unsigned block_x, unsigned, unsigned, unsigned shared_bytes,
                                           StreamHandle stream, void** parameters, void**) {
  const Kernel& kernel = *reinterpret_cast<Kernel*>(function);
  const LaunchConfig config{static_cast<int>(grid_x), static_cast<int>(block_x), shared_bytes};
  return error_of(device().launch(kernel, config, parameters[0], kernel.args_bytes, stream_of(stream)));
}

FARWARP_EXPORT Error hipLaunchHostFunc(StreamHandle stream, HostFunction function, void* data) {
  if (Status status = device().synchronize(stream_of(stream), ~0ull); !status.ok()) return error_of(status);
  function(data);
  return Error::kSuccess;
}

// ---- memory

FARWARP_EXPORT Error hipMalloc(void** address, std::size_t bytes) { return deliver(device().allocate(bytes), address); }

FARWARP_EXPORT Error hipExtMallocWithFlags(void** address, std::size_t bytes, unsigned) {
  MemoryHandle handle;
  const Error error = deliver(device().allocate_shareable(bytes, &handle), address);
  std::lock_guard lock(state().mutex);
  if (error == Error::kSuccess) state().shareable[*address] = handle;
  return error;
}

FARWARP_EXPORT Error hipFree(void* address) {
  Device& owner = device();
  std::lock_guard lock(state().mutex);
  const auto shareable = state().shareable.extract(address);
  if (shareable.empty()) {
    owner.release(address);
  } else {
    owner.release_shareable(address, shareable.mapped());
  }
  return Error::kSuccess;
}

FARWARP_EXPORT Error hipHostMalloc(void** address, std::size_t bytes, unsigned) {
  void* on_device = nullptr;
  return deliver(device().allocate_host(bytes, &on_device), address);
}

FARWARP_EXPORT Error hipHostFree(void* address) {
  device().release_host(address);
  return Error::kSuccess;
}

FARWARP_EXPORT Error hipHostGetDevicePointer(void** device_address, void* address, unsigned) {
  *device_address = address;
  return Error::kSuccess;
}

FARWARP_EXPORT Error hipMemcpyHtoDAsync(void* destination, const void* source, std::size_t bytes, StreamHandle stream) {
  return error_of(device().copy_in(destination, source, bytes, stream_of(stream)));
}

FARWARP_EXPORT Error hipMemcpyDtoHAsync(void* destination, const void* source, std::size_t bytes, StreamHandle stream) {
  return error_of(device().copy_out(destination, source, bytes, stream_of(stream)));
}

FARWARP_EXPORT Error hipMemsetD8Async(void* destination, unsigned char byte, std::size_t bytes, StreamHandle stream) {
  return error_of(device().fill(destination, byte, bytes, stream_of(stream)));
}

FARWARP_EXPORT Error hipIpcGetMemHandle(IpcHandle* handle, void* address) {
  std::lock_guard lock(state().mutex);
  const auto found = state().shareable.find(address);
  if (found == state().shareable.end()) {
    return fail(Error::kInvalidValue, "no allocation of hipExtMallocWithFlags begins here");
  }
  const IpcRecord record{getpid(), found->second.fd, found->second.bytes, address};
  std::memcpy(handle, &record, sizeof(record));
  return Error::kSuccess;
}

FARWARP_EXPORT Error hipIpcOpenMemHandle(void** address, IpcHandle handle, unsigned) {
  IpcRecord record;
  std::memcpy(&record, &handle, sizeof(record));
  MemoryHandle memory{.kind = MemoryHandle::Kind::kPosixFd, .bytes = record.bytes};
  if (record.process == getpid()) {
    memory.address = record.address;
    return deliver(device().import(memory, current), address);
  }
  memory.fd = open(fmt::format("/proc/{}/fd/{}", record.process, record.fd).c_str(), O_RDWR | O_CLOEXEC);
  if (memory.fd < 0) return fail(Error::kInvalidValue, fmt::format("the owner, process {}, is gone", record.process));
  const Error error = deliver(device().import(memory, current), address);
  close(memory.fd);
  return error;
}

FARWARP_EXPORT Error hipIpcCloseMemHandle(void* address) {
  std::unique_lock lock(state().mutex);
  const bool ours = state().shareable.contains(address);
  lock.unlock();
  if (!ours) device().release_import(address, MemoryHandle{.kind = MemoryHandle::Kind::kPosixFd});
  return Error::kSuccess;
}

// ---- streams, events, graphs; graph handles own one reference each

FARWARP_EXPORT Error hipStreamCreateWithFlags(StreamHandle* stream, unsigned) {
  Result<Stream> created = device().create_stream();
  if (!created.ok()) return error_of(created.status());
  *stream = static_cast<StreamHandle>(created->handle);
  return Error::kSuccess;
}

FARWARP_EXPORT Error hipStreamDestroy(StreamHandle stream) {
  device().destroy_stream(stream_of(stream));
  return Error::kSuccess;
}

FARWARP_EXPORT Error hipStreamQuery(StreamHandle stream) {
  return error_of(device().synchronize(stream_of(stream), ~0ull));
}

FARWARP_EXPORT Error hipDeviceSynchronize() { return error_of(device().synchronize_all(~0ull)); }

FARWARP_EXPORT Error hipStreamIsCapturing(StreamHandle stream, int* status) {
  std::lock_guard lock(state().mutex);
  *status = state().capturing.contains(stream) ? 1 : 0;
  return Error::kSuccess;
}

FARWARP_EXPORT Error hipStreamBeginCapture(StreamHandle stream, int) {
  const Error error = error_of(device().begin_capture(stream_of(stream)));
  std::lock_guard lock(state().mutex);
  if (error == Error::kSuccess) state().capturing.insert(stream);
  return error;
}

FARWARP_EXPORT Error hipStreamEndCapture(StreamHandle stream, GraphHandle* graph) {
  Result<std::unique_ptr<Graph>> captured = device().end_capture(stream_of(stream));
  if (!captured.ok()) return error_of(captured.status());
  *graph = reinterpret_cast<GraphHandle>(new std::shared_ptr<Graph>(std::move(*captured)));
  std::lock_guard lock(state().mutex);
  state().capturing.erase(stream);
  return Error::kSuccess;
}

FARWARP_EXPORT Error hipGraphInstantiateWithFlags(GraphExecHandle* executable, GraphHandle graph, unsigned long long) {
  *executable =
      reinterpret_cast<GraphExecHandle>(new std::shared_ptr<Graph>(*reinterpret_cast<std::shared_ptr<Graph>*>(graph)));
  return Error::kSuccess;
}

// The emulator's graphs have no branches.
FARWARP_EXPORT Error hipGraphCreate(GraphHandle*, unsigned) { return Error::kNotSupported; }
FARWARP_EXPORT Error hipGraphAddChildGraphNode(GraphNodeHandle*, GraphHandle, const GraphNodeHandle*, std::size_t,
                                               GraphHandle) {
  return Error::kNotSupported;
}

FARWARP_EXPORT Error hipGraphGetNodes(GraphHandle graph, GraphNodeHandle*, std::size_t* count) {
  const auto launches = (*reinterpret_cast<std::shared_ptr<Graph>*>(graph))->launches();
  *count = launches.ok() ? *launches : 0;
  return error_of(launches.status());
}

FARWARP_EXPORT Error hipGraphLaunch(GraphExecHandle executable, StreamHandle stream) {
  return error_of(device().launch(**reinterpret_cast<std::shared_ptr<Graph>*>(executable), stream_of(stream)));
}

FARWARP_EXPORT Error hipGraphDestroy(GraphHandle graph) {
  delete reinterpret_cast<std::shared_ptr<Graph>*>(graph);
  return Error::kSuccess;
}

FARWARP_EXPORT Error hipGraphExecDestroy(GraphExecHandle executable) {
  delete reinterpret_cast<std::shared_ptr<Graph>*>(executable);
  return Error::kSuccess;
}

FARWARP_EXPORT Error hipEventCreateWithFlags(EventHandle* event, unsigned) {
  Result<std::unique_ptr<Event>> created = device().create_event();
  if (!created.ok()) return error_of(created.status());
  *event = reinterpret_cast<EventHandle>(created->release());
  return Error::kSuccess;
}

FARWARP_EXPORT Error hipEventDestroy(EventHandle event) {
  delete reinterpret_cast<Event*>(event);
  return Error::kSuccess;
}

FARWARP_EXPORT Error hipEventRecord(EventHandle event, StreamHandle stream) {
  return error_of(device().record(*reinterpret_cast<Event*>(event), stream_of(stream)));
}

FARWARP_EXPORT Error hipEventElapsedTime(float* milliseconds, EventHandle start, EventHandle end) {
  Result<double> microseconds =
      device().microseconds_between(*reinterpret_cast<Event*>(start), *reinterpret_cast<Event*>(end));
  if (!microseconds.ok()) return error_of(microseconds.status());
  *milliseconds = static_cast<float>(*microseconds * 1e-3);
  return Error::kSuccess;
}

}  // namespace farwarp::hip
