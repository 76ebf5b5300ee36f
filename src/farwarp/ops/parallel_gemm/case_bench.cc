#include "farwarp/ops/parallel_gemm/case_bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "farwarp/machine/ceilings.h"
#include "farwarp/ops/parallel_gemm/case_floor.h"

namespace farwarp::parallel_gemm {
namespace {

using harness::BenchOptions;
using harness::BenchOutcome;
using harness::Contender;
using harness::DeviceBuffer;

constexpr std::int64_t kPreparedElements = 48 << 20;  // of each rank: the host makes them
constexpr std::int64_t kMostSets = 4;                 // the host computes what is expected of each

int sets_for(const Problem& problem) {
  const LocalShape local = problem.local();
  const std::int64_t elements = std::int64_t{local.x_rows} * local.k + std::int64_t{local.w_rows} * local.k +
                                std::int64_t{local.y_rows} * local.y_columns;
  return static_cast<int>(
      std::clamp<std::int64_t>(kPreparedElements / std::max<std::int64_t>(elements, 1), 1, kMostSets));
}

}  // namespace

BenchRun::BenchRun(const CheckConfig& config, std::shared_ptr<Bootstrap> bootstrap, const harness::RunOptions& options,
                   const BenchOptions& bench_options)
    : RankRun(config, std::move(bootstrap), options), bench_options_(bench_options) {}

BenchOutcome BenchRun::run() {
  const int sets = sets_for(problem_);
  Status status = open(sets);
  for (int set = 0; set < sets && status.ok(); ++set) status = fill(sets_[static_cast<std::size_t>(set)], set);
  if (status.ok()) status = measure();
  if (op_) outcome_.plan = op_->plan();
  if (timer_ && status.ok()) status = timer_->close();
  baseline_graphs_.clear();
  baseline_.reset();
  outcome_.check = outcome(close(status));
  return std::move(outcome_);
}

Status BenchRun::measure() {
  auto timer = harness::DeviceTimer::create(*world_, *stream_);
  if (!timer.ok()) return timer.status();
  timer_.emplace(std::move(*timer));
  harness::Contest contest(
      *world_, *stream_, *timer_, bench_options_.samples, static_cast<int>(sets_.size()),
      [this](int set) { set_ = static_cast<std::size_t>(set); },
      [this](bool ours) { return ours ? sets_[set_].y.poison(*stream_) : baseline_y_.poison(*stream_); });
  const Contender ours{config_.kind.name, [this] { return enqueue(sets_[set_]); }};
  std::vector<Contender> contenders = {ours};
  if (Status status = open_baseline(contest, contenders); !status.ok()) return status;
  auto measured = contest.in_turn(contenders);
  if (!measured.ok()) return measured.status();
  outcome_.measurements = std::move(*measured);
  if (Status status = verify_baseline(); !status.ok()) return status;
  const auto graph_us = contest.from_graphs(ours);
  if (!graph_us.ok()) return graph_us.status();
  outcome_.measurements[0].graph_us = *graph_us;
  // No train of the others: the host waits inside NCCL's next launch while a stream is held.
  const auto train_us = contest.in_train(ours);
  if (!train_us.ok()) return train_us.status();
  outcome_.measurements[0].back_to_back_us = *train_us;
  outcome_.floor =
      floor_of(problem_.kind, problem_.desc, problem_.ranks, ceilings_of(world_->device().model(), problem_.ranks));
  return verify_all();
}

/// Where there is none, the outcome says why, on all ranks alike.
Status BenchRun::open_baseline(harness::Contest& contest, std::vector<Contender>& contenders) {
  if (!bench_options_.baselines) {
    outcome_.no_baseline = "not asked for";
    return {};
  }
  auto baseline = Baseline::create(*world_, problem_.kind, problem_.desc, *stream_);
  if (baseline.status().code() == StatusCode::kUnavailable) {
    outcome_.no_baseline = baseline.status().message();
    return {};
  }
  if (!baseline.ok()) return baseline.status();
  baseline_.emplace(std::move(*baseline));
  auto y = DeviceBuffer::create(world_->device(), sets_[0].y.bytes());
  if (!y.ok()) return y.status();
  baseline_y_ = std::move(*y);
  set_ = 0;
  Status status = baseline_->make_ready(*timer_, sets_[0].x.get(), sets_[0].w.get(), bias(), baseline_y_.get());
  const std::string product = baseline_->describe_product(), exchange = baseline_->describe_exchange();
  if (status.ok())
    status = add_graphs(
        contest, fmt::format("{} and {}, graph", exchange, product),
        [this] { return baseline_->all(sets_[set_].x.get(), sets_[set_].w.get(), bias(), baseline_y_.get()); },
        contenders);
  if (status.ok())
    status = add_graphs(
        contest, product + " alone, graph",
        [this] { return baseline_->product(sets_[set_].x.get(), sets_[set_].w.get(), bias(), baseline_y_.get()); },
        contenders);
  if (status.ok())
    status = add_graphs(
        contest, exchange + " alone, graph",
        [this] { return baseline_->exchange(sets_[set_].x.get(), baseline_y_.get()); }, contenders);
  return status;
}

/// One graph of `step` for each set, as a contender.
Status BenchRun::add_graphs(harness::Contest& contest, const std::string& name, const harness::Work& step,
                            std::vector<Contender>& contenders) {
  auto graphs = contest.capture(step);
  if (!graphs.ok()) return graphs.status();
  const std::size_t index = baseline_graphs_.size();
  baseline_graphs_.push_back(std::move(*graphs));
  contenders.push_back(
      {name, [this, index] { return world_->device().launch(*baseline_graphs_[index][set_], *stream_); }, false});
  return {};
}

/// The graph that was timed, once more: a baseline that is wrong is no baseline.
Status BenchRun::verify_baseline() {
  if (!baseline_) return {};
  Findings findings(config_.desc.dtype);
  std::vector<std::uint16_t> got;
  Status status = baseline_y_.poison(*stream_);
  if (status.ok()) status = world_->device().launch(*baseline_graphs_[0][set_], *stream_);
  if (status.ok()) status = wait();
  if (status.ok()) status = verify(baseline_y_, static_cast<int>(set_), findings, got);
  if (!status.ok()) return status;
  const harness::Verdict verdict = findings.comparison.verdict(baseline_->roundings());
  const std::string why = findings.difference.empty() ? verdict.detail : findings.difference;
  if (!why.empty()) findings_.difference = "the baseline's result is wrong: " + why;
  return {};
}

/// What the last measurement left in every set.
Status BenchRun::verify_all() {
  std::vector<std::uint16_t> got;
  Status status;
  for (std::size_t set = 0; set < sets_.size() && status.ok(); ++set)
    status = verify(sets_[set].y, static_cast<int>(set), findings_, got);
  return status;
}

}  // namespace farwarp::parallel_gemm
