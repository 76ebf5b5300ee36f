// Checks of the arguments of operators and vendors' libraries, and the hash of a descriptor.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

#include "farwarp/base/status.h"

namespace farwarp {

/// kInvalidArgument unless `pointer` is a multiple of `alignment` bytes and not null; `name` is the caller's name for
/// it.
Status check_pointer(const char* name, const void* pointer, int alignment);

/// The enumerator's name, or the value as a number if it is no enumerator.
template <class Enum>
std::string name_or_number(Enum value) {
  const std::string_view name = name_of(value);
  return name == "?" ? std::to_string(static_cast<int>(value)) : std::string(name);
}

/// The first of `statuses` that is not ok, or ok.
Status first_failure(std::initializer_list<Status> statuses);

/// FNV-1a hash of the values. Ranks compare it to check that they agree on them.
std::uint64_t hash_of(std::initializer_list<std::int64_t> values);

}  // namespace farwarp
