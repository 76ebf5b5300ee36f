#include "farwarp/runtime/device.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "farwarp/runtime/targets.h"
#include "farwarp/substrate/emu/registry.h"
#include "farwarp/vendor/code_object.h"
#include "farwarp/vendor/kernel_info.h"

namespace farwarp {
namespace {

Result<std::shared_ptr<Device>> open_new(TargetKind target, int ordinal) {
  switch (target) {
    case TargetKind::kCuda: return open_cuda_device(ordinal);
    case TargetKind::kHip: return open_hip_device(ordinal);
    case TargetKind::kEmuSm90:
    case TargetKind::kEmuGfx942: return open_emu_device(target, ordinal);
  }
  return invalid_argument(fmt::format("target is {}, which is no TargetKind", static_cast<int>(target)));
}

// The open devices: a second open must not load all code objects again. NVIDIA GPUs stay open until the process ends,
// because the driver keeps memory of kernels whose module is unloaded.
struct OpenDevices {
  std::mutex mutex;
  std::map<std::pair<TargetKind, int>, std::weak_ptr<Device>> devices;
  std::vector<std::shared_ptr<Device>> kept;
};

OpenDevices& open_devices() {
  static OpenDevices* instance = new OpenDevices;  // threads may still open devices while statics are destroyed
  return *instance;
}

}  // namespace

Status check_ordinal(TargetKind target, int ordinal, int count) {
  if (ordinal >= 0 && ordinal < count) return {};
  return invalid_argument(
      fmt::format("ordinal is {}, allowed for {} on this machine are 0 to {}", ordinal, name_of(target), count - 1));
}

Result<std::shared_ptr<Device>> Device::open(TargetKind target, int ordinal) {
  std::lock_guard lock(open_devices().mutex);
  std::weak_ptr<Device>& known = open_devices().devices[{target, ordinal}];
  if (std::shared_ptr<Device> device = known.lock()) return device;
  Result<std::shared_ptr<Device>> opened = open_new(target, ordinal);
  if (!opened.ok()) return opened;
  known = *opened;
  if (target == TargetKind::kCuda) open_devices().kept.push_back(*opened);
  return opened;
}

Result<TensorMap> Device::encode(const TensorMapDesc& desc) const {
  const auto wrong = [](const char* field, std::int64_t value, const std::string& allowed) {
    return invalid_argument(fmt::format("TensorMapDesc.{} is {}; allowed: {}", field, value, allowed));
  };
  constexpr std::int64_t kMost = std::int64_t{1} << 31;
  const auto address = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(desc.base));
  if (desc.base == nullptr || address % 16 != 0) return wrong("base", address, "a device address, a multiple of 16");
  if (desc.rows < 1 || desc.rows >= kMost) return wrong("rows", desc.rows, "1 to 2^31 - 1");
  if (desc.columns < 1 || desc.columns >= kMost) return wrong("columns", desc.columns, "1 to 2^31 - 1");
  if (desc.pitch < desc.columns || desc.pitch % 8 != 0 || desc.pitch >= std::int64_t{1} << 39)
    return wrong("pitch", desc.pitch, fmt::format("a multiple of 8, at least columns ({}), below 2^39", desc.columns));
  if (desc.box_rows < 1 || desc.box_rows > 256) return wrong("box_rows", desc.box_rows, "1 to 256");
  const int widest = desc.swizzled ? 64 : 256;
  if (desc.box_columns < 8 || desc.box_columns > widest || desc.box_columns % 8 != 0)
    return wrong("box_columns", desc.box_columns, fmt::format("a multiple of 8 up to {}", widest));
  const bool has_grid = desc.grid[0] != 0 || desc.grid[1] != 0;
  for (int i = 0; i < 2 && has_grid; ++i) {
    if (desc.grid[i] < 1 || desc.grid[i] >= kMost)
      return wrong(i == 0 ? "grid[0]" : "grid[1]", desc.grid[i], "1 to 2^31 - 1, or both 0");
    if (desc.grid_pitch[i] < 8 || desc.grid_pitch[i] % 8 != 0 || desc.grid_pitch[i] >= std::int64_t{1} << 39)
      return wrong(i == 0 ? "grid_pitch[0]" : "grid_pitch[1]", desc.grid_pitch[i],
                   "a multiple of 8 from 8, below 2^39");
  }
  return encode_checked(desc);
}

Result<TensorMap> Device::encode_checked(const TensorMapDesc&) const {
  return unavailable(fmt::format("{} has no tensor copies", name_of(target())));
}

Status Device::start_trace(Stream) { return unavailable(fmt::format("{} records no traces", name_)); }
Status Device::stop_trace(Stream) { return {}; }
Result<DeviceTrace> Device::take_trace() { return DeviceTrace{}; }

int Device::count(TargetKind target) {
  switch (target) {
    case TargetKind::kCuda: return count_cuda_devices();
    case TargetKind::kHip: return count_hip_devices();
    case TargetKind::kEmuSm90:
    case TargetKind::kEmuGfx942: return kEmulatedDevices;
  }
  return 0;
}

bool Device::has_kernels(TargetKind target) {
  return is_emulated(target) ? !emu::list_kernels(target).empty() : !code_objects(target).empty();
}

std::vector<std::string> Device::kernel_names(TargetKind target) {
  std::vector<std::string> names;
  if (is_emulated(target)) {
    for (const emu::KernelRecord* record : emu::list_kernels(target)) names.emplace_back(record->name);
  } else {
    for (const CodeObject* object : code_objects(target)) {
      Result<std::vector<KernelInfo>> kernels = kernels_of(*object);
      if (!kernels.ok()) continue;  // opening a device reports it
      for (const KernelInfo& kernel : *kernels) names.push_back(kernel.name);
    }
  }
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());  // one kernel file, several architectures
  return names;
}

Result<std::unique_ptr<Graph>> capture(Device& device, Stream stream, const std::function<Status()>& enqueue) {
  if (Status status = device.begin_capture(stream); !status.ok()) return status;
  const Status enqueued = enqueue();
  auto graph = device.end_capture(stream);
  if (!enqueued.ok()) return enqueued;
  return graph;
}

}  // namespace farwarp
