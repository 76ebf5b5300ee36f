// The part of the CUDA driver API that runtime/ uses, opened at run time: no CUDA header or library is needed to build.
// The declarations repeat the driver's ABI; cuda_abi_test.cc compares them with <cuda.h> if that is installed.
#pragma once

#include <cstddef>
#include <cstdint>

#include "farwarp/base/machine_shape.h"
#include "farwarp/base/status.h"
#include "farwarp/base/tensor_map.h"
#include "farwarp/vendor/shared_library.h"

namespace farwarp::cuda {

/// CUresult: the values that runtime/ distinguishes.
enum class Error : int {
  kSuccess = 0,
  kOutOfMemory = 2,
  kNoDevice = 100,
  kNotFound = 500,
  kNotReady = 600,
  kPeerAccessAlreadyEnabled = 704,
};

using ContextHandle = struct CUctx_st*;
using ModuleHandle = struct CUmod_st*;
using FunctionHandle = struct CUfunc_st*;
using StreamHandle = struct CUstream_st*;
using EventHandle = struct CUevent_st*;
using GraphHandle = struct CUgraph_st*;
using GraphExecHandle = struct CUgraphExec_st*;
using GraphNodeHandle = struct CUgraphNode_st*;
using HostFunction = void (*)(void* data);
using AllocationHandle = std::uint64_t;  ///< CUmemGenericAllocationHandle

// CUdevice_attribute
inline constexpr int kMultiprocessorCount = 16;
inline constexpr int kComputeCapabilityMajor = 75;
inline constexpr int kComputeCapabilityMinor = 76;
inline constexpr int kMaxSharedMemoryPerBlockOptin = 97;
inline constexpr int kVirtualMemoryManagementSupported = 102;
inline constexpr int kHandleTypePosixFdSupported = 103;
// CUfunction_attribute
inline constexpr int kFunctionMaxThreadsPerBlock = 0;
inline constexpr int kFunctionSharedBytes = 1;
inline constexpr int kFunctionMaxDynamicSharedBytes = 8;
// Flags
inline constexpr unsigned kStreamNonBlocking = 1;
inline constexpr unsigned kEventDefault = 0;
inline constexpr unsigned kHostAllocPortableMapped = 1 | 2;
inline constexpr unsigned kIpcLazyEnablePeerAccess = 1;
inline constexpr int kCaptureModeThreadLocal = 1;
inline constexpr int kCaptureStatusNone = 0;
inline constexpr int kAllocationTypePinned = 1;
inline constexpr int kHandleTypePosixFd = 1;
inline constexpr int kLocationTypeDevice = 1;
inline constexpr int kGranularityRecommended = 1;
inline constexpr int kAccessReadWrite = 3;
// CUtensorMapDataType, CUtensorMapInterleave, CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill
inline constexpr int kTensorMapUint16 = 1;
inline constexpr int kTensorMapNoInterleave = 0;
inline constexpr int kTensorMapNoSwizzle = 0;
inline constexpr int kTensorMapSwizzle128 = 3;
inline constexpr int kTensorMapPromote256 = 3;
inline constexpr int kTensorMapZeroFill = 0;

struct MemoryLocation {
  int type;
  int id;
};

/// CUmemAllocationProp
struct AllocationProperties {
  int type;
  int handle_types;
  MemoryLocation location;
  void* win32_attributes;
  struct {
    unsigned char compression;
    unsigned char gpu_direct_rdma;
    unsigned short usage;
    unsigned char reserved[4];
  } flags;
};

/// CUlaunchAttribute, as far as it is used here.
struct LaunchAttribute {
  int id;
  unsigned pad;
  union {
    unsigned cluster[3];
    int allowed;
    unsigned char bytes[64];
  } value;
};
inline constexpr int kLaunchClusterDimension = 4;
inline constexpr int kLaunchProgrammaticSerialization = 6;

/// CUlaunchConfig
struct LaunchDescription {
  unsigned grid[3], block[3];
  unsigned shared_bytes;
  StreamHandle stream;
  const LaunchAttribute* attributes;
  unsigned attribute_count;
};

/// CUmemAccessDesc
struct AccessDescription {
  MemoryLocation location;
  int flags;
};

/// CUipcMemHandle
struct IpcHandle {
  unsigned char bytes[64];
};

// X(member, symbol, parameters). Device addresses are void*, which has the ABI of CUdeviceptr. Symbols have the version
// suffix to which <cuda.h> of CUDA 12 and 13 maps plain names. The exception is cuEventElapsedTime, whose _v2 exists
// since CUDA 12.8 only.
#define FARWARP_CUDA_FUNCTIONS(X)                                                                                     \
  X(initialize, cuInit, (unsigned flags))                                                                             \
  X(driver_version, cuDriverGetVersion, (int* version))                                                               \
  X(error_name, cuGetErrorName, (Error error, const char** name))                                                     \
  X(error_string, cuGetErrorString, (Error error, const char** text))                                                 \
  X(device_count, cuDeviceGetCount, (int* count))                                                                     \
  X(device_get, cuDeviceGet, (int* device, int ordinal))                                                              \
  X(device_name, cuDeviceGetName, (char* name, int length, int device))                                               \
  X(device_bus_id, cuDeviceGetPCIBusId, (char* id, int length, int device))                                           \
  X(device_attribute, cuDeviceGetAttribute, (int* value, int attribute, int device))                                  \
  X(primary_context_retain, cuDevicePrimaryCtxRetain, (ContextHandle * context, int device))                          \
  X(primary_context_release, cuDevicePrimaryCtxRelease_v2, (int device))                                              \
  X(context_push, cuCtxPushCurrent_v2, (ContextHandle context))                                                       \
  X(context_pop, cuCtxPopCurrent_v2, (ContextHandle * context))                                                       \
  X(device_synchronize, cuCtxSynchronize, ())                                                                         \
  X(reset_persisting_l2, cuCtxResetPersistingL2Cache, ())                                                             \
  X(enable_peer_access, cuCtxEnablePeerAccess, (ContextHandle peer, unsigned flags))                                  \
  X(module_load, cuModuleLoadData, (ModuleHandle * module, const void* image))                                        \
  X(module_unload, cuModuleUnload, (ModuleHandle module))                                                             \
  X(module_function, cuModuleGetFunction, (FunctionHandle * function, ModuleHandle module, const char* name))         \
  X(module_global, cuModuleGetGlobal_v2, (void** address, std::size_t* bytes, ModuleHandle module, const char* name)) \
  X(function_load, cuFuncLoad, (FunctionHandle function))                                                             \
  X(function_attribute, cuFuncGetAttribute, (int* value, int attribute, FunctionHandle function))                     \
  X(function_set_attribute, cuFuncSetAttribute, (FunctionHandle function, int attribute, int value))                  \
  X(function_parameter, cuFuncGetParamInfo,                                                                           \
    (FunctionHandle function, std::size_t index, std::size_t * offset, std::size_t * size))                           \
  X(blocks_per_multiprocessor, cuOccupancyMaxActiveBlocksPerMultiprocessor,                                           \
    (int* blocks, FunctionHandle function, int threads, std::size_t shared_bytes))                                    \
  X(launch_kernel_with, cuLaunchKernelEx,                                                                             \
    (const LaunchDescription* description, FunctionHandle function, void** parameters, void** extra))                 \
  X(launch_host_function, cuLaunchHostFunc, (StreamHandle stream, HostFunction function, void* data))                 \
  X(memory_allocate, cuMemAlloc_v2, (void** address, std::size_t bytes))                                              \
  X(memory_free, cuMemFree_v2, (void* address))                                                                       \
  X(host_allocate, cuMemHostAlloc, (void** address, std::size_t bytes, unsigned flags))                               \
  X(host_free, cuMemFreeHost, (void* address))                                                                        \
  X(host_device_pointer, cuMemHostGetDevicePointer_v2, (void** device_address, void* address, unsigned flags))        \
  X(copy_to_device, cuMemcpyHtoDAsync_v2,                                                                             \
    (void* destination, const void* source, std::size_t bytes, StreamHandle stream))                                  \
  X(copy_to_host, cuMemcpyDtoHAsync_v2,                                                                               \
    (void* destination, const void* source, std::size_t bytes, StreamHandle stream))                                  \
  X(fill, cuMemsetD8Async, (void* destination, unsigned char byte, std::size_t bytes, StreamHandle stream))           \
  X(stream_create, cuStreamCreate, (StreamHandle * stream, unsigned flags))                                           \
  X(stream_destroy, cuStreamDestroy_v2, (StreamHandle stream))                                                        \
  X(stream_query, cuStreamQuery, (StreamHandle stream))                                                               \
  X(stream_is_capturing, cuStreamIsCapturing, (StreamHandle stream, int* status))                                     \
  X(stream_begin_capture, cuStreamBeginCapture_v2, (StreamHandle stream, int mode))                                   \
  X(stream_end_capture, cuStreamEndCapture, (StreamHandle stream, GraphHandle * graph))                               \
  X(graph_instantiate, cuGraphInstantiateWithFlags,                                                                   \
    (GraphExecHandle * executable, GraphHandle graph, unsigned long long flags))                                      \
  X(graph_launch, cuGraphLaunch, (GraphExecHandle executable, StreamHandle stream))                                   \
  X(graph_create, cuGraphCreate, (GraphHandle * graph, unsigned flags))                                               \
  X(graph_add_child, cuGraphAddChildGraphNode,                                                                        \
    (GraphNodeHandle * node, GraphHandle graph, const GraphNodeHandle* after, std::size_t count, GraphHandle child))  \
  X(graph_nodes, cuGraphGetNodes, (GraphHandle graph, GraphNodeHandle * nodes, std::size_t * count))                  \
  X(graph_destroy, cuGraphDestroy, (GraphHandle graph))                                                               \
  X(graph_exec_destroy, cuGraphExecDestroy, (GraphExecHandle executable))                                             \
  X(event_create, cuEventCreate, (EventHandle * event, unsigned flags))                                               \
  X(event_destroy, cuEventDestroy_v2, (EventHandle event))                                                            \
  X(event_record, cuEventRecord, (EventHandle event, StreamHandle stream))                                            \
  X(event_elapsed, cuEventElapsedTime, (float* milliseconds, EventHandle start, EventHandle end))                     \
  X(address_reserve, cuMemAddressReserve,                                                                             \
    (void** address, std::size_t bytes, std::size_t alignment, void* wanted, unsigned long long flags))               \
  X(address_free, cuMemAddressFree, (void* address, std::size_t bytes))                                               \
  X(allocation_create, cuMemCreate,                                                                                   \
    (AllocationHandle * handle, std::size_t bytes, const AllocationProperties* properties, unsigned long long flags)) \
  X(allocation_release, cuMemRelease, (AllocationHandle handle))                                                      \
  X(allocation_granularity, cuMemGetAllocationGranularity,                                                            \
    (std::size_t * bytes, const AllocationProperties* properties, int option))                                        \
  X(allocation_export, cuMemExportToShareableHandle,                                                                  \
    (void* handle, AllocationHandle allocation, int type, unsigned long long flags))                                  \
  X(allocation_import, cuMemImportFromShareableHandle, (AllocationHandle * allocation, void* handle, int type))       \
  X(memory_map, cuMemMap,                                                                                             \
    (void* address, std::size_t bytes, std::size_t offset, AllocationHandle handle, unsigned long long flags))        \
  X(memory_unmap, cuMemUnmap, (void* address, std::size_t bytes))                                                     \
  X(memory_set_access, cuMemSetAccess,                                                                                \
    (void* address, std::size_t bytes, const AccessDescription* descriptions, std::size_t count))                     \
  X(ipc_get_handle, cuIpcGetMemHandle, (IpcHandle * handle, void* address))                                           \
  X(ipc_open_handle, cuIpcOpenMemHandle_v2, (void** address, IpcHandle handle, unsigned flags))                       \
  X(ipc_close_handle, cuIpcCloseMemHandle, (void* address))                                                           \
  X(tensor_map_encode, cuTensorMapEncodeTiled,                                                                        \
    (TensorMap * map, int type, std::uint32_t rank, void* base, const std::uint64_t* sizes,                           \
     const std::uint64_t* pitches, const std::uint32_t* box, const std::uint32_t* steps, int interleave, int swizzle, \
     int promotion, int fill))

class DeviceScope;

/// The driver's functions. Calls through call() become a Status that names the function and the driver's error.
struct Driver {
  using Error = cuda::Error;
  using ModuleHandle = cuda::ModuleHandle;
  using FunctionHandle = cuda::FunctionHandle;
  using StreamHandle = cuda::StreamHandle;
  using EventHandle = cuda::EventHandle;
  using GraphHandle = cuda::GraphHandle;
  using GraphExecHandle = cuda::GraphExecHandle;
  using GraphNodeHandle = cuda::GraphNodeHandle;
  using DeviceToken = ContextHandle;  ///< what a DeviceScope makes current
  using DeviceScope = cuda::DeviceScope;
  static constexpr TargetKind kTarget = TargetKind::kCuda;
  static constexpr unsigned kHostAllocFlags = kHostAllocPortableMapped;

#define FARWARP_MEMBER(member, symbol, parameters) LibraryFunction<Error parameters> member{#symbol};
  FARWARP_CUDA_FUNCTIONS(FARWARP_MEMBER)
#undef FARWARP_MEMBER

  /// Opens libcuda.so.1 and initialises the driver, once per process.
  static Result<const Driver*> open();

  /// kOutOfMemory or kInternal: "cuMemAlloc_v2: CUDA_ERROR_OUT_OF_MEMORY (out of memory)".
  Status status(const char* symbol, Error error) const;

  template <class Function, class... Arguments>
  Status call(const Function& function, Arguments... arguments) const {
    return status(function.symbol, function(arguments...));
  }

  /// Nothing to do: the driver API does not store the last error; HIP does.
  void forget_error() const {}
};

/// Makes a context current for the calling thread, and restores the previous one at the end: the host program may use
/// its own.
class DeviceScope {
 public:
  DeviceScope(const Driver& driver, ContextHandle context) : driver_(driver), error_(driver.context_push(context)) {}
  ~DeviceScope() {
    ContextHandle popped = nullptr;
    if (error_ == Error::kSuccess) driver_.context_pop(&popped);
  }
  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;
  Status status() const { return driver_.status(driver_.context_push.symbol, error_); }

 private:
  const Driver& driver_;
  Error error_;
};

}  // namespace farwarp::cuda
