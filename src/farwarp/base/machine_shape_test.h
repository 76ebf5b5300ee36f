// The machines whose plans are tested.
#pragma once

#include "farwarp/base/machine_shape.h"

namespace farwarp {

inline constexpr MachineShape kH200{
    .target = TargetKind::kCuda, .traits = traits_of(TargetKind::kCuda), .multiprocessors = 132, .xcds = 1};
inline constexpr MachineShape kMi300x{
    .target = TargetKind::kHip, .traits = traits_of(TargetKind::kHip), .multiprocessors = 304, .xcds = 8};

}  // namespace farwarp
