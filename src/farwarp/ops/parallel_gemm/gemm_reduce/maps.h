// The host's part of an argument block: what create() fills in, and the tensor maps of a call.
#pragma once

#include "farwarp/base/status.h"
#include "farwarp/ops/parallel_gemm/gemm_reduce/args.h"
#include "farwarp/ops/parallel_gemm/gemm_reduce/plan.h"
#include "farwarp/world/host/opened_operator.h"

namespace farwarp::gemm_reduce {

/// All but operands and maps. `opened` has the workspace, then the memory of words.
void set_sizes(Args& args, const Plan& plan, World& world, const OpenedOperator& opened);

/// Keeps track of which maps stand in the block.
class Maps {
 public:
  /// Sets x and w. Maps are made anew only for matrices that have moved; those of inboxes once, since peers' addresses never move, and
  /// at the first call, which may fail on one rank alone as create() may not.
  Status encode(Args& args, const Plan& plan, Device& device, const void* x, const void* w);

 private:
  bool has_inboxes_ = false;
};

}  // namespace farwarp::gemm_reduce
