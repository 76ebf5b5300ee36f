// What an all-reduce does on a machine. Pure: the same descriptor and shape give the same plan on every rank.
#pragma once

#include <cstdint>

#include "farwarp/base/machine_shape.h"
#include "farwarp/base/status.h"

namespace farwarp::lessons {

struct AllReduceDesc {
  std::int32_t elements = 0;  ///< of a vector: 1 to 2^20
  std::int32_t max_sms = 0;   ///< 0: all multiprocessors
};

struct AllReducePlan {
  AllReduceDesc desc;
  int ranks = 0;
  int blocks = 0;
  std::int64_t flag_bytes = 0;    ///< of this rank's heap, for flags
  std::int64_t vector_bytes = 0;  ///< of this rank's heap, for peers' vectors
};

/// kInvalidArgument names the field, its value and what is allowed.
Result<AllReducePlan> plan_all_reduce(const AllReduceDesc& desc, const MachineShape& shape, int ranks);

}  // namespace farwarp::lessons
