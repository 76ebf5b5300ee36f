// A task that multiplies a matrix of weights by a vector of each column. Each warp has the sums of its columns of the matrix; eight partial
// sums are added in the order of the warps, so the bits do not depend on who comes first.
#pragma once

#include "farwarp/fleet/vectors.dev.h"
#include "farwarp/fleet/weights.dev.h"

namespace farwarp::FARWARP_TARGET::fleet {

/// The sums of four rows of a tile, as an epilogue gets them.
struct FourSums {
  int tile;    ///< of the matrix
  int row;     ///< of the tile: 0, 4, 8 or 12
  int column;  ///< of the activations
  float sums[4];
  float others[4];  ///< rows 8 below or above
};

/// A worker's projections.
template <int columns>
class Projection {
 public:
  using Layout = ProjectShared<columns>;

  FARWARP_DEVICE Projection(Shared<std::byte> memory, WeightReader& weights) : memory_(memory), weights_(weights) {}

  /// [the warps that compute] For each four rows of the task's tiles, a thread calls epilogue(FourSums). If there is a `norm`, the vector is divided
  /// by the root of the mean of its `rows` squares, plus `epsilon`, and multiplied by `norm` (RMSNorm): the divisor is applied to sums.
  template <class Epilogue>
  FARWARP_DEVICE void run(Call& call, const Task& task, Global<const std::uint64_t> norm, int rows, float epsilon,
                          std::uint32_t site, const Epilogue& epilogue) {
    if (task.count == 0) return;
    task_parity_ ^= 1;
    const int passes = task.matrix.passes();
    float squares = 0;
    PassVector<columns> vector;
    for (int pass = 0; pass < passes; ++pass) {
      vector.wait(call, task.in, pass * task.matrix.pass_stages(), task.matrix.stages_of(pass), norm, squares, site);
      if (norm) share_squares(squares);
      if (pass + 1 < passes)
        vector.request(call, task.in, (pass + 1) * task.matrix.pass_stages(), task.matrix.stages_of(pass + 1));
      for (int tile = 0; tile < task.count; ++tile) {
        Sums sums = {};
        weights_.read(task, pass, tile,
                      [&](int i, const Fragment& weights) { multiply_fragment(sums, weights, vector[i]); });
        store_partials(sums);
        sync_warps();
        reduce(task, pass, tile, norm ? rows : 0, epsilon, epilogue);
        parity_ ^= 1;
      }
    }
  }

 private:
  FARWARP_DEVICE Shared<float> floats(int offset) const {
    return Shared<float>(reinterpret_cast<float*>((memory_ + offset).raw));
  }

  /// [warp] Stores the warp's sum of squares of each column.
  FARWARP_DEVICE void share_squares(float squares) const {
#pragma unroll
    for (int lanes = 1; lanes < Target::kWarpSize; lanes *= 2) {
      const bool other_column = lanes >= 4 && lanes < 4 * columns;
      const float other = shuffle_xor(squares, lanes);
      if (!other_column) squares = add(squares, other);
    }
    if (lane_index() < 4 * columns && lane_index() % 4 == 0)
      store(floats(Layout::squares(task_parity_)) + (warp_index() * columns + lane_index() / 4), squares);
  }

  FARWARP_DEVICE void store_partials(const Sums& sums) const {
    const Shared<float> to = floats(Layout::partials(parity_, warp_index()));
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const MatrixIndex at = sum_index(lane_index(), i);
      if (at.column < columns) store(to + (at.column * kTileRows + at.row), sums[i]);
    }
  }

  /// 1 / the root of the mean of a column's squares.
  FARWARP_DEVICE float inverse_root(int column, int rows, float epsilon) const {
    float squares = 0;
#pragma unroll
    for (int warp = 0; warp < kWarps; ++warp)
      squares = add(squares, load(floats(Layout::squares(task_parity_)) + (warp * columns + column)));
    return exp2(multiply(-0.5f, log2(add(divide(squares, static_cast<float>(rows)), epsilon))));
  }

  /// [warp] The tile's sums; tiles take turns between two halves of the warps. Then the epilogue, or the sums wait for the next pass.
  template <class Epilogue>
  FARWARP_DEVICE void reduce(const Task& task, int pass, int tile, int rows, float epsilon,
                             const Epilogue& epilogue) const {
    constexpr int kHalf = kWorkerThreads / 2;
    static_assert(columns * kTileRows <= kHalf);
    const int thread = thread_index() - parity_ * kHalf;
    if (thread < 0 || thread - lane_index() >= columns * kTileRows) return;
    const bool exists = thread < columns * kTileRows;
    const int column = exists ? thread / kTileRows : 0, row = thread % kTileRows, place = column * kTileRows + row;
    float sum = 0;
#pragma unroll
    for (int warp = 0; warp < kWarps; ++warp) sum = add(sum, load(floats(Layout::partials(parity_, warp)) + place));
    if (pass > 0) sum = add(load(floats(Layout::kept(tile)) + place), sum);
    if (pass + 1 < task.matrix.passes()) {
      if (exists) store(floats(Layout::kept(tile)) + place, sum);
      return;
    }
    if (rows > 0) sum = multiply(sum, inverse_root(column, rows, epsilon));
    FourSums four{task.first + tile, row, column, {}, {}};
    const int first = lane_index() / 4 * 4;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      four.sums[i] = shuffle(sum, first + i);
      four.others[i] = shuffle(sum, (first ^ 8) + i);
    }
    if (exists && row % 4 == 0) epilogue(four);
  }

  Shared<std::byte> memory_;
  WeightReader& weights_;
  int task_parity_ = 0;  ///< of squares: a late warp may still read those of the task before
  int parity_ = 0;       ///< of the number of tiles so far
};

}  // namespace farwarp::FARWARP_TARGET::fleet
