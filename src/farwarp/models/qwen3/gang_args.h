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

}  // namespace farwarp::qwen3
