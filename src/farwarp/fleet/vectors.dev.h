// Vectors of activations, as tasks read and write them: every worker reads them, and one worker writes each four
// (layout.h).
#pragma once

#include "farwarp/fleet/numbers.dev.h"
#include "farwarp/fleet/product.dev.h"
#include "farwarp/fleet/worker.dev.h"

namespace farwarp::FARWARP_TARGET::fleet {

/// [thread] The four from row `row` on of column `column`; a packet once it has arrived.
template <int columns>
FARWARP_DEVICE std::uint64_t read_four(Call& call, const Worker<columns>& worker, std::int64_t vector, int row,
                                       int column, std::uint32_t site) {
  const std::int64_t at[1] = {four_at(Target::kMatrixUnit, columns, row, column)};
  std::uint64_t data[1] = {};
  read_fours(call, worker.buffers, vector, at, 1, data, Wait{.site = site, .peer = call.view.rank});
  return data[0];
}
/// [thread] Stores it; a packet with the call's tag.
template <int columns>
FARWARP_DEVICE void store_four(const Call& call, const Worker<columns>& worker, std::int64_t vector, int row,
                               int column, std::uint64_t four) {
  store_four_at(call, worker.buffers, vector, four_at(Target::kMatrixUnit, columns, row, column), four);
}

/// [warp] The sums of the squares of a normed vector of `rows` rows. Each 32 threads have a pair of columns, the first
/// 16 of them the first column; `pair` is the thread's.
template <int columns>
FARWARP_DEVICE float read_squares(Call& call, const Worker<columns>& worker, std::int64_t vector, int rows, int pair,
                                  std::uint32_t site) {
  constexpr int kLanes = 32, kTogether = 5;
  const int lane = lane_index() % kLanes, tiles = pair < column_pairs(columns) ? rows / kTileRows : 0;
  float first = 0, second = 0;
#pragma unroll 1
  for (int begin = 0; begin < rows / kTileRows; begin += kTogether * kLanes) {
    std::int64_t at[kTogether];
    std::uint64_t data[kTogether] = {};
    std::uint32_t wanted = 0;
#pragma unroll
    for (int i = 0; i < kTogether; ++i) {
      const int tile = begin + i * kLanes + lane;
      at[i] = squares_at(columns, rows, tile, pair);
      if (tile < tiles) wanted |= 1u << i;
    }
    read_fours(call, worker.buffers, vector, at, wanted, data, Wait{.site = site, .peer = call.view.rank});
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

/// What a warp multiplies in a pass: for each of its fragments, the lane's part of the activations, in shared memory.
/// Registers for them would be spilled; on Hopper what is spilled is in L2, because the ring leaves no L1.
template <int columns>
class PassVector {
 public:
  /// `memory`: laid out as ProjectShared.
  FARWARP_DEVICE explicit PassVector(Shared<std::byte> memory)
      : words_(reinterpret_cast<std::uint64_t*>(
            (memory + ProjectShared<columns, Target::kHasBulkCopy>::vector(warp_index())).raw)) {}

  /// [warp] Fetches the warp's part of a pass, `slices` slices from `first` on; packets as they arrive.
  FARWARP_DEVICE void fetch(Call& call, const Worker<columns>& worker, std::int64_t vector, int first, int slices,
                            std::uint32_t site) {
    const int count = slices * kOfSlice - lane_index();  // of the lane: every warp-size-th
    const int loads = count > 0 ? (count + Target::kWarpSize - 1) / Target::kWarpSize : 0;
    if (worker.buffers.plain) {
      load_all(worker.buffers.plain_at(vector), first, loads);
      return;
    }
    const Global<Packet> packets = packets_at(call.view, vector);
    wait_each_packet<kTogether>(
        call, (std::uint64_t{1} << loads) - 1,
        [&](int i) { return packets + place_of(first, i * Target::kWarpSize + lane_index()); },
        [&](int i, std::uint64_t data) { store(words_ + (i * Target::kWarpSize + lane_index()), data); },
        Wait{.site = site, .peer = call.view.rank});
    warp_sync();  // also because lanes leave the wait one by one: without it each would do the rest alone
  }
  FARWARP_DEVICE std::uint64_t operator[](int fragment) const {
    int column = operand_column(lane_index());
    if constexpr (kMfma) {
      column = column < columns ? column : 0;  // a product's columns do not mix, and nobody uses this one's sums
    } else {
      if (column >= columns) return 0;
    }
    return load(words_ + (fragment * kOfFragment + column * 4 + operand_four(lane_index())));
  }

 private:
  FARWARP_DEVICE void load_all(Global<std::uint64_t> fours, int first, int loads) {
    constexpr int kAtOnce = 4;
#pragma unroll 1
    for (int begin = 0; begin < loads; begin += kAtOnce) {
      std::uint64_t data[kAtOnce] = {};
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        if (begin + i < loads) data[i] = load(fours + place_of(first, (begin + i) * Target::kWarpSize + lane_index()));
      }
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        if (begin + i < loads) store(words_ + ((begin + i) * Target::kWarpSize + lane_index()), data[i]);
      }
    }
    warp_sync();
  }

  static constexpr int kTogether = columns == 1 || !Target::kHasBulkCopy ? 5 : 8;  ///< CDNA has no registers for more
  static constexpr int kOfFragment = 4 * columns, kOfSlice = kSliceFragments * kOfFragment;  ///< fours of the warp
  static_assert(most_pass_slices(columns, Target::kHasBulkCopy) * kOfSlice < 64 * Target::kWarpSize);

  /// The place of the warp's four `four` of the pass that begins at slice `first`.
  static FARWARP_DEVICE std::int64_t place_of(int first, int four) {
    const int slice = four / kOfSlice, in_slice = four % kOfSlice;
    return std::int64_t{first + slice} * (kSliceDepth / 4 * columns) + warp_index() * kOfSlice + in_slice;
  }

  Shared<std::uint64_t> words_;
};

}  // namespace farwarp::FARWARP_TARGET::fleet
