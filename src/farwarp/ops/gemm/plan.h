// Desc + machine -> plan of gemm. Pure: no device, no World.
#pragma once

#include <cstdint>
#include <string>

#include "farwarp/base/half.h"
#include "farwarp/base/machine_shape.h"
#include "farwarp/base/status.h"
#include "farwarp/tile/gemm/scales.h"
#include "farwarp/tile/gemm/tiling.h"

namespace farwarp {

/// y[m, n] = x[m, k] * w[n, k]^T (+ bias[n]): all row-major, sums in fp32, rounded once. Of e4m3 operands the matrix
/// unit keeps about 14 bits of a sum of 128 of k; such sums are scaled and added in fp32.
struct GemmDesc {
  int m = 0;                                 ///< 1 or more
  int n = 0;                                 ///< a multiple of 8
  int k = 0;                                 ///< a multiple of 8; with scaling of 16
  DType dtype = DType::kBf16;                ///< of bias and y, without scaling also of x and w: kBf16 or kF16
  GemmScaling scaling = GemmScaling::kNone;  ///< others: on Hopper
  bool x_scale_by_column = false;            ///< with kBlocks: x_scale is [ceil(k / 128), m]
  bool has_bias = false;
  // Elements from one row to the next, multiples of 8, with scaling of x and w of 16; 0: rows are contiguous.
  std::int64_t x_pitch = 0;
  std::int64_t w_pitch = 0;
  std::int64_t y_pitch = 0;
  int max_sms = 0;                             ///< most blocks of a launch; 0: all multiprocessors
  tile::SwapAb swap_ab = tile::SwapAb::kAuto;  ///< on Hopper: kYes: a tile's rows are rows of w, its columns rows of x
  int tile_rows = 0;                           ///< rows of x (of w, if swap_ab) in a tile; 0: the plan's choice
  int tile_columns = 0;                        ///< rows of w (of x, if swap_ab) in a tile; 0: the plan's choice
  int splits = 0;  ///< parts of k that different blocks sum: 1, 2 or 4 on Hopper, 1 to 16 on CDNA; 0: the plan's choice
};

struct GemmPlan : tile::Tiling {
  GemmDesc desc;  ///< with pitches filled in
  /// Of x and w in 16 bits, which tensor maps copy.
  int elements_per_word() const { return desc.scaling == GemmScaling::kNone ? 1 : 2; }
  std::string to_string() const;
};

/// kInvalidArgument names the field, its value and what is allowed.
Result<GemmPlan> plan_gemm(const GemmDesc& desc, const MachineShape& shape);

}  // namespace farwarp
