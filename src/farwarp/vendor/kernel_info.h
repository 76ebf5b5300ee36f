// What a code object says about its kernels, read from its ELF image without a driver.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "farwarp/base/status.h"
#include "farwarp/vendor/code_object.h"

namespace farwarp {

struct KernelInfo {
  std::string name;
  // AMD code objects only. 0 for cubins: for those the driver is asked (cuFuncGetParamInfo, cuFuncGetAttribute).
  std::size_t args_bytes = 0;    ///< of the one argument block
  std::size_t shared_bytes = 0;  ///< statically allocated
  int max_threads = 0;
};

/// The kernels of a code object, in its order. kInternal if the image is no code object that farwarp_kernels() embeds.
Result<std::vector<KernelInfo>> kernels_of(const CodeObject& object);

}  // namespace farwarp
