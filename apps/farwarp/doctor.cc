// farwarp doctor: what this machine can do, what it lacks, which libraries farwarp would open.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <map>

#include "commands.h"
#include "farwarp/machine/ceilings.h"
#include "farwarp/runtime/device.h"
#include "farwarp/vendor/nccl.h"
#include "farwarp/vendor/shared_library.h"
#include "farwarp/world/view.h"
#include "measure.h"
#include "print.h"
#include "target.h"
#include "version.h"

namespace farwarp::cli {
namespace {

/// Prints the ceilings that `doctor --measure` has kept, for each number of ranks; if there are none, those that are
/// known of such devices.
void print_ceilings(const std::string& model, int devices) {
  bool measured = false;
  for (int ranks = 1; ranks <= devices; ++ranks) {
    const Ceilings kept = ceilings_of(model, ranks);
    if (!kept.measured()) continue;
    print_text("\n{}", ceilings_table(kept));
    measured = true;
  }
  if (measured) return;
  const Ceilings preset = ceilings_of(model, devices);
  if (!preset.source.empty()) print_text("\n{}", ceilings_table(preset));
  print_text("\n{}: not measured yet; `farwarp doctor --measure` does\n", model);
}

/// Prints a target, and adds its real devices to `models`, with their number.
void print_target(TargetKind target, std::map<std::string, int>& models) {
  const std::string missing = missing_for(target, 1);
  const int devices = Device::count(target);
  if (missing.empty()) {
    print_text("{:<11} available, {} device{}, at most {} ranks\n", name_of(target), devices, devices == 1 ? "" : "s",
               kMaxRanks);
  } else {
    print_text("{:<11} missing: {}\n", name_of(target), missing);
  }
  print_text("  kernels   {} in this build\n", Device::kernel_names(target).size());
  std::string sharing;
  for (int ordinal = 0; ordinal < devices; ++ordinal) {
    const auto device = Device::open(target, ordinal);
    if (!device.ok()) {
      print_text("  device {}  {}\n", ordinal, device.status().to_string());
      continue;
    }
    print_text("  device {}  {}\n", ordinal, (*device)->name());
    sharing = (*device)->sharing_path();
    if (!is_emulated(target)) ++models[(*device)->model()];
  }
  if (!sharing.empty()) print_text("  sharing   {}\n", sharing);
}

void print_library(const std::string& name, const char* purpose) {
  const auto library = SharedLibrary::open(name);
  print_text("  {:<20} {}: {}\n", name, purpose, library.ok() ? "found" : library.status().message());
}

}  // namespace

int doctor_command() {
  print_text("{}\n\n", version_line());
  std::map<std::string, int> models;
  for (const TargetKind target : kTargets) print_target(target, models);
  for (const auto& [model, devices] : models) print_ceilings(model, std::min(devices, kMaxRanks));
  print_text("\nlibraries opened at run time\n");
  print_library("libcuda.so.1", "cuda");
  print_library("libnvidia-ml.so.1", "are GPUs idle");
  print_library(nccl::library_name(), "nccl, which benches compare with");
  const char* hip_library = std::getenv("FARWARP_HIP_LIBRARY");
  print_library(hip_library != nullptr ? hip_library : "libamdhip64.so", "hip");
  return 0;
}

}  // namespace farwarp::cli
