// The bench of grouped_gemm.
#include <fmt/format.h>

#include "farwarp/base/sizes.h"
#include "farwarp/harness/floors.h"
#include "farwarp/ops/gemm/case/product_floor.h"
#include "farwarp/ops/grouped_gemm/case/run.h"

namespace farwarp::grouped_gemm {

using harness::Contender;

harness::BenchOutcome RankRun::bench(const harness::BenchOptions& bench_options) {
  outcome_.no_baseline = "no library here multiplies groups; tools/grouped_pytorch.py compares with others";
  Status status = open();
  if (status.ok()) status = fill(0);
  if (status.ok()) status = measure(bench_options);
  if (status.ok())
    harness::set_floors(outcome_, world_->device().model(), ranks_,
                        [this](const Ceilings& ceilings) { return floor(ceilings); });
  if (op_) outcome_.plan = op_->plan().to_string();
  if (timer_ && status.ok()) status = timer_->close();
  graphs_.clear();
  outcome_.check = outcome(close(status));
  return std::move(outcome_);
}

Status RankRun::measure(const harness::BenchOptions& bench_options) {
  auto timer = harness::DeviceTimer::create(*world_, *stream_);
  if (!timer.ok()) return timer.status();
  timer_.emplace(std::move(*timer));
  harness::Contest contest(
      *world_, *stream_, *timer_, bench_options.samples, 1, [](int) {}, [this](bool) { return y_.poison(*stream_); });
  const auto step = [this] { return enqueue(); };
  auto captured = contest.capture(step);
  if (!captured.ok()) return captured.status();
  graphs_ = std::move(*captured);
  const std::vector<Contender> contenders = {
      {"grouped_gemm", step, true},
      {"grouped_gemm, graph", [this] { return world_->device().launch(*graphs_[0], *stream_); }, true, true}};
  auto measured = contest.in_turn(contenders);
  if (!measured.ok()) return measured.status();
  outcome_.measurements = std::move(*measured);
  outcome_.measurements[0].graph_us = outcome_.measurements[1].time_us.median;
  for (std::size_t i = 0; i < contenders.size(); ++i) {
    const auto train_us = contest.in_train(contenders[i]);
    if (!train_us.ok()) return train_us.status();
    outcome_.measurements[i].back_to_back_us = *train_us;
  }
  return verify();
}

/// Memory reads the weights of each group that has rows, and x, and writes y.
harness::Floor RankRun::floor(const Ceilings& ceilings) const {
  const GroupedGemmDesc& desc = config_.desc;
  double rows = 0, matrices = 0;
  for (const Group& group : groups_) {
    rows += group.count;
    if (group.count > 0) matrices += op_->plan().parts();
  }
  const double operand_bytes = is_scaled() ? 1 : 2;
  const double gigaflops = 2e-9 * rows * op_->plan().parts() * desc.n * desc.k;
  const double megabytes = 1e-6 * (operand_bytes * desc.k * (rows + matrices * desc.n) + 2 * rows * desc.n);
  return gemm::product_floor(ceilings, gigaflops, megabytes, is_scaled());
}

}  // namespace farwarp::grouped_gemm
