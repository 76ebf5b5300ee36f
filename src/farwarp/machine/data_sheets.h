// Machines that we do not have, by their makers' data sheets. A floor from these is a model: nothing was measured.
#pragma once

#include <span>
#include <string_view>

#include "farwarp/machine/ceilings.h"

namespace farwarp {

/// Peak figures of one device; matrix rates are dense.
struct DataSheet {
  std::string_view name;
  std::string_view source;
  double hbm_gb_s = 0;
  double bf16_tflops = 0;
  double link_gb_s = 0;   ///< one direction of one pair of devices
  bool switched = false;  ///< a device sends at most link_gb_s to all others together; else that to each
};

std::span<const DataSheet> data_sheets();

/// Of a node with so many ranks. Latencies and launches, which data sheets do not state, are 0. `source` begins with
/// "model: ".
Ceilings ceilings_of(const DataSheet& sheet, int ranks);

}  // namespace farwarp
