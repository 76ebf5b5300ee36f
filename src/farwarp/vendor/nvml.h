// Whether other processes use the GPUs, according to NVIDIA's management library (NVML). Opened at run time.
#pragma once

#include <string>

namespace farwarp::nvml {

/// Empty if no GPU of this machine is in use; else says which one is, or why that cannot be found out.
std::string busy_gpus();

}  // namespace farwarp::nvml
