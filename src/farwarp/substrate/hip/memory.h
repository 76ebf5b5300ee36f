// Memory accesses on gfx942 and gfx950. Source: LLVM, "User Guide for AMDGPU Backend", table "AMDHSA Memory Model Code
// Sequences GFX942".
//
// Relaxed atomics are compiler builtins: each is one instruction whose sc0 and sc1 bits give the scope. Releases and
// acquires are asm, because clang 22 omits the wait between the write-back of L2 and a flag store after it
// (llvm-project pull request 178316). tools/check_code_objects.py looks for this error in every code object that we
// ship.
//
// Every acquire and every barrier also has an asm that clobbers "memory". It is needed for more than order: the backend
// makes a scalar load of a uniform load if it can prove that nothing has written the address since kernel entry, and no
// acquire invalidates the scalar cache. For this proof the backend does not count fences and barriers as writes, but it
// counts such an asm.
#pragma once

#include "farwarp/substrate/bits.h"
#include "farwarp/substrate/device.h"

namespace farwarp::FARWARP_TARGET {

namespace gcn {

// The address space is known, so that accesses become global_* and ds_* instructions instead of flat_*. may_alias is
// needed because the vocabulary moves bits, whatever the type of the memory.
template <class Bits>
struct Pointer {
  typedef Bits __attribute__((may_alias)) Alias;
  typedef __attribute__((address_space(1))) Alias* Global;
  typedef __attribute__((address_space(3))) Alias* Shared;
};
template <>
struct Pointer<Vec16> {
  typedef std::uint64_t __attribute__((ext_vector_type(2), may_alias)) Alias;
  typedef __attribute__((address_space(1))) Alias* Global;
  typedef __attribute__((address_space(3))) Alias* Shared;
};

template <class Bits>
using Alias = typename Pointer<Bits>::Alias;

template <class T>
FARWARP_DEVICE typename Pointer<BitsOf<T>>::Global global_pointer(T* pointer) {
  return (typename Pointer<BitsOf<T>>::Global)(const_cast<std::remove_const_t<T>*>(pointer));
}
template <class T>
FARWARP_DEVICE typename Pointer<BitsOf<T>>::Shared shared_pointer(T* pointer) {
  return (typename Pointer<BitsOf<T>>::Shared)(const_cast<std::remove_const_t<T>*>(pointer));
}

template <class T>
FARWARP_DEVICE Alias<BitsOf<T>> to_alias(const T& value) {
  return std::bit_cast<Alias<BitsOf<T>>>(value);
}

template <Cache cache, class T>
FARWARP_DEVICE std::remove_const_t<T> load_global(T* pointer) {
  static_assert(Movable<T>);
  if constexpr (cache == Cache::streaming)
    return std::bit_cast<std::remove_const_t<T>>(__builtin_nontemporal_load(global_pointer(pointer)));
  else
    return std::bit_cast<std::remove_const_t<T>>(*global_pointer(pointer));
}
template <Cache cache, class T>
FARWARP_DEVICE void store_global(T* pointer, T value) {
  static_assert(Movable<T>);
  if constexpr (cache == Cache::streaming)
    __builtin_nontemporal_store(to_alias(value), global_pointer(pointer));
  else
    *global_pointer(pointer) = to_alias(value);
}

/// chiplet has no name of its own. Its accesses are those of a work-group whose waves run on several CUs of one XCD
/// (threadgroup split mode in the table): sc0, so that loads miss the L1 and atomics are performed in the XCD's L2.
constexpr int memory_scope(Scope scope) {
  return scope <= Scope::chiplet  ? __MEMORY_SCOPE_WRKGRP
         : scope == Scope::device ? __MEMORY_SCOPE_DEVICE
                                  : __MEMORY_SCOPE_SYSTEM;
}

/// Precedes a releasing access. Waits for this wave's accesses: its stores are then in the XCD's L2, where its other
/// CUs find them. For wider scopes it then writes back the dirty lines of this L2 to where the scope can see them.
template <Scope scope>
FARWARP_DEVICE void release() {
  asm volatile("s_waitcnt vmcnt(0) lgkmcnt(0)" ::: "memory");
  if constexpr (scope == Scope::device) asm volatile("buffer_wbl2 sc1\n\ts_waitcnt vmcnt(0)" ::: "memory");
  if constexpr (scope == Scope::system) asm volatile("buffer_wbl2 sc0 sc1\n\ts_waitcnt vmcnt(0)" ::: "memory");
}

/// Follows an acquiring access. Waits until the access has returned, then invalidates the caches that may hold older
/// values.
template <Scope scope>
FARWARP_DEVICE void acquire() {
  asm volatile("s_waitcnt vmcnt(0) lgkmcnt(0)" ::: "memory");
  if constexpr (scope == Scope::chiplet) asm volatile("buffer_inv sc0" ::: "memory");  // the CU's L1
  if constexpr (scope == Scope::device) asm volatile("buffer_inv sc1" ::: "memory");
  if constexpr (scope == Scope::system) asm volatile("buffer_inv sc0 sc1" ::: "memory");
}

constexpr bool releases(Order order) { return order == Order::release || order == Order::acq_rel; }
constexpr bool acquires(Order order) { return order == Order::acquire || order == Order::acq_rel; }

/// Runs `access`, a relaxed read-modify-write, with the release before it and the acquire after it that the order
/// needs.
template <Order order, Scope scope, class Access>
FARWARP_DEVICE auto ordered(const Access& access) {
  if constexpr (releases(order)) release<scope>();
  const auto old = access();
  if constexpr (acquires(order)) acquire<scope>();
  return old;
}

}  // namespace gcn

// ---- weak ----------------------------------------------------------------------------------------------------------

template <Cache cache, class T>
FARWARP_DEVICE std::remove_const_t<T> load(Global<T> address) {
  return gcn::load_global<cache>(address.raw);
}
template <Cache cache, class T>
FARWARP_DEVICE std::remove_const_t<T> load(Peer<T> address) {
  return gcn::load_global<cache>(address.raw);
}
template <class T>
FARWARP_DEVICE std::remove_const_t<T> load(Shared<T> address) {
  static_assert(Movable<T>);
  return std::bit_cast<std::remove_const_t<T>>(*gcn::shared_pointer(address.raw));
}

template <Cache cache, class T>
FARWARP_DEVICE void store(Global<T> address, std::type_identity_t<T> value) {
  gcn::store_global<cache>(address.raw, value);
}
template <Cache cache, class T>
FARWARP_DEVICE void store(Peer<T> address, std::type_identity_t<T> value) {
  gcn::store_global<cache>(address.raw, value);
}
template <class T>
FARWARP_DEVICE void store(Shared<T> address, std::type_identity_t<T> value) {
  static_assert(Movable<T>);
  *gcn::shared_pointer(address.raw) = gcn::to_alias(value);
}

// A buffer of raw bytes: stride 0, kNoAddress bytes, data format 32 (AMD Instinct MI300 ISA, "Buffer Resource
// Descriptor"). Beyond its end a load returns zeros, and a store does nothing.
namespace gcn {
FARWARP_DEVICE std::uint32_t scalar(std::uint32_t value) {
  return static_cast<std::uint32_t>(__builtin_amdgcn_readfirstlane(static_cast<int>(value)));
}
FARWARP_DEVICE __amdgpu_buffer_rsrc_t buffer_at(const std::byte* base) {
  const auto address = reinterpret_cast<std::uint64_t>(base);
  const std::uint64_t uniform = static_cast<std::uint64_t>(scalar(static_cast<std::uint32_t>(address >> 32))) << 32 |
                                scalar(static_cast<std::uint32_t>(address));
  return __builtin_amdgcn_make_buffer_rsrc(reinterpret_cast<void*>(uniform), 0, kNoAddress, 0x27000);
}
typedef std::uint32_t Word4 __attribute__((ext_vector_type(4)));
}  // namespace gcn

template <class T>
FARWARP_DEVICE T load_from(Global<const std::byte> base, std::uint32_t uniform_offset, std::uint32_t offset) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 16);
  const auto buffer = gcn::buffer_at(base.raw);
  if constexpr (sizeof(T) == 4)
    return std::bit_cast<T>(__builtin_amdgcn_raw_buffer_load_b32(buffer, offset, gcn::scalar(uniform_offset), 0));
  else
    return std::bit_cast<T>(__builtin_amdgcn_raw_buffer_load_b128(buffer, offset, gcn::scalar(uniform_offset), 0));
}
template <class T>
FARWARP_DEVICE void store_to(Global<std::byte> base, std::uint32_t uniform_offset, std::uint32_t offset,
                             std::type_identity_t<T> value) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 16);
  const auto buffer = gcn::buffer_at(base.raw);
  if constexpr (sizeof(T) == 4)
    __builtin_amdgcn_raw_buffer_store_b32(std::bit_cast<std::uint32_t>(value), buffer, offset,
                                          gcn::scalar(uniform_offset), 0);
  else
    __builtin_amdgcn_raw_buffer_store_b128(std::bit_cast<gcn::Word4>(value), buffer, offset,
                                           gcn::scalar(uniform_offset), 0);
}

// ---- atomic --------------------------------------------------------------------------------------------------------

template <Order order, Scope scope, class T>
FARWARP_DEVICE std::remove_const_t<T> load(Global<T> address) {
  static_assert(Word<T> && (order == Order::relaxed || order == Order::acquire));
  const auto bits =
      __scoped_atomic_load_n(gcn::global_pointer(address.raw), __ATOMIC_RELAXED, gcn::memory_scope(scope));
  if constexpr (gcn::acquires(order)) gcn::acquire<scope>();
  return std::bit_cast<std::remove_const_t<T>>(bits);
}
template <Order order, Scope scope, class T>
FARWARP_DEVICE void store(Global<T> address, std::type_identity_t<T> value) {
  static_assert(Word<T> && (order == Order::relaxed || order == Order::release));
  if constexpr (gcn::releases(order)) gcn::release<scope>();
  __scoped_atomic_store_n(gcn::global_pointer(address.raw), bits_of(value), __ATOMIC_RELAXED, gcn::memory_scope(scope));
}
template <Order order, Scope scope, class T>
FARWARP_DEVICE T fetch_add(Global<T> address, std::type_identity_t<T> value) {
  static_assert(Word<T> && std::is_integral_v<T>);
  return static_cast<T>(gcn::ordered<order, scope>([&] {
    return __scoped_atomic_fetch_add(gcn::global_pointer(address.raw), bits_of(value), __ATOMIC_RELAXED,
                                     gcn::memory_scope(scope));
  }));
}
template <Order order, Scope scope, class T>
FARWARP_DEVICE T exchange(Global<T> address, std::type_identity_t<T> value) {
  static_assert(Word<T>);
  return std::bit_cast<T>(gcn::ordered<order, scope>([&] {
    return __scoped_atomic_exchange_n(gcn::global_pointer(address.raw), bits_of(value), __ATOMIC_RELAXED,
                                      gcn::memory_scope(scope));
  }));
}
template <Order order, Scope scope, class T>
FARWARP_DEVICE T compare_exchange(Global<T> address, std::type_identity_t<T> expected,
                                  std::type_identity_t<T> desired) {
  static_assert(Word<T>);
  return std::bit_cast<T>(gcn::ordered<order, scope>([&] {
    BitsOf<T> old = bits_of(expected);
    __scoped_atomic_compare_exchange_n(gcn::global_pointer(address.raw), &old, bits_of(desired), /*weak=*/false,
                                       __ATOMIC_RELAXED, __ATOMIC_RELAXED, gcn::memory_scope(scope));
    return old;
  }));
}

FARWARP_DEVICE std::uint32_t fetch_add(Shared<std::uint32_t> address, std::uint32_t value) {
  return __scoped_atomic_fetch_add(gcn::shared_pointer(address.raw), value, __ATOMIC_RELAXED, __MEMORY_SCOPE_WRKGRP);
}

// ---- cells ---------------------------------------------------------------------------------------------------------
// gpu_cells.h has the accesses.

// An acquire fence instead of another load, which would take a trip to memory. The poll has already waited for its
// load.
template <class T>
FARWARP_DEVICE void acquire(Global<SystemCell<T>>) {
  gcn::acquire<Scope::system>();
}

// gfx942 has no prefetch instruction.
template <class T>
FARWARP_DEVICE void prefetch(Global<T>) {}

// ---- words -------------------------------------------------------------------------------------------------------
// Two 8-byte atomics: no document says that a 16-byte access of CDNA is single-copy atomic, or that its halves are.

FARWARP_DEVICE void store_words(Peer<Vec16> address, Vec16 words) {
  store<Order::relaxed, Scope::system>(Global<std::uint64_t>(&address.raw->lo), words.lo);
  store<Order::relaxed, Scope::system>(Global<std::uint64_t>(&address.raw->hi), words.hi);
}

FARWARP_DEVICE Vec16 load_words(Global<const Vec16> address) {
  const std::uint64_t lo = load<Order::relaxed, Scope::system>(Global<const std::uint64_t>(&address.raw->lo));
  const std::uint64_t hi = load<Order::relaxed, Scope::system>(Global<const std::uint64_t>(&address.raw->hi));
  return {lo, hi};
}

// ---- fences --------------------------------------------------------------------------------------------------------

template <Order order, Scope scope>
FARWARP_DEVICE void fence() {
  static_assert(order != Order::relaxed, "a relaxed fence orders nothing");
  if constexpr (gcn::releases(order)) gcn::release<scope>();
  if constexpr (gcn::acquires(order)) gcn::acquire<scope>();
}

FARWARP_DEVICE void drain_stores() { asm volatile("s_waitcnt vmcnt(0)" ::: "memory"); }

}  // namespace farwarp::FARWARP_TARGET
