// The arguments of the kernels that decode Qwen3 for more than eight sequences: their vectors stream.
#pragma once

#include "farwarp/fleet/phases.h"
#include "farwarp/models/qwen3/args.h"

namespace farwarp::qwen3 {

struct StreamArgs {
  Args decode;
  fleet::PhaseCells* cells;
  std::byte* vectors;  ///< fleet::StreamWorker::data
};

}  // namespace farwarp::qwen3
