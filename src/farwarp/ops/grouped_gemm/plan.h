// Desc + machine -> plan of grouped_gemm. Pure: no device, no World.
#pragma once

#include <cstdint>
#include <string>

#include "farwarp/base/half.h"
#include "farwarp/base/machine_shape.h"
#include "farwarp/base/status.h"
#include "farwarp/tile/activation.h"
#include "farwarp/tile/gemm/scales.h"

namespace farwarp {

/// How the groups' rows lie in x and y.
enum class GroupRows : std::int8_t {
  kOffsets,  ///< x [max_rows, k]; group g has rows offsets[g] to offsets[g + 1] - 1
  kCounts,   ///< x [groups, max_rows, k]; group g has the first counts[g] of its rows
};

/// y = x * w[group of the row]^T (+ bias[group]): row-major, sums in fp32, rounded once.
struct GroupedGemmDesc {
  int groups = 0;              ///< 1 to 480; experts
  int max_rows = 0;            ///< GroupRows: of x, or of each group
  int n = 0;                   ///< columns of y: a multiple of 8; of 64 with an activation
  int k = 0;                   ///< a multiple of 8, with scaling of 16
  DType dtype = DType::kBf16;  ///< of bias and y, without scaling also of x and w: kBf16 or kF16
  GemmScaling scaling =
      GemmScaling::kNone;  ///< kNone or kBlocks, of each group's w; with an activation gate's and up's
                           ///< rows have blocks of their own: w_scale [groups, 2, n / 128, k / 128]
  GroupRows group_rows = GroupRows::kOffsets;
  Activation activation = Activation::kNone;
  bool has_bias = false;  ///< [groups, rows of a group's w]
  int expected_rows = 0;  ///< of a group: what the plan reckons with; 0: max_rows, of kOffsets a group's part of it
  int max_sms = 0;        ///< most blocks of a launch; 0: all multiprocessors
  int tile_rows = 0;      ///< of x: 64 or 128; 0: the plan's choice
  int tile_columns = 0;   ///< rows of w: 128 or 256; 0: the plan's choice
};

struct GroupedGemmPlan {
  GroupedGemmDesc desc;
  std::string kernel;
  int rows = 0, columns = 0;  ///< of a tile: of x, and of w
  int steps = 0;              ///< of K
  int column_tiles = 0;       ///< of y
  int blocks = 0, threads = 0;
  std::int64_t shared_bytes = 0;

  /// Rows of x and y.
  std::int64_t all_rows() const {
    return std::int64_t{desc.max_rows} * (desc.group_rows == GroupRows::kCounts ? desc.groups : 1);
  }
  /// Matrices of n rows in a group's w.
  int parts() const { return desc.activation == Activation::kNone ? 1 : 2; }
  /// Of x and w in 16 bits, which tensor maps copy.
  int elements_per_word() const { return desc.scaling == GemmScaling::kNone ? 1 : 2; }
  std::string to_string() const;
};

/// kInvalidArgument names the field, its value and what is allowed.
Result<GroupedGemmPlan> plan_grouped_gemm(const GroupedGemmDesc& desc, const MachineShape& shape);

}  // namespace farwarp
