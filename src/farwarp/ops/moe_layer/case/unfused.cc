#include "farwarp/ops/moe_layer/case/unfused.h"

namespace farwarp::moe_layer {
namespace {

MoeAllToAllDesc exchange_of(const MoeLayerDesc& desc) {
  MoeAllToAllDesc exchange;
  exchange.num_experts = desc.num_experts;
  exchange.experts_per_token = desc.experts_per_token;
  exchange.hidden = desc.hidden;
  exchange.max_tokens = desc.max_tokens;
  exchange.dtype = desc.dtype;
  exchange.index_type = desc.index_type;
  exchange.max_sms = desc.max_sms;
  return exchange;
}

}  // namespace

Result<std::int64_t> Unfused::heap_bytes(const MoeLayerDesc& desc, const MachineShape& shape, int ranks) {
  const auto plan = plan_moe_all_to_all(exchange_of(desc), shape, ranks);
  if (!plan.ok()) return plan.status();
  return plan->workspace.total;
}

Status Unfused::open(World& world, const MoeLayerDesc& desc) {
  auto exchange = MoeAllToAll::create(world, exchange_of(desc));
  if (!exchange.ok()) return exchange.status();
  exchange_.emplace(std::move(*exchange));
  const std::int64_t rows = exchange_->plan().recv_rows;
  const int local = moe_first_expert(world.rank() + 1, world.size(), desc.num_experts) -
                    moe_first_expert(world.rank(), world.size(), desc.num_experts);
  GroupedGemmDesc of_first{.groups = local,
                           .max_rows = static_cast<int>(rows),
                           .n = desc.intermediate,
                           .k = desc.hidden,
                           .dtype = desc.dtype};
  of_first.activation = desc.activation;
  of_first.has_bias = desc.has_bias;
  of_first.max_sms = desc.max_sms;
  GroupedGemmDesc of_second = of_first;
  of_second.n = desc.hidden;
  of_second.k = desc.intermediate;
  of_second.activation = Activation::kNone;
  auto first = GroupedGemm::create(world, of_first);
  if (!first.ok()) return first.status();
  auto second = GroupedGemm::create(world, of_second);
  if (!second.ok()) return second.status();
  first_.emplace(std::move(*first));
  second_.emplace(std::move(*second));
  const std::int64_t element = bytes_of(desc.dtype);
  const auto bytes = [](std::int64_t count) { return static_cast<std::size_t>(count); };
  return harness::create_buffers(world.device(), {{&x_, bytes(rows * desc.hidden * element)},
                                                  {&h_, bytes(rows * desc.intermediate * element)},
                                                  {&y_, bytes(rows * desc.hidden * element)},
                                                  {&counts_, bytes(local * 4)},
                                                  {&offsets_, bytes((local + 1) * 4)}});
}

Status Unfused::enqueue(const MoeLayerTensors& tensors, void* out, Stream stream) {
  MoeTokens tokens;
  tokens.x = tensors.x;
  tokens.topk_indices = tensors.topk_indices;
  tokens.topk_weights = tensors.topk_weights;
  tokens.tokens = tensors.tokens;
  tokens.tokens_on_device = tensors.tokens_on_device;
  const MoeReceived received = {x_.get(), counts_.as<std::int32_t>(), offsets_.as<std::int32_t>()};
  Status status = exchange_->dispatch(tokens, received, stream);
  if (status.ok())
    status = (*first_)(
        {.x = x_.get(), .w = tensors.w1, .rows = offsets_.as<std::int32_t>(), .bias = tensors.bias1, .y = h_.get()},
        stream);
  if (status.ok())
    status = (*second_)(
        {.x = h_.get(), .w = tensors.w2, .rows = offsets_.as<std::int32_t>(), .bias = tensors.bias2, .y = y_.get()},
        stream);
  return status.ok() ? exchange_->combine(y_.get(), out, stream) : status;
}

Status Unfused::close() {
  Status status = exchange_->close();
  for (std::optional<GroupedGemm>* product : {&first_, &second_}) {
    const Status closed = (*product)->close();
    if (status.ok()) status = closed;
  }
  return status;
}

}  // namespace farwarp::moe_layer
