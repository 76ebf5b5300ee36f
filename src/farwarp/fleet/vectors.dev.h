// Vectors of activations: packets of four bf16 that every worker reads and one worker each writes (layout.h).
#pragma once

#include "farwarp/fleet/product.dev.h"
#include "farwarp/world/device/wait.dev.h"

namespace farwarp::FARWARP_TARGET::fleet {

FARWARP_DEVICE Global<Packet> vector_at(const WorldView& view, std::int64_t vector) {
  return own_address<Packet>(view, vector);
}

/// Element `i` of four bf16.
FARWARP_DEVICE float number_of(std::uint64_t four, int i) {
  return to_float(Bf16{static_cast<std::uint16_t>(four >> (16 * i))});
}
FARWARP_DEVICE std::uint64_t pack_four(float a, float b, float c, float d) {
  return round_pair<Bf16>(a, b) | static_cast<std::uint64_t>(round_pair<Bf16>(c, d)) << 32;
}

/// [thread] The four numbers from row `row` on of column `column`, once they have arrived.
template <int columns>
FARWARP_DEVICE std::uint64_t wait_four(Call& call, std::int64_t vector, int row, int column, std::uint32_t site) {
  const Global<Packet> from[1] = {vector_at(call.view, vector) + packet_at(columns, row, column)};
  std::uint64_t data[1] = {};
  wait_packets<1>(call, from, 1, data, Wait{.site = site, .peer = call.view.rank});
  return data[0];
}
/// [thread] Stores them with the call's tag.
template <int columns>
FARWARP_DEVICE void store_four(const Call& call, std::int64_t vector, int row, int column, std::uint64_t four) {
  store_packet(peer_address<Packet>(call.view, call.view.rank, vector) + packet_at(columns, row, column), four,
               call.epoch);
}

/// What a warp multiplies in a pass: for each of its fragments, the lane's part of the activations.
template <int columns>
class PassVector {
 public:
  /// [warp] Waits for the warp's part of a pass: `stages` stages from `first` on. If there is a `norm`, multiplies by it, and adds the squares of
  /// what has arrived, of column lane / 4 % columns, to `squares`.
  FARWARP_DEVICE void wait(Call& call, std::int64_t vector, int first, int stages, Global<const std::uint64_t> norm,
                           float& squares, std::uint32_t site) {
    std::uint64_t packets[kLoads];
#pragma unroll
    for (int group = 0; group < kLoads; group += kGroup) {
      Global<Packet> from[kGroup];
      std::uint64_t data[kGroup] = {};
      std::uint32_t wanted = 0;
#pragma unroll
      for (int i = 0; i < kGroup; ++i) {
        const int number = (group + i) * Target::kWarpSize + lane_index();
        from[i] = vector_at(call.view, vector) + packet_of(first, number);
        if (group + i < kLoads && number < stages * kStagePackets) wanted |= 1u << i;
      }
      std::uint64_t factors[kGroup] = {};
      if (norm) {
#pragma unroll
        for (int i = 0; i < kGroup; ++i) {
          if (wanted >> i & 1) factors[i] = load(norm + four_of(first, (group + i) * Target::kWarpSize + lane_index()));
        }
      }
      if (group < (stages * kStagePackets + Target::kWarpSize - 1) / Target::kWarpSize)
        wait_packets<1>(call, from, wanted, data, Wait{.site = site, .peer = call.view.rank});
      warp_sync();  // lanes leave the wait one by one: without it each would do the rest alone
#pragma unroll
      for (int i = 0; i < kGroup; ++i) {
        if (group + i >= kLoads) continue;
        packets[group + i] = norm ? scaled(data[i], factors[i], squares) : data[i];
      }
    }
#pragma unroll
    for (int i = 0; i < kFragments; ++i) {
      constexpr int kFragmentPackets = 4 * columns;
      const int lane =
          i * kFragmentPackets % Target::kWarpSize + operand_column(lane_index()) * 4 + operand_four(lane_index());
      std::uint64_t four = packets[i * kFragmentPackets / Target::kWarpSize];
      if constexpr (kMfma || columns < kMostColumns)
        four = shuffle(four, lane % Target::kWarpSize);  // else it is the lane's
      fragments_[i] = operand_column(lane_index()) < columns ? four : 0;
    }
  }
  FARWARP_DEVICE std::uint64_t operator[](int fragment) const { return fragments_[fragment]; }

 private:
  static constexpr int kFragments = kMostPassStages * kStageFragments;
  static constexpr int kStagePackets = kStageFragments * 4 * columns;  ///< of the warp
  static constexpr int kLoads = (kMostPassStages * kStagePackets + Target::kWarpSize - 1) / Target::kWarpSize;
  static constexpr int kGroup =
      kLoads < 16 ? kLoads
                  : 16;  ///< that a lane waits for together: each wait takes a flight of 2 us while copies load memory

  /// The warp's packet `number` of a pass, among all packets of the vector.
  static FARWARP_DEVICE std::int64_t packet_of(int first, int number) {
    const int stage = number / kStagePackets, in_stage = number % kStagePackets;
    return std::int64_t{first + stage} * (kStageColumns / 4 * columns) + warp_index() * kStagePackets + in_stage;
  }
  /// Which four rows of the vector it has, counted in fours.
  static FARWARP_DEVICE std::int64_t four_of(int first, int number) {
    const int stage = number / kStagePackets, in_stage = number % kStagePackets;
    return (first + stage) * (kStageColumns / 4) + warp_index() * (4 * kStageFragments) + in_stage / (4 * columns) * 4 +
           in_stage % 4;
  }
  static FARWARP_DEVICE std::uint64_t scaled(std::uint64_t four, std::uint64_t factors, float& squares) {
    float numbers[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float number = number_of(four, i);
      squares = fused_multiply_add(number, number, squares);
      numbers[i] = multiply(number, number_of(factors, i));
    }
    return pack_four(numbers[0], numbers[1], numbers[2], numbers[3]);
  }

  std::uint64_t fragments_[kFragments];
};

}  // namespace farwarp::FARWARP_TARGET::fleet
