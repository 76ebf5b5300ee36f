// JSON that others have written.
#pragma once

#include <nlohmann/json.hpp>
#include <string_view>

#include "farwarp/base/status.h"

namespace farwarp {

/// kInvalidArgument: "not valid JSON at line 3 (byte 7 of 12)", "nested deeper than 16 levels", or "key "a" is given
/// twice in one object", of which nlohmann::json would silently take the last. Without the limit its recursive
/// functions would run out of stack.
Result<nlohmann::json> parse_json(std::string_view text, int deepest = 16);

/// `value` in one line of at most 60 characters or a little more.
std::string shown_json(const nlohmann::json& value);

}  // namespace farwarp
