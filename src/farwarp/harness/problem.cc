#include "farwarp/harness/problem.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "farwarp/harness/params.h"

namespace farwarp::harness {
namespace {

std::string value_of(const OperatorInfo& op, const Params& params, const std::string& name) {
  if (const auto found = params.find(name); found != params.end()) return found->second;
  const auto info = std::find_if(op.params.begin(), op.params.end(), [&](const auto& one) { return one.name == name; });
  return info == op.params.end() ? "" : info->default_value;
}

/// "1, 2, 4": the numbers of ranks on which a size of `from` ranks stays an integer.
std::string allowed_ranks(std::int64_t value, Problem problem, int from) {
  std::string allowed;
  for (int ranks = 1; ranks <= kMaxSuiteRanks; ++ranks) {
    const bool divides = problem == Problem::kShare ? value * ranks % from == 0 : value * from % ranks == 0;
    if (divides) append_to_list(allowed, ", ", std::to_string(ranks));
  }
  return allowed;
}

}  // namespace

Result<Problem> parse_problem(std::string_view text) {
  for (const Problem problem : {Problem::kWhole, Problem::kShare}) {
    if (text == name_of(problem)) return problem;
  }
  return invalid_argument(fmt::format("--problem is '{}': allowed is whole|share", one_line(text)));
}

Result<Params> params_on_ranks(const OperatorInfo& op, const Params& params, Problem problem, int from, int to) {
  if (!op.spread || from == to) return params;
  const Spread spread = op.spread(params);
  // The whole problem keeps sizes of the whole, and each rank's part changes; a share keeps each rank's part.
  const auto& changed = problem == Problem::kWhole ? spread.of_each : spread.of_all;
  const std::int64_t numerator = problem == Problem::kWhole ? from : to,
                     denominator = problem == Problem::kWhole ? to : from;
  Params result = params;
  for (const std::string& name : changed) {
    const auto value = parse_integer(fmt::format("parameter {}", name), value_of(op, params, name), 0,
                                     std::numeric_limits<std::int32_t>::max());
    if (!value.ok()) return value.status();
    if (*value * numerator % denominator != 0) {
      return invalid_argument(fmt::format("--ranks is '{}': allowed with --problem {} and {}={} of {} ranks are {}", to,
                                          name_of(problem), name, *value, from, allowed_ranks(*value, problem, from)));
    }
    result[name] = std::to_string(*value * numerator / denominator);
  }
  return result;
}

}  // namespace farwarp::harness
