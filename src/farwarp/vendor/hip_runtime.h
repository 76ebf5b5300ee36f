// The part of the HIP API that runtime/ uses, opened at run time: no ROCm header or library is needed to build. Members
// that cuda_driver.h has, too, have the same names and parameters, because runtime/gpu_device.h uses both.
#pragma once

#include <cstddef>

#include "farwarp/base/machine_shape.h"
#include "farwarp/base/status.h"
#include "farwarp/vendor/shared_library.h"

namespace farwarp::hip {

/// hipError_t: the values that runtime/ and the stub distinguish.
enum class Error : int {
  kSuccess = 0,
  kInvalidValue = 1,
  kOutOfMemory = 2,
  kInvalidDevice = 101,
  kNotFound = 500,
  kNotReady = 600,
  kPeerAccessAlreadyEnabled = 704,
  kLaunchFailure = 719,
  kNotSupported = 801,
};

using ModuleHandle = struct ihipModule_t*;
using FunctionHandle = struct ihipModuleSymbol_t*;
using StreamHandle = struct ihipStream_t*;
using EventHandle = struct ihipEvent_t*;
using GraphHandle = struct ihipGraph*;
using GraphExecHandle = struct hipGraphExec*;
using GraphNodeHandle = struct hipGraphNode*;
using HostFunction = void (*)(void* data);

// hipDeviceAttribute_t
inline constexpr int kMultiprocessorCount = 63;
inline constexpr int kNumberOfXccs = 10018;  ///< ROCm 6.3 and newer
// Flags
inline constexpr unsigned kStreamNonBlocking = 1;
inline constexpr unsigned kEventDefault = 0;
inline constexpr unsigned kHostAllocPortableMappedCoherent = 0x1 | 0x2 | 0x40000000;
inline constexpr unsigned kMallocFineGrained = 1;
inline constexpr unsigned kMallocUncached = 3;
inline constexpr unsigned kIpcLazyEnablePeerAccess = 1;
inline constexpr int kCaptureModeThreadLocal = 1;
inline constexpr int kCaptureStatusNone = 0;

/// hipDeviceProp_tR0600 of ROCm 6 and 7. Only the members that are used here have names.
struct DeviceProperties {
  char name[256];
  unsigned char unused[904];
  char gcn_arch_name[256];  ///< "gfx942:sramecc+:xnack-"
  unsigned char more[56];
  unsigned char reserve[2048];  ///< in case a later ROCm appends members
};
static_assert(offsetof(DeviceProperties, gcn_arch_name) == 1160 && offsetof(DeviceProperties, reserve) == 1472);

/// hipIpcMemHandle_t
struct IpcHandle {
  unsigned char bytes[64];
};

// X(member, symbol, parameters)
#define FARWARP_HIP_FUNCTIONS(X)                                                                                       \
  X(error_name, hipDrvGetErrorName, (Error error, const char** name))                                                  \
  X(error_string, hipDrvGetErrorString, (Error error, const char** text))                                              \
  X(last_error, hipGetLastError, ())                                                                                   \
  X(initialize, hipInit, (unsigned flags))                                                                             \
  X(device_count, hipGetDeviceCount, (int* count))                                                                     \
  X(device_properties, hipGetDevicePropertiesR0600, (DeviceProperties * properties, int device))                       \
  X(device_attribute, hipDeviceGetAttribute, (int* value, int attribute, int device))                                  \
  X(get_device, hipGetDevice, (int* device))                                                                           \
  X(set_device, hipSetDevice, (int device))                                                                            \
  X(device_synchronize, hipDeviceSynchronize, ())                                                                      \
  X(enable_peer_access, hipDeviceEnablePeerAccess, (int peer, unsigned flags))                                         \
  X(module_load, hipModuleLoadData, (ModuleHandle * module, const void* image))                                        \
  X(module_unload, hipModuleUnload, (ModuleHandle module))                                                             \
  X(module_function, hipModuleGetFunction, (FunctionHandle * function, ModuleHandle module, const char* name))         \
  X(module_global, hipModuleGetGlobal, (void** address, std::size_t* bytes, ModuleHandle module, const char* name))    \
  X(blocks_per_multiprocessor, hipModuleOccupancyMaxActiveBlocksPerMultiprocessor,                                     \
    (int* blocks, FunctionHandle function, int threads, std::size_t shared_bytes))                                     \
  X(launch_kernel, hipModuleLaunchKernel,                                                                              \
    (FunctionHandle function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y,   \
     unsigned block_z, unsigned shared_bytes, StreamHandle stream, void** parameters, void** extra))                   \
  X(launch_host_function, hipLaunchHostFunc, (StreamHandle stream, HostFunction function, void* data))                 \
  X(memory_allocate, hipMalloc, (void** address, std::size_t bytes))                                                   \
  X(memory_allocate_with_flags, hipExtMallocWithFlags, (void** address, std::size_t bytes, unsigned flags))            \
  X(memory_free, hipFree, (void* address))                                                                             \
  X(host_allocate, hipHostMalloc, (void** address, std::size_t bytes, unsigned flags))                                 \
  X(host_free, hipHostFree, (void* address))                                                                           \
  X(host_device_pointer, hipHostGetDevicePointer, (void** device_address, void* address, unsigned flags))              \
  X(copy_to_device, hipMemcpyHtoDAsync,                                                                                \
    (void* destination, const void* source, std::size_t bytes, StreamHandle stream))                                   \
  X(copy_to_host, hipMemcpyDtoHAsync, (void* destination, const void* source, std::size_t bytes, StreamHandle stream)) \
  X(fill, hipMemsetD8Async, (void* destination, unsigned char byte, std::size_t bytes, StreamHandle stream))           \
  X(stream_create, hipStreamCreateWithFlags, (StreamHandle * stream, unsigned flags))                                  \
  X(stream_destroy, hipStreamDestroy, (StreamHandle stream))                                                           \
  X(stream_query, hipStreamQuery, (StreamHandle stream))                                                               \
  X(stream_is_capturing, hipStreamIsCapturing, (StreamHandle stream, int* status))                                     \
  X(stream_begin_capture, hipStreamBeginCapture, (StreamHandle stream, int mode))                                      \
  X(stream_end_capture, hipStreamEndCapture, (StreamHandle stream, GraphHandle * graph))                               \
  X(graph_instantiate, hipGraphInstantiateWithFlags,                                                                   \
    (GraphExecHandle * executable, GraphHandle graph, unsigned long long flags))                                       \
  X(graph_launch, hipGraphLaunch, (GraphExecHandle executable, StreamHandle stream))                                   \
  X(graph_create, hipGraphCreate, (GraphHandle * graph, unsigned flags))                                               \
  X(graph_add_child, hipGraphAddChildGraphNode,                                                                        \
    (GraphNodeHandle * node, GraphHandle graph, const GraphNodeHandle* after, std::size_t count, GraphHandle child))   \
  X(graph_nodes, hipGraphGetNodes, (GraphHandle graph, GraphNodeHandle * nodes, std::size_t * count))                  \
  X(graph_destroy, hipGraphDestroy, (GraphHandle graph))                                                               \
  X(graph_exec_destroy, hipGraphExecDestroy, (GraphExecHandle executable))                                             \
  X(event_create, hipEventCreateWithFlags, (EventHandle * event, unsigned flags))                                      \
  X(event_destroy, hipEventDestroy, (EventHandle event))                                                               \
  X(event_record, hipEventRecord, (EventHandle event, StreamHandle stream))                                            \
  X(event_elapsed, hipEventElapsedTime, (float* milliseconds, EventHandle start, EventHandle end))                     \
  X(ipc_get_handle, hipIpcGetMemHandle, (IpcHandle * handle, void* address))                                           \
  X(ipc_open_handle, hipIpcOpenMemHandle, (void** address, IpcHandle handle, unsigned flags))                          \
  X(ipc_close_handle, hipIpcCloseMemHandle, (void* address))

class DeviceScope;

/// The library's functions. Calls through call() become a Status that names the function and the library's error.
struct Runtime {
  using Error = hip::Error;
  using ModuleHandle = hip::ModuleHandle;
  using FunctionHandle = hip::FunctionHandle;
  using StreamHandle = hip::StreamHandle;
  using EventHandle = hip::EventHandle;
  using GraphHandle = hip::GraphHandle;
  using GraphExecHandle = hip::GraphExecHandle;
  using GraphNodeHandle = hip::GraphNodeHandle;
  using DeviceToken = int;  ///< what a DeviceScope makes current
  using DeviceScope = hip::DeviceScope;
  static constexpr TargetKind kTarget = TargetKind::kHip;
  static constexpr unsigned kHostAllocFlags = kHostAllocPortableMappedCoherent;

#define FARWARP_MEMBER(member, symbol, parameters) LibraryFunction<Error parameters> member{#symbol};
  FARWARP_HIP_FUNCTIONS(FARWARP_MEMBER)
#undef FARWARP_MEMBER

  /// Opens libamdhip64.so, or the file that FARWARP_HIP_LIBRARY names, once per process.
  static Result<const Runtime*> open();

  /// kOutOfMemory or kInternal: "hipMalloc: hipErrorOutOfMemory (out of memory)".
  Status status(const char* symbol, Error error) const;

  template <class Function, class... Arguments>
  Status call(const Function& function, Arguments... arguments) const {
    return status(function.symbol, function(arguments...));
  }

  /// HIP stores the last error of each thread, kNotReady included. The host program must not read ours.
  void forget_error() const { last_error(); }
};

/// Makes a device current for the calling thread, and restores the previous one at the end: the host program may use
/// its own.
class DeviceScope {
 public:
  DeviceScope(const Runtime& runtime, int device) : runtime_(runtime) {
    error_ = runtime.get_device(&previous_);
    if (error_ == Error::kSuccess && previous_ != device) error_ = runtime.set_device(device);
    changed_ = error_ == Error::kSuccess && previous_ != device;
  }
  ~DeviceScope() {
    if (changed_) runtime_.set_device(previous_);
  }
  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;
  Status status() const { return runtime_.status(runtime_.set_device.symbol, error_); }

 private:
  const Runtime& runtime_;
  int previous_ = 0;
  bool changed_ = false;
  Error error_;
};

}  // namespace farwarp::hip
