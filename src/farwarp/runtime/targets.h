// The implementations of Device, for device.cc.
#pragma once

#include <memory>

#include "farwarp/runtime/device.h"

namespace farwarp {

/// Emulated devices of each personality: as many as a real node has.
inline constexpr int kEmulatedDevices = 8;

Result<std::shared_ptr<Device>> open_cuda_device(int ordinal);
Result<std::shared_ptr<Device>> open_hip_device(int ordinal);
Result<std::shared_ptr<Device>> open_emu_device(TargetKind personality, int ordinal);

int count_cuda_devices();
int count_hip_devices();

/// kInvalidArgument unless 0 <= ordinal < count.
Status check_ordinal(TargetKind target, int ordinal, int count);

}  // namespace farwarp
