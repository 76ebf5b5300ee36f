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
                  desc.has_bias, desc.max_sms, static_cast<int>(desc.swap_ab), desc.tile_rows, desc.tile_columns,
                  desc.splits});
}

Status check_memory(const GemmDesc& desc, const void* x, const void* w, const void* bias, const void* y) {
  const auto bytes = static_cast<std::int64_t>(bytes_of(desc.dtype));
  return check_apart({{"x", x, desc.k * bytes, desc.m, desc.x_pitch * bytes},
                      {"w", w, desc.k * bytes, desc.n, desc.w_pitch * bytes},
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
  TensorMapDesc of_x = plan.map_of_x(x, desc.m, desc.k, desc.x_pitch);
  TensorMapDesc of_w = plan.map_of_w(w, desc.n, desc.k, desc.w_pitch);
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
  if (Status open = check_open("Gemm", state_); !open.ok()) return open;
  State& state = *state_;
  constexpr int kAlignment = 16;
  const bool has_bias = state.plan.desc.has_bias;
  const Status pointers =
      first_failure({check_pointer("x", x, kAlignment), check_pointer("w", w, kAlignment),
                     check_pointer("y", y, kAlignment), has_bias ? check_pointer("bias", bias, kAlignment) : Status()});
  if (!pointers.ok()) return pointers;
  if (!has_bias && bias != nullptr) {
    return invalid_argument("bias is given; allowed: null, as GemmDesc.has_bias is false");
  }
  Status status = check_memory(state.plan.desc, x, w, bias, y);
  if (status.ok()) status = state.world->status();
  if (status.ok()) status = state.set_operands(x, w, y);
  if (!status.ok()) return status;
  state.args.bias = bias;
  const LaunchConfig config{state.plan.blocks, state.plan.threads, static_cast<std::size_t>(state.plan.shared_bytes),
                            state.plan.cluster};
  return launch(state.world->device(), state.opened.kernel(0), config, state.args, stream);
}

}  // namespace farwarp
