// The memory of a GPU into which launches record themselves.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "farwarp/base/status.h"
#include "farwarp/base/trace.h"
#include "farwarp/runtime/device.h"

namespace farwarp {

class TraceRoom {
 public:
  /// Forgets what was recorded. The first call allocates 1 GiB and waits until it is zeros; later ones clear what was
  /// used, in order of `stream`.
  Status open(Device& device, Stream stream);
  /// Of a launch of `blocks` blocks with `warps` warps each. Null pointers if no room is left: it records nothing.
  TraceBuffer next(const std::string& kernel, int blocks, int warps);
  /// All recorded launches must be done. Releases the memory.
  Result<DeviceTrace> take(Device& device);

 private:
  struct Grid {
    std::string kernel;
    std::size_t blocks, warps;
    TraceBuffer to;
  };

  std::byte* memory_ = nullptr;
  std::size_t used_ = 0;
  std::vector<Grid> grids_;
};

}  // namespace farwarp
