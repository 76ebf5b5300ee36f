// What a code object says about its kernels, read from its ELF image without a driver.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "farwarp/base/status.h"
#include "farwarp/vendor/code_object.h"

namespace farwarp {

struct KernelInfo {
  std::string name;
  std::string symbol;  ///< what the driver is asked for: `name`, or a mangled one (substrate/kernel_of.h)
  // AMD code objects only. 0 for cubins: for those the driver is asked (cuFuncGetParamInfo, cuFuncGetAttribute).
  std::size_t args_bytes = 0;    ///< of the one argument block
  std::size_t shared_bytes = 0;  ///< statically allocated
  int max_threads = 0;
};

/// The name of a kernel's symbol: of a C++ function farwarp::A::B "A_B", else the symbol itself.
std::string kernel_name_of(std::string_view symbol);

/// The kernels of a code object, in its order. kInternal if it is damaged, or none that farwarp_kernels() embeds.
Result<std::vector<KernelInfo>> kernels_of(const CodeObject& object);

}  // namespace farwarp
