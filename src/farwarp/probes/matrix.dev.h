// The rate of the matrix unit alone: the operands stay in shared memory (wgmma) or registers (MFMA).
#pragma once

#include "farwarp/base/swizzle.h"
#include "farwarp/probes/args.h"
#include "farwarp/substrate/device.h"

namespace farwarp::FARWARP_TARGET::probes {

using namespace farwarp::probes;

FARWARP_DEVICE Bf16 matrix_element(int row, int k) {
  return round_to<Bf16>(static_cast<float>(matrix_value(row, k)) / 8);
}

/// [block] Fills rows 0 .. rows - 1, of 64 elements each, swizzled.
FARWARP_DEVICE void fill_tile(Shared<std::byte> tile, int rows) {
  for (int i = thread_index(); i < rows * kMatrixDepth; i += num_threads()) {
    const int row = i / kMatrixDepth, k = i % kMatrixDepth;
    store(Shared<Bf16>(reinterpret_cast<Bf16*>((tile + swizzled_offset(row, 2 * k)).raw)), matrix_element(row, k));
  }
}

/// The sums are multiples of 1/64: their sum is exact as an integer.
template <int count>
FARWARP_DEVICE std::uint64_t checksum(const float (&sums)[count]) {
  std::int64_t sum = 0;
#pragma unroll
  for (int i = 0; i < count; ++i) sum += static_cast<std::int64_t>(sums[i] * 64);
  return static_cast<std::uint64_t>(sum);
}

/// [block] wgmma: two warpgroups multiply 64 rows each by the same 256 columns. MFMA: every wave multiplies 16 rows by
/// 16 columns.
template <class Machine, class T>
FARWARP_DEVICE std::uint64_t multiply_in_place(const MatrixArgs& args) {
  if constexpr (Machine::kMatrixUnit == MatrixUnit::kWgmma) {
    const Shared<std::byte> a = block_shared(), b = a + 128 * kSwizzleRowBytes;
    fill_tile(a, 128);
    fill_tile(b, kMatrixColumns);
    proxy_fence();
    block_sync();
    float sums[kMatrixColumns / 2];
    const Shared<std::byte> mine = a + thread_index() / 128 * 64 * kSwizzleRowBytes;
    for (int round = 0; round < args.rounds; ++round) {
      wgmma_fence();
#pragma unroll
      for (int k = 0; k < kMatrixDepth; k += 16) wgmma<T, kMatrixColumns>(sums, mine, b, k, round > 0 || k > 0);
      wgmma_commit();
      wgmma_wait_read<1>();
    }
    wgmma_wait_all(sums);
    return checksum(sums);
  } else {
    // Four sums of the same product hide the instruction's latency.
    const auto operand = [](int row, int first) {
      std::uint64_t four = 0;
      for (int i = 0; i < 4; ++i) four |= static_cast<std::uint64_t>(matrix_element(row, first + i).bits) << (16 * i);
      return four;
    };
    const int row = lane_index() % 16, first = 4 * (lane_index() / 16);
    const std::uint64_t a = operand(row, first), b = operand(row, first);
    float sums[4][4] = {};
    for (int round = 0; round < args.rounds; ++round) {
#pragma unroll
      for (int i = 0; i < 4; ++i) mfma<T>(sums[i], a, b);
    }
    return checksum(sums[0]) + checksum(sums[1]) + checksum(sums[2]) + checksum(sums[3]);
  }
}

/// [block]
FARWARP_DEVICE void multiply_rounds(const MatrixArgs& args) {
  const std::uint64_t sum = multiply_in_place<Target, Bf16>(args);
  store(Global<std::uint64_t>(args.out) + (static_cast<std::int64_t>(block_index()) * num_threads() + thread_index()),
        sum);
}

}  // namespace farwarp::FARWARP_TARGET::probes
