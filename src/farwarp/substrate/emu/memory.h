#pragma once

#include <cstring>

#include "farwarp/substrate/device.h"

namespace farwarp::FARWARP_TARGET {

namespace detail {

template <class T>
FARWARP_DEVICE std::uint64_t bits_of(T value) {
  static_assert(sizeof(T) <= 8 && std::is_trivially_copyable_v<T>);
  std::uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(T));
  return bits;
}

template <class T>
FARWARP_DEVICE T value_of(std::uint64_t bits) {
  T value;
  std::memcpy(&value, &bits, sizeof(T));
  return value;
}

template <class T>
FARWARP_DEVICE std::remove_const_t<T> weak_load(T* address, emu::Space space) {
  using Value = std::remove_const_t<T>;
  static_assert(std::is_trivially_copyable_v<Value>);
  if constexpr (sizeof(T) == 16) {
    std::uint64_t halves[2];
    emu::read16(address, halves, {.space = space, .bytes = 8});
    Value value;
    std::memcpy(&value, halves, 16);
    return value;
  } else {
    static_assert(sizeof(T) == 1 || sizeof(T) == 2 || sizeof(T) == 4 || sizeof(T) == 8);
    return value_of<Value>(emu::read(address, {.space = space, .bytes = sizeof(T)}));
  }
}

template <class T>
FARWARP_DEVICE void weak_store(T* address, T value, emu::Space space) {
  static_assert(std::is_trivially_copyable_v<T>);
  if constexpr (sizeof(T) == 16) {
    std::uint64_t halves[2];
    std::memcpy(halves, &value, 16);
    emu::write16(address, halves, {.space = space, .bytes = 8});
  } else {
    static_assert(sizeof(T) == 1 || sizeof(T) == 2 || sizeof(T) == 4 || sizeof(T) == 8);
    emu::write(address, bits_of(value), {.space = space, .bytes = sizeof(T)});
  }
}

template <Order order, Scope scope, class T>
FARWARP_DEVICE constexpr emu::Access atomic_access(emu::Space space) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8, "atomics are 4- or 8-byte words");
  return {.space = space, .bytes = sizeof(T), .strong = true, .order = order, .scope = scope};
}

template <Order order, Scope scope, class T>
FARWARP_DEVICE std::remove_const_t<T> atomic_load(T* address, emu::Space space) {
  static_assert(order == Order::relaxed || order == Order::acquire, "a load is relaxed or acquire");
  return value_of<std::remove_const_t<T>>(emu::read(address, atomic_access<order, scope, T>(space)));
}

template <Order order, Scope scope, class T>
FARWARP_DEVICE void atomic_store(T* address, T value, emu::Space space) {
  static_assert(order == Order::relaxed || order == Order::release, "a store is relaxed or release");
  emu::write(address, bits_of(value), atomic_access<order, scope, T>(space));
}

template <Order order, Scope scope, class T>
FARWARP_DEVICE T atomic_modify(T* address, emu::Modify operation, T operand, T expected, emu::Space space) {
  return value_of<T>(
      emu::modify(address, operation, bits_of(operand), bits_of(expected), atomic_access<order, scope, T>(space)));
}

}  // namespace detail

template <Cache, class T>
FARWARP_DEVICE std::remove_const_t<T> load(Global<T> address) {
  return detail::weak_load(address.raw, emu::Space::global);
}
template <Cache, class T>
FARWARP_DEVICE std::remove_const_t<T> load(Peer<T> address) {
  return detail::weak_load(address.raw, emu::Space::peer);
}
template <class T>
FARWARP_DEVICE std::remove_const_t<T> load(Shared<T> address) {
  return detail::weak_load(address.raw, emu::Space::shared);
}

template <Cache, class T>
FARWARP_DEVICE void store(Global<T> address, std::type_identity_t<T> value) {
  detail::weak_store(address.raw, value, emu::Space::global);
}
template <Cache, class T>
FARWARP_DEVICE void store(Peer<T> address, std::type_identity_t<T> value) {
  detail::weak_store(address.raw, value, emu::Space::peer);
}
template <class T>
FARWARP_DEVICE void store(Shared<T> address, std::type_identity_t<T> value) {
  detail::weak_store(address.raw, value, emu::Space::shared);
}
template <class T>
FARWARP_DEVICE void store_at(Shared<T> address, int rank, std::type_identity_t<T> value) {
  detail::weak_store(static_cast<T*>(emu::place_in_cluster(address.raw, rank)), value, emu::Space::cluster);
}

template <Order order, Scope scope, class T>
FARWARP_DEVICE std::remove_const_t<T> load(Global<T> address) {
  return detail::atomic_load<order, scope>(address.raw, emu::Space::global);
}
template <Order order, Scope scope, class T>
FARWARP_DEVICE void store(Global<T> address, std::type_identity_t<T> value) {
  detail::atomic_store<order, scope, T>(address.raw, value, emu::Space::global);
}
template <Order order, Scope scope, class T>
FARWARP_DEVICE T fetch_add(Global<T> address, std::type_identity_t<T> value) {
  static_assert(std::is_integral_v<T>);
  return detail::atomic_modify<order, scope, T>(address.raw, emu::Modify::add, value, T{}, emu::Space::global);
}
FARWARP_DEVICE std::uint32_t fetch_add(Shared<std::uint32_t> address, std::uint32_t value) {
  return detail::atomic_modify<Order::relaxed, Scope::block, std::uint32_t>(address.raw, emu::Modify::add, value, 0,
                                                                            emu::Space::shared);
}
template <Order order, Scope scope, class T>
FARWARP_DEVICE T exchange(Global<T> address, std::type_identity_t<T> value) {
  return detail::atomic_modify<order, scope, T>(address.raw, emu::Modify::exchange, value, T{}, emu::Space::global);
}
template <Order order, Scope scope, class T>
FARWARP_DEVICE T compare_exchange(Global<T> address, std::type_identity_t<T> expected,
                                  std::type_identity_t<T> desired) {
  return detail::atomic_modify<order, scope, T>(address.raw, emu::Modify::compare_exchange, desired, expected,
                                                emu::Space::global);
}

template <Order order, class T>
FARWARP_DEVICE T load(Global<SystemCell<T>> cell) {
  return detail::atomic_load<order, Scope::system>(&cell.raw->word, emu::Space::global);
}
template <Order order, class T>
FARWARP_DEVICE T load(Peer<SystemCell<T>> cell) {
  return detail::atomic_load<order, Scope::system>(&cell.raw->word, emu::Space::peer);
}
template <Order order, class T>
FARWARP_DEVICE void store(Global<SystemCell<T>> cell, std::type_identity_t<T> value) {
  detail::atomic_store<order, Scope::system, T>(&cell.raw->word, value, emu::Space::global);
}
template <Order order, class T>
FARWARP_DEVICE void store(Peer<SystemCell<T>> cell, std::type_identity_t<T> value) {
  detail::atomic_store<order, Scope::system, T>(&cell.raw->word, value, emu::Space::peer);
}
template <Order order, class T>
FARWARP_DEVICE T fetch_add(Peer<SystemCell<T>> cell, std::type_identity_t<T> value) {
  static_assert(std::is_integral_v<T>);
  return detail::atomic_modify<order, Scope::system, T>(&cell.raw->word, emu::Modify::add, value, T{},
                                                        emu::Space::peer);
}

template <class T>
FARWARP_DEVICE void acquire(Global<SystemCell<T>> cell) {
  load<Order::acquire>(cell);
}

template <class T>
FARWARP_DEVICE void prefetch(Global<T> address) {
  emu::prefetch(address.raw);
}

FARWARP_DEVICE void store_words(Peer<Vec16> address, Vec16 words) {
  emu::write16(address.raw, {words.lo, words.hi}, {.space = emu::Space::peer, .bytes = 8, .strong = true});
}

FARWARP_DEVICE Vec16 load_words(Global<const Vec16> address) {
  std::uint64_t halves[2];
  emu::read16(address.raw, halves, {.space = emu::Space::global, .bytes = 8, .strong = true});
  return {halves[0], halves[1]};
}

template <Order order, Scope scope>
FARWARP_DEVICE void fence() {
  static_assert(order != Order::relaxed, "a relaxed fence orders nothing");
  emu::fence(order, scope);
}

FARWARP_DEVICE void drain_stores() { emu::drain_stores(); }

}  // namespace farwarp::FARWARP_TARGET
