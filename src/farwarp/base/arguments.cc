#include "farwarp/base/arguments.h"

#include <fmt/format.h>

namespace farwarp {

Status check_pointer(const char* name, const void* pointer, int alignment) {
  if (pointer == nullptr) return invalid_argument(fmt::format("{} is null; allowed: a device pointer", name));
  if (reinterpret_cast<std::uintptr_t>(pointer) % static_cast<std::uintptr_t>(alignment) != 0)
    return invalid_argument(fmt::format("{} is {}; allowed: a multiple of {}", name, fmt::ptr(pointer), alignment));
  return {};
}

Status first_failure(std::initializer_list<Status> statuses) {
  for (const Status& status : statuses) {
    if (!status.ok()) return status;
  }
  return {};
}

std::uint64_t hash_of(std::initializer_list<std::int64_t> values) {
  std::uint64_t hash = 0xcbf29ce484222325ull;
  for (const std::int64_t value : values) {
    for (int byte = 0; byte < 8; ++byte)
      hash = (hash ^ (static_cast<std::uint64_t>(value) >> (8 * byte) & 0xff)) * 0x100000001b3ull;
  }
  return hash;
}

}  // namespace farwarp
