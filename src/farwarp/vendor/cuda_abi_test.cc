// Compares the declarations of cuda_driver.h with <cuda.h>: symbol names, the classes and sizes of parameters, structs,
// values.
#include <cuda.h>
#include <gtest/gtest.h>

#include <string_view>
#include <type_traits>

#include "farwarp/vendor/cuda_driver.h"

namespace farwarp::cuda {
namespace {

// Two parameter types are passed alike if they have the same size and both are classes or both are not: every scalar
// here is an integer, an enumeration or an address, and those share registers in the System V and AArch64 calling
// conventions.
template <class A, class B>
constexpr bool kPassedAlike =
    sizeof(A) == sizeof(B) && std::is_class_v<A> == std::is_class_v<B>&& std::is_floating_point_v<A> ==
                                  std::is_floating_point_v<B>;

template <class Ours, class Theirs>
struct SameAbi : std::false_type {};
template <class R, class... A, class S, class... B>
requires(sizeof...(A) == sizeof...(B)) struct SameAbi<R(A...), S(B...)>
    : std::bool_constant<kPassedAlike<R, S> && (kPassedAlike<A, B> && ...)> {
};

#define FARWARP_TEXT(text) #text
#define FARWARP_CHECK(member, symbol, parameters) \
  static_assert(SameAbi<Error parameters, std::remove_pointer_t<decltype(&::symbol)>>::value, #symbol);
FARWARP_CUDA_FUNCTIONS(FARWARP_CHECK)

// <cuda.h> maps a plain name to its newest version by a macro, so a symbol that is such a macro is an old version.
// cuda_driver.h states the one exception.
bool is_newest(std::string_view ours, std::string_view mapped) {
  return ours == mapped || ours == "cuEventElapsedTime";
}

static_assert(static_cast<int>(Error::kSuccess) == CUDA_SUCCESS);
static_assert(static_cast<int>(Error::kOutOfMemory) == CUDA_ERROR_OUT_OF_MEMORY);
static_assert(static_cast<int>(Error::kNoDevice) == CUDA_ERROR_NO_DEVICE);
static_assert(static_cast<int>(Error::kNotFound) == CUDA_ERROR_NOT_FOUND);
static_assert(static_cast<int>(Error::kNotReady) == CUDA_ERROR_NOT_READY);
static_assert(static_cast<int>(Error::kPeerAccessAlreadyEnabled) == CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);

static_assert(kMultiprocessorCount == CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
static_assert(kComputeCapabilityMajor == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
static_assert(kComputeCapabilityMinor == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
static_assert(kMaxSharedMemoryPerBlockOptin == CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
static_assert(kVirtualMemoryManagementSupported == CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED);
static_assert(kHandleTypePosixFdSupported == CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED);
static_assert(kFunctionMaxThreadsPerBlock == CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
static_assert(kFunctionSharedBytes == CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES);
static_assert(kFunctionMaxDynamicSharedBytes == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
static_assert(kStreamNonBlocking == CU_STREAM_NON_BLOCKING);
static_assert(kEventDefault == CU_EVENT_DEFAULT);
static_assert(kHostAllocPortableMapped == (CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP));
static_assert(kIpcLazyEnablePeerAccess == CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
static_assert(kCaptureModeThreadLocal == CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
static_assert(kCaptureStatusNone == CU_STREAM_CAPTURE_STATUS_NONE);
static_assert(kAllocationTypePinned == CU_MEM_ALLOCATION_TYPE_PINNED);
static_assert(kHandleTypePosixFd == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
static_assert(kLocationTypeDevice == CU_MEM_LOCATION_TYPE_DEVICE);
static_assert(kGranularityRecommended == CU_MEM_ALLOC_GRANULARITY_RECOMMENDED);
static_assert(kAccessReadWrite == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
static_assert(kTensorMapUint16 == CU_TENSOR_MAP_DATA_TYPE_UINT16);
static_assert(kTensorMapNoInterleave == CU_TENSOR_MAP_INTERLEAVE_NONE);
static_assert(kTensorMapNoSwizzle == CU_TENSOR_MAP_SWIZZLE_NONE && kTensorMapSwizzle128 == CU_TENSOR_MAP_SWIZZLE_128B);
static_assert(kTensorMapPromote256 == CU_TENSOR_MAP_L2_PROMOTION_L2_256B);
static_assert(kTensorMapZeroFill == CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
static_assert(sizeof(TensorMap) == sizeof(CUtensorMap) && alignof(TensorMap) >= alignof(CUtensorMap));

static_assert(sizeof(AllocationProperties) == sizeof(CUmemAllocationProp));
static_assert(offsetof(AllocationProperties, type) == offsetof(CUmemAllocationProp, type));
static_assert(offsetof(AllocationProperties, handle_types) == offsetof(CUmemAllocationProp, requestedHandleTypes));
static_assert(offsetof(AllocationProperties, location) == offsetof(CUmemAllocationProp, location));
static_assert(offsetof(AllocationProperties, win32_attributes) == offsetof(CUmemAllocationProp, win32HandleMetaData));
static_assert(offsetof(AllocationProperties, flags) == offsetof(CUmemAllocationProp, allocFlags));
static_assert(sizeof(MemoryLocation) == sizeof(CUmemLocation));
static_assert(offsetof(MemoryLocation, id) == offsetof(CUmemLocation, id));
static_assert(sizeof(AccessDescription) == sizeof(CUmemAccessDesc));
static_assert(offsetof(AccessDescription, flags) == offsetof(CUmemAccessDesc, flags));
static_assert(sizeof(IpcHandle) == sizeof(CUipcMemHandle));

TEST(CudaAbi, SymbolsAreTheNewest) {
  const Driver driver;
#define FARWARP_EXPECT_NEWEST(member, mapped, parameters) \
  EXPECT_TRUE(is_newest(driver.member.symbol, FARWARP_TEXT(mapped))) << driver.member.symbol;
  FARWARP_CUDA_FUNCTIONS(FARWARP_EXPECT_NEWEST)
}

}  // namespace
}  // namespace farwarp::cuda
