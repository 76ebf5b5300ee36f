// Ceilings in words.
#pragma once

#include <string>

#include "farwarp/machine/ceilings.h"

namespace farwarp::cli {

/// One line that says of what, then a line for each figure; "-" stands for what is not known.
std::string ceilings_table(const Ceilings& ceilings);

}  // namespace farwarp::cli
