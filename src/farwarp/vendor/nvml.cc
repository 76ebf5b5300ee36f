#include "farwarp/vendor/nvml.h"

#include <fmt/format.h>

#include "farwarp/vendor/shared_library.h"

namespace farwarp::nvml {
namespace {

// nvmlUtilization_t and nvmlMemory_t
struct Utilization {
  unsigned gpu;
  unsigned memory;
};
struct Memory {
  unsigned long long total;
  unsigned long long free;
  unsigned long long used;
};

using DeviceHandle = struct nvmlDevice_st*;

// A driver uses less than this on an idle GPU; a process that computes uses more.
constexpr unsigned long long kIdleBytes = 1ull << 30;

struct Library {
  LibraryFunction<int()> initialize{"nvmlInit_v2"};
  LibraryFunction<int(unsigned*)> count{"nvmlDeviceGetCount_v2"};
  LibraryFunction<int(unsigned, DeviceHandle*)> device{"nvmlDeviceGetHandleByIndex_v2"};
  LibraryFunction<int(DeviceHandle, Utilization*)> utilization{"nvmlDeviceGetUtilizationRates"};
  LibraryFunction<int(DeviceHandle, Memory*)> memory{"nvmlDeviceGetMemoryInfo"};

  Status resolve(const SharedLibrary& library) {
    Status status = initialize.resolve(library);
    if (status.ok()) status = count.resolve(library);
    if (status.ok()) status = device.resolve(library);
    if (status.ok()) status = utilization.resolve(library);
    if (status.ok()) status = memory.resolve(library);
    return status;
  }
};

}  // namespace

std::string busy_gpus() {
  const auto opened = SharedLibrary::open("libnvidia-ml.so.1");
  if (!opened.ok()) return opened.status().message();
  Library library;
  const Status status = library.resolve(*opened);
  if (!status.ok()) return status.message();
  unsigned devices = 0;
  if (library.initialize() != 0 || library.count(&devices) != 0) return "libnvidia-ml.so.1 does not answer";
  for (unsigned i = 0; i < devices; ++i) {
    DeviceHandle handle = nullptr;
    Utilization utilization{};
    Memory memory{};
    if (library.device(i, &handle) != 0 || library.utilization(handle, &utilization) != 0 ||
        library.memory(handle, &memory) != 0) {
      return fmt::format("libnvidia-ml.so.1 says nothing about GPU {}", i);
    }
    if (utilization.gpu != 0 || memory.used > kIdleBytes) {
      return fmt::format("GPU {} is in use ({}% busy, {} MiB taken)", i, utilization.gpu, memory.used >> 20);
    }
  }
  return {};
}

}  // namespace farwarp::nvml
