// The MoE all-to-all of c.h.
#include "farwarp/base/arguments.h"
#include "farwarp/c/operator.h"
#include "farwarp/ops/moe_a2a/moe_a2a.h"

struct farwarp_moe : farwarp::c::Operator<farwarp::MoeAllToAll, farwarp::MoeAllToAllDesc> {
  std::int64_t tokens = -1;  ///< of the call under way; -1: none
};

namespace farwarp::c {
namespace {

constexpr int kScaled = 128;  ///< numbers of a row that have one scale

Result<MoeAllToAllDesc> read(const farwarp_moe_desc* given) {
  const auto desc = read_desc(given, farwarp_moe_desc_init);
  if (!desc.ok()) return desc.status();
  const auto dtype = read_dtype("dtype", desc->dtype, {DType::kBf16, DType::kF16});
  const auto index_type = read_dtype("index_type", desc->index_type, {DType::kI32, DType::kI64});
  const auto fp8 = read_flag("fp8_dispatch", desc->fp8_dispatch), masked = read_flag("masked", desc->masked);
  if (const Status status = first_failure({dtype.status(), index_type.status(), fp8.status(), masked.status()});
      !status.ok())
    return status;
  MoeAllToAllDesc result;
  result.num_experts = desc->num_experts;
  result.experts_per_token = desc->experts_per_token;
  result.hidden = desc->hidden;
  result.max_tokens = desc->max_tokens;
  result.dtype = *dtype;
  result.index_type = *index_type;
  result.fp8_dispatch = *fp8;
  result.layout = *masked ? MoeLayout::kMasked : MoeLayout::kExpertMajor;
  result.row_alignment = desc->row_alignment;
  result.recv_rows = desc->recv_rows;
  result.max_sms = desc->max_sms;
  return result;
}

int local_experts(const farwarp_moe& moe) {
  const int rank = moe.world.rank(), ranks = moe.world.size(), experts = moe.desc.num_experts;
  return moe_first_expert(rank + 1, ranks, experts) - moe_first_expert(rank, ranks, experts);
}

}  // namespace
}  // namespace farwarp::c

using farwarp::DType;
using farwarp::Status;
using namespace farwarp::c;

extern "C" {

void farwarp_moe_desc_init(farwarp_moe_desc* desc) {
  *desc = {};
  desc->bytes = sizeof *desc;
  desc->dtype = type_of(DType::kBf16);
  desc->index_type = type_of(DType::kI32);
  desc->row_alignment = 1;
}

farwarp_code farwarp_moe_create(farwarp_world* world, const farwarp_moe_desc* desc, farwarp_moe** moe) {
  return create(
      world, moe, [&] { return read(desc); }, farwarp::MoeAllToAll::create);
}

std::int64_t farwarp_moe_recv_rows(const farwarp_moe* moe) { return moe == nullptr ? 0 : moe->op.plan().recv_rows; }
std::int32_t farwarp_moe_local_experts(const farwarp_moe* moe) { return moe == nullptr ? 0 : local_experts(*moe); }

farwarp_code farwarp_moe_dispatch(farwarp_moe* moe, const DLTensor* x, const DLTensor* indices, const DLTensor* weights,
                                  DLTensor* recv_x, DLTensor* counts, DLTensor* offsets, DLTensor* origins,
                                  DLTensor* scales, void* stream) {
  return guarded([&]() -> Status {
    if (moe == nullptr) return null_argument("moe");
    const farwarp::MoeAllToAllDesc& desc = moe->desc;
    const DLDataType type = type_of(desc.dtype), of_rows = desc.fp8_dispatch ? kFp8Bytes : type;
    const std::int64_t rows = moe->op.plan().recv_rows, experts = local_experts(*moe);
    Tensors tensors(moe->world);
    const std::int64_t tokens = tensors.rows_of("x", x, desc.max_tokens);
    farwarp::MoeTokens sent;
    sent.x = tensors.read("x", x, type, {tokens, desc.hidden});
    sent.topk_indices = tensors.read("indices", indices, type_of(desc.index_type), {tokens, desc.experts_per_token});
    sent.topk_weights = static_cast<const float*>(
        tensors.read("weights", weights, type_of(DType::kF32), {tokens, desc.experts_per_token}));
    sent.tokens = static_cast<int>(tokens);
    farwarp::MoeReceived received;
    received.x = tensors.read("recv_x", recv_x, of_rows, {rows, desc.hidden});
    received.counts = static_cast<std::int32_t*>(tensors.read("counts", counts, type_of(DType::kI32), {experts}));
    received.offsets =
        static_cast<std::int32_t*>(tensors.read("offsets", offsets, type_of(DType::kI32), {experts + 1}));
    received.origins = static_cast<std::int64_t*>(
        tensors.read_if(origins != nullptr, "origins", origins, type_of(DType::kI64), {rows}));
    received.scales = static_cast<float*>(tensors.read_if(desc.fp8_dispatch, "scales", scales, type_of(DType::kF32),
                                                          {rows, (desc.hidden + kScaled - 1) / kScaled}));
    if (!tensors.status().ok()) return tensors.status();
    const Status status = moe->op.dispatch(sent, received, {stream});
    if (status.ok()) moe->tokens = tokens;
    return status;
  });
}

farwarp_code farwarp_moe_combine(farwarp_moe* moe, const DLTensor* y, DLTensor* out, void* stream) {
  return guarded([&]() -> Status {
    if (moe == nullptr) return null_argument("moe");
    if (moe->tokens < 0)
      return {farwarp::StatusCode::kMisuse, "farwarp_moe_combine() has no call: farwarp_moe_dispatch() comes first"};
    const DLDataType type = type_of(moe->desc.dtype);
    Tensors tensors(moe->world);
    const void* const from = tensors.read("y", y, type, {moe->op.plan().recv_rows, moe->desc.hidden});
    void* const to = tensors.read("out", out, type, {moe->tokens, moe->desc.hidden});
    if (!tensors.status().ok()) return tensors.status();
    const Status status = moe->op.combine(from, to, {stream});
    if (status.ok()) moe->tokens = -1;
    return status;
  });
}

farwarp_code farwarp_moe_close(farwarp_moe* moe) { return close(moe, "moe"); }
}
