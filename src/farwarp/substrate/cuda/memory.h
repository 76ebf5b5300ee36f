// Memory accesses: each is one PTX instruction.
//
// All accesses are volatile asm, so the compiler keeps them in program order. Those that order other accesses also
// clobber "memory". ptxas may still reorder weak accesses, as it may the compiler's own.
#pragma once

#include "farwarp/substrate/bits.h"
#include "farwarp/substrate/device.h"

namespace farwarp::FARWARP_TARGET {

namespace ptx {

/// The register type of an access. PTX extends 8- and 16-bit loads into a 32-bit register.
template <class Bits>
using Register = std::conditional_t<(sizeof(Bits) < 4), std::uint32_t, Bits>;

/// State-space addresses: 64 bits for global memory, 32 bits for shared memory. The conversions cost nothing.
FARWARP_DEVICE std::uint64_t global_address(const volatile void* pointer) {
  return __cvta_generic_to_global(const_cast<const void*>(pointer));
}
FARWARP_DEVICE std::uint32_t shared_address(const volatile void* pointer) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(const_cast<const void*>(pointer)));
}

// The local macros below stand for the sizes, orders and scopes that PTX spells as parts of an instruction's name.

#define FARWARP_PTX_LOAD(name, instruction, Address, constraint)                                                     \
  template <class Bits>                                                                                              \
  FARWARP_DEVICE Bits name(Address address) {                                                                        \
    Register<Bits> value;                                                                                            \
    if constexpr (sizeof(Bits) == 1) asm volatile(instruction ".u8 %0, [%1];" : "=r"(value) : constraint(address));  \
    if constexpr (sizeof(Bits) == 2) asm volatile(instruction ".u16 %0, [%1];" : "=r"(value) : constraint(address)); \
    if constexpr (sizeof(Bits) == 4) asm volatile(instruction ".b32 %0, [%1];" : "=r"(value) : constraint(address)); \
    if constexpr (sizeof(Bits) == 8) asm volatile(instruction ".b64 %0, [%1];" : "=l"(value) : constraint(address)); \
    if constexpr (sizeof(Bits) == 16)                                                                                \
      asm volatile(instruction ".v2.b64 {%0, %1}, [%2];" : "=l"(value.lo), "=l"(value.hi) : constraint(address));    \
    if constexpr (sizeof(Bits) == 16)                                                                                \
      return value;                                                                                                  \
    else                                                                                                             \
      return static_cast<Bits>(value);                                                                               \
  }

#define FARWARP_PTX_STORE(name, instruction, Address, constraint)                                                  \
  template <class Bits>                                                                                            \
  FARWARP_DEVICE void name(Address address, Register<Bits> value) {                                                \
    if constexpr (sizeof(Bits) == 1) asm volatile(instruction ".u8 [%0], %1;" ::constraint(address), "r"(value));  \
    if constexpr (sizeof(Bits) == 2) asm volatile(instruction ".u16 [%0], %1;" ::constraint(address), "r"(value)); \
    if constexpr (sizeof(Bits) == 4) asm volatile(instruction ".b32 [%0], %1;" ::constraint(address), "r"(value)); \
    if constexpr (sizeof(Bits) == 8) asm volatile(instruction ".b64 [%0], %1;" ::constraint(address), "l"(value)); \
    if constexpr (sizeof(Bits) == 16)                                                                              \
      asm volatile(instruction ".v2.b64 [%0], {%1, %2};" ::constraint(address), "l"(value.lo), "l"(value.hi));     \
  }

// Cache hints. streaming: a load allocates no L1 line; L2 evicts a stored line first. keep: L1 evicts the line last.
FARWARP_PTX_LOAD(load_normal, "ld.weak.global", std::uint64_t, "l")
FARWARP_PTX_LOAD(load_streaming, "ld.weak.global.L1::no_allocate", std::uint64_t, "l")
FARWARP_PTX_LOAD(load_keep, "ld.weak.global.L1::evict_last", std::uint64_t, "l")
FARWARP_PTX_LOAD(load_shared, "ld.weak.shared", std::uint32_t, "r")
FARWARP_PTX_STORE(store_normal, "st.weak.global", std::uint64_t, "l")
FARWARP_PTX_STORE(store_streaming, "st.global.cs", std::uint64_t, "l")
FARWARP_PTX_STORE(store_keep, "st.weak.global.L1::evict_last", std::uint64_t, "l")
FARWARP_PTX_STORE(store_shared, "st.weak.shared", std::uint32_t, "r")

#undef FARWARP_PTX_LOAD
#undef FARWARP_PTX_STORE

/// The atomics of one order and scope. Order's names are those of PTX.
template <Order order, Scope scope>
struct Atomic;

#define FARWARP_PTX_ATOMIC(order, scope, ptx_scope)                                                           \
  template <>                                                                                                 \
  struct Atomic<Order::order, Scope::scope> {                                                                 \
    template <class Bits>                                                                                     \
    static FARWARP_DEVICE Bits load(std::uint64_t address) {                                                  \
      Bits value;                                                                                             \
      if constexpr (sizeof(Bits) == 4)                                                                        \
        asm volatile("ld." #order ptx_scope ".global.b32 %0, [%1];" : "=r"(value) : "l"(address) : "memory"); \
      else                                                                                                    \
        asm volatile("ld." #order ptx_scope ".global.b64 %0, [%1];" : "=l"(value) : "l"(address) : "memory"); \
      return value;                                                                                           \
    }                                                                                                         \
    template <class Bits>                                                                                     \
    static FARWARP_DEVICE void store(std::uint64_t address, Bits value) {                                     \
      if constexpr (sizeof(Bits) == 4)                                                                        \
        asm volatile("st." #order ptx_scope ".global.b32 [%0], %1;" ::"l"(address), "r"(value) : "memory");   \
      else                                                                                                    \
        asm volatile("st." #order ptx_scope ".global.b64 [%0], %1;" ::"l"(address), "l"(value) : "memory");   \
    }                                                                                                         \
    template <class Bits>                                                                                     \
    static FARWARP_DEVICE Bits add(std::uint64_t address, Bits value) {                                       \
      Bits old;                                                                                               \
      if constexpr (sizeof(Bits) == 4)                                                                        \
        asm volatile("atom." #order ptx_scope ".global.add.u32 %0, [%1], %2;"                                 \
                     : "=r"(old)                                                                              \
                     : "l"(address), "r"(value)                                                               \
                     : "memory");                                                                             \
      else                                                                                                    \
        asm volatile("atom." #order ptx_scope ".global.add.u64 %0, [%1], %2;"                                 \
                     : "=l"(old)                                                                              \
                     : "l"(address), "l"(value)                                                               \
                     : "memory");                                                                             \
      return old;                                                                                             \
    }                                                                                                         \
    template <class Bits>                                                                                     \
    static FARWARP_DEVICE Bits exchange(std::uint64_t address, Bits value) {                                  \
      Bits old;                                                                                               \
      if constexpr (sizeof(Bits) == 4)                                                                        \
        asm volatile("atom." #order ptx_scope ".global.exch.b32 %0, [%1], %2;"                                \
                     : "=r"(old)                                                                              \
                     : "l"(address), "r"(value)                                                               \
                     : "memory");                                                                             \
      else                                                                                                    \
        asm volatile("atom." #order ptx_scope ".global.exch.b64 %0, [%1], %2;"                                \
                     : "=l"(old)                                                                              \
                     : "l"(address), "l"(value)                                                               \
                     : "memory");                                                                             \
      return old;                                                                                             \
    }                                                                                                         \
    template <class Bits>                                                                                     \
    static FARWARP_DEVICE Bits compare_exchange(std::uint64_t address, Bits expected, Bits desired) {         \
      Bits old;                                                                                               \
      if constexpr (sizeof(Bits) == 4)                                                                        \
        asm volatile("atom." #order ptx_scope ".global.cas.b32 %0, [%1], %2, %3;"                             \
                     : "=r"(old)                                                                              \
                     : "l"(address), "r"(expected), "r"(desired)                                              \
                     : "memory");                                                                             \
      else                                                                                                    \
        asm volatile("atom." #order ptx_scope ".global.cas.b64 %0, [%1], %2, %3;"                             \
                     : "=l"(old)                                                                              \
                     : "l"(address), "l"(expected), "l"(desired)                                              \
                     : "memory");                                                                             \
      return old;                                                                                             \
    }                                                                                                         \
  };

FARWARP_PTX_ATOMIC(relaxed, block, ".cta")
FARWARP_PTX_ATOMIC(relaxed, chiplet, ".gpu")
FARWARP_PTX_ATOMIC(relaxed, device, ".gpu")
FARWARP_PTX_ATOMIC(relaxed, system, ".sys")
FARWARP_PTX_ATOMIC(acquire, block, ".cta")
FARWARP_PTX_ATOMIC(acquire, chiplet, ".gpu")
FARWARP_PTX_ATOMIC(acquire, device, ".gpu")
FARWARP_PTX_ATOMIC(acquire, system, ".sys")
FARWARP_PTX_ATOMIC(release, block, ".cta")
FARWARP_PTX_ATOMIC(release, chiplet, ".gpu")
FARWARP_PTX_ATOMIC(release, device, ".gpu")
FARWARP_PTX_ATOMIC(release, system, ".sys")
FARWARP_PTX_ATOMIC(acq_rel, block, ".cta")
FARWARP_PTX_ATOMIC(acq_rel, chiplet, ".gpu")
FARWARP_PTX_ATOMIC(acq_rel, device, ".gpu")
FARWARP_PTX_ATOMIC(acq_rel, system, ".sys")

#undef FARWARP_PTX_ATOMIC

template <class Bits, Cache cache>
FARWARP_DEVICE Bits load_global(std::uint64_t address) {
  if constexpr (cache == Cache::streaming)
    return load_streaming<Bits>(address);
  else if constexpr (cache == Cache::keep)
    return load_keep<Bits>(address);
  else
    return load_normal<Bits>(address);
}

template <class Bits, Cache cache>
FARWARP_DEVICE void store_global(std::uint64_t address, Bits value) {
  if constexpr (cache == Cache::streaming)
    store_streaming<Bits>(address, value);
  else if constexpr (cache == Cache::keep)
    store_keep<Bits>(address, value);
  else
    store_normal<Bits>(address, value);
}

/// Stores to the same address in the shared memory of block `rank` of the cluster.
template <class Bits>
FARWARP_DEVICE void store_cluster(std::uint32_t address, int rank, Bits value) {
  static_assert(sizeof(Bits) == 4 || sizeof(Bits) == 16);
  std::uint32_t there;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(rank));
  if constexpr (sizeof(Bits) == 4)
    asm volatile("st.weak.shared::cluster.b32 [%0], %1;" ::"r"(there), "r"(value));
  else
    asm volatile("st.weak.shared::cluster.v2.b64 [%0], {%1, %2};" ::"r"(there), "l"(value.lo), "l"(value.hi));
}

}  // namespace ptx

// ---- weak ----------------------------------------------------------------------------------------------------------

template <Cache cache, class T>
FARWARP_DEVICE std::remove_const_t<T> load(Global<T> address) {
  static_assert(Movable<T>);
  return std::bit_cast<std::remove_const_t<T>>(ptx::load_global<BitsOf<T>, cache>(ptx::global_address(address.raw)));
}
template <Cache cache, class T>
FARWARP_DEVICE std::remove_const_t<T> load(Peer<T> address) {
  static_assert(Movable<T>);
  return std::bit_cast<std::remove_const_t<T>>(ptx::load_global<BitsOf<T>, cache>(ptx::global_address(address.raw)));
}
template <class T>
FARWARP_DEVICE std::remove_const_t<T> load(Shared<T> address) {
  static_assert(Movable<T>);
  return std::bit_cast<std::remove_const_t<T>>(ptx::load_shared<BitsOf<T>>(ptx::shared_address(address.raw)));
}

template <Cache cache, class T>
FARWARP_DEVICE void store(Global<T> address, std::type_identity_t<T> value) {
  static_assert(Movable<T>);
  ptx::store_global<BitsOf<T>, cache>(ptx::global_address(address.raw), bits_of(value));
}
template <Cache cache, class T>
FARWARP_DEVICE void store(Peer<T> address, std::type_identity_t<T> value) {
  static_assert(Movable<T>);
  ptx::store_global<BitsOf<T>, cache>(ptx::global_address(address.raw), bits_of(value));
}
template <class T>
FARWARP_DEVICE void store(Shared<T> address, std::type_identity_t<T> value) {
  static_assert(Movable<T>);
  ptx::store_shared<BitsOf<T>>(ptx::shared_address(address.raw), bits_of(value));
}
template <class T>
FARWARP_DEVICE void store_at(Shared<T> address, int rank, std::type_identity_t<T> value) {
  static_assert(Movable<T>);
  ptx::store_cluster<BitsOf<T>>(ptx::shared_address(address.raw), rank, bits_of(value));
}

// ---- atomic --------------------------------------------------------------------------------------------------------

template <Order order, Scope scope, class T>
FARWARP_DEVICE std::remove_const_t<T> load(Global<T> address) {
  static_assert(Word<T> && (order == Order::relaxed || order == Order::acquire));
  const auto bits = ptx::Atomic<order, scope>::template load<BitsOf<T>>(ptx::global_address(address.raw));
  return std::bit_cast<std::remove_const_t<T>>(bits);
}
template <Order order, Scope scope, class T>
FARWARP_DEVICE void store(Global<T> address, std::type_identity_t<T> value) {
  static_assert(Word<T> && (order == Order::relaxed || order == Order::release));
  ptx::Atomic<order, scope>::store(ptx::global_address(address.raw), bits_of(value));
}
template <Order order, Scope scope, class T>
FARWARP_DEVICE T fetch_add(Global<T> address, std::type_identity_t<T> value) {
  static_assert(Word<T> && std::is_integral_v<T>);
  return static_cast<T>(ptx::Atomic<order, scope>::add(ptx::global_address(address.raw), bits_of(value)));
}
template <Order order, Scope scope, class T>
FARWARP_DEVICE T exchange(Global<T> address, std::type_identity_t<T> value) {
  static_assert(Word<T>);
  return std::bit_cast<T>(ptx::Atomic<order, scope>::exchange(ptx::global_address(address.raw), bits_of(value)));
}
template <Order order, Scope scope, class T>
FARWARP_DEVICE T compare_exchange(Global<T> address, std::type_identity_t<T> expected,
                                  std::type_identity_t<T> desired) {
  static_assert(Word<T>);
  return std::bit_cast<T>(ptx::Atomic<order, scope>::compare_exchange(ptx::global_address(address.raw),
                                                                      bits_of(expected), bits_of(desired)));
}

FARWARP_DEVICE std::uint32_t fetch_add(Shared<std::uint32_t> address, std::uint32_t value) {
  std::uint32_t old;
  asm volatile("atom.relaxed.cta.shared::cta.add.u32 %0, [%1], %2;"
               : "=r"(old)
               : "r"(ptx::shared_address(address.raw)), "r"(value)
               : "memory");
  return old;
}

// ---- cells ---------------------------------------------------------------------------------------------------------
// gpu_cells.h has the accesses.

// The value is not used, so ptxas drops the load and keeps only its invalidation of L1.
template <class T>
FARWARP_DEVICE void acquire(Global<SystemCell<T>> cell) {
  load<Order::acquire>(cell);
}

template <class T>
FARWARP_DEVICE void prefetch(Global<T> address) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(ptx::global_address(address.raw)));
}

// ---- words -------------------------------------------------------------------------------------------------------
// One 16-byte instruction. PTX treats the elements of a vector access as separate scalar accesses in no particular
// order. Only each half is atomic, so both halves of a packet have the tag.

FARWARP_DEVICE void store_words(Peer<Vec16> address, Vec16 words) {
  asm volatile("st.relaxed.sys.global.v2.b64 [%0], {%1, %2};" ::"l"(ptx::global_address(address.raw)), "l"(words.lo),
               "l"(words.hi)
               : "memory");
}

FARWARP_DEVICE Vec16 load_words(Global<const Vec16> address) {
  Vec16 words;
  asm volatile("ld.relaxed.sys.global.v2.b64 {%0, %1}, [%2];"
               : "=l"(words.lo), "=l"(words.hi)
               : "l"(ptx::global_address(address.raw))
               : "memory");
  return words;
}

// ---- fences --------------------------------------------------------------------------------------------------------

template <Order order, Scope scope>
FARWARP_DEVICE void fence() {
  static_assert(order != Order::relaxed, "a relaxed fence orders nothing");
  // sm_90 has no acquire-only or release-only fence of these scopes.
  if constexpr (scope == Scope::block) asm volatile("fence.acq_rel.cta;" ::: "memory");
  if constexpr (scope == Scope::chiplet || scope == Scope::device) asm volatile("fence.acq_rel.gpu;" ::: "memory");
  if constexpr (scope == Scope::system) asm volatile("fence.acq_rel.sys;" ::: "memory");
}

// Nothing to do: a release is cumulative. It covers the writes of other threads that a barrier ordered before it.
FARWARP_DEVICE void drain_stores() {}

}  // namespace farwarp::FARWARP_TARGET
