// The counter by which the steps of streamed vectors follow each other (stream_dispatcher.dev.h). In device memory,
// zeros before the first launch.
#pragma once

#include <cstdint>

namespace farwarp::fleet {

struct StepCells {
  /// Workers that have ended a step: one for each worker and step of a launch of all steps. Only grows, modulo 2^32.
  alignas(128) std::uint32_t ended;
  /// Plain: `ended` when this launch began. The first worker stores it at a launch's end.
  alignas(128) std::uint32_t ended_before;
};

}  // namespace farwarp::fleet
