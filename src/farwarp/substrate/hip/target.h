// The hip target: AMD CDNA3 (gfx942) and CDNA4 (gfx950). Clang compiles the device side without ROCm's headers and
// device libraries, so this folder uses only compiler builtins and instructions.
#pragma once

#include "farwarp/base/attributes.h"
#include "farwarp/base/machine_shape.h"

namespace farwarp::FARWARP_TARGET {

struct Target {
  static constexpr TargetKind kKind = TargetKind::kHip;
  static constexpr TargetTraits kTraits = traits_of(kKind);
  static constexpr int kWarpSize = kTraits.warp_size;
  static constexpr bool kHasBulkCopy = kTraits.bulk_copy;
#if defined(__gfx950__)
  static constexpr Fp8Format kFp8 = Fp8Format::kOcp;
#else
  static constexpr Fp8Format kFp8 = Fp8Format::kFnuz;
#endif
  static constexpr MatrixUnit kMatrixUnit = kTraits.matrix_unit;
};

typedef float MfmaSums __attribute__((ext_vector_type(4)));
typedef float Mfma32Sums __attribute__((ext_vector_type(16)));

}  // namespace farwarp::FARWARP_TARGET
