// A task that multiplies a matrix of weights by vectors that do not stream (streamed ones: stream_project.dev.h). Each
// warp has the sums of its eighth of K; eight partial sums are added in the order of the warps, so the bits
// do not depend on who comes first.
//
// On Hopper warps of their own, one for two columns, finish tiles, while the warps that multiply go on: they hand over
// partial sums through two buffers. On CDNA, whose registers do not suffice for more warps, the first warps do it.
//
//   multiplier   wait empty[b] -> store partial sums -> full[b]
//   finisher     wait full[b] -> add, epilogue -> empty[b]
#pragma once

#include "farwarp/fleet/vectors.dev.h"
#include "farwarp/fleet/weights.dev.h"

namespace farwarp::FARWARP_TARGET::fleet {

inline constexpr int kSumBuffers = sum_buffers(kMaxPacketColumns);
using SumRing = tile::Ring<kSumBuffers>;
using SumPosition = tile::RingPosition<kSumBuffers>;

/// The sums of four rows of a tile, as an epilogue gets them: all four threads of these rows get the same, and `first`
/// tells one.
struct FourSums {
  bool first;
  int tile;    ///< of the matrix
  int row;     ///< of the tile: 0, 4, 8 or 12
  int column;  ///< of the activations
  float sums[4];
  float others[4];  ///< rows 8 below or above
};

/// RMSNorm of a task's input (layout.h): sums are divided by the root of the mean of its squares.
struct InputNorm {
  bool exists;
  int rows;
  float epsilon;
};

/// What multipliers and finishers share: `memory` is laid out as ProjectShared.
template <int columns>
struct SharedSums {
  using Layout = ProjectShared<columns, Target::kHasBulkCopy>;
  Shared<std::byte> memory;

  FARWARP_DEVICE Shared<float> floats(int offset) const {
    return Shared<float>(reinterpret_cast<float*>((memory + offset).raw));
  }
  FARWARP_DEVICE SumRing ring() const { return SumRing(memory + Layout::kRing); }
  /// [thread] One thread, before the first task.
  FARWARP_DEVICE void initialise() const {
    ring().initialise(finishing_threads(columns, Target::kWarpSize) / Target::kWarpSize, kWarps);
  }
};

/// The multiplying side.
template <int columns>
class Projection {
 public:
  using Layout = ProjectShared<columns, Target::kHasBulkCopy>;

  FARWARP_DEVICE Projection(Shared<std::byte> memory, WeightReader<columns>& weights)
      : shared_{memory}, weights_(weights) {}

  /// [the warps that compute] finish(pass, tile, buffer): where no warps of their own finish tiles.
  template <class Finish>
  FARWARP_DEVICE void run(Call& call, const Worker<columns>& worker, const Task& task, std::uint32_t site,
                          const Finish& finish) {
    if (task.count == 0) return;
    const int passes = task.matrix.passes();
    PassVector<columns> vector(shared_.memory);
    weights_.begin(task);
    for (int pass = 0; pass < passes; ++pass) {
      const int slices = task.matrix.slices_of(pass);
      vector.fetch(call, worker, task.in, pass * task.matrix.pass_slices(), slices, site);
      for (int tile = 0; tile < task.count; ++tile) {
        Sums sums[kChains] = {};
        weights_.read(
            slices, [&](int i, const Fragment& weights) { multiply_fragment(sums[i % kChains], weights, vector[i]); });
        wait_empty(position_);
        store_partials(sums);
        if constexpr (has_finisher(columns)) {
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

 private:
  static constexpr int kChains = 2;  ///< of products that wait for each other

  FARWARP_DEVICE void wait_empty(const SumPosition& position) {
    if constexpr (has_finisher(columns))
      wait_mbarrier(weights_.waits(), weights_.view(), shared_.ring().empty(position.stage), position.parity ^ 1);
  }

  FARWARP_DEVICE void store_partials(const Sums (&sums)[kChains]) const {
    const Shared<float> to = shared_.floats(Layout::partials(position_.stage, warp_index()));
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const MatrixIndex at = sum_index(lane_index(), i);
      float sum = sums[0][i];
#pragma unroll
      for (int chain = 1; chain < kChains; ++chain) sum = add(sum, sums[chain][i]);
      if (at.column < columns) store(to + (at.column * kTileRows + at.row), sum);
    }
  }

  SharedSums<columns> shared_;
  WeightReader<columns>& weights_;
  SumPosition position_;
};

/// The finishing side. A thread has one sum of each tile.
template <int columns>
class TileFinisher {
 public:
  using Layout = ProjectShared<columns, Target::kHasBulkCopy>;
  static constexpr int kThreads = finishing_threads(columns, Target::kWarpSize);

  /// `thread`: 0 to kThreads - 1.
  FARWARP_DEVICE TileFinisher(Shared<std::byte> memory, int thread)
      : shared_{memory}, column_(thread / kTileRows), row_(thread % kTileRows) {}

  /// [the warps that finish] All tiles of a task, as the multipliers hand them over.
  template <class Finisher>
  FARWARP_DEVICE void run(BlockWaits& waits, const Task& task, Finisher& finisher) {
    for (int pass = 0; pass < task.matrix.passes(); ++pass) {
      for (int tile = 0; tile < task.count; ++tile) {
        prepare(task, pass, tile, finisher);
        wait_mbarrier(waits, finisher.view(), shared_.ring().full(position_.stage), position_.parity);
        finish(task, pass, tile, position_.stage, finisher);
        warp_sync();
        if (lane_index() == 0) mbarrier_arrive(shared_.ring().empty(position_.stage));
        position_.advance();
      }
    }
  }

  /// [warp] Waits for the squares of a task's input.
  FARWARP_DEVICE void begin_task(Call& call, const Worker<columns>& worker, const Task& task, const InputNorm& norm,
                                 std::uint32_t site) {
    inverse_ = 1;
    if (!norm.exists) return;
    inverse_ = inverse_root(read_squares<columns>(call, worker, task.in, norm.rows, column_ / 2, site), norm.rows,
                            norm.epsilon);
  }
  /// [warp] Before a tile's sums are there: finisher.prepare(tile, row, column) on the first thread of four rows, in
  /// the last pass.
  template <class Finisher>
  FARWARP_DEVICE void prepare(const Task& task, int pass, int tile, Finisher& finisher) const {
    if (first() && pass + 1 == task.matrix.passes()) finisher.prepare(task.first + tile, row_, column_);
  }
  /// [warp] A tile of a task that multiplies nothing: its sums are zeros.
  template <class Finisher>
  FARWARP_DEVICE void without_sums(int tile, Finisher& finisher) const {
    if (first()) finisher.prepare(tile, row_, column_);
    finisher.take(FourSums{first(), tile, row_ / 4 * 4, column_, {}, {}});
  }
  /// [warp] The sums of a tile. In the last pass all threads call finisher.take(FourSums); else the sums wait for the
  /// next pass.
  template <class Finisher>
  FARWARP_DEVICE void finish(const Task& task, int pass, int tile, int buffer, Finisher& finisher) const {
    const int place = exists() ? column_ * kTileRows + row_ : 0;
    float sum = 0;
#pragma unroll
    for (int partial = 0; partial < Layout::kPartials; ++partial)
      sum = add(sum, load(shared_.floats(Layout::partials(buffer, partial)) + place));
    const Shared<float> kept = shared_.floats(Layout::kept(tile)) + place;
    if (pass > 0) sum = add(load(kept), sum);
    if (pass + 1 < task.matrix.passes()) {
      if (exists()) store(kept, sum);
      return;
    }
    sum = multiply(sum, inverse_);
    FourSums four{first(), task.first + tile, row_ / 4 * 4, column_, {}, {}};
    const int lane = lane_index() / 4 * 4;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      four.sums[i] = shuffle(sum, lane + i);
      four.others[i] = shuffle(sum, (lane ^ 8) + i);
    }
    finisher.take(four);
  }

  FARWARP_DEVICE bool exists() const { return column_ < columns; }
  FARWARP_DEVICE int column() const { return column_; }
  FARWARP_DEVICE int row() const { return row_; }  ///< of a tile
  /// Of the threads of four rows.
  FARWARP_DEVICE bool first() const { return exists() && row_ % 4 == 0; }

 private:
  SharedSums<columns> shared_;
  int column_, row_;
  float inverse_ = 1;  ///< of the root of the mean of the column's squares
  SumPosition position_;
};

}  // namespace farwarp::FARWARP_TARGET::fleet
