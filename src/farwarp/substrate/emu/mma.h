#pragma once

#include <type_traits>

#include "farwarp/base/fp8.h"
#include "farwarp/base/fragments.h"
#include "farwarp/substrate/device.h"

namespace farwarp::FARWARP_TARGET {

FARWARP_DEVICE void wgmma_fence() { emu::wgmma_fence(); }
template <int count>
FARWARP_DEVICE void wgmma_fence_loaded(std::uint32_t (&)[count][4]) {
  emu::wgmma_fence();
}
FARWARP_DEVICE void load_operand(Shared<const Vec16> address, std::uint32_t (&a)[4]) {
  const Vec16 words = load(address);
  a[0] = static_cast<std::uint32_t>(words.lo);
  a[1] = static_cast<std::uint32_t>(words.lo >> 32);
  a[2] = static_cast<std::uint32_t>(words.hi);
  a[3] = static_cast<std::uint32_t>(words.hi >> 32);
}

template <class T, int columns>
FARWARP_DEVICE void wgmma(float (&sums)[columns / 2], Shared<const std::byte> a, Shared<const std::byte> b, int k,
                          bool accumulate) {
  static_assert(columns % 8 == 0 && columns <= 256);
  emu::MatrixOperands operands{.a = a.raw, .b = b.raw, .k = k, .columns = columns, .accumulate = accumulate};
  if constexpr (std::is_same_v<T, Fp8>) {
    operands.fp8 = true;
  } else {
    operands.type = T::kDType;
  }
  emu::wgmma(operands, sums);
}

template <class T, int columns>
FARWARP_DEVICE void wgmma_mn(float (&sums)[columns / 2], Shared<const std::byte> a, Shared<const std::byte> b, int k,
                             bool accumulate) {
  static_assert(columns % 8 == 0 && columns <= 256);
  emu::wgmma({.a = a.raw,
              .b = b.raw,
              .k = k,
              .a_is_mn_major = true,
              .columns = columns,
              .accumulate = accumulate,
              .type = T::kDType},
             sums);
}

template <class T, int columns>
FARWARP_DEVICE void wgmma_rs(float (&sums)[columns / 2], const std::uint32_t (&a)[4], Shared<const std::byte> b, int k,
                             bool accumulate) {
  static_assert(columns % 8 == 0 && columns <= 256);
  emu::wgmma({.b = b.raw, .k = k, .columns = columns, .accumulate = accumulate, .type = T::kDType}, sums, a);
}

template <class T, int columns>
FARWARP_DEVICE void wgmma_rs(float (&sums)[columns / 2], const std::uint32_t (&a)[4], Shared<const std::byte> b,
                             int panel_bytes, int k, bool accumulate) {
  static_assert(columns % 8 == 0 && columns <= 256);
  emu::wgmma(
      {.b = b.raw, .k = k, .panel_bytes = panel_bytes, .columns = columns, .accumulate = accumulate, .type = T::kDType},
      sums, a);
}

FARWARP_DEVICE void wgmma_commit() { emu::wgmma_commit(); }

template <int pending>
FARWARP_DEVICE void wgmma_wait_read() {
  emu::wgmma_wait(pending);
}
template <int pending, int count>
FARWARP_DEVICE void wgmma_wait_sums(float (&)[count]) {
  emu::wgmma_wait(pending);
}
template <int count>
FARWARP_DEVICE void wgmma_wait_all(float (&)[count]) {
  emu::wgmma_wait(0);
}

template <int count>
FARWARP_DEVICE void lower_registers() {}
template <int count>
FARWARP_DEVICE void raise_registers() {}

// mma(), mfma() and mfma32(): the warp's lanes exchange their registers. Then each lane computes its own sums in fp32,
// one product after the other in the order of k. A product of two 16-bit numbers has at most 22 bits, so it is exact in
// fp32, unless it is too small for a normal number.

/// The numbers of a row, of which lanes have four each: lanes `first`, `first` + `step`, ...
template <class T, int count>
FARWARP_DEVICE void numbers_of(const emu::WarpValues& lanes, int first, int step, float (&numbers)[count]) {
  for (int k = 0; k < count; ++k)
    numbers[k] = float_from(T{static_cast<std::uint16_t>(lanes.values[first + k / 4 * step] >> k % 4 * 16)});
}

template <class T>
FARWARP_DEVICE void mma(float (&sums)[4], const std::uint64_t (&a)[2], std::uint64_t b) {
  static_assert(sizeof(T) == 2 && Target::kMatrixUnit == MatrixUnit::kWgmma);
  float rows[2][16], columns[2][16];
  for (int half = 0; half < 2; ++half) {
    const emu::WarpValues lanes = emu::warp_exchange(emu::WarpOp::mma, a[half]);
    numbers_of<T>(lanes, 4 * (mma_sum(lane_index(), 0).row % 8), 1, rows[half]);
  }
  const emu::WarpValues lanes = emu::warp_exchange(emu::WarpOp::mma, b);
  for (int i = 0; i < 2; ++i) numbers_of<T>(lanes, 4 * mma_sum(lane_index(), i).column, 1, columns[i]);
  for (int k = 0; k < 16; ++k) {
    for (int i = 0; i < 4; ++i) sums[i] += rows[i / 2][k] * columns[i % 2][k];
  }
}

template <class T>
FARWARP_DEVICE void mfma(float (&sums)[4], std::uint64_t a, std::uint64_t b) {
  static_assert(sizeof(T) == 2 && Target::kMatrixUnit == MatrixUnit::kMfma);
  float rows[4][16], column[16];
  const emu::WarpValues a_lanes = emu::warp_exchange(emu::WarpOp::mma, a);
  for (int i = 0; i < 4; ++i) numbers_of<T>(a_lanes, mfma_sum(lane_index(), i).row, 16, rows[i]);
  const emu::WarpValues b_lanes = emu::warp_exchange(emu::WarpOp::mma, b);
  numbers_of<T>(b_lanes, mfma_sum(lane_index(), 0).column, 16, column);  // the same of all four sums
  for (int k = 0; k < 16; ++k) {
    for (int i = 0; i < 4; ++i) sums[i] += rows[i][k] * column[k];
  }
}

template <class T>
FARWARP_DEVICE void mfma(MfmaSums& sums, std::uint64_t a, std::uint64_t b) {
  mfma<T>(sums.value, a, b);
}

// As gfx942 does it: the first four of each lane's eight, then the others.
template <class T>
FARWARP_DEVICE void mfma(float (&sums)[4], Vec16 a, Vec16 b) {
  mfma<T>(sums, a.lo, b.lo);
  mfma<T>(sums, a.hi, b.hi);
}
template <class T>
FARWARP_DEVICE void mfma(MfmaSums& sums, Vec16 a, Vec16 b) {
  mfma<T>(sums.value, a, b);
}
template <class T>
FARWARP_DEVICE void mfma32(Mfma32Sums& sums, Vec16 a, Vec16 b) {
  static_assert(sizeof(T) == 2 && Target::kMatrixUnit == MatrixUnit::kMfma);
  for (const auto& [of_a, of_b] : {std::pair{a.lo, b.lo}, std::pair{a.hi, b.hi}}) {
    float rows[16][8], column[8];
    const emu::WarpValues a_lanes = emu::warp_exchange(emu::WarpOp::mma, of_a);
    for (int i = 0; i < 16; ++i) numbers_of<T>(a_lanes, mfma32_sum(lane_index(), i).row, 32, rows[i]);
    const emu::WarpValues b_lanes = emu::warp_exchange(emu::WarpOp::mma, of_b);
    numbers_of<T>(b_lanes, mfma32_sum(lane_index(), 0).column, 32, column);  // the same of all sums
    for (int k = 0; k < 8; ++k) {
      for (int i = 0; i < 16; ++i) sums[i] += rows[i][k] * column[k];
    }
  }
}

}  // namespace farwarp::FARWARP_TARGET
