// The host's part of an argument block: what create() fills in, and the tensor maps of a call.
#pragma once

#include "farwarp/base/status.h"
#include "farwarp/ops/parallel_gemm/gemm_reduce/args.h"
#include "farwarp/ops/parallel_gemm/gemm_reduce/plan.h"
#include "farwarp/world/host/opened_operator.h"

namespace farwarp::gemm_reduce {

/// Sets all fields but operands and maps. `opened` has two buffers: the workspace and the inbox of words.
void set_sizes(Args& args, const Plan& plan, World& world, const OpenedOperator& opened);

/// Encodes the tensor maps of an argument block, and remembers which it holds.
class Maps {
 public:
  /// Sets x and w. Encodes maps of x and w only when one of the pointers has changed. Encodes maps of inboxes once, since peers' addresses
  /// never change. That is at the first call and not in create(): encoding may fail on one rank alone, and create() may not.
  Status encode(Args& args, const Plan& plan, Device& device, const void* x, const void* w);

 private:
  bool has_inboxes_ = false;
};

}  // namespace farwarp::gemm_reduce
