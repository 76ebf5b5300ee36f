// Device memory that a Case owns.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <utility>

#include "farwarp/base/status.h"
#include "farwarp/harness/compare.h"
#include "farwarp/runtime/device_memory.h"

namespace farwarp::harness {

/// Move-only. Must be destroyed before its Device.
class DeviceBuffer : public DeviceMemory {
 public:
  DeviceBuffer() = default;
  static Result<DeviceBuffer> create(Device& device, std::size_t bytes) {
    auto memory = DeviceMemory::create(device, bytes);
    if (!memory.ok()) return memory.status();
    return DeviceBuffer(std::move(*memory));
  }

  Status poison(Stream stream) const { return device().fill(get(), kPoisonByte, bytes(), stream); }
  Status upload(const void* source, std::size_t count, Stream stream) const {
    return count == 0 ? Status() : device().copy_in(get(), source, count, stream);
  }
  Status download(void* destination, std::size_t count, Stream stream) const {
    return count == 0 ? Status() : device().copy_out(destination, get(), count, stream);
  }

 private:
  explicit DeviceBuffer(DeviceMemory memory) : DeviceMemory(std::move(memory)) {}
};

struct WantedBuffer {
  DeviceBuffer* buffer;
  std::size_t bytes;  ///< 0: the buffer stays as it is
};
inline Status create_buffers(Device& device, std::initializer_list<WantedBuffer> wanted) {
  for (const auto& [buffer, bytes] : wanted) {
    if (bytes == 0) continue;
    auto created = DeviceBuffer::create(device, bytes);
    if (!created.ok()) return created.status();
    *buffer = std::move(*created);
  }
  return {};
}

}  // namespace farwarp::harness
