// Ceilings as text.
#pragma once

#include <string>

#include "farwarp/machine/ceilings.h"

namespace farwarp::cli {

/// A line with the device, the number of ranks and the source, then a line for each figure; "-" if it is not known.
std::string ceilings_table(const Ceilings& ceilings);

}  // namespace farwarp::cli
