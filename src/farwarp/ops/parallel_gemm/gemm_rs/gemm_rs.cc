#include "farwarp/ops/parallel_gemm/gemm_rs/gemm_rs.h"

#include <utility>

#include "farwarp/ops/parallel_gemm/gemm_rs/args.h"
#include "farwarp/ops/parallel_gemm/gemm_rs/maps.h"
#include "farwarp/ops/parallel_gemm/operands.h"

namespace farwarp {

struct GemmReduceScatter::State {
  World* world = nullptr;
  GemmReduceScatterPlan plan;
  int slot = -1;
  SymmetricBuffer workspace;
  Kernel kernel;
  gemm_rs::Args args{};
  gemm_rs::Maps maps;
};

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
  gemm_rs::set_sizes(state->args, *plan, world, *slot, static_cast<std::int64_t>(workspace->offset));
  return GemmReduceScatter(std::move(state));
}

GemmReduceScatter::GemmReduceScatter(std::unique_ptr<State> state) : state_(std::move(state)) {}
GemmReduceScatter::GemmReduceScatter(GemmReduceScatter&&) noexcept = default;
GemmReduceScatter& GemmReduceScatter::operator=(GemmReduceScatter&&) noexcept = default;
GemmReduceScatter::~GemmReduceScatter() = default;

Status GemmReduceScatter::close() {
  if (state_->slot < 0) return {StatusCode::kMisuse, "GemmReduceScatter was closed before"};
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
  if (status.ok()) status = state.maps.encode(state.args, state.plan, state.world->device(), x, w);
  if (!status.ok()) return status;
  state.args.bias = bias;
  state.args.y = y;
  const LaunchConfig config{state.plan.blocks, state.plan.threads, static_cast<std::size_t>(state.plan.shared_bytes)};
  return launch(state.world->device(), state.kernel, config, state.args, stream);
}

}  // namespace farwarp
