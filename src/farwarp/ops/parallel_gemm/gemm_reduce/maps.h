// What the host writes into an argument block: sizes by create(), tensor maps by the first call.
#pragma once

#include "farwarp/base/status.h"
#include "farwarp/ops/parallel_gemm/gemm_reduce/args.h"
#include "farwarp/ops/parallel_gemm/gemm_reduce/plan.h"
#include "farwarp/world/host/opened_operator.h"

namespace farwarp::gemm_reduce {

/// Sets everything but operands and maps. The buffers of `opened` are the workspace and the inbox of words.
void set_sizes(Args& args, const Plan& plan, World& world, const OpenedOperator& opened);

/// Sets the map of y, where owners fetch.
Status encode_y(Args& args, Device& device, void* y);

/// Makes the other tensor maps of an argument block.
class Maps {
 public:
  /// Sets x and w and their maps, if they have changed. The maps of inboxes are made once, because peers' addresses do
  /// not change. They are made by the first call and not by create(), because a call may fail on one rank alone.
  Status encode(Args& args, const Plan& plan, Device& device, const void* x, const void* w);

 private:
  bool has_inboxes_ = false;
};

}  // namespace farwarp::gemm_reduce
