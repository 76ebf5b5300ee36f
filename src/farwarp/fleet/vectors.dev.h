// Vectors of activations: packets of four bf16 that every worker reads and one worker each writes (layout.h).
#pragma once

#include "farwarp/fleet/product.dev.h"
#include "farwarp/fleet/worker.dev.h"

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

/// Two fp32, as a packet has them.
struct Two {
  float first, second;
};
FARWARP_DEVICE std::uint64_t pack_two(float first, float second) {
  return std::bit_cast<std::uint32_t>(first) | static_cast<std::uint64_t>(std::bit_cast<std::uint32_t>(second)) << 32;
}
FARWARP_DEVICE Two unpack_two(std::uint64_t bits) {
  return {std::bit_cast<float>(static_cast<std::uint32_t>(bits)),
          std::bit_cast<float>(static_cast<std::uint32_t>(bits >> 32))};
}

/// [thread] The four numbers from row `row` on of column `column`, once they have arrived.
template <int columns>
FARWARP_DEVICE std::uint64_t wait_four(Call& call, const Worker<columns>& worker, std::int64_t vector, int row,
                                       int column, std::uint32_t site) {
  const Global<Packet> from[1] = {vector_at(call.view, vector) + packet_at(Target::kMatrixUnit, columns, row, column)};
  std::uint64_t data[1] = {};
  wait_vector(call, worker, from, 1, data, Wait{.site = site, .peer = call.view.rank});
  return data[0];
}
/// [thread] Stores them with the call's tag.
template <int columns>
FARWARP_DEVICE void store_four(const Call& call, const Worker<columns>& worker, std::int64_t vector, int row,
                               int column, std::uint64_t four) {
  store_vector(
      call, worker,
      peer_address<Packet>(call.view, call.view.rank, vector) + packet_at(Target::kMatrixUnit, columns, row, column),
      four);
}

/// [warp] The sums of the squares of a normed vector of `rows` rows. Each 32 threads have a pair of columns, the first 16 of them the first column; `pair`
/// is the thread's.
template <int columns>
FARWARP_DEVICE float wait_squares(Call& call, const Worker<columns>& worker, std::int64_t vector, int rows, int pair,
                                  std::uint32_t site) {
  constexpr int kLanes = 32, kTogether = 5;
  const int lane = lane_index() % kLanes, tiles = pair < column_pairs(columns) ? rows / kTileRows : 0;
  float first = 0, second = 0;
#pragma unroll 1
  for (int begin = 0; begin < rows / kTileRows; begin += kTogether * kLanes) {
    Global<Packet> from[kTogether];
    std::uint64_t data[kTogether] = {};
    std::uint32_t wanted = 0;
#pragma unroll
    for (int i = 0; i < kTogether; ++i) {
      const int tile = begin + i * kLanes + lane;
      from[i] = vector_at(call.view, vector) + squares_at(columns, rows, tile, pair);
      if (tile < tiles) wanted |= 1u << i;
    }
    wait_vector(call, worker, from, wanted, data, Wait{.site = site, .peer = call.view.rank});
    warp_sync();  // lanes leave the wait one by one
#pragma unroll
    for (int i = 0; i < kTogether; ++i) {
      const Two two = unpack_two(data[i]);
      first = add(first, two.first);
      second = add(second, two.second);
    }
  }
#pragma unroll
  for (int lanes = 1; lanes < kLanes; lanes *= 2) {
    first = add(first, shuffle_xor(first, lanes));
    second = add(second, shuffle_xor(second, lanes));
  }
  return lane < kTileRows ? first : second;
}

/// What a warp multiplies in a pass: for each of its fragments, the lane's part of the activations, in shared memory. Registers for them would be
/// spilled; on Hopper what is spilled is in L2, because the ring leaves no L1.
template <int columns>
class PassVector {
 public:
  /// `memory`: laid out as ProjectShared.
  FARWARP_DEVICE explicit PassVector(Shared<std::byte> memory)
      : words_(reinterpret_cast<std::uint64_t*>(
            (memory + ProjectShared<columns, Target::kHasBulkCopy>::vector(warp_index())).raw)) {}

  /// [warp] Waits for the warp's part of a pass: `stages` stages from `first` on.
  FARWARP_DEVICE void wait(Call& call, const Worker<columns>& worker, std::int64_t vector, int first, int stages,
                           std::uint32_t site) {
    const int count = stages * kOfStage - lane_index();  // of the lane: every warp-size-th
    const int loads = count > 0 ? (count + Target::kWarpSize - 1) / Target::kWarpSize : 0;
    const Global<Packet> packets = vector_at(call.view, vector);
    if (worker.plain) {
      load_all(worker, packets, first, loads);
      return;
    }
    wait_each_packet<kTogether>(
        call, (std::uint64_t{1} << loads) - 1,
        [&](int i) { return packets + packet_of(first, i * Target::kWarpSize + lane_index()); },
        [&](int i, std::uint64_t data) { store(words_ + (i * Target::kWarpSize + lane_index()), data); },
        Wait{.site = site, .peer = call.view.rank});
    warp_sync();  // also because lanes leave the wait one by one: without it each would do the rest alone
  }
  FARWARP_DEVICE std::uint64_t operator[](int fragment) const {
    const int column = operand_column(lane_index());
    if (column >= columns) return 0;
    return load(words_ + (fragment * kOfFragment + column * 4 + operand_four(lane_index())));
  }

 private:
  /// [warp] The same, of plain memory.
  FARWARP_DEVICE void load_all(const Worker<columns>& worker, Global<Packet> packets, int first, int loads) {
    constexpr int kAtOnce = 4;
#pragma unroll 1
    for (int begin = 0; begin < loads; begin += kAtOnce) {
      std::uint64_t data[kAtOnce] = {};
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        if (begin + i < loads)
          data[i] =
              load(worker.data_of((packets + packet_of(first, (begin + i) * Target::kWarpSize + lane_index())).raw));
      }
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        if (begin + i < loads) store(words_ + ((begin + i) * Target::kWarpSize + lane_index()), data[i]);
      }
    }
    warp_sync();
  }

  static constexpr int kTogether = columns == 1 || !Target::kHasBulkCopy ? 5 : 8;  ///< CDNA has no registers for more
  static constexpr int kOfFragment = 4 * columns, kOfStage = kStageFragments * kOfFragment;  ///< packets of the warp
  static_assert(most_pass_stages(columns, Target::kHasBulkCopy) * kOfStage < 64 * Target::kWarpSize);

  /// The warp's packet `number` of the pass that begins at stage `first`, among all packets of the vector.
  static FARWARP_DEVICE std::int64_t packet_of(int first, int number) {
    const int stage = number / kOfStage, in_stage = number % kOfStage;
    return std::int64_t{first + stage} * (kStageColumns / 4 * columns) + warp_index() * kOfStage + in_stage;
  }

  Shared<std::uint64_t> words_;
};

}  // namespace farwarp::FARWARP_TARGET::fleet
