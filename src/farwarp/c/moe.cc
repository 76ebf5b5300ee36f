// The MoE all-to-all of c.h.
#include "farwarp/c/moe.h"

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
  const auto columns = read_flag("scale_columns", desc->scale_columns);
  const auto late = read_flag("weights_at_combine", desc->weights_at_combine);
  const auto rows = read_flag("rows", desc->rows), handles = read_flag("handles", desc->handles);
  const auto powers = read_flag("powers_of_two", desc->powers_of_two);
  const auto exponents = read_flag("scale_exponents", desc->scale_exponents);
  if (const Status status =
          first_failure({dtype.status(), index_type.status(), fp8.status(), masked.status(), columns.status(),
                         late.status(), rows.status(), handles.status(), powers.status(), exponents.status(),
                         check_choice("desc.mode", desc->mode, FARWARP_MOE_BULK)});
      !status.ok())
    return status;
  MoeAllToAllDesc result;
  result.num_experts = desc->num_experts;
  result.experts_per_token = desc->experts_per_token;
  result.hidden = desc->hidden;
  result.dispatch_hidden = desc->dispatch_hidden;
  result.max_tokens = desc->max_tokens;
  result.dtype = *dtype;
  result.index_type = *index_type;
  result.fp8_dispatch = *fp8;
  if (*masked && *rows) return invalid_argument("masked and rows are 1; allowed: one of them");
  result.layout = *masked ? MoeLayout::kMasked : *rows ? MoeLayout::kRows : MoeLayout::kExpertMajor;
  if (*exponents && !(*columns && *powers))
    return invalid_argument("scale_exponents is 1; allowed: with powers_of_two 1 and scale_columns 1");
  result.scales = *exponents ? MoeScales::kExponentColumns : *columns ? MoeScales::kColumns : MoeScales::kRowMajor;
  result.powers_of_two = *powers;
  result.handles = *handles;
  result.weights_at_combine = *late;
  result.row_alignment = desc->row_alignment;
  result.recv_rows = desc->recv_rows;
  result.max_sms = desc->max_sms;
  result.mode = kModes[desc->mode];
  result.segments = desc->segments;
  result.send_only_blocks = desc->send_only_blocks;
  return result;
}

}  // namespace

int local_experts(const farwarp_moe& moe) {
  const int rank = moe.world.rank(), ranks = moe.world.size(), experts = moe.desc.num_experts;
  return moe_first_expert(rank + 1, ranks, experts) - moe_first_expert(rank, ranks, experts);
}

MoeTokens read_tokens(const farwarp_moe& moe, Tensors& tensors, const DLTensor* x, const DLTensor* indices,
                      const DLTensor* weights, const DLTensor* count) {
  const MoeAllToAllDesc& desc = moe.desc;
  const std::int64_t rows = count != nullptr ? desc.max_tokens : tensors.rows_of("x", x, desc.max_tokens);
  MoeTokens sent;
  sent.x = tensors.read("x", x, type_of(desc.dtype), {rows, moe.op.plan().dispatch_hidden});
  sent.topk_indices = tensors.read("indices", indices, type_of(desc.index_type), {rows, desc.experts_per_token});
  sent.topk_weights = static_cast<const float*>(tensors.read_if(!desc.weights_at_combine, "weights", weights,
                                                                type_of(DType::kF32), {rows, desc.experts_per_token}));
  sent.tokens_on_device =
      static_cast<const std::int32_t*>(tensors.read_if(count != nullptr, "count", count, type_of(DType::kI32), {1}));
  sent.tokens = static_cast<int>(rows);
  return sent;
}

namespace {

/// The expert-major rows of a call. In the masked layout a tensor of three dimensions has one for experts.
void* read_rows(const farwarp_moe& moe, Tensors& tensors, const char* name, const DLTensor* tensor, DLDataType type) {
  const MoeAllToAllPlan& plan = moe.op.plan();
  const std::int64_t experts = plan.max_local_experts, hidden = moe.desc.hidden;
  if (moe.desc.layout == MoeLayout::kRows) return tensors.read(name, tensor, type, {moe.rows, hidden});
  if (moe.desc.layout == MoeLayout::kMasked && tensor != nullptr && tensor->ndim == 3)
    return tensors.read(name, tensor, type, {experts, plan.recv_rows / experts, hidden});
  return tensors.read(name, tensor, type, {plan.recv_rows, hidden});
}

/// Whether it is [a, c, b] of which each [c, b] lies column by column: a contiguous [a, b, c] with its last dimensions
/// exchanged.
bool is_transposed(const DLTensor* tensor, DLDataType type, std::int64_t a, std::int64_t b, std::int64_t c) {
  if (tensor == nullptr || tensor->ndim != 3 || tensor->shape == nullptr || tensor->strides == nullptr ||
      !same(tensor->dtype, type))
    return false;
  const std::int64_t shape[] = {a, c, b}, strides[] = {b * c, 1, c};
  for (int i = 0; i < 3; ++i) {
    if (tensor->shape[i] != shape[i] || (shape[i] != 1 && tensor->strides[i] != strides[i])) return false;
  }
  return true;
}

void* read_scales(const farwarp_moe& moe, Tensors& tensors, const DLTensor* scales) {
  const MoeAllToAllPlan& plan = moe.op.plan();
  const std::int64_t groups = (moe.desc.hidden + kScaled - 1) / kScaled, experts = plan.max_local_experts;
  const std::int64_t room = plan.recv_rows / experts;
  const DLDataType type = type_of(DType::kF32);
  if (moe.desc.scales == MoeScales::kRowMajor)
    return tensors.read_if(moe.desc.fp8_dispatch, "scales", scales, type, {plan.recv_rows, groups});
  const bool exponents = moe.desc.scales == MoeScales::kExponentColumns;
  const std::int64_t columns = exponents ? groups / 4 : groups;  // an int32 has four exponents
  std::int64_t shape[] = {experts, columns, room, 4};
  DLTensor contiguous{};
  if (is_transposed(scales, exponents ? type_of(DType::kI32) : type, experts, columns, room)) {
    contiguous = *scales;
    contiguous.dtype = exponents ? kBytes : type;
    contiguous.ndim = exponents ? 4 : 3;
    contiguous.shape = shape;
    contiguous.strides = nullptr;
    scales = &contiguous;
  }
  if (exponents) return tensors.read("scales", scales, kBytes, {experts, columns, room, 4});
  return tensors.read("scales", scales, type, {experts, columns, room});
}

}  // namespace

MoeReceived read_received(const farwarp_moe& moe, Tensors& tensors, const DLTensor* recv_x, const DLTensor* counts,
                          const DLTensor* offsets, const DLTensor* origins, const DLTensor* scales) {
  const MoeAllToAllDesc& desc = moe.desc;
  const DLDataType of_rows = desc.fp8_dispatch ? kFp8 : type_of(desc.dtype), integers = type_of(DType::kI32);
  const std::int64_t rows = moe.op.plan().recv_rows, experts = local_experts(moe);
  MoeReceived received;
  received.x = read_rows(moe, tensors, "recv_x", recv_x, of_rows);
  received.counts = static_cast<std::int32_t*>(tensors.read("counts", counts, integers, {experts}));
  received.offsets = static_cast<std::int32_t*>(tensors.read("offsets", offsets, integers, {experts + 1}));
  received.origins =
      static_cast<std::int64_t*>(tensors.read_if(origins != nullptr, "origins", origins, type_of(DType::kI64), {rows}));
  received.scales = read_scales(moe, tensors, scales);
  return received;
}

namespace {

void* read_y(const farwarp_moe& moe, Tensors& tensors, const DLTensor* y) {
  return read_rows(moe, tensors, "y", y, type_of(moe.desc.dtype));
}

/// What combine takes with weights_at_combine.
const float* read_weights(const farwarp_moe& moe, Tensors& tensors, const DLTensor* weights) {
  return static_cast<const float*>(tensors.read_if(moe.desc.weights_at_combine, "weights", weights,
                                                   type_of(DType::kF32), {moe.tokens, moe.desc.experts_per_token}));
}

}  // namespace

Status check_layout(const farwarp_moe& moe, bool rows) {
  if (rows == (moe.desc.layout == MoeLayout::kRows)) return {};
  return {StatusCode::kMisuse, rows ? "a function for desc.rows 1 was called; desc.rows is 0"
                                    : "desc.rows is 1; allowed: farwarp_moe_dispatch_rows() and its halves"};
}

MoeReceived read_whole_rows(farwarp_moe& moe, Tensors& tensors, const DLTensor* recv_x, const DLTensor* recv_indices,
                            const DLTensor* recv_weights) {
  const MoeAllToAllDesc& desc = moe.desc;
  MoeReceived received;
  received.rows = moe.rows = tensors.rows_of("recv_x", recv_x, moe.op.plan().recv_rows);
  received.x = tensors.read("recv_x", recv_x, type_of(desc.dtype), {moe.rows, moe.op.plan().dispatch_hidden});
  received.topk_indices =
      tensors.read("recv_indices", recv_indices, type_of(desc.index_type), {moe.rows, desc.experts_per_token});
  received.topk_weights = static_cast<float*>(
      tensors.read("recv_weights", recv_weights, type_of(DType::kF32), {moe.rows, desc.experts_per_token}));
  return received;
}

MoeCounts read_counts(const farwarp_moe& moe, Tensors& tensors, const DLTensor* counts, const DLTensor* offsets) {
  const DLDataType integers = type_of(DType::kI32);
  return {static_cast<std::int32_t*>(tensors.read("counts", counts, integers, {local_experts(moe)})),
          static_cast<std::int32_t*>(tensors.read("offsets", offsets, integers, {moe.world.size() + 1}))};
}

namespace {

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
    if (Status status = check_layout(*moe, false); !status.ok()) return status;
    Tensors tensors(moe->world);
    const MoeTokens sent = read_tokens(*moe, tensors, x, indices, weights, count);
    const MoeReceived received = read_received(*moe, tensors, recv_x, counts, offsets, origins, scales);
    if (!tensors.status().ok()) return tensors.status();
    const Status status = moe->op.dispatch(sent, received, {stream});
    if (status.ok()) moe->tokens = sent.tokens;
    return status;
  });
}

farwarp_code combine(farwarp_moe* moe, const DLTensor* y, const DLTensor* weights, const DLTensor* out, void* stream,
                     const char* function) {
  return guarded([&]() -> Status {
    if (moe == nullptr) return null_argument("moe");
    if (Status status = check_under_way(*moe, function); !status.ok()) return status;
    Tensors tensors(moe->world);
    const void* const from = read_y(*moe, tensors, y);
    const float* const factors = read_weights(*moe, tensors, weights);
    void* const to = tensors.read("out", out, type_of(moe->desc.dtype), {moe->tokens, moe->desc.hidden});
    if (!tensors.status().ok()) return tensors.status();
    const Status status = moe->op.combine(from, to, {stream}, factors);
    if (status.ok()) moe->tokens = -1;
    return status;
  });
}

farwarp_code combine_send(farwarp_moe* moe, const DLTensor* y, const DLTensor* weights, void* stream,
                          const char* function) {
  return guarded([&]() -> Status {
    if (moe == nullptr) return null_argument("moe");
    if (Status status = check_under_way(*moe, function); !status.ok()) return status;
    Tensors tensors(moe->world);
    const void* const from = read_y(*moe, tensors, y);
    const float* const factors = read_weights(*moe, tensors, weights);
    return tensors.status().ok() ? moe->op.combine_send(from, {stream}, factors) : tensors.status();
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

farwarp_code farwarp_moe_heap_bytes(const farwarp_moe_desc* desc, std::int32_t target, std::int32_t device,
                                    std::int32_t ranks, std::int64_t* bytes) {
  return guarded([&]() -> Status {
    if (bytes == nullptr) return null_argument("bytes");
    if (Status status = check_choice("target", target, FARWARP_EMU_GFX942); !status.ok()) return status;
    const auto wanted = read(desc);
    if (!wanted.ok()) return wanted.status();
    const auto opened = farwarp::Device::open(static_cast<farwarp::TargetKind>(target), device);
    if (!opened.ok()) return opened.status();
    const auto plan = farwarp::plan_moe_all_to_all(*wanted, (*opened)->shape(), ranks);
    if (plan.ok()) *bytes = plan->workspace.total;
    return plan.status();
  });
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
    if (Status status = check_layout(*moe, false); !status.ok()) return status;
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
    if (Status status = check_layout(*moe, false); !status.ok()) return status;
    Tensors tensors(moe->world);
    const farwarp::MoeReceived received = read_received(*moe, tensors, recv_x, counts, offsets, origins, scales);
    return tensors.status().ok() ? moe->op.dispatch_recv(received, {stream}) : tensors.status();
  });
}

farwarp_code farwarp_moe_combine(farwarp_moe* moe, const DLTensor* y, DLTensor* out, void* stream) {
  return combine(moe, y, nullptr, out, stream, "farwarp_moe_combine");
}

farwarp_code farwarp_moe_combine_weighted(farwarp_moe* moe, const DLTensor* y, const DLTensor* weights, DLTensor* out,
                                          void* stream) {
  return combine(moe, y, weights, out, stream, "farwarp_moe_combine_weighted");
}

farwarp_code farwarp_moe_combine_send(farwarp_moe* moe, const DLTensor* y, void* stream) {
  return combine_send(moe, y, nullptr, stream, "farwarp_moe_combine_send");
}

farwarp_code farwarp_moe_combine_send_weighted(farwarp_moe* moe, const DLTensor* y, const DLTensor* weights,
                                               void* stream) {
  return combine_send(moe, y, weights, stream, "farwarp_moe_combine_send_weighted");
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
