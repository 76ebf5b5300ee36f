#include "farwarp/ops/parallel_gemm/gemm_rs/gemm_rs.h"

#include <utility>

#include "farwarp/ops/parallel_gemm/gemm_reduce/args.h"
#include "farwarp/ops/parallel_gemm/gemm_reduce/maps.h"
#include "farwarp/ops/parallel_gemm/operands.h"
#include "farwarp/world/host/opened_operator.h"

namespace farwarp {

struct GemmReduceScatter::State {
  World* world = nullptr;
  GemmReduceScatterPlan plan;
  OpenedOperator opened;  ///< one kernel; buffers: workspace, inbox of words
  gemm_reduce::Args args{};
  gemm_reduce::Maps maps;
};

Result<GemmReduceScatter> GemmReduceScatter::create(World& world, const ParallelGemmDesc& desc) {
  const auto plan = plan_gemm_reduce_scatter(desc, world.device().shape(), world.size());
  const GemmReduceScatterPlan wanted = plan.ok() ? *plan : GemmReduceScatterPlan{};
  auto state =
      open_state<State>(world, plan,
                        {.name = "gemm-rs",
                         .site_names = gemm_reduce::kSiteNames,
                         .configuration = configuration_of(parallel_gemm::Kind::kReduceScatter, desc, world.size()),
                         .kernels = {wanted.kernel},
                         .buffers = {{wanted.workspace.total, 0}, {wanted.word_inbox.bytes(), 0xff}}});
  if (!state.ok()) return state.status();
  gemm_reduce::set_sizes((*state)->args, wanted, world, (*state)->opened);
  return GemmReduceScatter(std::move(*state));
}

GemmReduceScatter::GemmReduceScatter(std::unique_ptr<State> state) : state_(std::move(state)) {}
GemmReduceScatter::GemmReduceScatter(GemmReduceScatter&&) noexcept = default;
GemmReduceScatter& GemmReduceScatter::operator=(GemmReduceScatter&&) noexcept = default;
GemmReduceScatter::~GemmReduceScatter() = default;

Status GemmReduceScatter::close() { return close_opened("GemmReduceScatter", state_); }

const GemmReduceScatterPlan& GemmReduceScatter::plan() const {
  static const GemmReduceScatterPlan kNone;
  return state_ ? state_->plan : kNone;
}

void GemmReduceScatter::inject(const GemmReduceScatterFaults& faults) {
  if (state_) state_->args.drop_put = faults.drop_put;
}

Status GemmReduceScatter::operator()(const void* x, const void* w, const void* bias, void* y, Stream stream) {
  if (Status open = check_open("GemmReduceScatter", state_); !open.ok()) return open;
  State& state = *state_;
  Status status = parallel_gemm::check_operands(state.plan.desc, x, w, bias, y);
  if (status.ok())
    status = parallel_gemm::check_memory(parallel_gemm::Kind::kReduceScatter, state.plan.desc, state.world->size(), x,
                                         w, bias, y);
  if (status.ok()) status = state.world->status();
  if (status.ok()) status = state.maps.encode(state.args, state.plan, state.world->device(), x, w);
  if (status.ok() && state.plan.fetched && state.args.y != y)
    status = gemm_reduce::encode_y(state.args, state.world->device(), y);
  if (!status.ok()) return status;
  state.args.bias = bias;
  state.args.y = y;
  const LaunchConfig config{state.plan.blocks, state.plan.threads, static_cast<std::size_t>(state.plan.shared_bytes),
                            state.plan.cluster};
  return launch(state.world->device(), state.opened.kernel(0), config, state.args, stream);
}

}  // namespace farwarp
