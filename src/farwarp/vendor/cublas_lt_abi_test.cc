// Compares the declarations of cublas_lt.h with <cublasLt.h>: the classes and sizes of parameters, the structures, the
// values.
#include <cublasLt.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <type_traits>

#include "farwarp/vendor/cublas_lt.h"

namespace farwarp::cublas_lt {
namespace {

// As in cuda_abi_test.cc: every scalar is an integer, an enumeration or an address, and those share registers.
template <class A, class B>
constexpr bool kPassedAlike = sizeof(A) == sizeof(B) && std::is_class_v<A> == std::is_class_v<B>;

template <class Ours, class Theirs>
struct SameAbi : std::false_type {};
template <class R, class... A, class S, class... B>
requires(sizeof...(A) == sizeof...(B)) struct SameAbi<R(A...), S(B...)>
    : std::bool_constant<kPassedAlike<R, S> && (kPassedAlike<A, B> && ...)> {
};

#define FARWARP_CHECK(member, symbol, parameters) \
  static_assert(SameAbi<Error parameters, std::remove_pointer_t<decltype(&::symbol)>>::value, #symbol);
FARWARP_CUBLASLT_FUNCTIONS(FARWARP_CHECK)
#undef FARWARP_CHECK
static_assert(SameAbi<std::size_t(), decltype(::cublasLtGetVersion)>::value);
static_assert(SameAbi<const char*(Error), decltype(::cublasLtGetStatusName)>::value);

static_assert(sizeof(Algorithm) == sizeof(cublasLtMatmulAlgo_t) && alignof(Algorithm) == alignof(cublasLtMatmulAlgo_t));
using TheirResult = cublasLtMatmulHeuristicResult_t;
static_assert(sizeof(HeuristicResult) == sizeof(TheirResult) && alignof(HeuristicResult) == alignof(TheirResult));
static_assert(offsetof(HeuristicResult, algorithm) == offsetof(TheirResult, algo));
static_assert(offsetof(HeuristicResult, workspace_bytes) == offsetof(TheirResult, workspaceSize));
static_assert(offsetof(HeuristicResult, state) == offsetof(TheirResult, state));
static_assert(offsetof(HeuristicResult, waves) == offsetof(TheirResult, wavesCount));

static_assert(static_cast<int>(Error::kSuccess) == CUBLAS_STATUS_SUCCESS);
static_assert(static_cast<int>(Error::kNotInitialized) == CUBLAS_STATUS_NOT_INITIALIZED);
static_assert(static_cast<int>(Error::kAllocFailed) == CUBLAS_STATUS_ALLOC_FAILED);
static_assert(static_cast<int>(Error::kInvalidValue) == CUBLAS_STATUS_INVALID_VALUE);
static_assert(static_cast<int>(Error::kArchMismatch) == CUBLAS_STATUS_ARCH_MISMATCH);
static_assert(static_cast<int>(Error::kNotSupported) == CUBLAS_STATUS_NOT_SUPPORTED);
static_assert(static_cast<int>(DataType::kFloat32) == CUDA_R_32F);
static_assert(static_cast<int>(DataType::kFloat16) == CUDA_R_16F);
static_assert(static_cast<int>(DataType::kBfloat16) == CUDA_R_16BF);
static_assert(static_cast<int>(ComputeType::kFloat32) == CUBLAS_COMPUTE_32F);
static_assert(static_cast<int>(Operation::kAsIs) == CUBLAS_OP_N);
static_assert(static_cast<int>(Operation::kTransposed) == CUBLAS_OP_T);
static_assert(static_cast<int>(Epilogue::kDefault) == CUBLASLT_EPILOGUE_DEFAULT);
static_assert(static_cast<int>(Epilogue::kBias) == CUBLASLT_EPILOGUE_BIAS);
static_assert(static_cast<int>(MatmulAttribute::kTransposeA) == CUBLASLT_MATMUL_DESC_TRANSA);
static_assert(static_cast<int>(MatmulAttribute::kTransposeB) == CUBLASLT_MATMUL_DESC_TRANSB);
static_assert(static_cast<int>(MatmulAttribute::kEpilogue) == CUBLASLT_MATMUL_DESC_EPILOGUE);
static_assert(static_cast<int>(MatmulAttribute::kBiasPointer) == CUBLASLT_MATMUL_DESC_BIAS_POINTER);
static_assert(static_cast<int>(PreferenceAttribute::kMaxWorkspaceBytes) == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES);

TEST(CublasLtAbi, MatchesTheHeader) { SUCCEED(); }  // it compiled

}  // namespace
}  // namespace farwarp::cublas_lt
