#include "farwarp/runtime/launch_check.h"

#include <fmt/format.h>

namespace farwarp {

Status check_block(const Kernel& kernel, int threads, std::size_t shared_bytes, const KernelLimits& limits) {
  if (threads < 1 || threads > limits.max_threads) {
    return invalid_argument(
        fmt::format("kernel {}: threads is {}, allowed are 1 to {}", kernel.name, threads, limits.max_threads));
  }
  if (shared_bytes > limits.max_shared_bytes) {
    return invalid_argument(fmt::format("kernel {}: shared_bytes is {}, allowed are 0 to {}", kernel.name, shared_bytes,
                                        limits.max_shared_bytes));
  }
  return {};
}

Status check_grid(const Kernel& kernel, const LaunchConfig& config, std::size_t args_bytes,
                  int blocks_per_multiprocessor, const MachineShape& shape) {
  if (args_bytes != kernel.args_bytes) {
    return invalid_argument(fmt::format("kernel {}: args_bytes is {}, but its code object for {} takes {}", kernel.name,
                                        args_bytes, name_of(shape.target), kernel.args_bytes));
  }
  const int resident = shape.multiprocessors * blocks_per_multiprocessor;
  if (config.blocks < 1 || config.blocks > resident) {
    return invalid_argument(
        fmt::format("kernel {}: blocks is {}, allowed are 1 to {}: {} multiprocessors hold {} blocks each of {} "
                    "threads and {} bytes of "
                    "shared memory",
                    kernel.name, config.blocks, resident, shape.multiprocessors, blocks_per_multiprocessor,
                    config.threads, config.shared_bytes));
  }
  const int most = shape.traits.most_clustered;
  if (config.cluster < 1 || config.cluster > most || config.blocks % config.cluster != 0) {
    return invalid_argument(fmt::format("kernel {}: cluster is {}, allowed are 1 to {} that divide blocks, which is {}",
                                        kernel.name, config.cluster, most, config.blocks));
  }
  return {};
}

}  // namespace farwarp
