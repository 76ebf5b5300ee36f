// What is right: float64 on the host. Shares no code with the kernels.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "farwarp/harness/compare.h"
#include "farwarp/ops/attention/case/inputs.h"

namespace farwarp::attention {

/// What a call wrote, without the memory around it.
struct Output {
  std::span<const std::uint16_t> out;
  std::int64_t pitch;
  std::span<const float> lse;  ///< empty: not asked for
};

/// How much of a large output is compared. All of a small one is.
struct Effort {
  double mean_elements = 64e6;  ///< kMean: elements of out; whole heads, at least one
  double products = 1e9;        ///< kNormal, kSpread, kLarge: of two numbers; whole rows, at least one
};

/// kMean and kNeedle: empty, or the first wrong element. `call` chooses the heads, if not all are compared. Every row
/// of a compared head is compared; kNeedle compares all heads.
std::string exact_difference(const Inputs& inputs, const Output& output, int call, const Effort& effort = {});

/// Rows whose errors are compared together, with all columns of a head.
inline constexpr int kTileRows = 128;

/// kNormal, kSpread and kLarge: adds rows to `comparison`, at column head * head_dim. Returns what is wrong with a
/// logarithm, or nothing.
std::string compare_rows(const Inputs& inputs, const Output& output, int call, harness::Comparison& comparison,
                         const Effort& effort = {});

}  // namespace farwarp::attention
