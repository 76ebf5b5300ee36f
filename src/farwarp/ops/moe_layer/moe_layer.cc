#include "farwarp/ops/moe_layer/moe_layer.h"

#include <fmt/format.h>

#include <utility>

#include "farwarp/base/arguments.h"
#include "farwarp/base/overlap.h"
#include "farwarp/base/sizes.h"
#include "farwarp/ops/moe_layer/args.h"
#include "farwarp/world/host/opened_operator.h"

namespace farwarp {
namespace {

constexpr int kAlignment = 16;

std::uint64_t configuration_of(const MoeLayerDesc& desc) {
  return hash_of({desc.num_experts, desc.experts_per_token, desc.hidden, desc.intermediate, desc.max_tokens,
                  static_cast<int>(desc.dtype), static_cast<int>(desc.index_type), static_cast<int>(desc.activation),
                  desc.has_bias, desc.max_rows, desc.max_sms, desc.tile_rows, desc.tile_columns});
}

Status check_bias(const MoeLayerDesc& desc, const char* name, const void* bias) {
  if (desc.has_bias) return check_pointer(name, bias, kAlignment);
  if (bias == nullptr) return {};
  return invalid_argument(fmt::format("{} is given; allowed: null, as MoeLayerDesc.has_bias is false", name));
}

Status check_pointers(const MoeLayerDesc& desc, const MoeLayerTensors& tensors) {
  if (tensors.tokens_on_device == nullptr && (tensors.tokens < 0 || tensors.tokens > desc.max_tokens))
    return invalid_argument(fmt::format("tokens is {}; allowed: 0 to {}", tensors.tokens, desc.max_tokens));
  Status status =
      first_failure({check_pointer("w1", tensors.w1, kAlignment), check_pointer("w2", tensors.w2, kAlignment),
                     check_bias(desc, "bias1", tensors.bias1), check_bias(desc, "bias2", tensors.bias2)});
  if (!status.ok() || (tensors.tokens_on_device == nullptr && tensors.tokens == 0)) return status;
  return first_failure(
      {check_pointer("x", tensors.x, kAlignment),
       check_pointer("topk_indices", tensors.topk_indices, static_cast<int>(bytes_of(desc.index_type))),
       check_pointer("topk_weights", tensors.topk_weights, sizeof(float)),
       check_pointer("out", tensors.out, kAlignment)});
}

Status check_memory(const MoeLayerDesc& desc, int local_experts, const MoeLayerTensors& tensors) {
  const std::int64_t tokens = tensors.tokens_on_device != nullptr ? desc.max_tokens : tensors.tokens;
  const std::int64_t element = bytes_of(desc.dtype), entries = tokens * desc.experts_per_token;
  const std::int64_t matrix = std::int64_t{local_experts} * desc.hidden * desc.intermediate * element;
  return check_apart({{"x", tensors.x, tokens * desc.hidden * element},
                      {"topk_indices", tensors.topk_indices, entries * bytes_of(desc.index_type)},
                      {"topk_weights", tensors.topk_weights, entries * 4},
                      {"tokens_on_device", tensors.tokens_on_device, 4},
                      {"w1", tensors.w1, 2 * matrix},
                      {"w2", tensors.w2, matrix},
                      {"bias1", tensors.bias1, std::int64_t{local_experts} * 2 * desc.intermediate * element},
                      {"bias2", tensors.bias2, std::int64_t{local_experts} * desc.hidden * element}},
                     {{"out", tensors.out, tokens * desc.hidden * element}});
}

}  // namespace

struct MoeLayer::State {
  World* world = nullptr;
  MoeLayerPlan plan;
  OpenedOperator opened;  ///< buffer 0: of zeros; 1: of all ones
  moe_layer::Args args{};
  const void *w1 = nullptr, *w2 = nullptr;  ///< whose tensor maps `args` has
  MoeLayerFaults faults;

  Status set_own_maps();
  Status set_weights(const MoeLayerTensors& tensors);
};

namespace {

TensorMapDesc boxes(const void* base, std::int64_t rows, int columns, int box_rows) {
  return {.base = const_cast<void*>(base),
          .rows = rows,
          .columns = columns,
          .pitch = columns,
          .box_rows = box_rows,
          .box_columns = 64,
          .swizzled = true};
}

}  // namespace

/// The maps of h and y, which lie in the workspace.
Status MoeLayer::State::set_own_maps() {
  Device& device = world->device();
  std::byte* const own = args.view.heap[args.view.rank] + args.workspace;
  const std::int64_t rows = plan.row_tiles * plan.rows;
  const auto encode = [&](TensorMap& map, std::int64_t offset, int columns, int height) {
    const auto encoded = device.encode(boxes(own + offset, rows, columns, moe_layer::box_rows(height)));
    if (encoded.ok()) map = *encoded;
    return encoded.status();
  };
  const MoeLayerWorkspace& workspace = plan.workspace;
  for (int height = 0; height < moe_layer::kBoxHeights; ++height) {
    Status status = encode(args.x_or_y[height], workspace.y, plan.desc.hidden, height);
    if (status.ok()) status = encode(args.h[height], workspace.h, plan.desc.intermediate, height);
    if (!status.ok()) return status;
  }
  return {};
}

/// Encodes the tensor maps again only if a matrix has another address than in the call before.
Status MoeLayer::State::set_weights(const MoeLayerTensors& tensors) {
  if (w1 == tensors.w1 && w2 == tensors.w2) return {};
  Device& device = world->device();
  const MoeLayerDesc& desc = plan.desc;
  const std::int64_t experts = args.local_experts;
  const auto w1_map = device.encode(boxes(tensors.w1, experts * 2 * desc.intermediate, desc.hidden, plan.columns / 2));
  const auto w2_map = device.encode(boxes(tensors.w2, experts * desc.hidden, desc.intermediate, plan.columns));
  w1 = nullptr;  // if one fails, the next call encodes the maps again
  for (const auto* map : {&w1_map, &w2_map})
    if (!map->ok()) return map->status();
  args.w1 = *w1_map;
  args.w2 = *w2_map;
  w1 = tensors.w1;
  w2 = tensors.w2;
  return {};
}

Result<MoeLayer> MoeLayer::create(World& world, const MoeLayerDesc& desc) {
  const int ranks = world.size(), rank = world.rank();
  const auto plan = plan_moe_layer(desc, world.device().shape(), ranks);
  const MoeLayerPlan wanted = plan.ok() ? *plan : MoeLayerPlan{};
  auto opened = open_state<State>(world, plan,
                                  {.name = "moe_layer",
                                   .site_names = moe_layer::kSiteNames,
                                   .configuration = configuration_of(desc),
                                   .kernels = {wanted.kernel},
                                   .buffers = {{wanted.workspace.bytes, 0}, {wanted.workspace.ones_bytes, 0xff}}});
  if (!opened.ok()) return opened.status();
  std::unique_ptr<State> state = std::move(*opened);
  moe_layer::Args& args = state->args;
  args.view = world.view();
  args.slot = state->opened.slot();
  args.num_experts = desc.num_experts;
  args.first_expert = moe_first_expert(rank, ranks, desc.num_experts);
  args.local_experts = moe_first_expert(rank + 1, ranks, desc.num_experts) - args.first_expert;
  for (int r = 0; r < kMaxRanks; ++r)
    args.first_experts[r] = r < ranks ? moe_first_expert(r, ranks, desc.num_experts) : desc.num_experts;
  args.k = desc.experts_per_token;
  args.hidden = desc.hidden;
  args.intermediate = desc.intermediate;
  args.max_tokens = desc.max_tokens;
  args.steps_of_hidden = plan->steps_of_hidden;
  args.steps_of_inter = plan->steps_of_inter;
  args.h_columns = plan->h_columns;
  args.y_columns = plan->y_columns;
  args.row_tiles = static_cast<std::int32_t>(plan->row_tiles);
  args.max_slices = plan->max_slices;
  args.max_parts = plan->max_parts;
  args.by_max_tokens = Divisor(desc.max_tokens);
  args.clamped = desc.activation == Activation::kClampedSwiGlu ? 1 : 0;
  args.max_rows = static_cast<std::uint32_t>(plan->max_rows);
  args.wide_indices = desc.index_type == DType::kI64 ? 1 : 0;
  args.workspace = static_cast<std::int64_t>(state->opened.buffer(0).offset);
  args.ones = static_cast<std::int64_t>(state->opened.buffer(1).offset);
  args.offsets = plan->workspace;
  if (const Status status = state->set_own_maps(); !status.ok()) return status;
  return MoeLayer(std::move(state));
}

MoeLayer::MoeLayer(std::unique_ptr<State> state) : state_(std::move(state)) {}
MoeLayer::MoeLayer(MoeLayer&&) noexcept = default;
MoeLayer& MoeLayer::operator=(MoeLayer&&) noexcept = default;
MoeLayer::~MoeLayer() = default;

Status MoeLayer::close() { return close_opened("MoeLayer", state_); }

const MoeLayerPlan& MoeLayer::plan() const {
  static const MoeLayerPlan kNone;
  return state_ ? state_->plan : kNone;
}

void MoeLayer::inject(const MoeLayerFaults& faults) {
  if (state_) state_->faults = faults;
}

Status MoeLayer::operator()(const MoeLayerTensors& tensors, Stream stream) {
  if (Status open = check_open("MoeLayer", state_); !open.ok()) return open;
  State& state = *state_;
  const MoeLayerDesc& desc = state.plan.desc;
  Status status = check_pointers(desc, tensors);
  if (status.ok()) status = check_memory(desc, state.args.local_experts, tensors);
  if (status.ok()) status = state.world->status();
  if (status.ok()) status = state.set_weights(tensors);
  if (!status.ok()) return status;
  moe_layer::Args& args = state.args;
  args.x = tensors.x;
  args.topk = tensors.topk_indices;
  args.weights = tensors.topk_weights;
  args.tokens = tensors.tokens;
  args.tokens_on_device = tensors.tokens_on_device;
  args.bias1 = tensors.bias1;
  args.bias2 = tensors.bias2;
  args.out = tensors.out;
  args.drop_put = state.faults.drop_put;
  const LaunchConfig config{state.plan.blocks, state.plan.threads, static_cast<std::size_t>(state.plan.shared_bytes)};
  return launch(state.world->device(), state.opened.kernel(0), config, args, stream);
}

}  // namespace farwarp
