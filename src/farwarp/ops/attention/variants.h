// The kernels of attention.
#pragma once

#include <cstdint>

#include "farwarp/base/half.h"

namespace farwarp::attention {

struct Variant {
  const char* name;
  DType dtype;
  int head_dim;        ///< columns that it computes; a smaller head is padded with zeros
  int keys;            ///< of a step
  int warpgroups = 0;  ///< Hopper: that attend
  bool capped = false;
};

}  // namespace farwarp::attention

// Lists of KERNEL(name, T, head_dim, keys), on Hopper with two more arguments, `warpgroups` and `capped`.

#define FARWARP_ATTENTION_WGMMA_OF(KERNEL, type, T)               \
  KERNEL(attention_##type##_64_128, T, 64, 128, 3, false)         \
  KERNEL(attention_##type##_128_128, T, 128, 128, 2, false)       \
  KERNEL(attention_##type##_256_64, T, 256, 64, 2, false)         \
  KERNEL(attention_##type##_128_128_capped, T, 128, 128, 2, true) \
  KERNEL(attention_##type##_256_64_capped, T, 256, 64, 2, true)
#define FARWARP_ATTENTION_WGMMA(KERNEL)          \
  FARWARP_ATTENTION_WGMMA_OF(KERNEL, bf16, Bf16) \
  FARWARP_ATTENTION_WGMMA_OF(KERNEL, fp16, Half)

/// A step's tile of keys fills half of what LDS a block uses.
#define FARWARP_ATTENTION_MFMA_OF(KERNEL, type, T) \
  KERNEL(attention_mfma_##type##_64, T, 64, 128)   \
  KERNEL(attention_mfma_##type##_128, T, 128, 64)
#define FARWARP_ATTENTION_MFMA(KERNEL)          \
  FARWARP_ATTENTION_MFMA_OF(KERNEL, bf16, Bf16) \
  FARWARP_ATTENTION_MFMA_OF(KERNEL, fp16, Half)

#define FARWARP_ATTENTION_VARIANT(name, T, ...) ::farwarp::attention::Variant{#name, ::farwarp::T::kDType, __VA_ARGS__},

namespace farwarp::attention {

inline constexpr Variant kWgmmaKernels[] = {FARWARP_ATTENTION_WGMMA(FARWARP_ATTENTION_VARIANT)};
inline constexpr Variant kMfmaKernels[] = {FARWARP_ATTENTION_MFMA(FARWARP_ATTENTION_VARIANT)};

}  // namespace farwarp::attention
