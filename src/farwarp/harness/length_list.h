// Lengths of sequences as a parameter: "12+400+0".
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "farwarp/base/status.h"

namespace farwarp::harness {

/// `count` numbers in 0..most. kInvalidArgument names the parameter, what is wrong and what is allowed.
Result<std::vector<int>> parse_lengths(std::string_view name, std::string_view text, int count, int most);

std::string to_string(const std::vector<int>& lengths);

/// The first `count` of them, each at most `most`: for a shape that is scaled down. `text` itself if it is no list.
std::string shortened_lengths(std::string_view text, int count, int most);

}  // namespace farwarp::harness
