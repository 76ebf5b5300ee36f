// Shapes of known machines, so that plans for them can be computed and printed anywhere.
#pragma once

#include <span>
#include <string_view>

#include "farwarp/base/machine_shape.h"

namespace farwarp {

struct MachinePreset {
  std::string_view name;
  std::string_view title;
  MachineShape shape;
};

std::span<const MachinePreset> machine_presets();
/// nullptr if there is none of this name.
const MachinePreset* find_machine_preset(std::string_view name);

}  // namespace farwarp
