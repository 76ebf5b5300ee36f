// A warp's product of a fragment of weights and activations, alike for both matrix units.
#pragma once

#include "farwarp/fleet/layout.h"
#include "farwarp/substrate/device.h"

namespace farwarp::FARWARP_TARGET::fleet {

using namespace farwarp::fleet;

inline constexpr bool kMfma = Target::kMatrixUnit == MatrixUnit::kMfma;
inline constexpr FragmentOrder kPageOrder = fragment_order(Target::kMatrixUnit);  ///< of keys and values

/// A lane's part of 16 x 16 weights: four columns of each of its rows, as memory holds them (FragmentOrder). Hopper:
/// two columns of both rows, twice.
template <MatrixUnit unit>
struct FragmentOf {
  std::uint64_t words[unit == MatrixUnit::kMfma ? 1 : 2];
};
using Fragment = FragmentOf<Target::kMatrixUnit>;

/// A lane's four sums of 16 rows x the columns of activations.
using Sums = std::conditional_t<kMfma, MfmaSums, float[4]>;
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
template <MatrixUnit unit, class OfSums>
FARWARP_DEVICE void multiply_fragment(OfSums& sums, const FragmentOf<unit>& weights, std::uint64_t activations) {
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
FARWARP_DEVICE std::uint64_t load_four_of(Space<Byte> fragment, FragmentOrder order, int row, int column) {
  const auto at = [&](int of) { return (fragment + fragment_offset(order, row, of)).raw; };
  if constexpr (kMfma) {
    return load(Space<const std::uint64_t>(reinterpret_cast<const std::uint64_t*>(at(column))));
  } else {
    const auto word = [&](int of) {
      return load(Space<const std::uint32_t>(reinterpret_cast<const std::uint32_t*>(at(of))));
    };
    return word(column) | static_cast<std::uint64_t>(word(column + 2)) << 32;
  }
}
/// [thread] Stores them.
FARWARP_DEVICE void store_four_of(Global<std::byte> fragment, FragmentOrder order, int row, int column,
                                  std::uint64_t four) {
  const auto word_at = [&](int of) {
    return Global<std::uint32_t>(reinterpret_cast<std::uint32_t*>((fragment + fragment_offset(order, row, of)).raw));
  };
  if constexpr (kMfma) {
    store(Global<std::uint64_t>(reinterpret_cast<std::uint64_t*>(word_at(column).raw)), four);
  } else {
    store(word_at(column), static_cast<std::uint32_t>(four));
    store(word_at(column + 2), static_cast<std::uint32_t>(four >> 32));
  }
}

}  // namespace farwarp::FARWARP_TARGET::fleet
