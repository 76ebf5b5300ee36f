// The two personalities of the emulator.
#pragma once

#include "farwarp/base/attributes.h"
#include "farwarp/base/machine_shape.h"
#include "farwarp/substrate/emu/device_api.h"
#include "farwarp/substrate/emu/registry.h"

namespace farwarp::FARWARP_TARGET {

struct Target {
#if defined(FARWARP_TARGET_EMU_SM90)
  static constexpr TargetKind kKind = TargetKind::kEmuSm90;
#else
  static constexpr TargetKind kKind = TargetKind::kEmuGfx942;
#endif
  static constexpr TargetKind kEmulated = kKind;
  static constexpr TargetTraits kTraits = traits_of(kKind);
  static constexpr int kWarpSize = kTraits.warp_size;
  static constexpr bool kHasBulkCopy = kTraits.bulk_copy;
  static constexpr Fp8Format kFp8 = kTraits.fp8;
  static constexpr MatrixUnit kMatrixUnit = kTraits.matrix_unit;
};

template <int count>
struct FloatVector {
  float value[count];
  float& operator[](int i) { return value[i]; }
  float operator[](int i) const { return value[i]; }
};
using MfmaSums = FloatVector<4>;
using Mfma32Sums = FloatVector<16>;

}  // namespace farwarp::FARWARP_TARGET
