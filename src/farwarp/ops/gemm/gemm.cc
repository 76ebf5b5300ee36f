#include "farwarp/ops/gemm/gemm.h"

#include <fmt/format.h>

#include <utility>

#include "farwarp/base/arguments.h"
#include "farwarp/base/overlap.h"
#include "farwarp/ops/gemm/args.h"
#include "farwarp/world/host/opened_operator.h"

namespace farwarp {
namespace {

std::uint64_t configuration_of(const GemmDesc& desc) {
  return hash_of({desc.m, desc.n, desc.k, desc.x_pitch, desc.w_pitch, desc.y_pitch, static_cast<int>(desc.dtype),
                  static_cast<int>(desc.scaling), desc.x_scale_by_column, desc.has_bias, desc.max_sms,
                  static_cast<int>(desc.swap_ab), desc.tile_rows, desc.tile_columns, desc.splits});
}

/// How many scales an operand has, by the rows or columns of its blocks of 128 of k.
struct ScaleCounts {
  std::int64_t x, w;
};
ScaleCounts scales_of(const GemmDesc& desc) {
  const std::int64_t steps = tile::scaled_blocks(desc.k);
  switch (desc.scaling) {
    case GemmScaling::kNone: return {0, 0};
    case GemmScaling::kBlocks: return {desc.m * steps, tile::scaled_blocks(desc.n) * steps};
    case GemmScaling::kRows: return {desc.m, desc.n};
    case GemmScaling::kTensor: return {1, 1};
  }
  return {0, 0};
}

Status check_memory(const GemmDesc& desc, const void* x, const void* w, const GemmScales& scales, const void* bias,
                    const void* y) {
  const auto bytes = static_cast<std::int64_t>(bytes_of(desc.dtype));
  const std::int64_t operand_bytes = desc.scaling == GemmScaling::kNone ? bytes : 1;
  const auto [x_scales, w_scales] = scales_of(desc);
  return check_apart({{"x", x, desc.k * operand_bytes, desc.m, desc.x_pitch * operand_bytes},
                      {"w", w, desc.k * operand_bytes, desc.n, desc.w_pitch * operand_bytes},
                      {"x_scale", scales.x, x_scales * 4},
                      {"w_scale", scales.w, w_scales * 4},
                      {"bias", bias, desc.n * bytes}},
                     {{"y", y, desc.n * bytes, desc.m, desc.y_pitch * bytes}});
}

}  // namespace

struct Gemm::State {
  World* world = nullptr;
  GemmPlan plan;
  OpenedOperator opened;  ///< with one kernel and the workspace
  gemm::Args args{};

  Status set_operands(const void* x, const void* w, void* y);
  void set_scales(const GemmScales& scales);
  Status check_pointers(const void* x, const void* w, const GemmScales& scales, const void* bias, const void* y) const;
};

/// Encodes the tensor maps again only if a matrix has another address than in the call before.
Status Gemm::State::set_operands(const void* x, const void* w, void* y) {
  if (args.x == x && args.w == w && args.y == y) return {};
  args.x = x;
  args.w = w;
  args.y = y;
  Device& device = world->device();
  if (device.shape().traits.matrix_unit != MatrixUnit::kWgmma) return {};
  const GemmDesc& desc = plan.desc;
  const int per_word = plan.elements_per_word();
  TensorMapDesc of_x = plan.map_of_x(x, desc.m, desc.k / per_word, desc.x_pitch / per_word);
  TensorMapDesc of_w = plan.map_of_w(w, desc.n, desc.k / per_word, desc.w_pitch / per_word);
  const TensorMapDesc of_y{.base = y,
                           .rows = desc.m,
                           .columns = desc.n,
                           .pitch = desc.y_pitch,
                           .box_rows = plan.box_rows(),
                           .box_columns = 64,
                           .swizzled = true};
  TensorMapDesc of_rest = of_y;
  if (plan.x_rows > of_y.box_rows) of_rest.box_rows = plan.x_rows - of_y.box_rows;
  if (plan.swap_ab) std::swap(of_x, of_w);
  const auto a = device.encode(of_x), b = device.encode(of_w), out = device.encode(of_y),
             out_rest = device.encode(of_rest);
  for (const auto* map : {&a, &b, &out, &out_rest}) {
    if (map->ok()) continue;
    args.x = nullptr;  // so that the next call encodes the maps again
    return map->status();
  }
  args.a = *a;
  args.b = *b;
  args.out = *out;
  args.out_rest = *out_rest;
  return {};
}

void Gemm::State::set_scales(const GemmScales& scales) {
  const GemmDesc& desc = plan.desc;
  const std::int64_t steps = tile::scaled_blocks(desc.k);
  switch (desc.scaling) {
    case GemmScaling::kNone: return;
    case GemmScaling::kBlocks:
      args.x_scales = {scales.x, desc.x_scale_by_column ? 1 : steps, desc.x_scale_by_column ? desc.m : 1};
      args.w_scales = {scales.w, steps, 1};
      return;
    case GemmScaling::kRows:
      args.x_scales = {scales.x, 1, 0};
      args.column_scales = scales.w;
      return;
    case GemmScaling::kTensor:
      args.x_scales = {scales.x, 0, 0};
      args.w_scales = {scales.w, 0, 0};
      return;
  }
}

Status Gemm::State::check_pointers(const void* x, const void* w, const GemmScales& scales, const void* bias,
                                   const void* y) const {
  constexpr int kAlignment = 16;
  const GemmDesc& desc = plan.desc;
  if (const Status status = first_failure(
          {check_pointer("x", x, kAlignment), check_pointer("w", w, kAlignment), check_pointer("y", y, kAlignment)});
      !status.ok())
    return status;
  const auto absent = [](const char* name, const char* why) {
    return invalid_argument(fmt::format("{} is given; allowed: null, as {}", name, why));
  };
  if (desc.has_bias) {
    if (const Status status = check_pointer("bias", bias, kAlignment); !status.ok()) return status;
  } else if (bias != nullptr) {
    return absent("bias", "GemmDesc.has_bias is false");
  }
  if (desc.scaling != GemmScaling::kNone)
    return first_failure(
        {check_pointer("x_scale", scales.x, sizeof(float)), check_pointer("w_scale", scales.w, sizeof(float))});
  if (scales.x != nullptr) return absent("x_scale", "GemmDesc.scaling is none");
  if (scales.w != nullptr) return absent("w_scale", "GemmDesc.scaling is none");
  return {};
}

Result<Gemm> Gemm::create(World& world, const GemmDesc& desc) {
  const auto plan = plan_gemm(desc, world.device().shape());
  const GemmPlan wanted = plan.ok() ? *plan : GemmPlan{};
  auto opened = open_state<State>(world, plan,
                                  {.name = "gemm",
                                   .site_names = gemm::kSiteNames,
                                   .configuration = configuration_of(desc),
                                   .kernels = {wanted.kernel},
                                   .buffers = {{wanted.workspace_bytes}}});
  if (!opened.ok()) return opened.status();
  std::unique_ptr<State> state = std::move(*opened);
  gemm::Args& args = state->args;
  args.view = world.view();
  args.slot = state->opened.slot();
  args.m = desc.m;
  args.n = desc.n;
  args.k = desc.k;
  args.x_rows = plan->x_rows;
  args.grid = plan->grid();
  args.xcds = world.device().shape().xcds;
  args.partials = static_cast<std::int64_t>(state->opened.buffer(0).offset);
  args.counters = args.partials + plan->partial_sums_bytes;
  args.x_pitch = plan->desc.x_pitch;
  args.w_pitch = plan->desc.w_pitch;
  args.y_pitch = plan->desc.y_pitch;
  return Gemm(std::move(state));
}

Gemm::Gemm(std::unique_ptr<State> state) : state_(std::move(state)) {}
Gemm::Gemm(Gemm&&) noexcept = default;
Gemm& Gemm::operator=(Gemm&&) noexcept = default;
Gemm::~Gemm() = default;

Status Gemm::close() { return close_opened("Gemm", state_); }

const GemmPlan& Gemm::plan() const {
  static const GemmPlan kNone;
  return state_ ? state_->plan : kNone;
}

Status Gemm::operator()(const void* x, const void* w, const void* bias, void* y, Stream stream) {
  return (*this)(x, w, {}, bias, y, stream);
}

Status Gemm::operator()(const void* x, const void* w, const GemmScales& scales, const void* bias, void* y,
                        Stream stream) {
  if (Status open = check_open("Gemm", state_); !open.ok()) return open;
  State& state = *state_;
  Status status = state.check_pointers(x, w, scales, bias, y);
  if (status.ok()) status = check_memory(state.plan.desc, x, w, scales, bias, y);
  if (status.ok()) status = state.world->status();
  if (status.ok()) status = state.set_operands(x, w, y);
  if (!status.ok()) return status;
  state.args.bias = bias;
  state.set_scales(scales);
  const LaunchConfig config{state.plan.blocks, state.plan.threads, static_cast<std::size_t>(state.plan.shared_bytes),
                            state.plan.cluster};
  return launch(state.world->device(), state.opened.kernel(0), config, state.args, stream);
}

}  // namespace farwarp
