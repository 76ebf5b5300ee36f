// The MoE all-to-all of c.h: calls with handles.
#include "farwarp/c/moe.h"

namespace farwarp::c {
namespace {

Status check_handles(const farwarp_moe* moe) {
  if (moe == nullptr) return null_argument("moe");
  if (moe->desc.handles) return {};
  return {StatusCode::kMisuse, "a function for desc.handles 1 was called; desc.handles is 0"};
}

void* read_handle(const farwarp_moe& moe, Tensors& tensors, const DLTensor* handle) {
  return tensors.read("handle", handle, kBytes, {moe.op.plan().handle_bytes});
}

const std::int32_t* read_expert_counts(const farwarp_moe& moe, Tensors& tensors, const DLTensor* counts) {
  return static_cast<const std::int32_t*>(
      tensors.read_if(counts != nullptr, "expert_counts", counts, type_of(DType::kI32), {moe.desc.num_experts}));
}

MoeReceived read_received(const farwarp_moe& moe, Tensors& tensors, const DLTensor* recv_x, const DLTensor* counts,
                          const DLTensor* offsets, const DLTensor* scales, const DLTensor* sums,
                          const DLTensor* handle) {
  MoeReceived received = read_received(moe, tensors, recv_x, counts, offsets, nullptr, scales);
  received.count_sums = static_cast<std::int32_t*>(
      tensors.read_if(sums != nullptr, "count_sums", sums, type_of(DType::kI32), {local_experts(moe)}));
  received.handle = read_handle(moe, tensors, handle);
  return received;
}

/// What combine and return_row_weights are given: `rows` names the tensor that tells how many rows there are, with
/// kRows.
struct Kept {
  MoeHandle handle;
  const float* weights;
  std::int64_t rows;
};
Kept read_kept(const farwarp_moe& moe, Tensors& tensors, const char* name, const DLTensor* rows,
               const DLTensor* indices, const DLTensor* weights, const DLTensor* handle) {
  const MoeAllToAllDesc& desc = moe.desc;
  const std::int64_t tokens = tensors.rows_of("indices", indices, desc.max_tokens);
  Kept kept{};
  kept.rows =
      desc.layout == MoeLayout::kRows ? tensors.rows_of(name, rows, moe.op.plan().recv_rows) : moe.op.plan().recv_rows;
  kept.handle.memory = read_handle(moe, tensors, handle);
  kept.handle.topk_indices =
      tensors.read("indices", indices, type_of(desc.index_type), {tokens, desc.experts_per_token});
  kept.handle.tokens = static_cast<int>(tokens);
  kept.handle.rows = kept.rows;
  kept.weights = static_cast<const float*>(tensors.read_if(desc.weights_at_combine, "weights", weights,
                                                           type_of(DType::kF32), {tokens, desc.experts_per_token}));
  return kept;
}

const void* read_y(const farwarp_moe& moe, Tensors& tensors, const DLTensor* y, std::int64_t rows) {
  const MoeAllToAllPlan& plan = moe.op.plan();
  const std::int64_t experts = plan.max_local_experts, hidden = moe.desc.hidden;
  const DLDataType type = type_of(moe.desc.dtype);
  if (moe.desc.layout == MoeLayout::kMasked && y != nullptr && y->ndim == 3)
    return tensors.read("y", y, type, {experts, plan.recv_rows / experts, hidden});
  return tensors.read("y", y, type, {rows, hidden});
}

}  // namespace
}  // namespace farwarp::c

using farwarp::DType;
using farwarp::Status;
using namespace farwarp::c;

extern "C" {

farwarp_code farwarp_moe_handle_layout(const farwarp_moe* moe, std::int64_t* bytes, std::int64_t* ranges,
                                       std::int64_t* tokens) {
  return guarded([&]() -> Status {
    if (Status status = check_handles(moe); !status.ok()) return status;
    if (bytes == nullptr) return null_argument("bytes");
    if (ranges == nullptr) return null_argument("ranges");
    if (tokens == nullptr) return null_argument("tokens");
    *bytes = moe->op.plan().handle_bytes;
    *ranges = moe->op.plan().handle_ranges;
    *tokens = moe->op.plan().handle_tokens;
    return {};
  });
}

farwarp_code farwarp_moe_dispatch_kept(farwarp_moe* moe, const DLTensor* x, const DLTensor* indices,
                                       const DLTensor* weights, DLTensor* recv_x, DLTensor* counts, DLTensor* offsets,
                                       DLTensor* scales, DLTensor* count_sums, DLTensor* handle, void* stream) {
  return guarded([&]() -> Status {
    if (Status status = check_handles(moe); !status.ok()) return status;
    if (Status status = check_layout(*moe, false); !status.ok()) return status;
    Tensors tensors(moe->world);
    const farwarp::MoeTokens sent = read_tokens(*moe, tensors, x, indices, weights, nullptr);
    const farwarp::MoeReceived received =
        read_received(*moe, tensors, recv_x, counts, offsets, scales, count_sums, handle);
    return tensors.status().ok() ? moe->op.dispatch(sent, received, {stream}) : tensors.status();
  });
}

farwarp_code farwarp_moe_dispatch_recv_kept(farwarp_moe* moe, DLTensor* recv_x, DLTensor* counts, DLTensor* offsets,
                                            DLTensor* scales, DLTensor* count_sums, DLTensor* handle, void* stream) {
  return guarded([&]() -> Status {
    if (Status status = check_handles(moe); !status.ok()) return status;
    if (Status status = check_layout(*moe, false); !status.ok()) return status;
    Tensors tensors(moe->world);
    const farwarp::MoeReceived received =
        read_received(*moe, tensors, recv_x, counts, offsets, scales, count_sums, handle);
    return tensors.status().ok() ? moe->op.dispatch_recv(received, {stream}) : tensors.status();
  });
}

farwarp_code farwarp_moe_dispatch_rows_kept(farwarp_moe* moe, const DLTensor* x, const DLTensor* indices,
                                            const DLTensor* weights, const DLTensor* expert_counts, DLTensor* recv_x,
                                            DLTensor* recv_indices, DLTensor* recv_weights, DLTensor* counts,
                                            DLTensor* offsets, DLTensor* handle, void* stream) {
  return guarded([&]() -> Status {
    if (Status status = check_handles(moe); !status.ok()) return status;
    if (Status status = check_layout(*moe, true); !status.ok()) return status;
    Tensors tensors(moe->world);
    farwarp::MoeTokens sent = read_tokens(*moe, tensors, x, indices, weights, nullptr);
    sent.expert_counts = read_expert_counts(*moe, tensors, expert_counts);
    const farwarp::MoeCounts counted = read_counts(*moe, tensors, counts, offsets);
    farwarp::MoeReceived received = read_whole_rows(*moe, tensors, recv_x, recv_indices, recv_weights);
    received.handle = read_handle(*moe, tensors, handle);
    if (!tensors.status().ok()) return tensors.status();
    received.counts = counted.counts;
    received.offsets = counted.offsets;
    return moe->op.dispatch(sent, received, {stream});
  });
}

farwarp_code farwarp_moe_dispatch_rows_send_kept(farwarp_moe* moe, const DLTensor* x, const DLTensor* indices,
                                                 const DLTensor* weights, const DLTensor* expert_counts,
                                                 DLTensor* counts, DLTensor* offsets, void* stream) {
  return guarded([&]() -> Status {
    if (Status status = check_handles(moe); !status.ok()) return status;
    if (Status status = check_layout(*moe, true); !status.ok()) return status;
    Tensors tensors(moe->world);
    farwarp::MoeTokens sent = read_tokens(*moe, tensors, x, indices, weights, nullptr);
    sent.expert_counts = read_expert_counts(*moe, tensors, expert_counts);
    const farwarp::MoeCounts counted = read_counts(*moe, tensors, counts, offsets);
    return tensors.status().ok() ? moe->op.dispatch_send(sent, {stream}, counted) : tensors.status();
  });
}

farwarp_code farwarp_moe_dispatch_rows_recv_kept(farwarp_moe* moe, DLTensor* recv_x, DLTensor* recv_indices,
                                                 DLTensor* recv_weights, DLTensor* handle, void* stream) {
  return guarded([&]() -> Status {
    if (Status status = check_handles(moe); !status.ok()) return status;
    if (Status status = check_layout(*moe, true); !status.ok()) return status;
    Tensors tensors(moe->world);
    farwarp::MoeReceived received = read_whole_rows(*moe, tensors, recv_x, recv_indices, recv_weights);
    received.handle = read_handle(*moe, tensors, handle);
    return tensors.status().ok() ? moe->op.dispatch_recv(received, {stream}) : tensors.status();
  });
}

farwarp_code farwarp_moe_combine_kept(farwarp_moe* moe, const DLTensor* y, const DLTensor* indices,
                                      const DLTensor* weights, const DLTensor* handle, DLTensor* out, void* stream) {
  return guarded([&]() -> Status {
    if (Status status = check_handles(moe); !status.ok()) return status;
    Tensors tensors(moe->world);
    const Kept kept = read_kept(*moe, tensors, "y", y, indices, weights, handle);
    const void* const from = read_y(*moe, tensors, y, kept.rows);
    void* const to = tensors.read("out", out, type_of(moe->desc.dtype), {kept.handle.tokens, moe->desc.hidden});
    if (!tensors.status().ok()) return tensors.status();
    return moe->op.combine(from, to, {stream}, kept.weights, &kept.handle);
  });
}

farwarp_code farwarp_moe_combine_send_kept(farwarp_moe* moe, const DLTensor* y, const DLTensor* indices,
                                           const DLTensor* weights, const DLTensor* handle, void* stream) {
  return guarded([&]() -> Status {
    if (Status status = check_handles(moe); !status.ok()) return status;
    Tensors tensors(moe->world);
    const Kept kept = read_kept(*moe, tensors, "y", y, indices, weights, handle);
    const void* const from = read_y(*moe, tensors, y, kept.rows);
    if (!tensors.status().ok()) return tensors.status();
    const Status status = moe->op.combine_send(from, {stream}, kept.weights, &kept.handle);
    if (status.ok()) moe->tokens = kept.handle.tokens;  // for farwarp_moe_combine_recv()
    return status;
  });
}

farwarp_code farwarp_moe_return_row_weights(farwarp_moe* moe, const DLTensor* row_weights, const DLTensor* indices,
                                            const DLTensor* handle, DLTensor* out, void* stream) {
  return guarded([&]() -> Status {
    if (Status status = check_handles(moe); !status.ok()) return status;
    Tensors tensors(moe->world);
    const Kept kept = read_kept(*moe, tensors, "row_weights", row_weights, indices, nullptr, handle);
    const std::int64_t slots = moe->desc.experts_per_token;
    const void* const from = tensors.read("row_weights", row_weights, type_of(DType::kF32), {kept.rows, slots});
    void* const to = tensors.read("out", out, type_of(DType::kF32), {kept.handle.tokens, slots});
    if (!tensors.status().ok()) return tensors.status();
    return moe->op.return_row_weights(static_cast<const float*>(from), static_cast<float*>(to), {stream}, kept.handle);
  });
}
}
