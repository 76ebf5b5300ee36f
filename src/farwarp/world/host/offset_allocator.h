// First fit over [0, capacity): pure bookkeeping. Ranks that make the same calls get the same offsets.
#pragma once

#include <cstddef>
#include <map>

#include "farwarp/base/status.h"

namespace farwarp {

class OffsetAllocator {
 public:
  explicit OffsetAllocator(std::size_t capacity = 0) : capacity_(capacity) {}

  /// Reserves [0, bytes) of an empty allocator.
  void reserve_front(std::size_t bytes) { live_.emplace(0, bytes); }
  /// kInvalidArgument for 0 bytes or an alignment that is no power of two; kOutOfMemory states what is left.
  Result<std::size_t> allocate(std::size_t bytes, std::size_t alignment);
  /// kInvalidArgument if no live buffer has this offset and size.
  Status free(std::size_t offset, std::size_t bytes);

  std::size_t free_bytes() const;
  std::size_t largest_gap() const;

 private:
  std::size_t capacity_;
  std::map<std::size_t, std::size_t> live_;  // offset -> bytes
};

}  // namespace farwarp
