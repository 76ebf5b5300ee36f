#include "farwarp/ops/parallel_gemm/gemm_ar/gemm_ar.h"

#include <utility>

#include "farwarp/ops/parallel_gemm/gemm_ar/args.h"
#include "farwarp/ops/parallel_gemm/gemm_reduce/maps.h"
#include "farwarp/ops/parallel_gemm/operands.h"
#include "farwarp/world/host/opened_operator.h"

namespace farwarp {

struct GemmAllReduce::State {
  World* world = nullptr;
  GemmAllReducePlan plan;
  OpenedOperator opened;  ///< one kernel; buffers: workspace, inboxes of words
  gemm_ar::Args args{};
  gemm_reduce::Maps maps;

  void set_sizes();
};

void GemmAllReduce::State::set_sizes() {
  const auto base = static_cast<std::int64_t>(opened.buffer(0).offset);
  gemm_reduce::set_sizes(args.reduce, plan.reduce, *world, opened);
  args.reduce.x_rows = plan.desc.m;
  args.rows = plan.desc.m;
  args.finished_inbox = plan.finished_inbox;
  args.finished_inbox.at += args.reduce.word_inbox.at;
  args.finished_rows = base + plan.finished_rows;
  args.signals = base + plan.signals;
}

Result<GemmAllReduce> GemmAllReduce::create(World& world, const ParallelGemmDesc& desc) {
  const auto plan = plan_gemm_all_reduce(desc, world.device().shape(), world.size());
  const GemmAllReducePlan wanted = plan.ok() ? *plan : GemmAllReducePlan{};
  auto state =
      open_state<State>(world, plan,
                        {.name = "gemm-ar",
                         .site_names = gemm_ar::kSiteNames,
                         .configuration = configuration_of(parallel_gemm::Kind::kAllReduce, desc, world.size()),
                         .kernels = {wanted.kernel},
                         .buffers = {{wanted.workspace_bytes, 0}, {wanted.word_bytes(), 0xff}}});
  if (!state.ok()) return state.status();
  (*state)->set_sizes();
  return GemmAllReduce(std::move(*state));
}

GemmAllReduce::GemmAllReduce(std::unique_ptr<State> state) : state_(std::move(state)) {}
GemmAllReduce::GemmAllReduce(GemmAllReduce&&) noexcept = default;
GemmAllReduce& GemmAllReduce::operator=(GemmAllReduce&&) noexcept = default;
GemmAllReduce::~GemmAllReduce() = default;

Status GemmAllReduce::close() { return close_opened("GemmAllReduce", state_); }

const GemmAllReducePlan& GemmAllReduce::plan() const {
  static const GemmAllReducePlan kNone;
  return state_ ? state_->plan : kNone;
}

void GemmAllReduce::drop_put(int number) {
  if (state_) state_->args.reduce.drop_put = static_cast<std::uint32_t>(number);
}

Status GemmAllReduce::operator()(const void* x, const void* w, const void* bias, void* y, Stream stream) {
  if (Status open = check_open("GemmAllReduce", state_); !open.ok()) return open;
  State& state = *state_;
  Status status = parallel_gemm::check_operands(state.plan.desc, x, w, bias, y);
  if (status.ok())
    status = parallel_gemm::check_memory(parallel_gemm::Kind::kAllReduce, state.plan.desc, state.world->size(), x, w,
                                         bias, y);
  if (status.ok()) status = state.world->status();
  const gemm_reduce::Plan& part = state.plan.reduce;
  if (status.ok()) status = state.maps.encode(state.args.reduce, part, state.world->device(), x, w);
  if (!status.ok()) return status;
  state.args.reduce.bias = bias;
  state.args.reduce.y = y;
  const LaunchConfig config{part.blocks, part.threads, static_cast<std::size_t>(part.shared_bytes), part.cluster};
  return launch(state.world->device(), state.opened.kernel(0), config, state.args, stream);
}

}  // namespace farwarp
