#include "farwarp/ops/gemm/case/scaled_operand.h"

#include <cmath>

#include "farwarp/base/fp8.h"
#include "farwarp/base/sizes.h"
#include "farwarp/harness/compare.h"
#include "farwarp/tile/gemm/scales.h"

namespace farwarp::gemm {
namespace {

using harness::InputKind;

constexpr std::size_t ceil_div(std::size_t a, std::size_t b) { return (a + b - 1) / b; }

/// The power of two by which inputs are multiplied before they are rounded, so that most are normal numbers of e4m3.
int exponent_of_codes(InputKind kind) {
  switch (kind) {
    case InputKind::kExact: return 0;
    case InputKind::kAuto:
    case InputKind::kUniform: return 9;  // +-0.01
    default: return 4;                   // N(0, 1)
  }
}

float scale_of(InputKind kind, std::uint64_t bits) {
  if (kind == InputKind::kExact) return static_cast<float>(1 + bits % 2);
  return std::ldexp(static_cast<float>(8 + bits % 8), -3 - exponent_of_codes(kind));
}

}  // namespace

ScaleBlock scale_block_of_x(const GemmDesc& desc) {
  if (desc.scaling == GemmScaling::kBlocks) return {1, tile::kScaledDepth};
  return {desc.scaling == GemmScaling::kRows ? 1 : desc.m, desc.k};
}
ScaleBlock scale_block_of_w(const GemmDesc& desc) {
  if (desc.scaling == GemmScaling::kBlocks) return {tile::kScaledDepth, tile::kScaledDepth};
  return {desc.scaling == GemmScaling::kRows ? 1 : desc.n, desc.k};
}

ScaledOperand scale_operand(InputKind kind, DType dtype, ScaleBlock block, int columns, std::int64_t pitch,
                            const harness::RandomStream& random, std::span<std::uint16_t> values) {
  const std::size_t rows = values.size() / size(pitch), steps = ceil_div(size(columns), size(block.depth));
  ScaledOperand result;
  result.codes.assign(values.size(), harness::kPoisonByte);
  result.scales.resize(ceil_div(rows, size(block.rows)) * steps);
  for (std::size_t i = 0; i < result.scales.size(); ++i) result.scales[i] = scale_of(kind, random.bits(i));
  const float to_code = std::ldexp(1.0f, exponent_of_codes(kind));
  for (std::size_t row = 0; row < rows; ++row) {
    const float* const scales = &result.scales[row / size(block.rows) * steps];
    for (std::size_t k = 0; k < size(columns); ++k) {
      const std::size_t at = row * size(pitch) + k;
      const std::uint8_t code = fp8_from(Fp8Format::kOcp, harness::decode(dtype, values[at]) * to_code);
      result.codes[at] = code;
      values[at] = harness::encode(dtype, float_from_fp8(Fp8Format::kOcp, code) * scales[k / size(block.depth)]);
    }
  }
  return result;
}

std::vector<float> transposed(std::span<const float> matrix, int columns) {
  const std::size_t rows = matrix.size() / size(columns);
  std::vector<float> result(matrix.size());
  for (std::size_t i = 0; i < matrix.size(); ++i) result[i % size(columns) * rows + i / size(columns)] = matrix[i];
  return result;
}

}  // namespace farwarp::gemm
