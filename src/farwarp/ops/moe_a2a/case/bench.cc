#include "farwarp/ops/moe_a2a/case/bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "farwarp/machine/ceilings.h"
#include "farwarp/ops/moe_a2a/case/bench_args.h"
#include "farwarp/ops/moe_a2a/case/floor.h"

namespace farwarp::moe {
namespace {

using harness::BenchOptions;
using harness::BenchOutcome;
using harness::DeviceBuffer;
using harness::Measurement;

// Samples use different sets of inputs, routing and output, as many as the host can make in reasonable memory and time.
constexpr std::int64_t kPreparedElements = 32 << 20;
constexpr int kFewestSets = 4;
constexpr int kTrain = 20;  // calls of a train, at most
constexpr int kTrains = 5;
constexpr int kWarmUps = 2;

int sets_for(const MoeAllToAllDesc& desc, int samples) {
  const std::int64_t elements = static_cast<std::int64_t>(desc.max_tokens) * desc.hidden;
  return static_cast<int>(
      std::clamp<std::int64_t>(kPreparedElements / elements, std::min(kFewestSets, samples), samples));
}

CheckConfig bench_config(CheckConfig config, const BenchOptions& bench) {
  config.fused = false;  // so that there are buffers for dispatched rows; the fused form needs fewer buffers
  config.graph = false;
  if (config.inputs.tokens == TokenCounts::kAuto) config.inputs.tokens = TokenCounts::kFull;
  if (config.auto_expert) config.inputs.expert = MoeExpert::kRankScale;
  if (config.inputs.kind == harness::InputKind::kAuto) config.inputs.kind = harness::InputKind::kNormal;
  config.longest_delay_ns = 0;
  config.burst = sets_for(config.desc, bench.samples);
  return config;
}

harness::RunOptions bench_run_options(harness::RunOptions options, int sets) {
  options.calls = sets;
  return options;
}

}  // namespace

BenchRun::BenchRun(const CheckConfig& config, std::shared_ptr<Bootstrap> bootstrap, const harness::RunOptions& options,
                   const BenchOptions& bench_options)
    : RankRun(bench_config(config, bench_options), std::move(bootstrap),
              bench_run_options(options, sets_for(config.desc, bench_options.samples))),
      bench_options_(bench_options) {}

BenchOutcome BenchRun::run() {
  Status status = open();
  if (status.ok()) status = prepare();
  if (status.ok()) status = measure_all();
  if (op_) outcome_.plan = op_->plan().to_string();
  if (timer_ && status.ok()) status = timer_->close();
  baseline_graphs_.clear();
  baseline_.reset();
  outcome_.check = outcome(close(status));
  return std::move(outcome_);
}

Status BenchRun::prepare() {
  auto timer = harness::DeviceTimer::create(*world_, *stream_);
  if (!timer.ok()) return timer.status();
  timer_.emplace(std::move(*timer));
  auto kernel = world_->device().kernel("moe_a2a_bench_expert");
  if (!kernel.ok()) return kernel.status();
  expert_kernel_ = *kernel;
  Status status;
  for (int i = 0; i < config_.burst && status.ok(); ++i) {
    use_set(i);
    status = prepare_call(i);
  }
  if (status.ok()) {
    outcome_.floor = floor_of(config_.desc, sets_[0].routings, ceilings_of(world_->device().model(), ranks_));
  }
  return status;
}

Status BenchRun::measure_all() {
  std::vector<Contender> baselines;
  Status status = open_baseline(baselines);
  if (status.ok()) status = measure_against({"fused", [this] { return fused(); }}, std::move(baselines));
  if (status.ok()) status = measure_against({"split", [this] { return split(); }}, {});
  if (status.ok()) status = measure_halves();
  return status;
}

Status BenchRun::measure_against(Contender ours, std::vector<Contender> baselines) {
  std::vector<Contender*> all = {&ours};
  for (Contender& baseline : baselines) all.push_back(&baseline);
  Measurement measurement;
  measurement.name = ours.name;
  Status status = time_in_turn(all);
  if (status.ok()) status = verify();
  if (status.ok() && !baselines.empty()) status = verify_baseline();
  if (status.ok()) status = time_graphs(ours, measurement.graph_us);
  if (status.ok()) status = time_train(ours, measurement.back_to_back_us);
  if (status.ok()) status = verify();
  measurement.time_us = harness::summarise(ours.cold);
  outcome_.measurements.push_back(std::move(measurement));
  for (Contender& baseline : baselines) {
    Measurement theirs;
    theirs.name = baseline.name;
    theirs.ours = false;
    theirs.time_us = harness::summarise(baseline.cold);
    // No train: the host waits inside NCCL's next launch while a stream is held.
    outcome_.measurements.push_back(std::move(theirs));
  }
  return status;
}

// ---- the baseline ------------------------------------------------------------------------------------------------------

/// Captures a graph of the NCCL baseline for each set. If there is no NCCL, the outcome says why, the same on all ranks.
Status BenchRun::open_baseline(std::vector<Contender>& baselines) {
  if (!bench_options_.baselines) {
    outcome_.no_baseline = "not asked for";
    return {};
  }
  if (config_.inputs.expert != MoeExpert::kRankScale) {
    outcome_.no_baseline = "its experts are rank_scale, not secret";
    return {};
  }
  auto opened = MoeNcclBaseline::create(*world_, config_.desc);
  if (!opened.ok() && opened.status().code() == StatusCode::kUnavailable) {
    outcome_.no_baseline = opened.status().message();
    return {};
  }
  if (!opened.ok()) return opened.status();
  baseline_.emplace(std::move(*opened));
  auto out = DeviceBuffer::create(world_->device(), sets_[0].out.bytes());
  if (!out.ok()) return out.status();
  baseline_out_ = std::move(*out);
  for (const CallBuffers& set : sets_) {
    const auto handle = baseline_->prepare(set.routings);
    if (!handle.ok()) return handle.status();
    baseline_handles_.push_back(*handle);
  }
  auto graphs = capture([this] { return enqueue_baseline(); });
  if (!graphs.ok()) return graphs.status();
  baseline_graphs_ = std::move(*graphs);
  baselines.push_back({baseline_->describe() + ", graph",
                       [this] { return world_->device().launch(*baseline_graphs_[set_index()], *stream_); }, false});
  return {};
}

Status BenchRun::enqueue_baseline() {
  return baseline_->enqueue(baseline_handles_[set_index()], set_->x.get(), set_->weights.as<float>(),
                            baseline_out_.get(), *stream_);
}

/// Compares the baseline's last output with the oracle: a wrong baseline does not count.
Status BenchRun::verify_baseline() {
  use_set(bench_options_.samples - 1);
  std::swap(set_->out, baseline_out_);
  const Status status = check_output(static_cast<int>(set_index()));
  std::swap(set_->out, baseline_out_);
  return status;
}

// ---- timing ------------------------------------------------------------------------------------------------------------

/// Times dispatch and combine alone; the other one runs untimed. A sample is taken again if the host was late, so the preparation of either
/// first brings the call into the phase that it needs.
Status BenchRun::measure_halves() {
  std::vector<double> dispatch_us, combine_us;
  bool dispatched = false;
  const auto send = [&] {
    dispatched = true;
    return dispatch();
  };
  const auto bring_back = [&] {
    dispatched = false;
    return combine();
  };
  Status status;
  for (int i = 0; i < bench_options_.samples && status.ok(); ++i) {
    use_set(i);
    const auto before_dispatch = [&] {
      Status prepared = dispatched ? expert() : Status();
      if (dispatched && prepared.ok()) prepared = bring_back();
      return prepared.ok() ? poison_outputs() : prepared;
    };
    const auto before_combine = [&] {
      const Status prepared = dispatched ? Status() : send();
      return prepared.ok() ? expert() : prepared;
    };
    status = sample(before_dispatch, send, true, dispatch_us);
    if (status.ok()) status = sample(before_combine, bring_back, true, combine_us);
  }
  if (status.ok()) status = verify();
  for (const auto& [name, samples] : {std::pair{"dispatch", &dispatch_us}, std::pair{"combine", &combine_us}}) {
    if (!status.ok()) break;
    auto slowest = timer_->slowest(*samples);
    if (!slowest.ok()) return slowest.status();
    Measurement measurement;
    measurement.name = name;
    measurement.time_us = harness::summarise(*slowest);
    outcome_.measurements.push_back(std::move(measurement));
  }
  return status;
}

Status BenchRun::sample(const harness::Work& prepare, const harness::Work& work, bool cold,
                        std::vector<double>& samples) {
  const auto us = timer_->sample(prepare, work, cold);
  if (us.ok()) samples.push_back(*us);
  return us.status();
}

/// Takes cold samples of the contenders in turn. Each sample is the slowest rank's.
Status BenchRun::time_in_turn(const std::vector<Contender*>& contenders) {
  for (int i = -kWarmUps; i < bench_options_.samples; ++i) {
    use_set(i < 0 ? 0 : i);
    for (Contender* contender : contenders) {
      std::vector<double> ignored;
      const Status status = sample([&] { return contender->ours ? poison_outputs() : baseline_out_.poison(*stream_); },
                                   contender->step, true, i < 0 ? ignored : contender->cold);
      if (!status.ok()) return status;
    }
  }
  for (Contender* contender : contenders) {
    auto slowest = timer_->slowest(contender->cold);
    if (!slowest.ok()) return slowest.status();
    contender->cold = std::move(*slowest);
  }
  return {};
}

Result<std::vector<std::unique_ptr<Graph>>> BenchRun::capture(const std::function<Status()>& step) {
  Device& device = world_->device();
  std::vector<std::unique_ptr<Graph>> graphs;
  for (std::size_t i = 0; i < sets_.size(); ++i) {
    use_set(static_cast<int>(i));
    Status status = device.begin_capture(*stream_);
    if (status.ok()) status = step();
    if (!status.ok()) return status;
    auto graph = device.end_capture(*stream_);
    if (!graph.ok()) return graph.status();
    graphs.push_back(std::move(*graph));
  }
  return graphs;
}

Status BenchRun::time_graphs(const Contender& contender, double& median) {
  const auto graphs = capture(contender.step);
  if (!graphs.ok()) return graphs.status();
  std::vector<double> samples;
  for (int i = 0; i < bench_options_.samples; ++i) {
    use_set(i);
    const Status status =
        sample([this] { return poison_outputs(); },
               [&] { return world_->device().launch(*(*graphs)[set_index()], *stream_); }, true, samples);
    if (!status.ok()) return status;
  }
  auto slowest = timer_->slowest(samples);
  if (slowest.ok()) median = harness::summarise(*slowest).median;
  return slowest.status();
}

Status BenchRun::time_train(const Contender& contender, double& per_call) {
  std::vector<double> samples;
  // No graph is launched twice in a train: the second launch would make the host wait for a stream that is held.
  const int calls = std::min(kTrain, static_cast<int>(sets_.size()));
  const auto train = [this, &contender, calls] {
    Status status;
    for (int i = 0; i < calls && status.ok(); ++i) {
      use_set(i);
      status = contender.step();
    }
    return status;
  };
  for (int i = 0; i < kTrains; ++i) {
    if (Status status = sample([] { return Status{}; }, train, false, samples); !status.ok()) return status;
  }
  auto slowest = timer_->slowest(samples);
  if (slowest.ok()) per_call = harness::summarise(*slowest).median / calls;
  return slowest.status();
}

/// Compares the outputs of all sets: the first time with the oracle, later with the outputs that passed, to the bit.
Status BenchRun::verify() {
  const bool first_time = verified_.empty();
  verified_.resize(sets_.size());
  for (std::size_t i = 0; i < sets_.size(); ++i) {
    use_set(static_cast<int>(i));
    if (first_time) {
      if (Status status = check_output(static_cast<int>(i)); !status.ok()) return status;
    }
    std::vector<std::uint16_t> out(set_->out.bytes() / 2);
    if (Status status = set_->out.download(out.data(), set_->out.bytes(), *stream_); !status.ok()) return status;
    if (first_time) verified_[i] = out;
    if (out != verified_[i] && difference_.empty()) {
      difference_ = fmt::format("the output of set {} changed from one form or call to another", i);
    }
  }
  return {};
}

Status BenchRun::expert() {
  BenchExpertArgs args{};
  args.x = recv_x_.get();
  args.scales = config_.desc.fp8_dispatch ? scales_.as<float>() : nullptr;
  args.y = y_.get();
  args.counts = counts_.as<std::int32_t>();
  args.offsets = offsets_.as<std::int32_t>();
  args.table = set_->table.as<float>();
  args.local_experts = local_experts();
  args.hidden = config_.desc.hidden;
  args.bf16 = config_.desc.dtype == DType::kBf16;
  constexpr int kBlocksAMultiprocessor = 4;  // more loads in flight
  const int blocks = kBlocksAMultiprocessor * world_->device().shape().multiprocessors;
  return launch(world_->device(), *expert_kernel_, {blocks, kBenchExpertThreads, 0}, args, *stream_);
}

Status BenchRun::split() {
  Status status = dispatch();
  if (status.ok()) status = expert();
  if (status.ok()) status = combine();
  return status;
}

}  // namespace farwarp::moe
