// farwarp doctor: what this machine can do, what is missing, which libraries farwarp would open.
#include <fmt/format.h>

#include <cstdlib>

#include "commands.h"
#include "farwarp/runtime/device.h"
#include "farwarp/vendor/shared_library.h"
#include "farwarp/world/view.h"
#include "target.h"
#include "version.h"

namespace farwarp::cli {
namespace {

void print_target(TargetKind target) {
  const std::string missing = missing_for(target, 1);
  const int devices = Device::count(target);
  if (missing.empty()) {
    fmt::print("{:<11} available, {} device{}, at most {} ranks\n", name_of(target), devices, devices == 1 ? "" : "s",
               kMaxRanks);
  } else {
    fmt::print("{:<11} missing: {}\n", name_of(target), missing);
  }
  fmt::print("  kernels   {} in this build\n", Device::kernel_names(target).size());
  std::string sharing;
  for (int ordinal = 0; ordinal < devices; ++ordinal) {
    const auto device = Device::open(target, ordinal);
    if (!device.ok()) {
      fmt::print("  device {}  {}\n", ordinal, device.status().to_string());
      continue;
    }
    fmt::print("  device {}  {}\n", ordinal, (*device)->name());
    sharing = (*device)->sharing_path();
  }
  if (!sharing.empty()) fmt::print("  sharing   {}\n", sharing);
}

void print_library(const std::string& name, const char* purpose) {
  const auto library = SharedLibrary::open(name);
  fmt::print("  {:<20} {}: {}\n", name, purpose, library.ok() ? "found" : library.status().message());
}

}  // namespace

int doctor_command() {
  fmt::print("{}\n\n", version_line());
  for (const TargetKind target : kTargets) print_target(target);
  fmt::print("\nlibraries opened at run time\n");
  print_library("libcuda.so.1", "cuda");
  print_library("libnvidia-ml.so.1", "are GPUs idle");
  const char* hip_library = std::getenv("FARWARP_HIP_LIBRARY");
  print_library(hip_library != nullptr ? hip_library : "libamdhip64.so", "hip");
  return 0;
}

}  // namespace farwarp::cli
