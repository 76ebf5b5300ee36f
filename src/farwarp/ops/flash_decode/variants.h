// The kernels of flash-decode.
#pragma once

#include "farwarp/base/half.h"
#include "farwarp/ops/flash_decode/layout.h"

// Lists of KERNEL(name, T, dim, source, fp8). Those for CDNA copy nothing, so they have any page size.
#define FARWARP_DECODE_OF(KERNEL, type, T)                      \
  KERNEL(flash_decode_##type##_64, T, 64, kTensor, false)       \
  KERNEL(flash_decode_##type##_128, T, 128, kTensor, false)     \
  KERNEL(flash_decode_##type##_rows_64, T, 64, kRows, false)    \
  KERNEL(flash_decode_##type##_rows_128, T, 128, kRows, false)  \
  KERNEL(flash_decode_##type##_fp8_64, T, 64, kTensor, true)    \
  KERNEL(flash_decode_##type##_fp8_128, T, 128, kTensor, true)  \
  KERNEL(flash_decode_##type##_fp8_rows_64, T, 64, kRows, true) \
  KERNEL(flash_decode_##type##_fp8_rows_128, T, 128, kRows, true)
#define FARWARP_DECODE_WGMMA(KERNEL) FARWARP_DECODE_OF(KERNEL, bf16, Bf16) FARWARP_DECODE_OF(KERNEL, fp16, Half)
#define FARWARP_DECODE_MFMA_OF(KERNEL, type, T)                 \
  KERNEL(flash_decode_mfma_##type##_64, T, 64, kRows, false)    \
  KERNEL(flash_decode_mfma_##type##_128, T, 128, kRows, false)  \
  KERNEL(flash_decode_mfma_##type##_fp8_64, T, 64, kRows, true) \
  KERNEL(flash_decode_mfma_##type##_fp8_128, T, 128, kRows, true)
#define FARWARP_DECODE_MFMA(KERNEL) \
  FARWARP_DECODE_MFMA_OF(KERNEL, bf16, Bf16) FARWARP_DECODE_MFMA_OF(KERNEL, fp16, Half)

namespace farwarp::decode {

struct Variant {
  const char* name;
  DType dtype;
  int dim;  ///< head_dim, padded
  Source source;
  bool fp8;
};

#define FARWARP_DECODE_VARIANT(name, T, dim, source, fp8) \
  Variant{#name, ::farwarp::T::kDType, dim, Source::source, fp8},
inline constexpr Variant kWgmmaKernels[] = {FARWARP_DECODE_WGMMA(FARWARP_DECODE_VARIANT)};
inline constexpr Variant kMfmaKernels[] = {FARWARP_DECODE_MFMA(FARWARP_DECODE_VARIANT)};
#undef FARWARP_DECODE_VARIANT

}  // namespace farwarp::decode
