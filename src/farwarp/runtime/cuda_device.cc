// NVIDIA devices, through the driver API.
#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <string_view>

#include "farwarp/runtime/gpu_device.h"
#include "farwarp/runtime/targets.h"
#include "farwarp/vendor/code_object.h"
#include "farwarp/vendor/cuda_driver.h"

namespace farwarp {
namespace {

using cuda::Driver;

constexpr std::size_t round_up(std::size_t bytes, std::size_t unit) { return (bytes + unit - 1) / unit * unit; }

class CudaDevice final : public GpuDevice<Driver> {
 public:
  CudaDevice(const Driver& driver, int device, cuda::ContextHandle context, int ordinal, MachineShape shape,
             std::string name, std::string model)
      : GpuDevice(driver, context), device_(device) {
    ordinal_ = ordinal;
    shape_ = shape;
    name_ = std::move(name);
    model_ = std::move(model);
    choose_sharing();
  }

  ~CudaDevice() override {
    unload_modules();
    api_.primary_context_release(device_);
  }

  Status load_modules() {
    for (const CodeObject* object : code_objects(TargetKind::kCuda)) {
      if (Status status = load_module(*object); !status.ok()) return status;
    }
    return {};
  }

  Result<void*> allocate_shareable(std::size_t bytes, MemoryHandle* handle) override {
    if (bytes == 0) return invalid_argument("bytes is 0, at least 1 is needed");
    Result<void*> pointer = use_vmm_ ? allocate_vmm(bytes, handle) : allocate_ipc(bytes, handle);
    if (!pointer.ok()) return allocation_error(pointer.status(), bytes);
    handle->address = *pointer;
    return pointer;
  }

  void release_shareable(void* pointer, const MemoryHandle& handle) override {
    if (handle.kind != MemoryHandle::Kind::kPosixFd) return release(pointer);
    unmap(pointer, handle.bytes);
    close(handle.fd);
  }

  Result<void*> import(const MemoryHandle& handle, int owner_ordinal) override {
    if (handle.address != nullptr) return import_in_process(handle, owner_ordinal);
    if (handle.kind == MemoryHandle::Kind::kPosixFd) return import_vmm(handle);
    if (handle.kind == MemoryHandle::Kind::kIpc) return import_ipc(handle);
    return invalid_argument("handle has neither an address of this process nor a descriptor or IPC handle");
  }

  void release_import(void* pointer, const MemoryHandle& handle) override {
    if (handle.address != nullptr) return;  // the owner's mapping
    if (handle.kind == MemoryHandle::Kind::kPosixFd) return unmap(pointer, handle.bytes);
    (void)call(api_.ipc_close_handle, pointer);
  }

  Result<TensorMap> encode_checked(const TensorMapDesc& desc) const override {
    TensorMap map{};
    const auto size = [](std::int64_t value) { return static_cast<std::uint64_t>(value); };
    const std::uint64_t sizes[] = {size(desc.columns), size(desc.rows), size(desc.grid[0]), size(desc.grid[1])};
    const std::uint64_t pitches[] = {size(desc.pitch) * 2, size(desc.grid_pitch[0]) * 2,
                                     size(desc.grid_pitch[1]) * 2};  // of all dimensions but the first
    const std::uint32_t box[] = {static_cast<std::uint32_t>(desc.box_columns),
                                 static_cast<std::uint32_t>(desc.box_rows), 1, 1};
    const std::uint32_t steps[] = {1, 1, 1, 1};
    const unsigned dimensions = desc.grid[0] > 0 ? 4 : 2;
    // L2 fetches 256 bytes for each 128 bytes of a box's row: the next K step reads the other 128.
    const Status status =
        call(api_.tensor_map_encode, &map, cuda::kTensorMapUint16, dimensions, desc.base, sizes, pitches, box, steps,
             cuda::kTensorMapNoInterleave, desc.swizzled ? cuda::kTensorMapSwizzle128 : cuda::kTensorMapNoSwizzle,
             cuda::kTensorMapPromote256, cuda::kTensorMapZeroFill);
    if (!status.ok()) return status;
    return map;
  }

  std::string sharing_path() const override { return sharing_path_; }

 private:
  // Programmatic launch: a kernel's blocks start when its predecessor's blocks have ended, and every kernel itself
  // waits for the predecessor's memory operations (FARWARP_KERNEL). Calls follow each other more than 1 us closer
  // (docs/decisions.md, "Launched early"). None of our kernels executes griddepcontrol.launch_dependents, with which
  // the next would begin earlier (contract.md, section 4).
  Status launch_checked(cuda::FunctionHandle function, const LaunchConfig& config, void** parameters,
                        Stream stream) override {
    cuda::LaunchAttribute attributes[2]{};
    attributes[0].id = cuda::kLaunchProgrammaticSerialization;
    attributes[0].value.allowed = 1;
    attributes[1].id = cuda::kLaunchClusterDimension;
    attributes[1].value.cluster[0] = static_cast<unsigned>(config.cluster);
    attributes[1].value.cluster[1] = attributes[1].value.cluster[2] = 1;
    const cuda::LaunchDescription description{{static_cast<unsigned>(config.blocks), 1, 1},
                                              {static_cast<unsigned>(config.threads), 1, 1},
                                              static_cast<unsigned>(config.shared_bytes),
                                              native(stream),
                                              attributes,
                                              config.cluster > 1 ? 2u : 1u};
    void** const no_extra = nullptr;
    return call(api_.launch_kernel_with, &description, function, parameters, no_extra);
  }

  // The kernel is loaded here. With lazy loading its first launch would load it, which waits for running kernels; these
  // may wait for the new kernel. The limit on dynamic shared memory is raised from its default of 48 KB to the maximum.
  Status describe(const KernelInfo& info, Loaded& kernel) override {
    std::size_t offset = 0;
    int static_shared = 0;
    int max_shared = 0;
    if (Status status = call(api_.function_load, kernel.function); !status.ok()) return status;
    Status status = call(api_.function_parameter, kernel.function, std::size_t{0}, &offset, &kernel.args_bytes);
    if (!status.ok()) {
      return {status.code(), fmt::format("kernel {} has no argument block: {}", info.name, status.message())};
    }
    status =
        call(api_.function_attribute, &kernel.limits.max_threads, cuda::kFunctionMaxThreadsPerBlock, kernel.function);
    if (!status.ok()) return status;
    status = call(api_.function_attribute, &static_shared, cuda::kFunctionSharedBytes, kernel.function);
    if (!status.ok()) return status;
    status = call(api_.device_attribute, &max_shared, cuda::kMaxSharedMemoryPerBlockOptin, device_);
    if (!status.ok()) return status;
    const int max_dynamic = std::min<int>(max_shared, static_cast<int>(shape_.traits.shared_bytes)) - static_shared;
    kernel.limits.max_shared_bytes = static_cast<std::size_t>(max_dynamic);
    return call(api_.function_set_attribute, kernel.function, cuda::kFunctionMaxDynamicSharedBytes, max_dynamic);
  }

  // -- sharing

  cuda::AllocationProperties vmm_properties() const {
    cuda::AllocationProperties properties{};
    properties.type = cuda::kAllocationTypePinned;
    properties.handle_types = cuda::kHandleTypePosixFd;
    properties.location = {cuda::kLocationTypeDevice, device_};
    return properties;
  }

  // VMM is preferred: each mapping is made and given access explicitly, so a leak or a stale handle is an error. CUDA
  // IPC maps whole allocations, which may hold more than the buffer. Sharing one granule proves that VMM works.
  void choose_sharing() {
    std::string why_not = vmm_obstacle();
    use_vmm_ = why_not.empty();
    sharing_path_ = use_vmm_ ? "VMM allocations as file descriptors over SCM_RIGHTS"
                             : fmt::format("CUDA IPC handles, because {}", why_not);
  }

  std::string vmm_obstacle() {
    if (const char* wish = std::getenv("FARWARP_CUDA_SHARING"); wish != nullptr && std::string_view(wish) == "ipc") {
      return "FARWARP_CUDA_SHARING is ipc";
    }
    for (const int attribute : {cuda::kVirtualMemoryManagementSupported, cuda::kHandleTypePosixFdSupported}) {
      int supported = 0;
      if (Status status = call(api_.device_attribute, &supported, attribute, device_); !status.ok()) {
        return status.message();
      }
      if (!supported) return "the device or its driver does not share VMM allocations as file descriptors";
    }
    const cuda::AllocationProperties properties = vmm_properties();
    Status status = call(api_.allocation_granularity, &granularity_, &properties, cuda::kGranularityRecommended);
    if (!status.ok()) return status.message();
    MemoryHandle handle;
    Result<void*> probe = allocate_vmm(granularity_, &handle);
    if (!probe.ok()) return probe.status().message();
    release_shareable(*probe, handle);
    return {};
  }

  Result<void*> allocate_vmm(std::size_t bytes, MemoryHandle* handle) {
    const std::size_t rounded = round_up(bytes, granularity_);
    const cuda::AllocationProperties properties = vmm_properties();
    cuda::AllocationHandle allocation{};
    Status created = call(api_.allocation_create, &allocation, rounded, &properties, 0ull);
    if (!created.ok()) return created;
    int fd = -1;
    const Status exported =
        call(api_.allocation_export, static_cast<void*>(&fd), allocation, cuda::kHandleTypePosixFd, 0ull);
    Result<void*> pointer = exported.ok() ? map(allocation, rounded) : Result<void*>(exported);
    (void)call(api_.allocation_release, allocation);  // the mapping and the descriptor keep it alive
    if (!pointer.ok()) {
      if (fd >= 0) close(fd);
      return pointer;
    }
    handle->kind = MemoryHandle::Kind::kPosixFd;
    handle->bytes = rounded;
    handle->fd = fd;
    return pointer;
  }

  Result<void*> import_vmm(const MemoryHandle& handle) {
    cuda::AllocationHandle allocation{};
    void* const descriptor = reinterpret_cast<void*>(static_cast<std::intptr_t>(handle.fd));
    Status imported = call(api_.allocation_import, &allocation, descriptor, cuda::kHandleTypePosixFd);
    if (!imported.ok()) return imported;
    Result<void*> pointer = map(allocation, handle.bytes);
    (void)call(api_.allocation_release, allocation);
    return pointer;
  }

  Result<void*> map(cuda::AllocationHandle allocation, std::size_t bytes) {
    void* address = nullptr;
    void* const anywhere = nullptr;
    Status reserved = call(api_.address_reserve, &address, bytes, std::size_t{0}, anywhere, 0ull);
    if (!reserved.ok()) return reserved;
    if (Status mapped = call(api_.memory_map, address, bytes, std::size_t{0}, allocation, 0ull); !mapped.ok()) {
      (void)call(api_.address_free, address, bytes);
      return mapped;
    }
    if (Status allowed = allow_access(address, bytes); !allowed.ok()) {
      unmap(address, bytes);
      return allowed;
    }
    return address;
  }

  void unmap(void* address, std::size_t bytes) {
    (void)call(api_.memory_unmap, address, bytes);
    (void)call(api_.address_free, address, bytes);
  }

  Status allow_access(void* address, std::size_t bytes) {
    const cuda::AccessDescription description{{cuda::kLocationTypeDevice, device_}, cuda::kAccessReadWrite};
    return call(api_.memory_set_access, address, bytes, &description, std::size_t{1});
  }

  // An IPC handle names a whole allocation of the driver, which packs small buffers into allocations of 2 MiB. A buffer
  // of a multiple of 2 MiB shares them with no other, so the handle opens at the buffer's first byte.
  Result<void*> allocate_ipc(std::size_t bytes, MemoryHandle* handle) {
    constexpr std::size_t kPiece = std::size_t{2} << 20;
    const std::size_t rounded = round_up(bytes, kPiece);
    Result<void*> pointer = allocate(rounded);
    if (!pointer.ok()) return pointer;
    cuda::IpcHandle ipc{};
    handle->kind = MemoryHandle::Kind::kAddress;
    handle->bytes = rounded;
    if (const Status shared = call(api_.ipc_get_handle, &ipc, *pointer); shared.ok()) {
      handle->kind = MemoryHandle::Kind::kIpc;
      std::memcpy(handle->ipc, ipc.bytes, sizeof(handle->ipc));
    } else {
      sharing_path_ = fmt::format("peer access within one process, because {}", shared.message());
    }
    return pointer;
  }

  Result<void*> import_ipc(const MemoryHandle& handle) {
    cuda::IpcHandle ipc{};
    std::memcpy(ipc.bytes, handle.ipc, sizeof(ipc.bytes));
    void* pointer = nullptr;
    Status opened = call(api_.ipc_open_handle, &pointer, ipc, cuda::kIpcLazyEnablePeerAccess);
    if (!opened.ok()) return opened;
    return pointer;
  }

  Result<void*> import_in_process(const MemoryHandle& handle, int owner_ordinal) {
    if (owner_ordinal == ordinal_) return handle.address;
    const bool vmm = handle.kind == MemoryHandle::Kind::kPosixFd;
    const Status allowed = vmm ? allow_access(handle.address, handle.bytes) : enable_peer_access(owner_ordinal);
    if (!allowed.ok()) {
      return Status(allowed.code(), fmt::format("{} cannot reach the memory of cuda device {}: {}", name_,
                                                owner_ordinal, allowed.message()));
    }
    return handle.address;
  }

  Status enable_peer_access(int owner_ordinal) {
    int owner = 0;
    cuda::ContextHandle peer = nullptr;
    if (Status status = call(api_.device_get, &owner, owner_ordinal); !status.ok()) return status;
    if (Status status = call(api_.primary_context_retain, &peer, owner); !status.ok()) return status;
    const cuda::DeviceScope scope(api_, token_);
    const cuda::Error error = api_.enable_peer_access(peer, 0u);
    api_.primary_context_release(owner);  // the owner's Device retains it, too
    if (error == cuda::Error::kPeerAccessAlreadyEnabled) return {};
    return api_.status(api_.enable_peer_access.symbol, error);
  }

  const int device_;
  bool use_vmm_ = false;
  std::size_t granularity_ = 0;
  std::string sharing_path_;
};

Result<int> attribute_of(const Driver& driver, int device, int attribute) {
  int value = 0;
  if (Status status = driver.call(driver.device_attribute, &value, attribute, device); !status.ok()) return status;
  return value;
}

// Our cubins run on sm_90 only: code for sm_90a is not compatible with any other architecture.
Status check_architecture(const Driver& driver, int device, const std::string& name) {
  const Result<int> major = attribute_of(driver, device, cuda::kComputeCapabilityMajor);
  if (!major.ok()) return major.status();
  const Result<int> minor = attribute_of(driver, device, cuda::kComputeCapabilityMinor);
  if (!minor.ok()) return minor.status();
  if (*major == 9 && *minor == 0) return {};
  return unavailable(fmt::format("{} is sm_{}{}, and the CUDA kernels are built for sm_90a", name, *major, *minor));
}

}  // namespace

int count_cuda_devices() {
  const Result<const Driver*> driver = Driver::open();
  int count = 0;
  if (!driver.ok() || !(*driver)->call((*driver)->device_count, &count).ok()) return 0;
  return count;
}

Result<std::shared_ptr<Device>> open_cuda_device(int ordinal) {
  const Result<const Driver*> opened = Driver::open();
  if (!opened.ok()) return opened.status();
  const Driver& driver = **opened;
  const int count = count_cuda_devices();
  if (count == 0) return unavailable("the CUDA driver finds no device");
  if (Status status = check_ordinal(TargetKind::kCuda, ordinal, count); !status.ok()) return status;

  int device = 0;
  char model[256] = {};
  if (Status status = driver.call(driver.device_get, &device, ordinal); !status.ok()) return status;
  if (Status status = driver.call(driver.device_name, model, static_cast<int>(sizeof(model)), device); !status.ok()) {
    return status;
  }
  const std::string name = fmt::format("cuda device {} ({})", ordinal, model);
  if (Status status = check_architecture(driver, device, name); !status.ok()) return status;
  const Result<int> multiprocessors = attribute_of(driver, device, cuda::kMultiprocessorCount);
  if (!multiprocessors.ok()) return multiprocessors.status();

  MachineShape shape;
  shape.target = TargetKind::kCuda;
  shape.traits = traits_of(TargetKind::kCuda);
  shape.multiprocessors = *multiprocessors;
  cuda::ContextHandle context = nullptr;
  if (Status status = driver.call(driver.primary_context_retain, &context, device); !status.ok()) return status;
  auto cuda_device = std::make_shared<CudaDevice>(driver, device, context, ordinal, shape, name, model);
  if (Status status = cuda_device->load_modules(); !status.ok()) return status;
  return std::shared_ptr<Device>(cuda_device);
}

}  // namespace farwarp
