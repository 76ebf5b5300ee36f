// Compares the declarations of nccl.h with <nccl.h>: the classes and sizes of parameters, the id, the values.
#include <gtest/gtest.h>
#include <nccl.h>

#include <type_traits>

#include "farwarp/vendor/nccl.h"

namespace farwarp::nccl {
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
FARWARP_NCCL_FUNCTIONS(FARWARP_CHECK)
#undef FARWARP_CHECK

static_assert(sizeof(UniqueId) == sizeof(ncclUniqueId) && alignof(UniqueId) == alignof(ncclUniqueId));
static_assert(static_cast<int>(Error::kSuccess) == ncclSuccess);
static_assert(static_cast<int>(DataType::kInt32) == ncclInt32);
static_assert(static_cast<int>(DataType::kInt64) == ncclInt64);
static_assert(static_cast<int>(DataType::kFloat16) == ncclFloat16);
static_assert(static_cast<int>(DataType::kFloat32) == ncclFloat32);
static_assert(static_cast<int>(DataType::kBfloat16) == ncclBfloat16);
static_assert(static_cast<int>(Reduction::kSum) == ncclSum);

TEST(NcclAbi, MatchesTheHeader) { SUCCEED(); }  // it compiled

}  // namespace
}  // namespace farwarp::nccl
