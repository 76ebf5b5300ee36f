// The inputs of the checks of products: of gemm, and of the products of several ranks.
#pragma once

#include <cstdint>
#include <span>

#include "farwarp/base/half.h"
#include "farwarp/harness/inputs.h"
#include "farwarp/harness/params.h"

namespace farwarp::gemm {

using harness::InputKind;

/// Values of the parameter `inputs`.
inline constexpr harness::Choice<InputKind> kInputKinds[] = {
    {"auto", InputKind::kAuto},     {"exact", InputKind::kExact}, {"uniform", InputKind::kUniform},
    {"normal", InputKind::kNormal}, {"mean", InputKind::kMean},   {"tiny", InputKind::kTiny}};
inline constexpr const char* kInputKindNames =
    "auto (exact, uniform, exact, ...; a bench: uniform)|exact|uniform|normal|mean|tiny";

/// The kind of a call's inputs. Random inputs are uniform, as in the challenge.
constexpr InputKind kind_in_call(InputKind kind, int call) {
  return harness::kind_in_call(kind, call, InputKind::kUniform);
}

enum class Operand : std::uint64_t { kX, kW, kBias };

/// Fills a row of an operand. `kind` is not kAuto. `k`: how many products a sum has, over all ranks.
void fill_operand(InputKind kind, Operand operand, DType dtype, std::int64_t k, const harness::RandomStream& stream,
                  std::span<std::uint16_t> values);

}  // namespace farwarp::gemm
