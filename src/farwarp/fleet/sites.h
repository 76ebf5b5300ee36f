// Wait sites of the ledger that are the runtime's; a model's own follow them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace farwarp::fleet {

enum Site : std::uint32_t {
  // The first four are for code that has no registers left: larger numbers are constants that clang keeps in registers.
  kSiteOperands,  ///< a worker's mbarriers
  kSiteSquares,
  kSiteRankSums,
  kSiteHidden,
  kSiteStep,
  kSiteWorkers,
  kSiteStepEnd,
  kSiteStepStart,
  // Of a worker's mbarriers, too, by the role that waits; they expire only if something is broken.
  kSiteSums,        ///< the warps that finish tiles
  kSiteSlot,        ///< the thread that loads weights
  kSiteVectorSlot,  ///< the thread that loads vectors
  kModelSites       ///< the first of the model's
};

/// The names of all sites: the runtime's, then the model's.
template <std::size_t count>
constexpr std::array<const char*, kModelSites + count> with_model_sites(const char* const (&of_model)[count]) {
  std::array<const char*, kModelSites + count> names = {
      "weights, keys or a vector in a worker", "the squares of a norm's input",  "the partial sums of a rank",
      "the hidden vector of a rank's columns", "the end of the step before",     "the workers of all XCDs",
      "the end of a step on all XCDs",         "the start of a step on the XCD", "partial sums of a worker's tile",
      "a worker's room for weights or keys",   "a worker's room for a vector"};
  for (std::size_t i = 0; i < count; ++i) names[kModelSites + i] = of_model[i];
  return names;
}

}  // namespace farwarp::fleet
