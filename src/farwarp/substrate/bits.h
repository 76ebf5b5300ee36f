// Converts values to the integers that memory instructions move. The memory.h and warp.h of all targets use it.
#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

#include "farwarp/base/attributes.h"
#include "farwarp/base/pointers.h"

namespace farwarp {

/// A type that one load or store can move: 1, 2, 4, 8 or 16 bytes.
template <class T>
concept Movable = sizeof(T) <= 16 && std::has_single_bit(sizeof(T)) && std::is_trivially_copyable_v<T>;

/// A type for atomics, shuffles and cells: 4 or 8 bytes.
template <class T>
concept Word = (sizeof(T) == 4 || sizeof(T) == 8) && std::is_trivially_copyable_v<T>;

namespace detail {

template <int bytes>
struct BitsOfSize;
template <>
struct BitsOfSize<1> {
  using Type = std::uint8_t;
};
template <>
struct BitsOfSize<2> {
  using Type = std::uint16_t;
};
template <>
struct BitsOfSize<4> {
  using Type = std::uint32_t;
};
template <>
struct BitsOfSize<8> {
  using Type = std::uint64_t;
};
template <>
struct BitsOfSize<16> {
  using Type = Vec16;
};

}  // namespace detail

/// The unsigned integer (or Vec16) of T's size.
template <class T>
using BitsOf = typename detail::BitsOfSize<sizeof(T)>::Type;

template <class T>
constexpr BitsOf<T> bits_of(const T& value) {
  return std::bit_cast<BitsOf<T>>(value);
}

}  // namespace farwarp
