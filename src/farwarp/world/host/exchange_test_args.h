// The tests' kernel: every rank sends every rank a number and waits for theirs.
#pragma once

#include <cstdint>

#include "farwarp/world/view.h"

namespace farwarp {

struct ExchangeArgs {
  WorldView view;
  std::uint32_t slot;
  std::uint32_t number;  ///< what this rank sends
  std::int64_t cells;    ///< offset of [2][ranks] cells in every heap, for even and odd epochs
  std::uint32_t* out;    ///< [ranks]: what this rank received
};

inline constexpr int kExchangeThreads = 64;

}  // namespace farwarp
