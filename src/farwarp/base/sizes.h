// Numbers of elements as the standard library has them.
#pragma once

#include <cstddef>
#include <cstdint>

namespace farwarp {

/// `value` is not negative.
constexpr std::size_t size(std::int64_t value) { return static_cast<std::size_t>(value); }

}  // namespace farwarp
