// The parts of a report's page, as HTML.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "farwarp/base/status.h"

namespace farwarp::results {

/// page.css, as it was when the program was built. The build generates it.
std::string_view page_style();
/// Of a suite, which lies at `pointer` in the report's JSON: for each case a bar each for floor, ours and baselines, on
/// one logarithmic scale.
std::string bars_of(const nlohmann::json& suite, const std::string& pointer);
/// Of the whole report: a table, and for each case its baseline's time taken apart.
std::string taxes_of(const nlohmann::json& report);
/// A trace, as `farwarp trace` writes it, as a picture. kInvalidArgument: it is none.
Result<std::string> timeline_of(const std::string& trace);

}  // namespace farwarp::results
