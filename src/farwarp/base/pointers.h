// Typed device pointers. They have no operator*: device code accesses memory only through the loads, stores and copies
// of substrate/, so that the emulator's memory model sees every access.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace farwarp {

namespace detail {

template <class Derived, class T>
struct PointerArithmetic {
  T* raw = nullptr;

  constexpr Derived operator+(std::ptrdiff_t count) const { return make(raw + count); }
  constexpr Derived& operator+=(std::ptrdiff_t count) {
    raw += count;
    return static_cast<Derived&>(*this);
  }
  constexpr explicit operator bool() const { return raw != nullptr; }

 private:
  static constexpr Derived make(T* pointer) {
    Derived result;
    result.raw = pointer;
    return result;
  }
};

}  // namespace detail

/// Memory of this rank's device: a tensor of the user, a workspace, or this rank's part of the symmetric heap.
template <class T>
struct Global : detail::PointerArithmetic<Global<T>, T> {
  constexpr Global() = default;
  constexpr explicit Global(T* pointer) { this->raw = pointer; }
  constexpr operator Global<const T>() const requires(!std::is_const_v<T>) { return Global<const T>(this->raw); }
};

/// Memory of a peer's device, or of this one accessed as a peer's: some rank's part of the symmetric heap.
/// Cells are accessed through it at system scope only.
template <class T>
struct Peer : detail::PointerArithmetic<Peer<T>, T> {
  constexpr Peer() = default;
  constexpr explicit Peer(T* pointer) { this->raw = pointer; }
  constexpr operator Peer<const T>() const requires(!std::is_const_v<T>) { return Peer<const T>(this->raw); }
};

/// Memory shared by the threads of one block (CUDA: shared memory; AMD: LDS).
template <class T>
struct Shared : detail::PointerArithmetic<Shared<T>, T> {
  constexpr Shared() = default;
  constexpr explicit Shared(T* pointer) { this->raw = pointer; }
  constexpr operator Shared<const T>() const requires(!std::is_const_v<T>) { return Shared<const T>(this->raw); }
};

/// A cell: a word that a peer may write. Accesses below system scope do not compile, not even local polls.
template <class T>
struct alignas(sizeof(T)) SystemCell {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8, "a cell is one 32-bit or 64-bit word");
  T word;
};

namespace detail {
template <class T>
inline constexpr bool is_cell = false;
template <class T>
inline constexpr bool is_cell<SystemCell<T>> = true;
}  // namespace detail

template <class T>
concept CellType = detail::is_cell<std::remove_const_t<T>>;

/// 16 bytes moved by one access; each 8-byte half is single-copy atomic on its own, the whole is not.
struct alignas(16) Vec16 {
  std::uint64_t lo;
  std::uint64_t hi;
};

/// Data that carries its own flag: 8 bytes of data and two copies of a 32-bit tag, one in each atomic half.
/// lo = data[31:0] | tag << 32, hi = data[63:32] | tag << 32. After NCCL's LL protocol.
struct alignas(16) Packet {
  std::uint64_t lo;
  std::uint64_t hi;
};

constexpr Packet make_packet(std::uint64_t data, std::uint32_t tag) {
  const std::uint64_t high_tag = static_cast<std::uint64_t>(tag) << 32;
  return {(data & 0xffffffffull) | high_tag, (data >> 32) | high_tag};
}
constexpr bool packet_has_tag(Packet packet, std::uint32_t tag) {
  return static_cast<std::uint32_t>(packet.lo >> 32) == tag && static_cast<std::uint32_t>(packet.hi >> 32) == tag;
}
constexpr std::uint64_t packet_data(Packet packet) { return (packet.lo & 0xffffffffull) | (packet.hi << 32); }

}  // namespace farwarp
