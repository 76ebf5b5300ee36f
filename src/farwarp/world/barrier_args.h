// What host and device share of the barrier of all ranks.
#pragma once

#include <cstdint>

#include "farwarp/world/view.h"

namespace farwarp {

struct BarrierArgs {
  WorldView view;
  std::uint32_t slot;
  std::int64_t cells;  ///< offset of u64 cells [2][ranks] in every heap, for even and odd epochs
};

inline constexpr int kBarrierThreads = 64;

}  // namespace farwarp
