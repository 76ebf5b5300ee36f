// The smallest model: what toy_model_test.dev.cc and toy_model_test.cc share. HACKING.md, "Add a model", follows it.
//
//   begin    h = the inputs                            the hidden vector, 256 rows of each column
//   then in each of two layers
//   widen    wide = W1 * rmsnorm(h)                    a product
//   square   squared = wide * wide                     no product: a unit is a column
//   narrow   h += the ranks' sums of W2 * squared      a product, whose sums ranks exchange
//   and
//   finish   outputs = h * the last norm's weights     no product: every worker waits for all of it
//
// Two layers, because sums may be sent again when a peer has shown, by those of another step, that it has added them
// (Graph::check()).
#pragma once

#include <cstdint>

#include "farwarp/fleet/launch.h"
#include "farwarp/fleet/sites.h"
#include "farwarp/fleet/worker_shared.h"

namespace farwarp::fleet::toy {

inline constexpr int kRows = 256;      ///< of the hidden vector
inline constexpr int kWideRows = 512;  ///< of `wide`, of a rank
inline constexpr int kLayers = 2;

enum class Kind : std::int32_t { kBegin, kWiden, kSquare, kNarrow, kFinish };

enum Site : std::uint32_t { kSiteWiden = kModelSites, kSiteSquare, kSiteNarrow, kSiteFinish };
inline constexpr auto kSiteNames =
    with_model_sites({"the input of widen", "the input of square", "the input of narrow", "all of the output"});

struct Args {
  Launch launch;
  const std::uint64_t* inputs;  ///< fours [kRows / 4][columns]
  std::uint64_t* outputs;       ///< the same
};

template <int columns, bool bulk_copy>
using SharedLayout = WorkerShared<columns, bulk_copy, 0, 0>;

}  // namespace farwarp::fleet::toy
