// Floors of a bench: of the machine that it runs on, and of machines that we do not have.
#pragma once

#include <string>

#include "farwarp/harness/case.h"
#include "farwarp/machine/ceilings.h"
#include "farwarp/machine/data_sheets.h"

namespace farwarp::harness {

/// `floor_of(ceilings)` is the floor of the bench's case. `model` is the device's, as Device::model() returns it.
template <class FloorOf>
void set_floors(BenchOutcome& outcome, const std::string& model, int ranks, const FloorOf& floor_of) {
  outcome.floor = floor_of(ceilings_of(model, ranks));
  outcome.models.clear();
  for (const DataSheet& sheet : data_sheets()) {
    Floor floor = floor_of(ceilings_of(sheet, ranks));
    if (floor.us > 0) outcome.models.push_back({std::string(sheet.name), std::move(floor)});
  }
}

}  // namespace farwarp::harness
