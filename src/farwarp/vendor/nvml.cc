#include "farwarp/vendor/nvml.h"

#include <fmt/format.h>

#include <chrono>
#include <thread>

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
  LibraryFunction<int(DeviceHandle, int, unsigned*)> highest_clock{"nvmlDeviceGetMaxClockInfo"};
  LibraryFunction<int(DeviceHandle, int, unsigned*)> clock{"nvmlDeviceGetClockInfo"};
  LibraryFunction<int(const char*, DeviceHandle*)> device_on_bus{"nvmlDeviceGetHandleByPciBusId_v2"};
  LibraryFunction<int(char*, unsigned)> driver{"nvmlSystemGetDriverVersion"};

  Status resolve(const SharedLibrary& library) {
    Status status = initialize.resolve(library);
    if (status.ok()) status = count.resolve(library);
    if (status.ok()) status = device.resolve(library);
    if (status.ok()) status = utilization.resolve(library);
    if (status.ok()) status = memory.resolve(library);
    if (status.ok()) status = highest_clock.resolve(library);
    if (status.ok()) status = clock.resolve(library);
    if (status.ok()) status = device_on_bus.resolve(library);
    if (status.ok()) status = driver.resolve(library);
    return status;
  }
};

// nvmlClockType_t
constexpr int kSmClock = 1, kMemoryClock = 2;

Result<Library> initialize() {
  const auto opened = SharedLibrary::open("libnvidia-ml.so.1");
  if (!opened.ok()) return opened.status();
  Library library;
  if (Status status = library.resolve(*opened); !status.ok()) return status;
  if (library.initialize() != 0) return unavailable("libnvidia-ml.so.1 does not answer");
  return library;
}

const Result<Library>& initialized() {
  static const Result<Library> library = initialize();
  return library;
}

}  // namespace

std::string driver_version() {
  char version[80] = {};  // NVML_SYSTEM_DRIVER_VERSION_BUFFER_SIZE
  const auto& library = initialized();
  return library.ok() && library->driver(version, sizeof(version)) == 0 ? version : "";
}

std::string highest_clocks() {
  const auto& library = initialized();
  DeviceHandle handle = nullptr;
  unsigned sm = 0, memory = 0;
  if (!library.ok() || library->device(0, &handle) != 0 || library->highest_clock(handle, kSmClock, &sm) != 0 ||
      library->highest_clock(handle, kMemoryClock, &memory) != 0)
    return {};
  return fmt::format("SM {} MHz, memory {} MHz", sm, memory);
}

Result<SmClock> SmClock::open(const std::string& bus_id) {
  const auto& library = initialized();
  if (!library.ok()) return library.status();
  DeviceHandle device = nullptr;
  if (library->device_on_bus(bus_id.c_str(), &device) != 0)
    return unavailable(fmt::format("libnvidia-ml.so.1 knows no GPU {}", bus_id));
  return SmClock(device);
}

double SmClock::mhz() const {
  unsigned mhz = 0;
  return initialized()->clock(static_cast<DeviceHandle>(device_), kSmClock, &mhz) == 0 ? mhz : 0;
}

namespace {

std::string busy_gpus_now() {
  if (!initialized().ok()) return initialized().status().message();
  const Library& library = *initialized();
  unsigned devices = 0;
  if (library.count(&devices) != 0) return "libnvidia-ml.so.1 does not answer";
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

}  // namespace

std::string busy_gpus() {
  constexpr std::chrono::milliseconds kPatience{1500};  // the utilization is that of the last second
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  std::string busy = busy_gpus_now();
  while (!busy.empty() && initialized().ok() && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    busy = busy_gpus_now();
  }
  return busy;
}

}  // namespace farwarp::nvml
