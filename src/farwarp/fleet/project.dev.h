// A task that multiplies a matrix of weights by a vector of each column. Each warp has the sums of its columns of the matrix; eight partial
// sums are added in the order of the warps, so the bits do not depend on who comes first.
//
// On Hopper a warp of its own finishes tiles, while the warps that multiply go on: they hand over partial sums through two buffers. On CDNA, whose
// registers do not suffice for more warps, the first warps do it.
//
//   multiplier   wait empty[b] -> store partial sums -> full[b]
//   finisher     wait full[b] -> add, epilogue -> empty[b]
#pragma once

#include "farwarp/fleet/vectors.dev.h"
#include "farwarp/fleet/weights.dev.h"

namespace farwarp::FARWARP_TARGET::fleet {

using SumRing = tile::Ring<kSumBuffers>;
using SumPosition = tile::RingPosition<kSumBuffers>;

/// The sums of four rows of a tile, as an epilogue gets them.
struct FourSums {
  int tile;    ///< of the matrix
  int row;     ///< of the tile: 0, 4, 8 or 12
  int column;  ///< of the activations
  float sums[4];
  float others[4];  ///< rows 8 below or above
};

/// RMSNorm of a task's input: the vector is multiplied by `weights` as it arrives, and its divisor is applied to sums.
struct InputNorm {
  Global<const std::uint64_t> weights;  ///< null: no norm
  int rows;
  float epsilon;
};

/// What multipliers and finishers share: `memory` is laid out as ProjectShared.
template <int columns>
struct SharedSums {
  using Layout = ProjectShared<columns>;
  Shared<std::byte> memory;

  FARWARP_DEVICE Shared<float> floats(int offset) const {
    return Shared<float>(reinterpret_cast<float*>((memory + offset).raw));
  }
  FARWARP_DEVICE SumRing ring() const { return SumRing(memory + Layout::kRing); }
};

/// The multiplying side.
template <int columns>
class Projection {
 public:
  using Layout = ProjectShared<columns>;

  FARWARP_DEVICE Projection(Shared<std::byte> memory, WeightReader& weights) : shared_{memory}, weights_(weights) {}

  /// [the warps that compute] finish(pass, tile, buffer): where no warp of its own finishes tiles.
  template <class Finish>
  FARWARP_DEVICE void run(Call& call, const Task& task, const InputNorm& norm, std::uint32_t site,
                          const Finish& finish) {
    if (task.count == 0) return;
    task_parity_ ^= 1;
    const int passes = task.matrix.passes();
    float squares = 0;
    PassVector<columns> vector;
    for (int pass = 0; pass < passes; ++pass) {
      vector.wait(call, task.in, pass * task.matrix.pass_stages(), task.matrix.stages_of(pass), norm.weights, squares,
                  site);
      if (norm.weights) share_squares(squares);
      for (int tile = 0; tile < task.count; ++tile) {
        Sums sums = {};
        weights_.read(task, pass, tile,
                      [&](int i, const Fragment& weights) { multiply_fragment(sums, weights, vector[i]); });
        wait_empty(position_);
        store_partials(sums);
        if constexpr (kHasFinisher) {
          warp_sync();
          if (lane_index() == 0) mbarrier_arrive(shared_.ring().full(position_.stage));
        } else {
          sync_warps();
          finish(pass, tile, position_.stage);
        }
        position_.advance();
      }
    }
  }

  /// [warp] Waits until all tiles so far are finished.
  FARWARP_DEVICE void wait_finished() {
    SumPosition position = position_;
    for (int i = 0; i < kSumBuffers; ++i, position.advance()) wait_empty(position);
  }

 private:
  FARWARP_DEVICE void wait_empty(const SumPosition& position) {
    if constexpr (kHasFinisher)
      wait_mbarrier(weights_.waits(), weights_.view(), shared_.ring().empty(position.stage), position.parity ^ 1);
  }

  /// [warp] Stores the warp's sum of squares of each column. The task before is finished, since its output was awaited; this makes it known.
  FARWARP_DEVICE void share_squares(float squares) {
    wait_finished();
#pragma unroll
    for (int lanes = 1; lanes < Target::kWarpSize; lanes *= 2) {
      const bool other_column = lanes >= 4 && lanes < 4 * columns;
      const float other = shuffle_xor(squares, lanes);
      if (!other_column) squares = add(squares, other);
    }
    if (lane_index() < 4 * columns && lane_index() % 4 == 0)
      store(shared_.floats(Layout::squares(task_parity_)) + (warp_index() * columns + lane_index() / 4), squares);
  }

  FARWARP_DEVICE void store_partials(const Sums& sums) const {
    const Shared<float> to = shared_.floats(Layout::partials(position_.stage, warp_index()));
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const MatrixIndex at = sum_index(lane_index(), i);
      if (at.column < columns) store(to + (at.column * kTileRows + at.row), sums[i]);
    }
  }

  SharedSums<columns> shared_;
  WeightReader& weights_;
  int task_parity_ = 0;  ///< of squares: without a finisher, a late warp may still read those of the task before
  SumPosition position_;
};

/// The finishing side.
template <int columns>
class TileFinisher {
 public:
  using Layout = ProjectShared<columns>;
  static constexpr int kSums = columns * kTileRows;
  static constexpr int kThreads =
      kHasFinisher ? Target::kWarpSize : (kSums + Target::kWarpSize - 1) / Target::kWarpSize * Target::kWarpSize;
  static constexpr int kRounds = (kSums + kThreads - 1) / kThreads;  ///< a thread has one sum of each

  /// `thread`: 0 to kThreads - 1.
  FARWARP_DEVICE TileFinisher(Shared<std::byte> memory, int thread) : shared_{memory}, thread_(thread) {}

  /// [the warp that finishes] All tiles of a task, as the multipliers hand them over.
  template <class Epilogue>
  FARWARP_DEVICE void run(BlockWaits& waits, const WorldView& view, const Task& task, const InputNorm& norm,
                          const Epilogue& epilogue) {
    if (task.count == 0) return;
    begin_task();
    for (int pass = 0; pass < task.matrix.passes(); ++pass) {
      for (int tile = 0; tile < task.count; ++tile) {
        wait_mbarrier(waits, view, shared_.ring().full(position_.stage), position_.parity);
        finish(task, norm, pass, tile, position_.stage, epilogue);
        warp_sync();
        if (lane_index() == 0) mbarrier_arrive(shared_.ring().empty(position_.stage));
        position_.advance();
      }
    }
  }

  FARWARP_DEVICE void begin_task() { task_parity_ ^= 1; }
  /// [warp] The sums of a tile. In the last pass, for each four rows a thread calls epilogue(round, FourSums); else they wait for the next pass.
  template <class Epilogue>
  FARWARP_DEVICE void finish(const Task& task, const InputNorm& norm, int pass, int tile, int buffer,
                             const Epilogue& epilogue) const {
#pragma unroll
    for (int round = 0; round < kRounds; ++round) {
      const int place = round * kThreads + thread_;
      const bool exists = place < kSums;
      const int column = exists ? place / kTileRows : 0, row = place % kTileRows;
      float sum = 0;
#pragma unroll
      for (int warp = 0; warp < kWarps; ++warp)
        sum = add(sum, load(shared_.floats(Layout::partials(buffer, warp)) + (column * kTileRows + row)));
      const Shared<float> kept = shared_.floats(Layout::kept(tile)) + (column * kTileRows + row);
      if (pass > 0) sum = add(load(kept), sum);
      if (pass + 1 < task.matrix.passes()) {
        if (exists) store(kept, sum);
        continue;
      }
      if (norm.weights) sum = multiply(sum, inverse_root(column, norm));
      FourSums four{task.first + tile, row, column, {}, {}};
      const int first = lane_index() / 4 * 4;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        four.sums[i] = shuffle(sum, first + i);
        four.others[i] = shuffle(sum, (first ^ 8) + i);
      }
      if (exists && row % 4 == 0) epilogue(round, four);
    }
  }

 private:
  /// 1 / the root of the mean of a column's squares.
  FARWARP_DEVICE float inverse_root(int column, const InputNorm& norm) const {
    float squares = 0;
#pragma unroll
    for (int warp = 0; warp < kWarps; ++warp)
      squares = add(squares, load(shared_.floats(Layout::squares(task_parity_)) + (warp * columns + column)));
    return exp2(multiply(-0.5f, log2(add(divide(squares, static_cast<float>(norm.rows)), norm.epsilon))));
  }

  SharedSums<columns> shared_;
  int thread_;
  int task_parity_ = 0;
  SumPosition position_;
};

}  // namespace farwarp::FARWARP_TARGET::fleet
