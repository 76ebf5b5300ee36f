#include "farwarp/ops/parallel_gemm/case/bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "farwarp/harness/cublas_product.h"
#include "farwarp/harness/floors.h"
#include "farwarp/harness/submission.h"
#include "farwarp/ops/parallel_gemm/case/floor.h"

namespace farwarp::parallel_gemm {
namespace {

using harness::BenchOptions;
using harness::BenchOutcome;
using harness::Contender;
using harness::DeviceBuffer;

constexpr std::int64_t kPreparedElements = 48 << 20;  // for each rank; the host generates them
constexpr std::int64_t kMaxSets = 4;                  // the host computes the expected result of each

int sets_for(const Problem& problem) {
  const LocalShape local = problem.local();
  const std::int64_t elements = std::int64_t{local.x_rows} * local.k + std::int64_t{local.w_rows} * local.k +
                                std::int64_t{local.y_rows} * local.y_columns;
  return static_cast<int>(
      std::clamp<std::int64_t>(kPreparedElements / std::max<std::int64_t>(elements, 1), 1, kMaxSets));
}

}  // namespace

BenchRun::BenchRun(const CheckConfig& config, std::shared_ptr<Bootstrap> bootstrap, const harness::RunOptions& options,
                   const BenchOptions& bench_options)
    : RankRun(config, std::move(bootstrap), options), bench_options_(bench_options), asked_path_(config.path) {
  config_.path = Path::kOwn;  // the dispatcher is a further contender and never replaces ours
}

/// The heap of our operator, plus that of the dispatcher's.
Result<std::int64_t> BenchRun::heap_bytes(const Device& device, const ParallelGemmDesc& desc) const {
  const auto ours = RankRun::heap_bytes(device, desc);
  if (!ours.ok() || (asked_path_ == Path::kOwn && !bench_options_.baselines)) return ours;
  const auto beside = ParallelGemm::heap_bytes(device, problem_.ranks, problem_.kind, desc, dispatched_path());
  return beside.ok() ? *ours + *beside : beside;
}

BenchOutcome BenchRun::run() {
  const bool submitted = harness::submission() != nullptr;
  const int sets = submitted ? 1 : sets_for(problem_);
  Status status = open(sets);
  if (status.ok() && submitted) status = all_calls();
  for (int set = 0; set < sets && status.ok() && !submitted; ++set)
    status = fill(sets_[static_cast<std::size_t>(set)], set);
  if (status.ok() && !submitted) status = measure();
  if (status.ok()) {
    harness::set_floors(outcome_, world_->device().model(), problem_.ranks, [this](const Ceilings& ceilings) {
      return floor_of(problem_.kind, problem_.desc, problem_.ranks, ceilings);
    });
  }
  if (op_) outcome_.plan = op_->plan();
  if (dispatched_)
    outcome_.plan += fmt::format("; dispatcher: {} ({})", name_of(dispatched_->path()), dispatched_->why());
  if (timer_ && status.ok()) status = timer_->close();
  graphs_.clear();
  if (dispatched_ && status.ok()) status = dispatched_->close();
  dispatched_.reset();
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
  Status status = open_baseline();
  if (status.ok() && bench_options_.taxes) return measure_taxes();
  if (status.ok()) status = open_dispatched();
  if (status.ok() && dispatched_) status = add_dispatched(contest, contenders);
  if (status.ok() && baseline_) status = add_baseline(contest, contenders);
  if (!status.ok()) return status;
  auto measured = contest.in_turn(contenders);
  if (!measured.ok()) return measured.status();
  outcome_.measurements = std::move(*measured);
  for (harness::Measurement& measurement : outcome_.measurements) {
    if (!measurement.ours) measurement.algorithm = baseline_->cublas().algorithm();
  }
  if (status = verify_others(); !status.ok()) return status;
  const auto graph_us = contest.from_graphs(ours);
  if (!graph_us.ok()) return graph_us.status();
  outcome_.measurements[0].graph_us = *graph_us;
  // The others are not timed back to back: the host would wait inside NCCL's next launch while the stream is held.
  const auto train_us = contest.in_train(ours);
  if (!train_us.ok()) return train_us.status();
  outcome_.measurements[0].back_to_back_us = *train_us;
  return verify_all();
}

/// If there is no baseline, the outcome says why, the same on all ranks.
Status BenchRun::open_baseline() {
  if (!bench_options_.baselines) {
    outcome_.no_baseline = "not asked for";
    return {};
  }
  if (problem_.desc.max_sms != 0) {
    outcome_.no_baseline = "max_sms bounds our blocks, and nothing those of NCCL and cuBLASLt";
    return {};
  }
  auto baseline = Unfused::create(*world_, problem_.kind, problem_.desc);
  if (baseline.status().code() == StatusCode::kUnavailable) {
    outcome_.no_baseline = baseline.status().message();
    return {};
  }
  if (!baseline.ok()) return baseline.status();
  baseline_.emplace(std::move(*baseline));
  auto y = DeviceBuffer::create(world_->device(), sets_[0].y.bytes());
  if (y.ok()) baseline_y_ = std::move(*y);
  return y.status();
}

Status BenchRun::open_dispatched() {
  if (asked_path_ == Path::kOwn && !baseline_) return {};
  auto dispatched = ParallelGemm::create(*world_, problem_.kind, problem_.desc, dispatched_path());
  if (dispatched.ok()) dispatched_.emplace(std::move(*dispatched));
  return dispatched.status();
}

Status BenchRun::add_dispatched(harness::Contest& contest, std::vector<Contender>& contenders) {
  return add_graphs(
      contest, fmt::format("{}, dispatcher: {}, graph", config_.kind.name, name_of(dispatched_->path())),
      [this] {
        const Buffers& set = sets_[set_];
        return (*dispatched_)(set.x.get(), set.w.get(), bias(), set.y.get(), *stream_, all_x_of(set));
      },
      true, contenders);
}

Status BenchRun::baseline_call() {
  const Buffers& set = sets_[set_];
  return (*baseline_)(set.x.get(), set.w.get(), bias(), baseline_y_.get(), *stream_, all_x_of(set));
}

Status BenchRun::baseline_product() {
  return baseline_->product(sets_[set_].x.get(), sets_[set_].w.get(), bias(), baseline_y_.get(), *stream_);
}

Status BenchRun::baseline_exchange() { return baseline_->exchange(sets_[set_].x.get(), baseline_y_.get(), *stream_); }

/// Chooses cuBLASLt's fastest algorithm.
Status BenchRun::prepare_baseline() {
  set_ = 0;
  Status status = baseline_call();  // so that products alone are timed on gathered x
  if (status.ok()) status = wait(patience_for_burst());
  return status.ok() ? harness::choose_fastest(baseline_->cublas(), *timer_, [this] { return baseline_product(); })
                     : status;
}

/// Adds NCCL and cuBLASLt as contenders.
Status BenchRun::add_baseline(harness::Contest& contest, std::vector<Contender>& contenders) {
  Status status = prepare_baseline();
  const std::string libraries = baseline_->describe_product(), exchange = baseline_->describe_exchange();
  const auto add = [&](const std::string& name, Status (BenchRun::*step)()) {
    if (status.ok())
      status = add_graphs(
          contest, name + ", graph", [this, step] { return (this->*step)(); }, false, contenders);
  };
  add(fmt::format("{} and {}", exchange, libraries), &BenchRun::baseline_call);
  const std::size_t parts = contenders.size();
  add(libraries + " alone", &BenchRun::baseline_product);
  add(exchange + " alone", &BenchRun::baseline_exchange);
  for (std::size_t i = parts; i < contenders.size(); ++i) contenders[i].part = true;
  return status;
}

Status BenchRun::measure_taxes() {
  Status status;
  for (set_ = 0; set_ < sets_.size() && status.ok(); ++set_) status = enqueue(sets_[set_]);
  set_ = 0;
  if (status.ok()) status = wait(patience_for_burst());
  if (status.ok() && baseline_) status = prepare_baseline();
  if (!status.ok()) return status;
  if (baseline_) {
    const DeviceMemory& exchanged = baseline_->exchanged();
    std::vector<harness::Stage> stages = {
        {.name = baseline_->describe_product(), .enqueue = [this] { return baseline_product(); }},
        {.name = baseline_->describe_exchange(), .exchange = true, .enqueue = [this] { return baseline_exchange(); }}};
    if (problem_.kind == Kind::kAllGather) std::swap(stages[0], stages[1]);
    stages[1].reads = {{exchanged.get(), exchanged.bytes()}};
    auto taxes = harness::measure_taxes(
        *world_, *stream_, *timer_, {fmt::format("{}, {}", stages[0].name, stages[1].name), stages},
        [this] { return enqueue(sets_[set_]); }, {bench_options_.samples, *bench_options_.taxes});
    if (!taxes.ok()) return taxes.status();
    outcome_.taxes = std::move(*taxes);
    if (status = verify_baseline(baseline_y_, baseline_->roundings(), "the baseline's"); !status.ok()) return status;
  }
  return verify_all();
}

/// Adds a contender that launches a graph of `step`, one graph for each set.
Status BenchRun::add_graphs(harness::Contest& contest, const std::string& name, const harness::Work& step, bool ours,
                            std::vector<Contender>& contenders) {
  auto graphs = contest.capture(step);
  if (!graphs.ok()) return graphs.status();
  const std::size_t index = graphs_.size();
  graphs_.push_back(std::move(*graphs));
  contenders.push_back(
      {name, [this, index] { return world_->device().launch(*graphs_[index][set_], *stream_); }, ours});
  return {};
}

/// Verifies the results of the dispatcher's and the baseline's graphs: a wrong baseline must not win.
Status BenchRun::verify_others() {
  std::size_t index = 0;
  Status status;
  if (dispatched_) status = verify_graph(index++, sets_[set_].y, dispatched_->roundings(), "the dispatcher's");
  if (status.ok() && baseline_) status = verify_graph(index, baseline_y_, baseline_->roundings(), "the baseline's");
  return status;
}

/// Launches the graph that was timed once more and verifies its result.
Status BenchRun::verify_graph(std::size_t graphs, const DeviceBuffer& y, int roundings, const std::string& whose) {
  Status status = y.poison(*stream_);
  if (status.ok()) status = world_->device().launch(*graphs_[graphs][set_], *stream_);
  if (status.ok()) status = wait(patience_for_burst());
  return status.ok() ? verify_baseline(y, roundings, whose) : status;
}

/// Verifies a result of the set in use that is not ours.
Status BenchRun::verify_baseline(const DeviceBuffer& y, int roundings, const std::string& whose) {
  Findings findings{harness::Comparison(config_.desc.dtype, gemm::kTile, gemm::kTile)};
  std::vector<std::uint16_t> got;
  Status status = verify(y, static_cast<int>(set_), roundings, findings, got);
  if (!status.ok()) return status;
  const harness::Verdict verdict = findings.comparison.verdict();
  const std::string why = findings.difference.empty() ? verdict.detail : findings.difference;
  if (!why.empty()) findings_.difference = fmt::format("{} result is wrong: {}", whose, why);
  return {};
}

/// Verifies the outputs that the last measurement wrote in every set.
Status BenchRun::verify_all() {
  std::vector<std::uint16_t> got;
  Status status;
  for (std::size_t set = 0; set < sets_.size() && status.ok(); ++set)
    status = verify(sets_[set].y, static_cast<int>(set), config_.kind.roundings, findings_, got);
  for (std::size_t set = 0; set < sets_.size() && status.ok(); ++set)
    status = verify_returned_x(sets_[set], static_cast<int>(set), findings_);
  return status;
}

}  // namespace farwarp::parallel_gemm
