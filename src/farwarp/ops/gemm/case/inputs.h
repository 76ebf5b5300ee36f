// What the checks of products multiply. gemm and the products of several ranks share it.
#pragma once

#include <cstdint>
#include <span>

#include "farwarp/base/half.h"
#include "farwarp/harness/inputs.h"
#include "farwarp/harness/params.h"

namespace farwarp::gemm {

using harness::InputKind;

/// Of parameter `inputs`.
inline constexpr harness::Choice<InputKind> kInputKinds[] = {
    {"auto", InputKind::kAuto},     {"exact", InputKind::kExact}, {"uniform", InputKind::kUniform},
    {"normal", InputKind::kNormal}, {"mean", InputKind::kMean},   {"tiny", InputKind::kTiny}};
inline constexpr const char* kInputKindNames =
    "auto (exact, uniform, exact, ...; a bench: uniform)|exact|uniform|normal|mean|tiny";

/// The random kind is the challenge's.
constexpr InputKind kind_in_call(InputKind kind, int call) {
  return harness::kind_in_call(kind, call, InputKind::kUniform);
}

enum class Operand : std::uint64_t { kX, kW, kBias };

/// A row of an operand. `kind`: not kAuto. `k`: products of a sum, over all ranks.
void fill_operand(InputKind kind, Operand operand, DType dtype, std::int64_t k, const harness::RandomStream& stream,
                  std::span<std::uint16_t> values);

}  // namespace farwarp::gemm
