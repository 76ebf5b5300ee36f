// The part of the vocabulary (device.h) for which AMD has forms of its own. Other targets have ordinary definitions in
// amd_forms_elsewhere.h. Kernels with MFMA keep so much in registers that these forms matter.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "farwarp/base/attributes.h"
#include "farwarp/base/pointers.h"

namespace farwarp::FARWARP_TARGET {

/// [thread] Weak load of 4 or 16 bytes from `base` + `uniform_offset` + `offset`, in bytes. `base` and `uniform_offset`
/// are equal on all lanes of the warp and stay in scalar registers on AMD (buffer_load), so that a lane keeps 32 bits
/// for many addresses. The offsets' sum is below 2^31. A lane whose `offset` is kNoAddress or more gets zeros, and
/// accesses nothing.
inline constexpr std::uint32_t kNoAddress = 1u << 31;
template <class T>
FARWARP_DEVICE T load_from(Global<const std::byte> base, std::uint32_t uniform_offset, std::uint32_t offset);
/// [thread] Weak store to such an address.
template <class T>
FARWARP_DEVICE void store_to(Global<std::byte> base, std::uint32_t uniform_offset, std::uint32_t offset,
                             std::type_identity_t<T> value);

/// [thread] Returns `value`. On AMD the compiler does not know that it is the same, and computes what depends on it
/// anew, instead of keeping that in registers from an earlier place.
FARWARP_DEVICE int recomputed(int value);

/// [thread] Returns `value`. On AMD it has been loaded then. CDNA counts loads and stores in one order, so a wait for a
/// load is one for all stores before it, too: if all loads of a batch have arrived before its first store, no store
/// waits for another one.
FARWARP_DEVICE Vec16 arrived(Vec16 value);

/// Two numbers with which AMD computes in one instruction.
struct FloatPair {
  float first, second;
};
/// [thread] The same functions of two numbers each, bit-equal.
FARWARP_DEVICE FloatPair fused_multiply_add(FloatPair a, FloatPair b, FloatPair c);
FARWARP_DEVICE FloatPair multiply(FloatPair a, FloatPair b);
FARWARP_DEVICE FloatPair add(FloatPair a, FloatPair b);

/// [thread] round_pair() of four numbers whose magnitude is 0 or 2^-126 to 2^100, the first in the lowest 16 bits:
/// fewer instructions on gfx942. A NaN gives a NaN, but not always round_pair()'s. Other numbers are not allowed.
template <class T>
FARWARP_DEVICE std::uint64_t round_bounded(FloatPair first, FloatPair second);

/// [thread] The lower halves of two words, or the upper ones; that of `first` is in the lower 16 bits.
FARWARP_DEVICE std::uint32_t lower_halves(std::uint32_t first, std::uint32_t second);
FARWARP_DEVICE std::uint32_t upper_halves(std::uint32_t first, std::uint32_t second);

}  // namespace farwarp::FARWARP_TARGET
