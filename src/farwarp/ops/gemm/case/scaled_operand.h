// The e4m3 operands of the check of gemm: numbers and scales whose products are numbers of the result's dtype, so that
// the oracles of 16-bit operands judge them, too.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "farwarp/harness/inputs.h"
#include "farwarp/ops/gemm/plan.h"

namespace farwarp::gemm {

/// The elements of an operand that share a scale: `rows` x `depth`.
struct ScaleBlock {
  int rows, depth;
};
ScaleBlock scale_block_of_x(const GemmDesc& desc);
ScaleBlock scale_block_of_w(const GemmDesc& desc);

struct ScaledOperand {
  std::vector<std::uint8_t> codes;  ///< [rows, pitch]; NaN between rows
  std::vector<float> scales;        ///< [ceil(rows / block.rows), ceil(columns / block.depth)]
};

/// Rounds `values` [rows, pitch] of `dtype` to e4m3 numbers times scales, and returns both. With exact inputs, which
/// are -1, 0 and 1, scales are 1 or 2. Else a scale has up to four significant bits, as an e4m3 number has, so that the
/// products are numbers of bf16 and fp16.
ScaledOperand scale_operand(harness::InputKind kind, DType dtype, ScaleBlock block, int columns, std::int64_t pitch,
                            const harness::RandomStream& random, std::span<std::uint16_t> values);

/// [rows, columns] -> [columns, rows].
std::vector<float> transposed(std::span<const float> matrix, int columns);

}  // namespace farwarp::gemm
