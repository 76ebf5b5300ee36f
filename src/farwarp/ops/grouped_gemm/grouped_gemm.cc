#include "farwarp/ops/grouped_gemm/grouped_gemm.h"

#include <fmt/format.h>

#include <utility>

#include "farwarp/base/arguments.h"
#include "farwarp/base/overlap.h"
#include "farwarp/ops/grouped_gemm/args.h"
#include "farwarp/world/host/opened_operator.h"

namespace farwarp {
namespace {

std::uint64_t configuration_of(const GroupedGemmDesc& desc) {
  return hash_of({desc.groups, desc.max_rows, desc.n, desc.k, static_cast<int>(desc.dtype),
                  static_cast<int>(desc.scaling), static_cast<int>(desc.group_rows), static_cast<int>(desc.activation),
                  desc.has_bias, desc.expected_rows, desc.max_sms, desc.tile_rows, desc.tile_columns});
}

Status check_pointers(const GroupedGemmDesc& desc, const GroupedGemmTensors& tensors) {
  constexpr int kAlignment = 16;
  if (const Status status = first_failure(
          {check_pointer("x", tensors.x, kAlignment), check_pointer("w", tensors.w, kAlignment),
           check_pointer("rows", tensors.rows, sizeof(std::int32_t)), check_pointer("y", tensors.y, kAlignment)});
      !status.ok())
    return status;
  struct Optional {
    const char* name;
    const void* pointer;
    bool wanted;
    int alignment;
    const char* why;
  };
  const bool scaled = desc.scaling != GemmScaling::kNone;
  for (const Optional& optional :
       {Optional{"x_scale", tensors.x_scale, scaled, sizeof(float), "GroupedGemmDesc.scaling is none"},
        Optional{"w_scale", tensors.w_scale, scaled, sizeof(float), "GroupedGemmDesc.scaling is none"},
        Optional{"bias", tensors.bias, desc.has_bias, kAlignment, "GroupedGemmDesc.has_bias is false"}}) {
    if (optional.wanted) {
      if (const Status status = check_pointer(optional.name, optional.pointer, optional.alignment); !status.ok())
        return status;
    } else if (optional.pointer != nullptr) {
      return invalid_argument(fmt::format("{} is given; allowed: null, as {}", optional.name, optional.why));
    }
  }
  return {};
}

Status check_memory(const GroupedGemmPlan& plan, const GroupedGemmTensors& tensors) {
  const GroupedGemmDesc& desc = plan.desc;
  const std::int64_t bytes = bytes_of(desc.dtype), operand_bytes = desc.scaling == GemmScaling::kNone ? bytes : 1;
  const std::int64_t rows = plan.all_rows(), rows_of_w = std::int64_t{desc.groups} * plan.parts() * desc.n;
  const std::int64_t steps = tile::scaled_blocks(desc.k);
  return check_apart(
      {{"x", tensors.x, rows * desc.k * operand_bytes},
       {"w", tensors.w, rows_of_w * desc.k * operand_bytes},
       {"x_scale", tensors.x_scale, rows * steps * 4},
       {"w_scale", tensors.w_scale, std::int64_t{desc.groups} * plan.parts() * tile::scaled_blocks(desc.n) * steps * 4},
       {"rows", tensors.rows, (desc.groups + (desc.group_rows == GroupRows::kOffsets ? 1 : 0)) * std::int64_t{4}},
       {"bias", tensors.bias, rows_of_w * bytes}},
      {{"y", tensors.y, rows * desc.n * bytes}});
}

}  // namespace

struct GroupedGemm::State {
  World* world = nullptr;
  GroupedGemmPlan plan;
  OpenedOperator opened;
  grouped_gemm::Args args{};
  const void *x = nullptr, *w = nullptr, *y = nullptr;  ///< whose tensor maps `args` has

  Status set_operands(const GroupedGemmTensors& tensors);
};

/// Encodes the tensor maps again only if a matrix has another address than in the call before.
Status GroupedGemm::State::set_operands(const GroupedGemmTensors& tensors) {
  if (x == tensors.x && w == tensors.w && y == tensors.y) return {};
  const GroupedGemmDesc& desc = plan.desc;
  Device& device = world->device();
  const int words = desc.k / plan.elements_per_word();
  const TensorMapDesc of_x{.base = const_cast<void*>(tensors.x),
                           .rows = plan.all_rows(),
                           .columns = words,
                           .pitch = words,
                           .box_rows = plan.rows,
                           .box_columns = 64,
                           .swizzled = true};
  TensorMapDesc of_w = of_x, of_y = of_x;
  of_w.base = const_cast<void*>(tensors.w);
  of_w.rows = std::int64_t{desc.groups} * plan.parts() * desc.n;
  of_w.box_rows = plan.columns / plan.parts();
  of_y.base = tensors.y;
  of_y.columns = of_y.pitch = desc.n;
  of_y.box_rows = 64;
  const auto x_map = device.encode(of_x), w_map = device.encode(of_w), y_map = device.encode(of_y);
  x = nullptr;  // if one fails, the next call encodes the maps again
  for (const auto* map : {&x_map, &w_map, &y_map})
    if (!map->ok()) return map->status();
  args.x = *x_map;
  args.w = *w_map;
  args.y = *y_map;
  x = tensors.x;
  w = tensors.w;
  y = tensors.y;
  return {};
}

Result<GroupedGemm> GroupedGemm::create(World& world, const GroupedGemmDesc& desc) {
  const auto plan = plan_grouped_gemm(desc, world.device().shape());
  const GroupedGemmPlan wanted = plan.ok() ? *plan : GroupedGemmPlan{};
  auto opened = open_state<State>(world, plan,
                                  {.name = "grouped_gemm",
                                   .site_names = grouped_gemm::kSiteNames,
                                   .configuration = configuration_of(desc),
                                   .kernels = {wanted.kernel},
                                   .buffers = {}});
  if (!opened.ok()) return opened.status();
  std::unique_ptr<State> state = std::move(*opened);
  grouped_gemm::Args& args = state->args;
  args.view = world.view();
  args.slot = state->opened.slot();
  args.groups = desc.groups;
  args.n = desc.n;
  args.steps = plan->steps;
  args.max_rows = desc.max_rows;
  args.column_tiles = plan->column_tiles;
  args.masked = desc.group_rows == GroupRows::kCounts ? 1 : 0;
  args.clamped = desc.activation == Activation::kClampedSwiGlu ? 1 : 0;
  const std::int64_t steps = tile::scaled_blocks(desc.k);
  args.x_scales = {nullptr, steps, 1};
  args.w_scales = {nullptr, steps, 1};
  args.w_scales_of_matrix = static_cast<std::int32_t>(tile::scaled_blocks(desc.n) * steps);
  return GroupedGemm(std::move(state));
}

GroupedGemm::GroupedGemm(std::unique_ptr<State> state) : state_(std::move(state)) {}
GroupedGemm::GroupedGemm(GroupedGemm&&) noexcept = default;
GroupedGemm& GroupedGemm::operator=(GroupedGemm&&) noexcept = default;
GroupedGemm::~GroupedGemm() = default;

Status GroupedGemm::close() { return close_opened("GroupedGemm", state_); }

const GroupedGemmPlan& GroupedGemm::plan() const {
  static const GroupedGemmPlan kNone;
  return state_ ? state_->plan : kNone;
}

Status GroupedGemm::operator()(const GroupedGemmTensors& tensors, Stream stream) {
  if (Status open = check_open("GroupedGemm", state_); !open.ok()) return open;
  State& state = *state_;
  Status status = check_pointers(state.plan.desc, tensors);
  if (status.ok()) status = check_memory(state.plan, tensors);
  if (status.ok()) status = state.world->status();
  if (status.ok()) status = state.set_operands(tensors);
  if (!status.ok()) return status;
  grouped_gemm::Args& args = state.args;
  args.rows = tensors.rows;
  args.bias = tensors.bias;
  args.y_rows = tensors.y;
  args.x_scales.scales = tensors.x_scale;
  args.w_scales.scales = tensors.w_scale;
  const LaunchConfig config{state.plan.blocks, state.plan.threads, static_cast<std::size_t>(state.plan.shared_bytes)};
  return launch(state.world->device(), state.opened.kernel(0), config, args, stream);
}

}  // namespace farwarp
