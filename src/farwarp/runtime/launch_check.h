// The checks that every target makes before a launch, and their error messages.
#pragma once

#include <cstddef>

#include "farwarp/base/machine_shape.h"
#include "farwarp/base/status.h"
#include "farwarp/runtime/device.h"

namespace farwarp {

struct KernelLimits {
  int max_threads = 0;               ///< of one block
  std::size_t max_shared_bytes = 0;  ///< dynamic, of one block
};

/// kInvalidArgument if the block cannot run.
Status check_block(const Kernel& kernel, int threads, std::size_t shared_bytes, const KernelLimits& limits);

/// kInvalidArgument if the kernel takes an argument block of another size, or the grid cannot be resident at once:
/// blocks that wait for each other would never end.
Status check_grid(const Kernel& kernel, const LaunchConfig& config, std::size_t args_bytes,
                  int blocks_per_multiprocessor, const MachineShape& shape);

}  // namespace farwarp
