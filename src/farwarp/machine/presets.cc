#include "farwarp/machine/presets.h"

namespace farwarp {
namespace {

constexpr MachineShape shape_of(TargetKind target, int multiprocessors, int xcds) {
  return {target, traits_of(target), multiprocessors, xcds};
}

// Sources: NVIDIA, "H200 Tensor Core GPU" data sheet, and cuDeviceGetAttribute on one: 132 SMs. AMD, "CDNA 3
// Architecture" white paper: an MI300X has 8 XCDs with 38 of 40 CUs enabled, 304 in all; the MI325X data sheet states
// the same 304. Emulated devices are small, so that eight of them run at once on a laptop; FARWARP_EMU_MULTIPROCESSORS
// changes their size.
constexpr MachinePreset kPresets[] = {
    {"h200", "NVIDIA H200 SXM", shape_of(TargetKind::kCuda, 132, 1)},
    {"mi300x", "AMD Instinct MI300X", shape_of(TargetKind::kHip, 304, 8)},
    {"mi325x", "AMD Instinct MI325X", shape_of(TargetKind::kHip, 304, 8)},
    {"emu_sm90", "emulated sm90", shape_of(TargetKind::kEmuSm90, 8, 1)},
    {"emu_gfx942", "emulated gfx942", shape_of(TargetKind::kEmuGfx942, 8, 8)},
};

}  // namespace

std::span<const MachinePreset> machine_presets() { return kPresets; }

const MachinePreset* find_machine_preset(std::string_view name) {
  for (const MachinePreset& preset : kPresets) {
    if (preset.name == name) return &preset;
  }
  return nullptr;
}

}  // namespace farwarp
