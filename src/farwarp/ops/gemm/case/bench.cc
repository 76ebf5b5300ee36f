// The bench of gemm: our kernel and the fastest algorithm that cuBLASLt has for the product.
#include <fmt/format.h>

#include <algorithm>

#include "farwarp/harness/floors.h"
#include "farwarp/harness/submission.h"
#include "farwarp/ops/gemm/case/product_floor.h"
#include "farwarp/ops/gemm/case/run.h"

namespace farwarp::gemm {
namespace {

using harness::BenchOptions;
using harness::BenchOutcome;
using harness::Contender;
using harness::DeviceBuffer;

constexpr std::int64_t kPreparedElements = 24 << 20;  // a limit, because the host fills and verifies them

int sets_for(const GemmDesc& desc) {
  const std::int64_t elements =
      std::int64_t{desc.m} * desc.k + std::int64_t{desc.n} * desc.k + std::int64_t{desc.m} * desc.n;
  return static_cast<int>(std::clamp<std::int64_t>(kPreparedElements / elements, 1, 4));
}

}  // namespace

BenchOutcome RankRun::bench(const BenchOptions& bench_options) {
  if (config_.desc.x_pitch != 0 || config_.desc.w_pitch != 0 || config_.desc.y_pitch != 0)
    outcome_.no_baseline = "the bench's baseline takes contiguous rows";
  const bool submitted = harness::submission() != nullptr;
  Status status = open(submitted ? 1 : sets_for(config_.desc));
  if (status.ok() && submitted) status = all_calls();
  for (std::size_t i = 0; i < sets_.size() && status.ok() && !submitted; ++i)
    status = fill(sets_[i], static_cast<int>(i));
  if (status.ok() && !submitted) status = measure(bench_options);
  if (status.ok())
    harness::set_floors(outcome_, world_->device().model(), ranks_,
                        [this](const Ceilings& ceilings) { return floor(ceilings); });
  if (op_) outcome_.plan = op_->plan().to_string();
  if (timer_ && status.ok()) status = timer_->close();
  graphs_.clear();
  baseline_graphs_.clear();
  baseline_.reset();
  outcome_.check = outcome(close(status));
  return std::move(outcome_);
}

Status RankRun::measure(const BenchOptions& bench_options) {
  auto timer = harness::DeviceTimer::create(*world_, *stream_);
  if (!timer.ok()) return timer.status();
  timer_.emplace(std::move(*timer));
  harness::Contest contest(
      *world_, *stream_, *timer_, bench_options.samples, static_cast<int>(sets_.size()), [this](int set) { use(set); },
      [this](bool is_ours) { return is_ours ? set_->y.poison(*stream_) : baseline_y_.poison(*stream_); });
  // Each both launched and from a graph, so that the two can be compared launch with launch and graph with graph.
  std::vector<Contender> contenders;
  Status status = add_contenders(
      contest, "gemm", [this] { return enqueue(); }, true, contenders);
  if (is_scaled()) outcome_.no_baseline = "cuBLASLt's products here have 16-bit operands";
  if (!bench_options.baselines) outcome_.no_baseline = "not asked for";
  if (status.ok() && outcome_.no_baseline.empty()) status = open_baseline(contest, contenders);
  if (!status.ok()) return status;
  auto measured = contest.in_turn(contenders);
  if (!measured.ok()) return measured.status();
  outcome_.measurements = std::move(*measured);
  if (baseline_) status = verify(baseline_y_);  // a wrong baseline is an error
  if (!status.ok()) return status;
  outcome_.measurements[0].graph_us = outcome_.measurements[1].time_us.median;
  for (std::size_t i = 0; i < contenders.size(); ++i) {
    const auto train_us = contest.in_train(contenders[i]);
    if (!train_us.ok()) return train_us.status();
    outcome_.measurements[i].back_to_back_us = *train_us;
  }
  for (int set = 0; set < static_cast<int>(sets_.size()) && status.ok(); ++set) {
    use(set);
    status = verify(set_->y);
  }
  return status;
}

/// If there is no cuBLASLt, outcome_.no_baseline says why.
Status RankRun::open_baseline(harness::Contest& contest, std::vector<Contender>& contenders) {
  const GemmDesc& desc = config_.desc;
  auto product = CublasProduct::create(world_->device(), {desc.m, desc.n, desc.k, desc.dtype, desc.has_bias});
  if (product.status().code() == StatusCode::kUnavailable) {
    outcome_.no_baseline = product.status().message();
    return {};
  }
  if (!product.ok()) return product.status();
  baseline_.emplace(std::move(*product));
  auto y = DeviceBuffer::create(world_->device(), sets_[0].y.bytes());
  if (!y.ok()) return y.status();
  baseline_y_ = std::move(*y);
  const auto enqueue_baseline = [this] {
    return baseline_->enqueue(set_->x.get(), set_->w.get(), config_.desc.has_bias ? set_->bias.get() : nullptr,
                              baseline_y_.get(), *stream_);
  };
  if (Status status = harness::choose_fastest(*baseline_, *timer_, enqueue_baseline); !status.ok()) return status;
  return add_contenders(contest, baseline_->describe(), enqueue_baseline, false, contenders);
}

/// Adds `step` launched directly, and `step` from one graph for each set.
Status RankRun::add_contenders(harness::Contest& contest, const std::string& name, const harness::Work& step,
                               bool is_ours, std::vector<Contender>& contenders) {
  auto captured = contest.capture(step);
  if (!captured.ok()) return captured.status();
  auto& graphs = is_ours ? graphs_ : baseline_graphs_;
  graphs = std::move(*captured);
  const auto replay = [this, &graphs] {
    return world_->device().launch(*graphs[static_cast<std::size_t>(set_ - sets_.data())], *stream_);
  };
  contenders.push_back({name, step, is_ours});
  contenders.push_back({name + ", graph", replay, is_ours, true});
  return {};
}

/// Memory reads each operand once and writes the result once.
harness::Floor RankRun::floor(const Ceilings& ceilings) {
  const GemmDesc& desc = config_.desc;
  const double operand_bytes = is_scaled() ? 1 : 2;
  const double megabytes = 1e-6 * (operand_bytes * desc.k * (double{1} * desc.m + desc.n) + 2.0 * desc.m * desc.n);
  return product_floor(ceilings, 2e-9 * desc.m * desc.n * desc.k, megabytes, is_scaled());
}

}  // namespace farwarp::gemm
