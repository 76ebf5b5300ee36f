// amd_forms.h where the target has no forms of its own.
#pragma once

#include "farwarp/substrate/device.h"

namespace farwarp::FARWARP_TARGET {

FARWARP_DEVICE FloatPair fused_multiply_add(FloatPair a, FloatPair b, FloatPair c) {
  return {fused_multiply_add(a.first, b.first, c.first), fused_multiply_add(a.second, b.second, c.second)};
}
FARWARP_DEVICE FloatPair multiply(FloatPair a, FloatPair b) {
  return {multiply(a.first, b.first), multiply(a.second, b.second)};
}
FARWARP_DEVICE FloatPair add(FloatPair a, FloatPair b) { return {add(a.first, b.first), add(a.second, b.second)}; }

FARWARP_DEVICE std::uint32_t lower_halves(std::uint32_t first, std::uint32_t second) {
  return (first & 0xffffu) | second << 16;
}
FARWARP_DEVICE std::uint32_t upper_halves(std::uint32_t first, std::uint32_t second) {
  return first >> 16 | (second & 0xffff0000u);
}

FARWARP_DEVICE int recomputed(int value) { return value; }
FARWARP_DEVICE Vec16 arrived(Vec16 value) { return value; }

template <class T>
FARWARP_DEVICE T load_from(Global<const std::byte> base, std::uint32_t uniform_offset, std::uint32_t offset) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 16);
  if (offset >= kNoAddress) return T{};
  return load(Global<const T>(reinterpret_cast<const T*>(base.raw + uniform_offset + offset)));
}

template <class T>
FARWARP_DEVICE void store_to(Global<std::byte> base, std::uint32_t uniform_offset, std::uint32_t offset,
                             std::type_identity_t<T> value) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 16);
  if (offset < kNoAddress) store(Global<T>(reinterpret_cast<T*>(base.raw + uniform_offset + offset)), value);
}

}  // namespace farwarp::FARWARP_TARGET
