#pragma once

#include "farwarp/base/fragments.h"
#include "farwarp/substrate/device.h"

namespace farwarp::FARWARP_TARGET {

FARWARP_DEVICE void wgmma_fence() { emu::wgmma_fence(); }

template <class T, int columns>
FARWARP_DEVICE void wgmma(float (&sums)[columns / 2], Shared<const std::byte> a, Shared<const std::byte> b, int k,
                          bool accumulate) {
  static_assert(columns % 8 == 0 && columns <= 256);
  emu::wgmma({.a = a.raw, .b = b.raw, .k = k, .columns = columns, .accumulate = accumulate, .type = T::kDType}, sums);
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

// The wave's lanes exchange their registers. Then each lane computes its own sums in fp32, one product after the other in the order of
// k.
template <class T>
FARWARP_DEVICE void mfma(float (&sums)[4], std::uint64_t a, std::uint64_t b) {
  static_assert(sizeof(T) == 2 && Target::kMatrixUnit == MatrixUnit::kMfma);
  const auto element = [](std::uint64_t four, int i) {
    return float_from(T{static_cast<std::uint16_t>(four >> (16 * i))});
  };
  // Lanes `row`, `row` + 16, ... hold four k each; see mfma_operand().
  std::uint64_t rows[4][4];
  const emu::WarpValues a_lanes = emu::warp_exchange(emu::WarpOp::mfma, a);
  for (int i = 0; i < 4; ++i) {
    for (int four = 0; four < 4; ++four) rows[i][four] = a_lanes.values[mfma_sum(lane_index(), i).row + 16 * four];
  }
  const emu::WarpValues b_lanes = emu::warp_exchange(emu::WarpOp::mfma, b);
  for (int i = 0; i < 4; ++i) {
    for (int k = 0; k < 16; ++k) {
      const float right = element(b_lanes.values[mfma_sum(lane_index(), i).column + 16 * (k / 4)], k % 4);
      sums[i] = fused_multiply_add(element(rows[i][k / 4], k % 4), right, sums[i]);
    }
  }
}

template <class T>
FARWARP_DEVICE void mfma(MfmaSums& sums, std::uint64_t a, std::uint64_t b) {
  mfma<T>(sums.value, a, b);
}

}  // namespace farwarp::FARWARP_TARGET
