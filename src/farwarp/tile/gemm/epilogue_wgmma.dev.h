// The way of a warpgroup's sums to memory: rounded into boxes in shared memory, which tensor copies carry on while the next box
// is written, and the next tile multiplied.
//
//   warpgroup: box's buffer is free -> write it (4 bytes a thread, the swizzle keeps banks apart) -> proxy fence -> meet
//   one thread:                                                                                    -> tensor_store, commit
#pragma once

#include "farwarp/base/fragments.h"
#include "farwarp/tile/gemm/bias.dev.h"
#include "farwarp/tile/gemm/mainloop_wgmma.dev.h"

namespace farwarp::FARWARP_TARGET::tile {

inline constexpr int kBoxBytes = 64 * kSwizzleRowBytes;  ///< 64 rows x 64 columns, or of `columns` rows, if transposed

/// [thread] The one that starts the warpgroup's copies.
FARWARP_DEVICE bool leads_warpgroup() { return thread_index() % 128 == 0; }

/// A warpgroup's buffers and its place in their turn.
template <int buffers>
class BoxWriter {
 public:
  /// `number`: of the warpgroup's numbered barrier.
  FARWARP_DEVICE BoxWriter(Shared<std::byte> memory, int number) : memory_(memory), number_(number) {}

  /// [warpgroup] The next box. `write(buffer)` fills it, then `carry(buffer)` takes it on: the leader by copies which it commits as
  /// one group, or all threads by accesses of their own.
  template <class Write, class Carry>
  FARWARP_DEVICE void put(const Write& write, const Carry& carry) {
    const Shared<std::byte> buffer = memory_ + turn_ * kBoxBytes;
    if (leads_warpgroup()) bulk_wait_read<buffers - 1>();  // the copy that left this buffer a turn ago
    group_sync(number_, 128);
    write(buffer);
    proxy_fence();
    group_sync(number_, 128);
    carry(buffer);
    turn_ = (turn_ + 1) % buffers;
  }

  /// [warpgroup] Before the kernel ends: all boxes have arrived.
  FARWARP_DEVICE void finish() const {
    if (leads_warpgroup()) bulk_wait_all();
  }

 private:
  Shared<std::byte> memory_;
  int number_;
  int turn_ = 0;
};

/// [warpgroup] Rounds the sums of 64 rows from `row`, `columns` columns from `column` of the result, adding bias[column].
/// `carry(row, column, box)` takes on a box of 64 x 64 that begins there in the result (BoxWriter::put()), and drops what lies outside.
template <class T, int columns, class Writer, class Carry>
FARWARP_DEVICE void store_sums(Writer& writer, const Carry& carry, int row, int column, Global<const T> bias,
                               int bias_size, const float (&sums)[columns / 2]) {
  static_assert(columns % 32 == 0);
  const int thread = thread_index() % 128;
#pragma unroll
  for (int first = 0; first < columns; first += 64) {
    // The last box of 96, 160 or 224 columns begins 32 columns early and repeats them: boxes are 64 wide.
    const int begin = first + 64 <= columns ? first : columns - 64;
    const auto write_box = [&](Shared<std::byte> box) {
      const auto write = [&](auto value) {
#pragma unroll
        for (int i = 0; i < 32; i += 2) {
          const MatrixIndex at = wgmma_sum(thread, i);
          const Shared<std::byte> to = box + swizzled_offset(at.row, at.column * 2);
          store(Shared<std::uint32_t>(reinterpret_cast<std::uint32_t*>(to.raw)),
                round_pair<T>(value(i, column + begin + at.column), value(i + 1, column + begin + at.column + 1)));
        }
      };
      const float* const of_box = &sums[begin / 2];
      if (bias) {
        write([&](int i, int index) { return add(of_box[i], bias_at(bias, index, bias_size)); });
      } else {
        write([&](int i, int) { return of_box[i]; });
      }
    };
    writer.put(write_box, [&](Shared<std::byte> box) { carry(row, column + begin, box); });
  }
}

/// [warpgroup] The leader copies the box by tensor copies, which drop what lies outside.
FARWARP_DEVICE void carry_to(const TensorMap& map, int row, int column, Shared<std::byte> box) {
  if (!leads_warpgroup()) return;
  tensor_store(map, row, column, box);
  bulk_commit();
}

/// [warpgroup] The same for a product computed the other way round: the sums' rows are 64 columns of the result from `column`,
/// their columns rows of the result from `row`; boxes are `columns` x 64.
template <class T, int columns, class Writer, class Carry>
FARWARP_DEVICE void store_sums_transposed(Writer& writer, const Carry& carry, int row, int column, Global<const T> bias,
                                          int bias_size, const float (&sums)[columns / 2]) {
  static_assert(columns <= 64);
  const int thread = thread_index() % 128;
  const int upper = wgmma_sum(thread, 0).row;
  const float biases[2] = {bias_at(bias, column + upper, bias_size), bias_at(bias, column + upper + 8, bias_size)};
  const auto write_box = [&](Shared<std::byte> box) {
#pragma unroll
    for (int i = 0; i < columns / 2; ++i) {
      const MatrixIndex at = wgmma_sum(thread, i);
      store(Shared<T>(reinterpret_cast<T*>((box + swizzled_offset(at.column, at.row * 2)).raw)),
            round_to<T>(add(sums[i], biases[i / 2 % 2])));
    }
  };
  writer.put(write_box, [&](Shared<std::byte> box) { carry(row, column, box); });
}

/// [warpgroup] The sums of multiplier number `multiplier` of the tile whose first rows are `row` of A and `column` of B. `swapped`: A
/// is w, and the tile is stored transposed.
template <class Tile, bool swapped, class Writer, class Carry>
FARWARP_DEVICE void store_half_tile(Writer& writer, const Carry& carry, int multiplier, int row, int column,
                                    Global<const typename Tile::Element> bias, int bias_size,
                                    const float (&sums)[Tile::kSums]) {
  using T = typename Tile::Element;
  const int first = row + 64 * multiplier;
  if constexpr (swapped) {
    store_sums_transposed<T, Tile::kColumns>(writer, carry, column, first, bias, bias_size, sums);
  } else {
    store_sums<T, Tile::kColumns>(writer, carry, first, column, bias, bias_size, sums);
  }
}

}  // namespace farwarp::FARWARP_TARGET::tile
