// A piece of device memory with an owner.
#pragma once

#include <algorithm>
#include <cstddef>
#include <utility>

#include "farwarp/base/status.h"
#include "farwarp/runtime/device.h"

namespace farwarp {

/// Move-only; must be destroyed before its Device.
class DeviceMemory {
 public:
  DeviceMemory() = default;
  static Result<DeviceMemory> create(Device& device, std::size_t bytes) {
    const auto memory = device.allocate(std::max<std::size_t>(bytes, 16));
    if (!memory.ok()) return memory.status();
    return DeviceMemory(device, *memory, bytes);
  }
  DeviceMemory(DeviceMemory&& other) noexcept { *this = std::move(other); }
  DeviceMemory& operator=(DeviceMemory&& other) noexcept {
    std::swap(device_, other.device_);
    std::swap(pointer_, other.pointer_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~DeviceMemory() {
    if (pointer_ != nullptr) device_->release(pointer_);
  }

  void* get() const { return pointer_; }
  template <class T>
  T* as() const {
    return static_cast<T*>(pointer_);
  }
  std::size_t bytes() const { return bytes_; }

 protected:
  Device& device() const { return *device_; }

 private:
  DeviceMemory(Device& device, void* pointer, std::size_t bytes) : device_(&device), pointer_(pointer), bytes_(bytes) {}
  Device* device_ = nullptr;
  void* pointer_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace farwarp
