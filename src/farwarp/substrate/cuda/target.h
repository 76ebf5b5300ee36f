// The cuda target: NVIDIA Hopper, sm_90a.
#pragma once

#include "farwarp/base/attributes.h"
#include "farwarp/base/machine_shape.h"

namespace farwarp::FARWARP_TARGET {

struct Target {
  static constexpr TargetKind kKind = TargetKind::kCuda;
  static constexpr TargetTraits kTraits = traits_of(kKind);
  static constexpr int kWarpSize = kTraits.warp_size;
  static constexpr bool kHasBulkCopy = kTraits.bulk_copy;
  static constexpr Fp8Format kFp8 = kTraits.fp8;
  static constexpr MatrixUnit kMatrixUnit = kTraits.matrix_unit;
};

// Not on this target.
struct MfmaSums;
struct Mfma32Sums;

}  // namespace farwarp::FARWARP_TARGET
