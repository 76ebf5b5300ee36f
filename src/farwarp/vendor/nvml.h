// Whether somebody else is using the GPUs, as NVIDIA's management library sees it. Opened at run time.
#pragma once

#include <string>

namespace farwarp::nvml {

/// Empty if no GPU of this machine is in use; else which one is, or why that cannot be known.
std::string busy_gpus();

}  // namespace farwarp::nvml
