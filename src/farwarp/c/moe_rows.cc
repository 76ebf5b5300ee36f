// The MoE all-to-all of c.h: dispatch of an operator with `rows`.
#include "farwarp/c/moe.h"

using farwarp::Status;
using namespace farwarp::c;

extern "C" {

farwarp_code farwarp_moe_dispatch_rows(farwarp_moe* moe, const DLTensor* x, const DLTensor* indices,
                                       const DLTensor* weights, DLTensor* recv_x, DLTensor* recv_indices,
                                       DLTensor* recv_weights, DLTensor* counts, DLTensor* offsets, void* stream) {
  return guarded([&]() -> Status {
    if (moe == nullptr) return null_argument("moe");
    if (Status status = check_layout(*moe, true); !status.ok()) return status;
    Tensors tensors(moe->world);
    const farwarp::MoeTokens sent = read_tokens(*moe, tensors, x, indices, weights, nullptr);
    const farwarp::MoeCounts counted = read_counts(*moe, tensors, counts, offsets);
    farwarp::MoeReceived received = read_whole_rows(*moe, tensors, recv_x, recv_indices, recv_weights);
    if (!tensors.status().ok()) return tensors.status();
    received.counts = counted.counts;
    received.offsets = counted.offsets;
    const Status status = moe->op.dispatch(sent, received, {stream});
    if (status.ok()) moe->tokens = sent.tokens;
    return status;
  });
}

farwarp_code farwarp_moe_dispatch_rows_send(farwarp_moe* moe, const DLTensor* x, const DLTensor* indices,
                                            const DLTensor* weights, DLTensor* counts, DLTensor* offsets,
                                            void* stream) {
  return guarded([&]() -> Status {
    if (moe == nullptr) return null_argument("moe");
    if (Status status = check_layout(*moe, true); !status.ok()) return status;
    Tensors tensors(moe->world);
    const farwarp::MoeTokens sent = read_tokens(*moe, tensors, x, indices, weights, nullptr);
    const farwarp::MoeCounts counted = read_counts(*moe, tensors, counts, offsets);
    if (!tensors.status().ok()) return tensors.status();
    const Status status = moe->op.dispatch_send(sent, {stream}, counted);
    if (status.ok()) moe->tokens = sent.tokens;
    return status;
  });
}

farwarp_code farwarp_moe_dispatch_rows_recv(farwarp_moe* moe, DLTensor* recv_x, DLTensor* recv_indices,
                                            DLTensor* recv_weights, void* stream) {
  return guarded([&]() -> Status {
    if (moe == nullptr) return null_argument("moe");
    if (Status status = check_layout(*moe, true); !status.ok()) return status;
    Tensors tensors(moe->world);
    const farwarp::MoeReceived received = read_whole_rows(*moe, tensors, recv_x, recv_indices, recv_weights);
    return tensors.status().ok() ? moe->op.dispatch_recv(received, {stream}) : tensors.status();
  });
}
}
