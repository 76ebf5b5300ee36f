// What becomes of four sums, whoever has them: the arithmetic that packet_finisher.dev.h and stream_project.dev.h
// share.
//
// The hidden vector h of a model is the residual: h += sums, in bf16. The next task reads n = h * (the norm's weights),
// and the sums of the squares of each tile of h: it divides by the root of their mean.
#pragma once

#include "farwarp/fleet/context.dev.h"
#include "farwarp/tile/activation.dev.h"

namespace farwarp::FARWARP_TARGET::fleet {

/// Four rows of a column of a task's output.
struct Four {
  int tile;  ///< of the matrix
  int row;   ///< of the tile: 0, 4, 8 or 12
  int column;

  FARWARP_DEVICE int row_of_matrix() const { return tile * kTileRows + row; }
};

/// A worker's tiles of the hidden vector are the same in all tasks, so a warp reads what it has written itself
/// (streamed: a thread).
template <int columns>
FARWARP_DEVICE Global<std::uint64_t> residual_at(const Launch& launch, const Four& four) {
  return Global<std::uint64_t>(launch.residual) + (four.row_of_matrix() / 4 * columns + four.column);
}
/// The weights of the norm that reads the task's output.
FARWARP_DEVICE std::uint64_t norm_at(const Launch& launch, const Task& task, const Four& four) {
  return load(Global<const std::uint64_t>(reinterpret_cast<const std::uint64_t*>(launch.weights + task.out_norm)) +
              four.row_of_matrix() / 4);
}
FARWARP_DEVICE std::uint64_t added(std::uint64_t old, const float (&sums)[4]) {
  return pack_four(add(number_of(old, 0), sums[0]), add(number_of(old, 1), sums[1]), add(number_of(old, 2), sums[2]),
                   add(number_of(old, 3), sums[3]));
}

/// [warp] Four rows of the hidden vector: the residual, the next task's input, and the squares of its tile. A column's
/// fours of a tile are on lanes `step` apart, and those of the next column follow. `stores`: the thread is the one that
/// stores.
template <int columns, int step>
FARWARP_DEVICE void store_hidden(const Launch& launch, const Call& call, const Worker<columns>& worker,
                                 const Task& task, const Four& four, std::uint64_t hidden, std::uint64_t norm,
                                 bool stores) {
  float squares = 0;
  if (stores) {
    float numbers[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      numbers[i] = number_of(hidden, i);
      squares = fused_multiply_add(numbers[i], numbers[i], squares);
      numbers[i] = multiply(numbers[i], number_of(norm, i));
    }
    store_four<columns>(call, worker, task.out, four.row_of_matrix(), four.column,
                        pack_four(numbers[0], numbers[1], numbers[2], numbers[3]));
    store(residual_at<columns>(launch, four), hidden);
  }
  squares = add(squares, shuffle_xor(squares, step));
  squares = add(squares, shuffle_xor(squares, 2 * step));
  const float of_next_column = shuffle_xor(squares, 4 * step);
  if (stores && four.row == 0 && four.column % 2 == 0)
    store_four_at(call, worker.buffers, task.out,
                  squares_at(columns, task.matrix.tiles * kTileRows, four.tile, four.column / 2),
                  pack_two(squares, columns > 1 ? of_next_column : 0));
}

/// [thread] SwiGLU: rows 0 to 7 of a tile are of gate, rows 8 to 15 the same of up.
template <int columns>
FARWARP_DEVICE void store_gated(const Call& call, const Worker<columns>& worker, const Task& task, const Four& four,
                                const float (&gates)[4], const float (&ups)[4]) {
  float numbers[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) numbers[i] = multiply(tile::silu(gates[i]), ups[i]);
  store_four<columns>(call, worker, task.out, four.tile * (kTileRows / 2) + four.row, four.column,
                      pack_four(numbers[0], numbers[1], numbers[2], numbers[3]));
}
/// [thread]
template <int columns>
FARWARP_DEVICE void store_sums(const Call& call, const Worker<columns>& worker, const Task& task, const Four& four,
                               const float (&sums)[4]) {
  store_four<columns>(call, worker, task.out, four.row_of_matrix(), four.column,
                      pack_four(sums[0], sums[1], sums[2], sums[3]));
}

}  // namespace farwarp::FARWARP_TARGET::fleet
