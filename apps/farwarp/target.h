// Which target a command runs on.
#pragma once

#include <string>
#include <string_view>

#include "farwarp/base/machine_shape.h"
#include "farwarp/base/status.h"

namespace farwarp::cli {

inline constexpr TargetKind kTargets[] = {TargetKind::kCuda, TargetKind::kHip, TargetKind::kEmuSm90,
                                          TargetKind::kEmuGfx942};

struct ChosenTarget {
  TargetKind target = TargetKind::kEmuSm90;
  std::string why;  ///< for auto: what was chosen and why; else empty
};

/// "auto" takes real GPUs if there is an idle one for each rank, else the emulator. kUnavailable if the named target
/// lacks kernels or devices.
Result<ChosenTarget> choose_target(std::string_view name, int ranks);

/// The real GPUs that "auto" would take; kUnavailable says why there are none.
Result<ChosenTarget> choose_real_target(int ranks);

/// Empty if `ranks` ranks can run on the target, else what is missing.
std::string missing_for(TargetKind target, int ranks);

}  // namespace farwarp::cli
