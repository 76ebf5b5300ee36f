#include "farwarp/ops/parallel_gemm/gemm_ar/gemm_ar.h"

#include <utility>

#include "farwarp/ops/parallel_gemm/gemm_ar/args.h"
#include "farwarp/ops/parallel_gemm/gemm_rs/maps.h"
#include "farwarp/ops/parallel_gemm/operands.h"

namespace farwarp {

struct GemmAllReduce::State {
  World* world = nullptr;
  GemmAllReducePlan plan;
  int slot = -1;
  SymmetricBuffer workspace;
  Kernel kernel;
  gemm_ar::Args args{};
  gemm_rs::Maps maps;

  void set_sizes();
};

void GemmAllReduce::State::set_sizes() {
  const auto base = static_cast<std::int64_t>(workspace.offset);
  gemm_rs::set_sizes(args.rs, plan.reduce_scatter, *world, slot, base);
  args.rs.x_rows = plan.desc.m;
  args.rows = plan.desc.m;
  args.one_shot = plan.one_shot ? 1 : 0;
  args.sums = base + plan.sums;
  args.told = base + plan.told;
  args.packets = base + plan.packets;
}

Result<GemmAllReduce> GemmAllReduce::create(World& world, const ParallelGemmDesc& desc) {
  const auto plan = plan_gemm_all_reduce(desc, world.device().shape(), world.size());
  auto state = std::make_unique<State>();
  state->world = &world;
  Status mine = plan.status();
  if (mine.ok()) {
    auto kernel = world.device().kernel(plan->kernel);
    mine = kernel.status();
    if (kernel.ok()) state->kernel = *kernel;
  }
  // A rank that cannot go on takes part in the agreement, so that the others are told and do not wait for it later.
  const auto slot =
      world.open_operator("gemm-ar", {gemm_ar::kSiteNames, gemm_ar::kSiteNames + gemm_ar::kSites},
                          mine.ok() ? configuration_of(parallel_gemm::Kind::kAllReduce, desc, world.size()) : 0);
  if (slot.ok() && !mine.ok()) (void)world.close_operator(*slot);  // all ranks are wrong alike
  if (!mine.ok()) return mine;
  if (!slot.ok()) return slot.status();
  state->plan = *plan;
  state->slot = *slot;
  const auto workspace = world.allocate(static_cast<std::size_t>(plan->heap_bytes));
  if (!workspace.ok()) {
    (void)world.close_operator(*slot);
    return workspace.status();
  }
  state->workspace = *workspace;
  state->set_sizes();
  return GemmAllReduce(std::move(state));
}

GemmAllReduce::GemmAllReduce(std::unique_ptr<State> state) : state_(std::move(state)) {}
GemmAllReduce::GemmAllReduce(GemmAllReduce&&) noexcept = default;
GemmAllReduce& GemmAllReduce::operator=(GemmAllReduce&&) noexcept = default;
GemmAllReduce::~GemmAllReduce() = default;

Status GemmAllReduce::close() {
  if (state_->slot < 0) return {StatusCode::kMisuse, "GemmAllReduce was closed before"};
  const Status closed = state_->world->close_operator(state_->slot);
  state_->slot = -1;
  const Status freed = state_->world->free(state_->workspace);
  return closed.ok() ? freed : closed;
}

const GemmAllReducePlan& GemmAllReduce::plan() const { return state_->plan; }

void GemmAllReduce::drop_tile(int number) { state_->args.rs.drop_tile = static_cast<std::uint32_t>(number); }

Status GemmAllReduce::operator()(const void* x, const void* w, const void* bias, void* y, Stream stream) {
  State& state = *state_;
  if (state.slot < 0) return {StatusCode::kMisuse, "GemmAllReduce was called after close()"};
  Status status = parallel_gemm::check_operands(state.plan.desc, x, w, bias, y);
  if (status.ok()) status = state.world->status();
  const GemmReduceScatterPlan& part = state.plan.reduce_scatter;
  if (status.ok()) status = state.maps.encode(state.args.rs, part, state.world->device(), x, w);
  if (!status.ok()) return status;
  state.args.rs.bias = bias;
  state.args.rs.y = y;
  const LaunchConfig config{part.blocks, part.threads, static_cast<std::size_t>(part.shared_bytes)};
  return launch(state.world->device(), state.kernel, config, state.args, stream);
}

}  // namespace farwarp
