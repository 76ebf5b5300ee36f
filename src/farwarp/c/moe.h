// The MoE all-to-all of c.h: what moe.cc and moe_handles.cc share.
#pragma once

#include "farwarp/base/arguments.h"
#include "farwarp/c/operator.h"
#include "farwarp/ops/moe_a2a/moe_a2a.h"

struct farwarp_moe : farwarp::c::Operator<farwarp::MoeAllToAll, farwarp::MoeAllToAllDesc> {
  std::int64_t tokens = -1;  ///< of the call under way; -1: none
  std::int64_t rows = -1;    ///< that it has received, with desc.layout kRows
};

namespace farwarp::c {

int local_experts(const farwarp_moe& moe);
/// `count` is NULL if x says how many tokens there are.
MoeTokens read_tokens(const farwarp_moe& moe, Tensors& tensors, const DLTensor* x, const DLTensor* indices,
                      const DLTensor* weights, const DLTensor* count);
MoeReceived read_received(const farwarp_moe& moe, Tensors& tensors, const DLTensor* recv_x, const DLTensor* counts,
                          const DLTensor* offsets, const DLTensor* origins, const DLTensor* scales);
/// Tables of entries with as many rows as recv_x.
MoeReceived read_whole_rows(farwarp_moe& moe, Tensors& tensors, const DLTensor* recv_x, const DLTensor* recv_indices,
                            const DLTensor* recv_weights);
MoeCounts read_counts(const farwarp_moe& moe, Tensors& tensors, const DLTensor* counts, const DLTensor* offsets);
/// Whether the dispatch function is one of the operator's layout.
Status check_layout(const farwarp_moe& moe, bool rows);

}  // namespace farwarp::c
