// The oracle of the MoE all-to-all: what dispatch must deliver, to the bit, and what experts compute. case/oracle.h has
// combine's output. Written from the definitions in plan.h and moe_a2a.h alone; shares no code with the kernels.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "farwarp/base/fp8.h"
#include "farwarp/base/half.h"
#include "farwarp/base/status.h"
#include "farwarp/ops/moe_a2a/plan.h"

namespace farwarp::moe {

/// Where one rank's tokens go.
struct Routing {
  int tokens = 0;
  std::vector<std::int32_t> experts;  ///< [tokens, k]; -1: skipped
  std::vector<float> weights;         ///< [tokens, k]
};

/// What MoeReceived must hold on one rank.
struct ExpectedDispatch {
  std::vector<std::int32_t> counts;   ///< [local experts]
  std::vector<std::int32_t> offsets;  ///< [local experts + 1]
  std::vector<std::int64_t> origins;  ///< [offsets.back()]: source rank << 48 | token << 16 | k-slot, -1 for padding
  // With MoeLayout::kRows, where k-slots in origins are 0; otherwise empty:
  std::vector<std::int32_t> experts;  ///< [recv_rows, k]: local, -1 for none
  std::vector<float> weights;         ///< [recv_rows, k]
};

constexpr std::int64_t moe_origin(int source, int token, int k_slot) {
  return static_cast<std::int64_t>(source) << 48 | static_cast<std::int64_t>(token) << 16 | k_slot;
}

/// `routings`: of all ranks. `recv_rows` is at least least_recv_rows(), and matters to MoeLayout::kMasked and kRows
/// only.
ExpectedDispatch expected_dispatch(const MoeAllToAllDesc& desc, std::int64_t recv_rows, int rank,
                                   std::span<const Routing> routings);

/// The least recv_rows with which `rank` can receive these tokens; and with which every rank can.
std::int64_t least_recv_rows(const MoeAllToAllDesc& desc, int rank, std::span<const Routing> routings);
std::int64_t least_recv_rows(const MoeAllToAllDesc& desc, std::span<const Routing> routings);

/// A bf16 row as fp8 dispatch delivers it without powers_of_two.
struct QuantisedRow {
  std::vector<std::uint8_t> numbers;  ///< [hidden]: e4m3
  std::vector<float> scales;          ///< [ceil(hidden / 128)]
};
QuantisedRow quantised_row(Fp8Format format, std::span<const std::uint16_t> row);

/// The values that experts see for a row of Desc::dtype. With fp8_dispatch: the values of its e4m3 numbers with their
/// scales, without powers_of_two.
std::vector<float> row_values(const MoeAllToAllDesc& desc, Fp8Format format, std::span<const std::uint16_t> row);

/// What an expert computes: y = x * scale + shift.
struct ExpertFunction {
  float scale = 1;
  float shift = 0;
};

/// expert(x) as a caller's grouped GEMM or the fused form computes it: in fp32 with one rounding, then rounded to the
/// dtype.
double expert_output(DType dtype, const ExpertFunction& expert, float x);

}  // namespace farwarp::moe
