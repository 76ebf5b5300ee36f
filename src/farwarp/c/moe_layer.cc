// The MoE layer of c.h.
#include "farwarp/ops/moe_layer/moe_layer.h"

#include "farwarp/base/arguments.h"
#include "farwarp/c/operator.h"

struct farwarp_moe_layer : farwarp::c::Operator<farwarp::MoeLayer, farwarp::MoeLayerDesc> {};

namespace farwarp::c {
namespace {

farwarp_moe_layer_desc layer_defaults() {
  farwarp_moe_layer_desc desc = {};
  desc.bytes = sizeof desc;
  desc.dtype = type_of(DType::kBf16);
  desc.index_type = type_of(DType::kI32);
  desc.activation = FARWARP_SWIGLU;
  return desc;
}

Status check_activation(std::int32_t value) {
  if (value == FARWARP_SWIGLU || value == FARWARP_CLAMPED_SWIGLU) return {};
  return invalid_argument(
      fmt::format("desc.activation is {}; allowed: FARWARP_SWIGLU ({}), FARWARP_CLAMPED_SWIGLU ({})", value,
                  static_cast<int>(FARWARP_SWIGLU), static_cast<int>(FARWARP_CLAMPED_SWIGLU)));
}

Result<MoeLayerDesc> read(const farwarp_moe_layer_desc* given) {
  const auto desc = read_desc(given, layer_defaults);
  if (!desc.ok()) return desc.status();
  const auto dtype = read_dtype("dtype", desc->dtype, {DType::kBf16, DType::kF16});
  const auto index_type = read_dtype("index_type", desc->index_type, {DType::kI32, DType::kI64});
  const auto has_bias = read_flag("has_bias", desc->has_bias);
  if (const Status status =
          first_failure({dtype.status(), index_type.status(), check_activation(desc->activation), has_bias.status()});
      !status.ok())
    return status;
  MoeLayerDesc result;
  result.num_experts = desc->num_experts;
  result.experts_per_token = desc->experts_per_token;
  result.hidden = desc->hidden;
  result.intermediate = desc->intermediate;
  result.max_tokens = desc->max_tokens;
  result.dtype = *dtype;
  result.index_type = *index_type;
  result.activation = static_cast<Activation>(desc->activation);
  result.has_bias = *has_bias;
  result.max_rows = desc->max_rows;
  result.max_sms = desc->max_sms;
  result.tile_rows = desc->tile_rows;
  result.tile_columns = desc->tile_columns;
  return result;
}

std::int64_t local_experts(const farwarp_moe_layer& layer) {
  const int rank = layer.world.rank(), ranks = layer.world.size(), experts = layer.desc.num_experts;
  return moe_first_expert(rank + 1, ranks, experts) - moe_first_expert(rank, ranks, experts);
}

}  // namespace
}  // namespace farwarp::c

using namespace farwarp::c;

extern "C" {

farwarp_code farwarp_moe_layer_desc_init_sized(farwarp_moe_layer_desc* desc, std::size_t bytes) {
  return init_sized(desc, bytes, layer_defaults);
}

farwarp_code farwarp_moe_layer_create(farwarp_world* world, const farwarp_moe_layer_desc* desc,
                                      farwarp_moe_layer** layer) {
  return create(
      world, layer, [&] { return read(desc); }, farwarp::MoeLayer::create);
}

farwarp_code farwarp_moe_layer_call(farwarp_moe_layer* layer, const DLTensor* x, const DLTensor* indices,
                                    const DLTensor* weights, const DLTensor* count, const DLTensor* w1,
                                    const DLTensor* w2, const DLTensor* bias1, const DLTensor* bias2, DLTensor* out,
                                    void* stream) {
  return guarded([&]() -> farwarp::Status {
    if (layer == nullptr) return null_argument("layer");
    const farwarp::MoeLayerDesc& desc = layer->desc;
    const DLDataType type = type_of(desc.dtype), integer = type_of(farwarp::DType::kI32);
    const std::int64_t experts = local_experts(*layer), hidden = desc.hidden, inter = desc.intermediate;
    Tensors tensors(layer->world);
    const std::int64_t rows = count != nullptr ? desc.max_tokens : tensors.rows_of("x", x, desc.max_tokens);
    farwarp::MoeLayerTensors given;
    given.x = tensors.read("x", x, type, {rows, hidden});
    given.topk_indices = tensors.read("indices", indices, type_of(desc.index_type), {rows, desc.experts_per_token});
    given.topk_weights = static_cast<const float*>(
        tensors.read("weights", weights, type_of(farwarp::DType::kF32), {rows, desc.experts_per_token}));
    given.tokens = static_cast<int>(rows);
    given.tokens_on_device =
        static_cast<const std::int32_t*>(tensors.read_if(count != nullptr, "count", count, integer, {1}));
    given.w1 = tensors.read("w1", w1, type, {experts, 2 * inter, hidden});
    given.w2 = tensors.read("w2", w2, type, {experts, hidden, inter});
    given.bias1 = tensors.read_if(desc.has_bias, "bias1", bias1, type, {experts, 2 * inter});
    given.bias2 = tensors.read_if(desc.has_bias, "bias2", bias2, type, {experts, hidden});
    given.out = tensors.read("out", out, type, {rows, hidden});
    return tensors.status().ok() ? layer->op(given, {stream}) : tensors.status();
  });
}

farwarp_code farwarp_moe_layer_close(farwarp_moe_layer* layer) { return close(layer, "layer"); }
}
