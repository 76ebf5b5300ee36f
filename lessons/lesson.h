// The argument block that the kernels of lessons 01 to 03 share, and their wait sites.
#pragma once

#include <cstdint>

#include "farwarp/world/view.h"

namespace farwarp::lessons {

struct Args {
  WorldView view;
  std::uint32_t slot;
  std::uint32_t switches;  ///< bits: kOmitRelease
  std::int64_t workspace;  ///< offset in every heap
  const std::uint32_t* in;
  std::uint32_t* out;
  std::int32_t words;  ///< per rank (01, 02) or per item (03)
  std::int32_t items;  ///< 03: how many items the producer makes
};

inline constexpr std::uint32_t kOmitRelease = 1;  ///< lesson 02: publish chunks without a release, to see what happens
inline constexpr int kChunks = 4;                 ///< lesson 02: flags per rank
inline constexpr int kRing = 4;                   ///< lesson 03: items in flight

enum Site : std::uint32_t { kSiteHello, kSiteChunk, kSiteItem, kSiteRoom, kSites };
inline constexpr const char* kSiteNames[kSites] = {"hello", "chunk", "item", "room in the ring"};

}  // namespace farwarp::lessons
