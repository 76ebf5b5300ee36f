// What host and device share of the exchange of clocks.
#pragma once

#include <cstdint>

#include "farwarp/world/view.h"

namespace farwarp {

inline constexpr int kClockRounds = 64;  ///< of rank 0 with each other rank

struct ClockExchangeArgs {
  WorldView view;
  std::uint32_t slot;
  std::int64_t cells;    ///< offset of u64 cells [kMaxRanks][kClockRounds] in every heap, by the rank that writes
  std::uint64_t* times;  ///< rank 0: [kMaxRanks][kClockRounds][2], sent and answered; another rank: [kClockRounds]
};

}  // namespace farwarp
