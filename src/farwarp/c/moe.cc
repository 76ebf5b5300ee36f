// The MoE all-to-all of c.h.
#include "farwarp/base/arguments.h"
#include "farwarp/c/operator.h"
#include "farwarp/ops/moe_a2a/moe_a2a.h"

struct farwarp_moe : farwarp::c::Operator<farwarp::MoeAllToAll, farwarp::MoeAllToAllDesc> {
  std::int64_t tokens = -1;  ///< of the call under way; -1: none
};

namespace farwarp::c {
namespace {

constexpr MoeMode kModes[] = {MoeMode::kAuto, MoeMode::kWords, MoeMode::kBulk};  // by farwarp_moe_mode
constexpr int kScaled = 128;  ///< numbers of a row that have one scale

farwarp_moe_desc moe_defaults() {
  farwarp_moe_desc desc = {};
  desc.bytes = sizeof desc;
  desc.dtype = type_of(DType::kBf16);
  desc.index_type = type_of(DType::kI32);
  desc.row_alignment = 1;
  return desc;
}

Result<MoeAllToAllDesc> read(const farwarp_moe_desc* given) {
  const auto desc = read_desc(given, moe_defaults);
  if (!desc.ok()) return desc.status();
  const auto dtype = read_dtype("dtype", desc->dtype, {DType::kBf16, DType::kF16});
  const auto index_type = read_dtype("index_type", desc->index_type, {DType::kI32, DType::kI64});
  const auto fp8 = read_flag("fp8_dispatch", desc->fp8_dispatch), masked = read_flag("masked", desc->masked);
  if (const Status status = first_failure({dtype.status(), index_type.status(), fp8.status(), masked.status(),
                                           check_choice("desc.mode", desc->mode, FARWARP_MOE_BULK)});
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
  result.mode = kModes[desc->mode];
  result.segments = desc->segments;
  result.send_only_blocks = desc->send_only_blocks;
  return result;
}

int local_experts(const farwarp_moe& moe) {
  const int rank = moe.world.rank(), ranks = moe.world.size(), experts = moe.desc.num_experts;
  return moe_first_expert(rank + 1, ranks, experts) - moe_first_expert(rank, ranks, experts);
}

MoeTokens read_tokens(const farwarp_moe& moe, Tensors& tensors, const DLTensor* x, const DLTensor* indices,
                      const DLTensor* weights, const DLTensor* count) {
  const MoeAllToAllDesc& desc = moe.desc;
  const std::int64_t rows = count != nullptr ? desc.max_tokens : tensors.rows_of("x", x, desc.max_tokens);
  MoeTokens sent;
  sent.x = tensors.read("x", x, type_of(desc.dtype), {rows, desc.hidden});
  sent.topk_indices = tensors.read("indices", indices, type_of(desc.index_type), {rows, desc.experts_per_token});
  sent.topk_weights =
      static_cast<const float*>(tensors.read("weights", weights, type_of(DType::kF32), {rows, desc.experts_per_token}));
  sent.tokens_on_device =
      static_cast<const std::int32_t*>(tensors.read_if(count != nullptr, "count", count, type_of(DType::kI32), {1}));
  sent.tokens = static_cast<int>(rows);
  return sent;
}

MoeReceived read_received(const farwarp_moe& moe, Tensors& tensors, const DLTensor* recv_x, const DLTensor* counts,
                          const DLTensor* offsets, const DLTensor* origins, const DLTensor* scales) {
  const MoeAllToAllDesc& desc = moe.desc;
  const DLDataType of_rows = desc.fp8_dispatch ? kFp8Bytes : type_of(desc.dtype), integers = type_of(DType::kI32);
  const std::int64_t rows = moe.op.plan().recv_rows, experts = local_experts(moe);
  MoeReceived received;
  received.x = tensors.read("recv_x", recv_x, of_rows, {rows, desc.hidden});
  received.counts = static_cast<std::int32_t*>(tensors.read("counts", counts, integers, {experts}));
  received.offsets = static_cast<std::int32_t*>(tensors.read("offsets", offsets, integers, {experts + 1}));
  received.origins =
      static_cast<std::int64_t*>(tensors.read_if(origins != nullptr, "origins", origins, type_of(DType::kI64), {rows}));
  received.scales = static_cast<float*>(tensors.read_if(desc.fp8_dispatch, "scales", scales, type_of(DType::kF32),
                                                        {rows, (desc.hidden + kScaled - 1) / kScaled}));
  return received;
}

void* read_y(const farwarp_moe& moe, Tensors& tensors, const DLTensor* y) {
  return tensors.read("y", y, type_of(moe.desc.dtype), {moe.op.plan().recv_rows, moe.desc.hidden});
}

Status check_under_way(const farwarp_moe& moe, const char* function) {
  if (moe.tokens >= 0) return {};
  return {StatusCode::kMisuse, fmt::format("{}() has no call: a dispatch comes first", function)};
}

/// `count` is NULL if x says how many tokens there are.
farwarp_code dispatch(farwarp_moe* moe, const DLTensor* x, const DLTensor* indices, const DLTensor* weights,
                      const DLTensor* count, const DLTensor* recv_x, const DLTensor* counts, const DLTensor* offsets,
                      const DLTensor* origins, const DLTensor* scales, void* stream) {
  return guarded([&]() -> Status {
    if (moe == nullptr) return null_argument("moe");
    Tensors tensors(moe->world);
    const MoeTokens sent = read_tokens(*moe, tensors, x, indices, weights, count);
    const MoeReceived received = read_received(*moe, tensors, recv_x, counts, offsets, origins, scales);
    if (!tensors.status().ok()) return tensors.status();
    const Status status = moe->op.dispatch(sent, received, {stream});
    if (status.ok()) moe->tokens = sent.tokens;
    return status;
  });
}

}  // namespace
}  // namespace farwarp::c

using farwarp::DType;
using farwarp::Status;
using namespace farwarp::c;

extern "C" {

farwarp_code farwarp_moe_desc_init_sized(farwarp_moe_desc* desc, std::size_t bytes) {
  return init_sized(desc, bytes, moe_defaults);
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
  return dispatch(moe, x, indices, weights, nullptr, recv_x, counts, offsets, origins, scales, stream);
}

farwarp_code farwarp_moe_dispatch_counted(farwarp_moe* moe, const DLTensor* x, const DLTensor* indices,
                                          const DLTensor* weights, const DLTensor* count, DLTensor* recv_x,
                                          DLTensor* counts, DLTensor* offsets, DLTensor* origins, DLTensor* scales,
                                          void* stream) {
  if (count == nullptr) return code_of(null_argument("count"));
  return dispatch(moe, x, indices, weights, count, recv_x, counts, offsets, origins, scales, stream);
}

farwarp_code farwarp_moe_dispatch_send(farwarp_moe* moe, const DLTensor* x, const DLTensor* indices,
                                       const DLTensor* weights, const DLTensor* count, void* stream) {
  return guarded([&]() -> Status {
    if (moe == nullptr) return null_argument("moe");
    Tensors tensors(moe->world);
    const farwarp::MoeTokens sent = read_tokens(*moe, tensors, x, indices, weights, count);
    if (!tensors.status().ok()) return tensors.status();
    const Status status = moe->op.dispatch_send(sent, {stream});
    if (status.ok()) moe->tokens = sent.tokens;
    return status;
  });
}

farwarp_code farwarp_moe_dispatch_recv(farwarp_moe* moe, DLTensor* recv_x, DLTensor* counts, DLTensor* offsets,
                                       DLTensor* origins, DLTensor* scales, void* stream) {
  return guarded([&]() -> Status {
    if (moe == nullptr) return null_argument("moe");
    Tensors tensors(moe->world);
    const farwarp::MoeReceived received = read_received(*moe, tensors, recv_x, counts, offsets, origins, scales);
    return tensors.status().ok() ? moe->op.dispatch_recv(received, {stream}) : tensors.status();
  });
}

farwarp_code farwarp_moe_combine(farwarp_moe* moe, const DLTensor* y, DLTensor* out, void* stream) {
  return guarded([&]() -> Status {
    if (moe == nullptr) return null_argument("moe");
    if (Status status = check_under_way(*moe, "farwarp_moe_combine"); !status.ok()) return status;
    Tensors tensors(moe->world);
    const void* const from = read_y(*moe, tensors, y);
    void* const to = tensors.read("out", out, type_of(moe->desc.dtype), {moe->tokens, moe->desc.hidden});
    if (!tensors.status().ok()) return tensors.status();
    const Status status = moe->op.combine(from, to, {stream});
    if (status.ok()) moe->tokens = -1;
    return status;
  });
}

farwarp_code farwarp_moe_combine_send(farwarp_moe* moe, const DLTensor* y, void* stream) {
  return guarded([&]() -> Status {
    if (moe == nullptr) return null_argument("moe");
    Tensors tensors(moe->world);
    const void* const from = read_y(*moe, tensors, y);
    return tensors.status().ok() ? moe->op.combine_send(from, {stream}) : tensors.status();
  });
}

farwarp_code farwarp_moe_combine_recv(farwarp_moe* moe, DLTensor* out, void* stream) {
  return guarded([&]() -> Status {
    if (moe == nullptr) return null_argument("moe");
    if (Status status = check_under_way(*moe, "farwarp_moe_combine_recv"); !status.ok()) return status;
    Tensors tensors(moe->world);
    void* const to = tensors.read("out", out, type_of(moe->desc.dtype), {moe->tokens, moe->desc.hidden});
    if (!tensors.status().ok()) return tensors.status();
    const Status status = moe->op.combine_recv(to, {stream});
    if (status.ok()) moe->tokens = -1;
    return status;
  });
}

farwarp_code farwarp_moe_fused(farwarp_moe* moe, const DLTensor* x, const DLTensor* indices, const DLTensor* weights,
                               const DLTensor* count, int32_t expert, const DLTensor* expert_table, DLTensor* out,
                               void* stream) {
  return guarded([&]() -> Status {
    if (moe == nullptr) return null_argument("moe");
    if (Status status = check_choice("expert", expert, FARWARP_MOE_TABLE); !status.ok()) return status;
    const bool table = expert == FARWARP_MOE_TABLE;
    if (!table && expert_table != nullptr)
      return farwarp::invalid_argument("expert_table is given; allowed: NULL, as expert is FARWARP_MOE_RANK_SCALE");
    Tensors tensors(moe->world);
    const farwarp::MoeTokens sent = read_tokens(*moe, tensors, x, indices, weights, count);
    const void* const numbers =
        tensors.read_if(table, "expert_table", expert_table, type_of(DType::kF32), {local_experts(*moe), 2});
    void* const to = tensors.read("out", out, type_of(moe->desc.dtype), {sent.tokens, moe->desc.hidden});
    if (!tensors.status().ok()) return tensors.status();
    return moe->op.fused(sent, table ? farwarp::MoeExpert::kTable : farwarp::MoeExpert::kRankScale,
                         static_cast<const float*>(numbers), to, {stream});
  });
}

farwarp_code farwarp_moe_forget(farwarp_moe* moe) {
  return guarded([&]() -> Status {
    if (moe == nullptr) return null_argument("moe");
    moe->op.forget_call();
    moe->tokens = -1;
    return {};
  });
}

farwarp_code farwarp_moe_close(farwarp_moe* moe) { return close(moe, "moe"); }
}
