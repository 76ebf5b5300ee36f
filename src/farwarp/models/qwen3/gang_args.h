// The arguments of the kernels that decode Qwen3 with the gang dispatcher.
#pragma once

#include "farwarp/fleet/gang.h"
#include "farwarp/models/qwen3/args.h"

namespace farwarp::qwen3 {

struct GangArgs {
  Args decode;
  fleet::GangCells* cells;
  std::int64_t shift;  ///< of fleet::Worker
};

/// For more than eight sequences.
struct StreamGangArgs {
  Args decode;
  fleet::GangCells* cells;
  std::byte* vectors;  ///< fleet::StreamWorker::data
};

}  // namespace farwarp::qwen3
