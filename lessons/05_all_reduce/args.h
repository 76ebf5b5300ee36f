// What host and device share of the all-reduce: the argument block of its kernel, and its wait sites.
#pragma once

#include <cstdint>

#include "farwarp/world/view.h"

namespace farwarp::lessons::all_reduce {

enum Site : std::uint32_t { kSiteVector, kSites };
inline constexpr const char* kSiteNames[kSites] = {"a peer's vector"};

inline constexpr int kThreads = 256;

struct Args {
  WorldView view;
  std::uint32_t slot;
  std::int32_t elements;
  std::int64_t flags;    ///< offset in every heap: cells [2 parities][ranks][blocks]
  std::int64_t vectors;  ///< offset in every heap: float [2 parities][ranks][elements]
  const float* in;
  float* out;
};

}  // namespace farwarp::lessons::all_reduce
