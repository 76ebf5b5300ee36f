// AMD devices, through the HIP API. No AMD device has run this yet: it is tested against vendor/hip_stub.
#include <fmt/format.h>

#include <cstring>
#include <map>
#include <string_view>

#include "farwarp/runtime/gpu_device.h"
#include "farwarp/runtime/targets.h"
#include "farwarp/vendor/code_object.h"
#include "farwarp/vendor/hip_runtime.h"
#include "farwarp/vendor/kernel_info.h"

namespace farwarp {
namespace {

using hip::Runtime;

class HipDevice final : public GpuDevice<Runtime> {
 public:
  HipDevice(const Runtime& runtime, int ordinal, MachineShape shape, std::string name, std::string model)
      : GpuDevice(runtime, ordinal) {
    ordinal_ = ordinal;
    shape_ = shape;
    name_ = std::move(name);
    model_ = std::move(model);
  }

  ~HipDevice() override { unload_modules(); }

  /// Loads the code objects of `arch`, "gfx942".
  Status load_modules(std::string_view arch) {
    std::string built_for;
    for (const CodeObject* object : code_objects(TargetKind::kHip)) {
      if (object->arch != arch) {
        if (built_for.find(object->arch) == std::string::npos) built_for += fmt::format(" {}", object->arch);
        continue;
      }
      if (Status status = load_module(*object); !status.ok()) return status;
    }
    if (!has_kernels() && !built_for.empty()) {
      return unavailable(fmt::format("{} is {}, and the HIP kernels are built for{}", name_, arch, built_for));
    }
    return {};
  }

  // Uncached: a peer's writes go to memory and bypass this device's L2 caches (one per XCD), so a line cached there
  // would hide them. Fine-grained if the library has no uncached memory.
  Result<void*> allocate_shareable(std::size_t bytes, MemoryHandle* handle) override {
    if (bytes == 0) return invalid_argument("bytes is 0, at least 1 is needed");
    void* pointer = nullptr;
    Status allocated = call(api_.memory_allocate_with_flags, &pointer, bytes, hip::kMallocUncached);
    if (!allocated.ok()) allocated = call(api_.memory_allocate_with_flags, &pointer, bytes, hip::kMallocFineGrained);
    if (!allocated.ok()) return allocation_error(allocated, bytes);
    hip::IpcHandle ipc{};
    if (Status shared = call(api_.ipc_get_handle, &ipc, pointer); !shared.ok()) {
      release(pointer);
      return shared;
    }
    *handle = {.kind = MemoryHandle::Kind::kIpc, .bytes = bytes, .address = pointer};
    std::memcpy(handle->ipc, ipc.bytes, sizeof(handle->ipc));
    return pointer;
  }

  void release_shareable(void* pointer, const MemoryHandle&) override { release(pointer); }

  Result<void*> import(const MemoryHandle& handle, int owner_ordinal) override {
    if (handle.address != nullptr) return import_in_process(handle, owner_ordinal);
    if (handle.kind != MemoryHandle::Kind::kIpc) {
      return invalid_argument("handle has neither an address nor an IPC handle");
    }
    hip::IpcHandle ipc{};
    std::memcpy(ipc.bytes, handle.ipc, sizeof(ipc.bytes));
    void* pointer = nullptr;
    Status opened = call(api_.ipc_open_handle, &pointer, ipc, hip::kIpcLazyEnablePeerAccess);
    if (!opened.ok()) return opened;
    return pointer;
  }

  void release_import(void* pointer, const MemoryHandle& handle) override {
    if (handle.address == nullptr) (void)call(api_.ipc_close_handle, pointer);
  }

  std::string sharing_path() const override {
    return "HIP IPC handles of uncached memory; peer access within one process";
  }

 private:
  Status launch_checked(hip::FunctionHandle function, const LaunchConfig& config, void** parameters,
                        Stream stream) override {
    void** const no_extra = nullptr;
    return call(api_.launch_kernel, function, static_cast<unsigned>(config.blocks), 1u, 1u,
                static_cast<unsigned>(config.threads), 1u, 1u, static_cast<unsigned>(config.shared_bytes),
                native(stream), parameters, no_extra);
  }

  Status describe(const KernelInfo& info, Loaded& kernel) override {
    kernel.args_bytes = info.args_bytes;
    kernel.limits.max_threads = info.max_threads;
    kernel.limits.max_shared_bytes = static_cast<std::size_t>(shape_.traits.shared_bytes) - info.shared_bytes;
    return {};
  }

  Result<void*> import_in_process(const MemoryHandle& handle, int owner_ordinal) {
    if (owner_ordinal == ordinal_) return handle.address;
    const hip::DeviceScope scope(api_, token_);
    if (Status status = scope.status(); !status.ok()) return status;
    const hip::Error error = api_.enable_peer_access(owner_ordinal, 0u);
    if (error == hip::Error::kPeerAccessAlreadyEnabled) {
      api_.forget_error();
      return handle.address;
    }
    if (Status status = api_.status(api_.enable_peer_access.symbol, error); !status.ok()) return status;
    return handle.address;
  }
};

// Older libraries do not report XCDs. There, by CUs: each XCD has 38 enabled on MI300X and MI300A, 32 on MI350.
int count_xcds(const Runtime& runtime, int ordinal, int multiprocessors) {
  int xccs = 0;
  if (runtime.call(runtime.device_attribute, &xccs, hip::kNumberOfXccs, ordinal).ok() && xccs > 0) return xccs;
  for (const int per_die : {38, 32}) {
    if (multiprocessors % per_die == 0) return multiprocessors / per_die;
  }
  return 1;
}

}  // namespace

int count_hip_devices() {
  const Result<const Runtime*> runtime = Runtime::open();
  int count = 0;
  if (!runtime.ok() || !(*runtime)->call((*runtime)->device_count, &count).ok()) return 0;
  return count;
}

Result<std::shared_ptr<Device>> open_hip_device(int ordinal) {
  const Result<const Runtime*> opened = Runtime::open();
  if (!opened.ok()) return opened.status();
  const Runtime& runtime = **opened;
  const int count = count_hip_devices();
  if (count == 0) return unavailable("the HIP library finds no device");
  if (Status status = check_ordinal(TargetKind::kHip, ordinal, count); !status.ok()) return status;

  hip::DeviceProperties properties{};
  if (Status status = runtime.call(runtime.device_properties, &properties, ordinal); !status.ok()) return status;
  const std::string_view full_arch(properties.gcn_arch_name,
                                   strnlen(properties.gcn_arch_name, sizeof(properties.gcn_arch_name)));
  const std::string_view arch = full_arch.substr(0, full_arch.find(':'));  // without ":sramecc+:xnack-"
  const std::string name = fmt::format("hip device {} ({})", ordinal, properties.name);
  int multiprocessors = 0;
  Status status = runtime.call(runtime.device_attribute, &multiprocessors, hip::kMultiprocessorCount, ordinal);
  if (!status.ok()) return status;

  MachineShape shape;
  shape.target = TargetKind::kHip;
  shape.traits = traits_of(TargetKind::kHip);
  if (arch == "gfx950") shape.traits.fp8 = Fp8Format::kOcp;
  shape.multiprocessors = multiprocessors;
  shape.xcds = count_xcds(runtime, ordinal, multiprocessors);
  auto device = std::make_shared<HipDevice>(runtime, ordinal, shape, name, properties.name);
  if (Status loaded = device->load_modules(arch); !loaded.ok()) return loaded;
  return std::shared_ptr<Device>(device);
}

}  // namespace farwarp
