// The taxes of a case as lines of a table, and as JSON.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "farwarp/harness/runner.h"

namespace farwarp::harness {

/// One line for each case, its stages below it. `colour`: the result is coloured.
std::string taxes_header();
std::string taxes_rows(const CaseResult& result, bool colour);

/// Microseconds by name; `stages` is a list.
nlohmann::json to_json(const Taxes& taxes);

}  // namespace farwarp::harness
