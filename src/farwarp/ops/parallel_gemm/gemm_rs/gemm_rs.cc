#include "farwarp/ops/parallel_gemm/gemm_rs/gemm_rs.h"

#include <utility>

#include "farwarp/ops/parallel_gemm/gemm_rs/args.h"
#include "farwarp/ops/parallel_gemm/operands.h"

namespace farwarp {
struct GemmReduceScatter::State {
  World* world = nullptr;
  GemmReduceScatterPlan plan;
  int slot = -1;
  SymmetricBuffer workspace;
  Kernel kernel;
  gemm_rs::Args args{};

  bool has_tensor_copies() const { return world->device().shape().traits.matrix_unit == MatrixUnit::kWgmma; }
  Status map_inboxes();
  Status set_operands(const void* x, const void* w);
};

/// Peers' addresses never move: once for all calls.
Status GemmReduceScatter::State::map_inboxes() {
  if (!has_tensor_copies()) return {};
  const gemm_rs::Bands& bands = plan.bands;
  for (int owner = 0; owner < plan.ranks; ++owner) {
    const std::int64_t mine = std::int64_t{world->rank()} * bands.owned * plan.desc.n * 2;
    const TensorMapDesc of_inbox{args.view.heap[owner] + args.at.inbox + mine,
                                 bands.owned,
                                 plan.desc.n,
                                 plan.desc.n,
                                 bands.rows > 64 ? 64 : bands.rows,
                                 64,
                                 true};
    const auto map = world->device().encode(of_inbox);
    if (!map.ok()) return map.status();
    args.inbox[owner] = *map;
  }
  return {};
}

/// Maps are made anew only for matrices that have moved.
Status GemmReduceScatter::State::set_operands(const void* x, const void* w) {
  if (args.x == x && args.w == w) return {};
  args.x = x;
  args.w = w;
  if (!has_tensor_copies()) return {};
  TensorMapDesc of_x{const_cast<void*>(x), args.m, args.k, args.k, plan.few_rows ? plan.columns : plan.rows,
                     plan.depth,           true};
  TensorMapDesc of_w{const_cast<void*>(w), args.n, args.k, args.k, plan.few_rows ? plan.rows : plan.columns,
                     plan.depth,           true};
  if (plan.few_rows) std::swap(of_x, of_w);
  const auto a = world->device().encode(of_x), b = world->device().encode(of_w);
  for (const auto* map : {&a, &b}) {
    if (map->ok()) continue;
    args.x = nullptr;  // nothing of this call is kept
    return map->status();
  }
  args.a = *a;
  args.b = *b;
  return {};
}

Result<GemmReduceScatter> GemmReduceScatter::create(World& world, const ParallelGemmDesc& desc) {
  const auto plan = plan_gemm_reduce_scatter(desc, world.device().shape(), world.size());
  auto state = std::make_unique<State>();
  state->world = &world;
  Status mine = plan.status();
  if (mine.ok()) {
    auto kernel = world.device().kernel(plan->kernel);
    mine = kernel.status();
    if (kernel.ok()) state->kernel = *kernel;
  }
  // A rank that cannot go on takes part in the agreement, so that the others are told and do not wait for it later.
  const std::uint64_t configuration =
      mine.ok() ? parallel_gemm::configuration_of(parallel_gemm::Kind::kReduceScatter, desc, world.size()) : 0;
  const auto slot =
      world.open_operator("gemm-rs", {gemm_rs::kSiteNames, gemm_rs::kSiteNames + gemm_rs::kSites}, configuration);
  if (slot.ok() && !mine.ok()) (void)world.close_operator(*slot);  // all ranks are wrong alike
  if (!mine.ok()) return mine;
  if (!slot.ok()) return slot.status();
  state->plan = *plan;
  state->slot = *slot;
  const auto workspace = world.allocate(static_cast<std::size_t>(plan->workspace.total));
  if (!workspace.ok()) {
    (void)world.close_operator(*slot);
    return workspace.status();
  }
  state->workspace = *workspace;
  gemm_rs::Args& args = state->args;
  const auto local = parallel_gemm::local_shape(parallel_gemm::Kind::kReduceScatter, desc, world.size());
  args.view = world.view();
  args.slot = static_cast<std::uint32_t>(*slot);
  args.m = local.x_rows;
  args.n = local.w_rows;
  args.k = local.k;
  args.xcds = world.device().shape().xcds;
  args.grid = plan->grid();
  args.order = plan->row_order(world.rank());
  args.bands = plan->bands;
  args.at = plan->workspace;
  for (std::int64_t* offset : {&args.at.inbox, &args.at.flags, &args.at.entries, &args.at.partials, &args.at.counters})
    *offset += static_cast<std::int64_t>(workspace->offset);
  if (const Status status = state->map_inboxes(); !status.ok()) return status;
  return GemmReduceScatter(std::move(state));
}

GemmReduceScatter::GemmReduceScatter(std::unique_ptr<State> state) : state_(std::move(state)) {}
GemmReduceScatter::GemmReduceScatter(GemmReduceScatter&&) noexcept = default;
GemmReduceScatter& GemmReduceScatter::operator=(GemmReduceScatter&&) noexcept = default;
GemmReduceScatter::~GemmReduceScatter() = default;

Status GemmReduceScatter::close() {
  const Status closed = state_->world->close_operator(state_->slot);
  state_->slot = -1;
  const Status freed = state_->world->free(state_->workspace);
  return closed.ok() ? freed : closed;
}

const GemmReduceScatterPlan& GemmReduceScatter::plan() const { return state_->plan; }

void GemmReduceScatter::inject(const GemmReduceScatterFaults& faults) { state_->args.drop_tile = faults.drop_tile; }

Status GemmReduceScatter::operator()(const void* x, const void* w, const void* bias, void* y, Stream stream) {
  State& state = *state_;
  if (state.slot < 0) return {StatusCode::kMisuse, "GemmReduceScatter was called after close()"};
  Status status = parallel_gemm::check_operands(state.plan.desc, x, w, bias, y);
  if (status.ok()) status = state.world->status();
  if (status.ok()) status = state.set_operands(x, w);
  if (!status.ok()) return status;
  state.args.bias = bias;
  state.args.y = y;
  const LaunchConfig config{state.plan.blocks, state.plan.threads, static_cast<std::size_t>(state.plan.shared_bytes)};
  return launch(state.world->device(), state.kernel, config, state.args, stream);
}

}  // namespace farwarp
