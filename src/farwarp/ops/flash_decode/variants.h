// The kernels of flash-decode.
#pragma once

#include "farwarp/base/half.h"
#include "farwarp/ops/flash_decode/layout.h"

// Lists of KERNEL(name, T, dim, rows, source, fp8). Hopper: dim and rows end the name. Those for CDNA copy nothing, so
// they have any page size.
#define FARWARP_DECODE_ROWS(KERNEL, prefix, T, dim, source, fp8) \
  KERNEL(prefix##_##dim##x8, T, dim, 8, source, fp8)             \
  KERNEL(prefix##_##dim##x16, T, dim, 16, source, fp8)           \
  KERNEL(prefix##_##dim##x64, T, dim, 64, source, fp8)
#define FARWARP_DECODE_OF(KERNEL, type, T)                                        \
  FARWARP_DECODE_ROWS(KERNEL, flash_decode_##type, T, 64, kTensor, false)         \
  FARWARP_DECODE_ROWS(KERNEL, flash_decode_##type, T, 128, kTensor, false)        \
  FARWARP_DECODE_ROWS(KERNEL, flash_decode_##type##_rows, T, 64, kRows, false)    \
  FARWARP_DECODE_ROWS(KERNEL, flash_decode_##type##_rows, T, 128, kRows, false)   \
  FARWARP_DECODE_ROWS(KERNEL, flash_decode_##type##_fp8, T, 64, kTensor, true)    \
  FARWARP_DECODE_ROWS(KERNEL, flash_decode_##type##_fp8, T, 128, kTensor, true)   \
  FARWARP_DECODE_ROWS(KERNEL, flash_decode_##type##_fp8_rows, T, 64, kRows, true) \
  FARWARP_DECODE_ROWS(KERNEL, flash_decode_##type##_fp8_rows, T, 128, kRows, true)
#define FARWARP_DECODE_WGMMA(KERNEL) FARWARP_DECODE_OF(KERNEL, bf16, Bf16) FARWARP_DECODE_OF(KERNEL, fp16, Half)
#define FARWARP_DECODE_MFMA_OF(KERNEL, type, T)                                \
  KERNEL(flash_decode_mfma_##type##_64, T, 64, kMfmaItemRows, kRows, false)    \
  KERNEL(flash_decode_mfma_##type##_128, T, 128, kMfmaItemRows, kRows, false)  \
  KERNEL(flash_decode_mfma_##type##_fp8_64, T, 64, kMfmaItemRows, kRows, true) \
  KERNEL(flash_decode_mfma_##type##_fp8_128, T, 128, kMfmaItemRows, kRows, true)
#define FARWARP_DECODE_MFMA(KERNEL) \
  FARWARP_DECODE_MFMA_OF(KERNEL, bf16, Bf16) FARWARP_DECODE_MFMA_OF(KERNEL, fp16, Half)

namespace farwarp::decode {

struct Variant {
  const char* name;
  DType dtype;
  int dim;   ///< head_dim, padded
  int rows;  ///< most rows of an item
  Source source;
  bool fp8;
};

#define FARWARP_DECODE_VARIANT(name, T, dim, rows, source, fp8) \
  Variant{#name, ::farwarp::T::kDType, dim, rows, Source::source, fp8},
inline constexpr Variant kWgmmaKernels[] = {FARWARP_DECODE_WGMMA(FARWARP_DECODE_VARIANT)};
inline constexpr Variant kMfmaKernels[] = {FARWARP_DECODE_MFMA(FARWARP_DECODE_VARIANT)};
#undef FARWARP_DECODE_VARIANT

/// Hopper: the least number of rows that has a kernel and is enough for `rows`, or the most there is.
constexpr int block_rows_for(int rows) {
  int most = 0;
  for (const Variant& kernel : kWgmmaKernels) {
    const bool better = most < rows ? kernel.rows > most : kernel.rows >= rows && kernel.rows < most;
    if (better) most = kernel.rows;
  }
  return most;
}

}  // namespace farwarp::decode
