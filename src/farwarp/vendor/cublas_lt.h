// The part of cuBLASLt that baselines use, opened at run time: no cuBLAS header or library is needed to build. The
// declarations repeat cuBLASLt's ABI, which is the same in CUDA 12.6 and 13.0; cublas_lt_abi_test.cc compares them with
// <cublasLt.h> if that is installed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "farwarp/base/half.h"
#include "farwarp/base/status.h"
#include "farwarp/vendor/shared_library.h"

namespace farwarp::cublas_lt {

/// cublasStatus_t
enum class Error : int {
  kSuccess = 0,
  kNotInitialized = 1,
  kAllocFailed = 3,
  kInvalidValue = 7,
  kArchMismatch = 8,
  kNotSupported = 15,
};

/// cudaDataType_t
enum class DataType : int { kFloat32 = 0, kFloat16 = 2, kBfloat16 = 14 };

/// cublasComputeType_t
enum class ComputeType : int { kFloat32 = 68 };

/// cublasOperation_t
enum class Operation : int { kAsIs = 0, kTransposed = 1 };

/// cublasLtEpilogue_t
enum class Epilogue : int { kDefault = 1, kBias = 4 };

/// cublasLtMatmulDescAttributes_t
enum class MatmulAttribute : int { kTransposeA = 3, kTransposeB = 4, kEpilogue = 7, kBiasPointer = 8 };

/// cublasLtMatmulPreferenceAttributes_t
enum class PreferenceAttribute : int { kMaxWorkspaceBytes = 1 };

/// cublasLtMatmulAlgo_t
struct Algorithm {
  std::uint64_t data[8];
};

/// cublasLtMatmulHeuristicResult_t
struct HeuristicResult {
  Algorithm algorithm;
  std::size_t workspace_bytes;
  Error state;  ///< the rest is valid if this is kSuccess
  float waves;
  int reserved[4];
};
static_assert(sizeof(HeuristicResult) == 96);

// Opaque, as cuBLASLt's create functions return them. The size of what they point to may change between versions.
using Handle = struct Context*;                 // cublasLtHandle_t
using MatmulDesc = struct MatmulDescData*;      // cublasLtMatmulDesc_t
using MatrixLayout = struct MatrixLayoutData*;  // cublasLtMatrixLayout_t
using Preference = struct PreferenceData*;      // cublasLtMatmulPreference_t
using StreamHandle = struct CUstream_st*;       // cudaStream_t and CUstream are one type

// X(member, symbol, parameters). All return cublasStatus_t. Matrices are column-major.
#define FARWARP_CUBLASLT_FUNCTIONS(X)                                                                               \
  X(create, cublasLtCreate, (Handle * handle))                                                                      \
  X(destroy, cublasLtDestroy, (Handle handle))                                                                      \
  X(desc_create, cublasLtMatmulDescCreate, (MatmulDesc * desc, ComputeType compute, DataType scale))                \
  X(desc_destroy, cublasLtMatmulDescDestroy, (MatmulDesc desc))                                                     \
  X(desc_set, cublasLtMatmulDescSetAttribute,                                                                       \
    (MatmulDesc desc, MatmulAttribute attribute, const void* value, std::size_t bytes))                             \
  X(layout_create, cublasLtMatrixLayoutCreate,                                                                      \
    (MatrixLayout * layout, DataType type, std::uint64_t rows, std::uint64_t columns, std::int64_t column_stride))  \
  X(layout_destroy, cublasLtMatrixLayoutDestroy, (MatrixLayout layout))                                             \
  X(preference_create, cublasLtMatmulPreferenceCreate, (Preference * preference))                                   \
  X(preference_destroy, cublasLtMatmulPreferenceDestroy, (Preference preference))                                   \
  X(preference_set, cublasLtMatmulPreferenceSetAttribute,                                                           \
    (Preference preference, PreferenceAttribute attribute, const void* value, std::size_t bytes))                   \
  X(heuristic, cublasLtMatmulAlgoGetHeuristic,                                                                      \
    (Handle handle, MatmulDesc desc, MatrixLayout a, MatrixLayout b, MatrixLayout c, MatrixLayout d,                \
     Preference preference, int requested, HeuristicResult* results, int* returned))                                \
  X(matmul, cublasLtMatmul,                                                                                         \
    (Handle handle, MatmulDesc desc, const void* alpha, const void* a, MatrixLayout a_layout, const void* b,        \
     MatrixLayout b_layout, const void* beta, const void* c, MatrixLayout c_layout, void* d, MatrixLayout d_layout, \
     const Algorithm* algorithm, void* workspace, std::size_t workspace_bytes, StreamHandle stream))

/// cuBLASLt's functions. Calls through call() become a Status that names the function and cuBLAS's status. The device
/// must be current on the calling thread: Device::while_current().
struct Library {
#define FARWARP_MEMBER(member, symbol, parameters) LibraryFunction<Error parameters> member{#symbol};
  FARWARP_CUBLASLT_FUNCTIONS(FARWARP_MEMBER)
#undef FARWARP_MEMBER
  LibraryFunction<std::size_t()> get_version{"cublasLtGetVersion"};
  LibraryFunction<const char*(Error)> status_name{"cublasLtGetStatusName"};
  std::size_t version = 0;  ///< CUBLAS_VERSION: 130100 is 13.1.0

  /// Opens, once per process, the file that FARWARP_CUBLASLT_LIBRARY names; else libcublasLt.so.13 or .12, whichever
  /// the process has already loaded, or the newest. kUnavailable says what to do. Needs neither a driver nor a device.
  static Result<const Library*> open();

  /// "cublasLtMatmul: CUBLAS_STATUS_INVALID_VALUE (run with CUBLASLT_LOG_LEVEL=1 for details)". kUnavailable if
  /// cuBLASLt lacks a device or an algorithm, kOutOfMemory if it could not allocate, else kInternal.
  Status status(const char* symbol, Error error) const;

  template <class Function, class... Arguments>
  Status call(const Function& function, Arguments... arguments) const {
    return status(function.symbol, function(arguments...));
  }

  /// "cuBLASLt 13.1.0"
  std::string describe() const;
};

}  // namespace farwarp::cublas_lt
