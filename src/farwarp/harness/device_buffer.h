// A piece of device memory that a Case owns.
#pragma once

#include <algorithm>
#include <cstddef>
#include <utility>

#include "farwarp/base/status.h"
#include "farwarp/harness/compare.h"
#include "farwarp/runtime/device.h"

namespace farwarp::harness {

/// Move-only; must go before its Device does.
class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  static Result<DeviceBuffer> create(Device& device, std::size_t bytes) {
    const auto memory = device.allocate(std::max<std::size_t>(bytes, 16));
    if (!memory.ok()) return memory.status();
    return DeviceBuffer(device, *memory, bytes);
  }
  DeviceBuffer(DeviceBuffer&& other) noexcept { *this = std::move(other); }
  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept {
    std::swap(device_, other.device_);
    std::swap(pointer_, other.pointer_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~DeviceBuffer() {
    if (pointer_ != nullptr) device_->release(pointer_);
  }

  void* get() const { return pointer_; }
  template <class T>
  T* as() const {
    return static_cast<T*>(pointer_);
  }
  std::size_t bytes() const { return bytes_; }

  Status poison(Stream stream) const { return device_->fill(pointer_, kPoisonByte, bytes_, stream); }
  Status upload(const void* source, std::size_t bytes, Stream stream) const {
    return bytes == 0 ? Status() : device_->copy_in(pointer_, source, bytes, stream);
  }
  Status download(void* destination, std::size_t bytes, Stream stream) const {
    return bytes == 0 ? Status() : device_->copy_out(destination, pointer_, bytes, stream);
  }

 private:
  DeviceBuffer(Device& device, void* pointer, std::size_t bytes) : device_(&device), pointer_(pointer), bytes_(bytes) {}
  Device* device_ = nullptr;
  void* pointer_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace farwarp::harness
