// The shape of a suite, on another number of ranks than the suite's.
#pragma once

#include <cstdint>
#include <string_view>

#include "farwarp/base/status.h"
#include "farwarp/harness/case.h"

namespace farwarp::harness {

/// Of a suite, and of a World.
inline constexpr int kMaxSuiteRanks = 8;

enum class Problem : std::uint8_t {
  kWhole,  ///< all ranks together do what the suite's ranks do together
  kShare,  ///< each rank has the weights, tokens or keys that a rank of the suite has
};
constexpr std::string_view name_of(Problem problem) { return problem == Problem::kWhole ? "whole" : "share"; }
/// kInvalidArgument names --problem and what is allowed.
Result<Problem> parse_problem(std::string_view text);

/// `params`, stated for `from` ranks, on `to` ranks. kInvalidArgument if a size cannot be divided so: it names the
/// parameter, its value, and the numbers of ranks that are allowed.
Result<Params> params_on_ranks(const OperatorInfo& op, const Params& params, Problem problem, int from, int to);

}  // namespace farwarp::harness
