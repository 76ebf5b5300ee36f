// A warp's product of a fragment of weights and activations, alike for both matrix units.
#pragma once

#include "farwarp/fleet/layout.h"
#include "farwarp/substrate/device.h"

namespace farwarp::FARWARP_TARGET::fleet {

using namespace farwarp::fleet;

inline constexpr bool kMfma = Target::kMatrixUnit == MatrixUnit::kMfma;

/// A lane's part of 16 x 16 weights: four columns of each of its rows, as memory holds them (fragment_offset()). Hopper: two columns of both rows, twice.
template <MatrixUnit unit>
struct FragmentOf {
  std::uint64_t words[unit == MatrixUnit::kMfma ? 1 : 2];
};
using Fragment = FragmentOf<Target::kMatrixUnit>;

/// A lane's four sums of 16 rows x the columns of activations.
using Sums = float[4];
constexpr FARWARP_DEVICE MatrixIndex sum_index(int lane, int i) { return kMfma ? mfma_sum(lane, i) : mma_sum(lane, i); }
/// The column of activations, and which four of the fragment's 16 columns, that a lane gives to a product.
constexpr FARWARP_DEVICE int operand_column(int lane) { return kMfma ? lane % 16 : lane / 4; }
constexpr FARWARP_DEVICE int operand_four(int lane) { return kMfma ? lane / 16 : lane % 4; }

/// [thread] The lane's part of the fragment at `memory`.
template <MatrixUnit unit = Target::kMatrixUnit, template <class> class Space>
FARWARP_DEVICE FragmentOf<unit> load_fragment(Space<const std::byte> memory) {
  if constexpr (unit == MatrixUnit::kMfma) {
    return {{load(Space<const std::uint64_t>(reinterpret_cast<const std::uint64_t*>(memory.raw)) + lane_index())}};
  } else {
    const Vec16 rows = load(Space<const Vec16>(reinterpret_cast<const Vec16*>(memory.raw)) + lane_index());
    return {{rows.lo, rows.hi}};
  }
}

/// [warp] sums += weights * activations.
template <MatrixUnit unit>
FARWARP_DEVICE void multiply_fragment(Sums& sums, const FragmentOf<unit>& weights, std::uint64_t activations) {
  if constexpr (unit == MatrixUnit::kMfma) {
    mfma<Bf16>(sums, weights.words[0], activations);
  } else {
    constexpr std::uint64_t kLow = 0xffffffff;
    const std::uint64_t first = weights.words[0], second = weights.words[1];
    mma<Bf16>(sums, {(first & kLow) | second << 32, first >> 32 | (second & ~kLow)}, activations);
  }
}

/// [thread] Columns `column` to `column` + 3 of a row of the fragment at `fragment`.
template <template <class> class Space, class Byte>
FARWARP_DEVICE std::uint64_t load_four_of(Space<Byte> fragment, int row, int column) {
  const Space<Byte> at = fragment + fragment_offset(Target::kMatrixUnit, row, column);
  if constexpr (kMfma) {
    return load(Space<const std::uint64_t>(reinterpret_cast<const std::uint64_t*>(at.raw)));
  } else {
    const Space<const std::uint32_t> words(reinterpret_cast<const std::uint32_t*>(at.raw));
    return load(words) | static_cast<std::uint64_t>(load(words + 2)) << 32;
  }
}
/// [thread] Stores them.
FARWARP_DEVICE void store_four_of(Global<std::byte> fragment, int row, int column, std::uint64_t four) {
  const Global<std::byte> at = fragment + fragment_offset(Target::kMatrixUnit, row, column);
  if constexpr (kMfma) {
    store(Global<std::uint64_t>(reinterpret_cast<std::uint64_t*>(at.raw)), four);
  } else {
    const Global<std::uint32_t> words(reinterpret_cast<std::uint32_t*>(at.raw));
    store(words, static_cast<std::uint32_t>(four));
    store(words + 2, static_cast<std::uint32_t>(four >> 32));
  }
}

}  // namespace farwarp::FARWARP_TARGET::fleet
