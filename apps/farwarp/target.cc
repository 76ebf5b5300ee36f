#include "target.h"

#include <fmt/format.h>

#include "farwarp/runtime/device.h"
#include "farwarp/vendor/nvml.h"

namespace farwarp::cli {

std::string missing_for(TargetKind target, int ranks) {
  if (!Device::has_kernels(target)) return "no kernels in this build";
  const int devices = Device::count(target);
  if (devices == 0) {
    const auto opened = Device::open(target, 0);
    return opened.ok() ? "no devices" : opened.status().message();
  }
  if (devices < ranks) return fmt::format("{} device{} for {} ranks", devices, devices == 1 ? "" : "s", ranks);
  return {};
}

Result<ChosenTarget> choose_real_target(int ranks) {
  std::string why_not_cuda = missing_for(TargetKind::kCuda, ranks);
  if (why_not_cuda.empty()) why_not_cuda = nvml::busy_gpus();
  if (why_not_cuda.empty())
    return ChosenTarget{TargetKind::kCuda, fmt::format("target auto: cuda, {} idle GPUs", ranks)};
  const std::string why_not_hip = missing_for(TargetKind::kHip, ranks);
  if (why_not_hip.empty()) return ChosenTarget{TargetKind::kHip, fmt::format("target auto: hip, {} GPUs", ranks)};
  return unavailable(fmt::format("cuda: {}; hip: {}", why_not_cuda, why_not_hip));
}

Result<ChosenTarget> choose_target(std::string_view name, int ranks) {
  if (name == "auto") {
    const auto real = choose_real_target(ranks);
    if (real.ok()) return real;
    return ChosenTarget{TargetKind::kEmuSm90, fmt::format("target auto: emu_sm90 ({})", real.status().message())};
  }
  for (const TargetKind target : kTargets) {
    if (name_of(target) != name) continue;
    const std::string missing = missing_for(target, ranks);
    if (!missing.empty()) return unavailable(fmt::format("target {}: {}", name, missing));
    return ChosenTarget{target, {}};
  }
  return invalid_argument(fmt::format("--target is '{}': allowed is auto|cuda|hip|emu_sm90|emu_gfx942", name));
}

}  // namespace farwarp::cli
