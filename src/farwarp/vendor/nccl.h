// The part of NCCL that baselines use, opened at run time: no NCCL header or library is needed to build. The
// declarations repeat NCCL's ABI; nccl_abi_test.cc compares them with <nccl.h> if that is installed.
#pragma once

#include <cstddef>
#include <string>
#include <type_traits>

#include "farwarp/base/half.h"
#include "farwarp/base/status.h"
#include "farwarp/vendor/shared_library.h"

namespace farwarp::nccl {

/// ncclResult_t
enum class Error : int { kSuccess = 0 };

/// ncclDataType_t
enum class DataType : int { kInt32 = 2, kInt64 = 4, kFloat16 = 6, kFloat32 = 7, kBfloat16 = 9 };

/// ncclRedOp_t
enum class Reduction : int { kSum = 0 };

/// ncclUniqueId: rank 0 makes it, all ranks pass it by value to comm_init_rank.
struct UniqueId {
  char bytes[128];
};
static_assert(sizeof(UniqueId) == 128 && alignof(UniqueId) == 1 && std::is_trivially_copyable_v<UniqueId>);
static_assert(sizeof(Error) == 4 && sizeof(DataType) == 4 && sizeof(Reduction) == 4);

using Communicator = struct ncclComm*;     // ncclComm_t
using StreamHandle = struct CUstream_st*;  // cudaStream_t and CUstream are one type

// X(member, symbol, parameters). All return ncclResult_t. Counts are elements, not bytes.
#define FARWARP_NCCL_FUNCTIONS(X)                                                                                     \
  X(get_version, ncclGetVersion, (int* version))                                                                      \
  X(get_unique_id, ncclGetUniqueId, (UniqueId * id))                                                                  \
  X(comm_init_rank, ncclCommInitRank, (Communicator * communicator, int ranks, UniqueId id, int rank))                \
  X(comm_destroy, ncclCommDestroy, (Communicator communicator))                                                       \
  X(comm_abort, ncclCommAbort, (Communicator communicator))                                                           \
  X(group_start, ncclGroupStart, ())                                                                                  \
  X(group_end, ncclGroupEnd, ())                                                                                      \
  X(send, ncclSend,                                                                                                   \
    (const void* source, std::size_t count, DataType type, int peer, Communicator communicator, StreamHandle stream)) \
  X(recv, ncclRecv,                                                                                                   \
    (void* destination, std::size_t count, DataType type, int peer, Communicator communicator, StreamHandle stream))  \
  X(all_gather, ncclAllGather,                                                                                        \
    (const void* source, void* destination, std::size_t sent_count, DataType type, Communicator communicator,         \
     StreamHandle stream))                                                                                            \
  X(reduce_scatter, ncclReduceScatter,                                                                                \
    (const void* source, void* destination, std::size_t received_count, DataType type, Reduction reduction,           \
     Communicator communicator, StreamHandle stream))                                                                 \
  X(all_reduce, ncclAllReduce,                                                                                        \
    (const void* source, void* destination, std::size_t count, DataType type, Reduction reduction,                    \
     Communicator communicator, StreamHandle stream))

/// NCCL's functions. Calls through call() become a Status that names the function and NCCL's error. The device of the
/// communicator must be current on the calling thread: Device::while_current().
struct Library {
#define FARWARP_MEMBER(member, symbol, parameters) LibraryFunction<Error parameters> member{#symbol};
  FARWARP_NCCL_FUNCTIONS(FARWARP_MEMBER)
#undef FARWARP_MEMBER
  LibraryFunction<const char*(Error)> error_string{"ncclGetErrorString"};
  int version = 0;  ///< NCCL_VERSION_CODE: 22809 is 2.28.9

  /// Opens library_name(), once per process, with NVLink multicast switched off. kUnavailable says what to do.
  static Result<const Library*> open();

  /// kInternal: "ncclSend: invalid usage (run with NCCL_DEBUG=WARN for details)".
  Status status(const char* symbol, Error error) const;

  template <class Function, class... Arguments>
  Status call(const Function& function, Arguments... arguments) const {
    return status(function.symbol, function(arguments...));
  }

  /// "NCCL 2.28.9"
  std::string describe() const;
};

/// The file that FARWARP_NCCL_LIBRARY names, or libnccl.so.2.
std::string library_name();

/// NCCL's name for `type`.
constexpr DataType data_type(DType type) {
  switch (type) {
    case DType::kF16: return DataType::kFloat16;
    case DType::kBf16: return DataType::kBfloat16;
    case DType::kF32: return DataType::kFloat32;
    case DType::kI32: return DataType::kInt32;
    case DType::kI64: return DataType::kInt64;
  }
  return DataType::kFloat32;
}

}  // namespace farwarp::nccl
