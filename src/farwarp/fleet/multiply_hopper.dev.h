// The sums of a group of tiles on Hopper, while a vector streams by: narrow matrices are multiplied by mma(), wide ones by wgmma().
#pragma once

#include "farwarp/fleet/multiply_mma.dev.h"
#include "farwarp/fleet/multiply_wgmma.dev.h"

namespace farwarp::FARWARP_TARGET::fleet {

template <int columns>
class HopperMultiplier {
 public:
  static constexpr int kUnits = WgmmaMultiplier<columns>::kUnits;
  using UnitSums =
      float[columns / 2];  ///< of 16 rows, a tile's, and all columns; of a narrow matrix only the first unit's are used

  FARWARP_DEVICE HopperMultiplier(Shared<std::byte> memory, WeightReader<columns>& weights)
      : memory_(memory), weights_(weights), narrow_(memory, weights), wide_(memory, weights) {}

  /// [the warps that compute] The squares of a norm's input are added after its first group.
  FARWARP_DEVICE void begin_task(const Call&, const StreamWorker&, const Task& task, const InputNorm& norm) {
    is_wide_ = task.matrix.is_wide(num_blocks());
    adds_squares_ = norm.exists;
  }
  /// [the warps that compute] The whole vector. `sums` are zeros before.
  FARWARP_DEVICE void multiply(Call&, const StreamWorker&, const Task& group, int, std::uint32_t,
                               UnitSums (&sums)[kUnits]) {
    if (is_wide_) {
      wide_.multiply(position_, group, sums);
    } else {
      narrow_.multiply(position_, group, tiles_of_warps(group.matrix, num_blocks(), group.count, true), sums[0]);
    }
    if (!adds_squares_) return;
    adds_squares_ = false;
    if (is_wide_) sync_warps();
    add_squares<columns>(weights_.waits(), weights_.view(), memory_, position_,
                         group.matrix.stages * kStageColumns / kTileRows);
  }

  /// [the warps that compute] Of a unit.
  FARWARP_DEVICE void store_partials(const UnitSums& sums) const {
    const int lane = recomputed(thread_index()) % Target::kWarpSize;
    const Shared<float> to = SharedSums<columns>{memory_}.floats(ProjectShared<columns, true>::partials(0, 0)) +
                             warp_index() * columns * kTileRows;
    const int column = is_wide_ ? wgmma_sum(lane, 0).column : MmaMultiplier<columns>::first_column();
    const int next = is_wide_ ? 1 : 2;
    // Where the thread's two rows of its first two columns lie. Its other columns are multiples of 8 later, which change no order.
    Shared<float> at[2][2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
      for (int second = 0; second < 2; ++second) {
        const int row = wgmma_sum(lane, 0).row + 8 * half;
        at[half][second] = to + (unit_sums_at(columns, 0, column + second * next, row) + row % 4);
      }
    }
#pragma unroll
    for (int i = 0; i < columns / 2; ++i) store(at[i / 2 % 2][i % 2] + 8 * (i / 4) * kTileRows, sums[i]);
  }

 private:
  Shared<std::byte> memory_;
  WeightReader<columns>& weights_;
  MmaMultiplier<columns> narrow_;
  WgmmaMultiplier<columns> wide_;
  VectorPosition<columns> position_;
  bool is_wide_ = false, adds_squares_ = false;
};

}  // namespace farwarp::FARWARP_TARGET::fleet
