#include "farwarp/ops/moe_a2a/case_bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "farwarp/ops/moe_a2a/bench_args.h"

namespace farwarp::moe {
namespace {

using harness::BenchOptions;
using harness::BenchOutcome;
using harness::Measurement;

// Every sample takes another set of inputs, routing and output, as many as host memory and patience allow.
constexpr std::int64_t kPreparedElements = 32 << 20;
constexpr int kFewestSets = 4;
constexpr int kTrain = 20;  // calls of a train

int sets_for(const MoeAllToAllDesc& desc, int samples) {
  const std::int64_t elements = static_cast<std::int64_t>(desc.max_tokens) * desc.hidden;
  return static_cast<int>(std::clamp<std::int64_t>(kPreparedElements / elements, std::min(kFewestSets, samples), samples));
}

CheckConfig bench_config(CheckConfig config, const BenchOptions& bench) {
  config.fused = false;  // so that dispatch has somewhere to deliver to; the fused form needs less
  config.graph = false;
  if (config.inputs.tokens == TokenCounts::kAuto) config.inputs.tokens = TokenCounts::kFull;
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
  return status;
}

Status BenchRun::measure_all() {
  Status status = measure("fused", &BenchRun::fused);
  if (status.ok()) status = measure("split", &BenchRun::split);
  if (status.ok()) status = measure_halves();
  return status;
}

Status BenchRun::measure(const std::string& name, Step step) {
  Measurement measurement;
  measurement.name = name;
  std::vector<double> cold;
  Status status = time_cold(step, cold);
  if (status.ok()) status = verify();
  if (status.ok()) status = time_graphs(step, measurement.graph_us);
  if (status.ok()) status = time_train(step, measurement.back_to_back_us);
  if (status.ok()) status = verify();
  measurement.time_us = harness::summarise(cold);
  outcome_.measurements.push_back(std::move(measurement));
  return status;
}

/// Dispatch and combine alone: each other is outside of what is timed.
Status BenchRun::measure_halves() {
  std::vector<double> dispatch_us, combine_us;
  Status status;
  for (int i = 0; i < bench_options_.samples && status.ok(); ++i) {
    use_set(i);
    status = sample([this] { return poison_all(); }, [this] { return dispatch(); }, true, dispatch_us);
    if (status.ok()) status = sample([this] { return expert(); }, [this] { return combine(); }, true, combine_us);
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

/// Replaces `samples` by the slowest rank's.
Status BenchRun::time_cold(Step step, std::vector<double>& samples) {
  for (int i = -2; i < bench_options_.samples; ++i) {  // two to warm up
    use_set(i + 2);
    std::vector<double> ignored;
    const Status status = sample([this] { return poison_all(); }, [this, step] { return (this->*step)(); }, true,
                                 i < 0 ? ignored : samples);
    if (!status.ok()) return status;
  }
  auto slowest = timer_->slowest(samples);
  if (slowest.ok()) samples = std::move(*slowest);
  return slowest.status();
}

Status BenchRun::time_graphs(Step step, double& median) {
  Device& device = world_->device();
  std::vector<double> samples;
  std::vector<std::unique_ptr<Graph>> graphs;
  for (std::size_t i = 0; i < sets_.size(); ++i) {
    use_set(static_cast<int>(i));
    Status status = device.begin_capture(*stream_);
    if (status.ok()) status = (this->*step)();
    if (!status.ok()) return status;
    auto graph = device.end_capture(*stream_);
    if (!graph.ok()) return graph.status();
    graphs.push_back(std::move(*graph));
  }
  for (int i = 0; i < bench_options_.samples; ++i) {
    use_set(i);
    Graph& graph = *graphs[static_cast<std::size_t>(i) % graphs.size()];
    const Status status = sample([this] { return poison_all(); },
                                 [&] { return device.launch(graph, *stream_); }, true, samples);
    if (!status.ok()) return status;
  }
  auto slowest = timer_->slowest(samples);
  if (slowest.ok()) median = harness::summarise(*slowest).median;
  return slowest.status();
}

Status BenchRun::time_train(Step step, double& per_call) {
  std::vector<double> samples;
  const auto train = [this, step] {
    Status status;
    for (int i = 0; i < kTrain && status.ok(); ++i) {
      use_set(i);
      status = (this->*step)();
    }
    return status;
  };
  for (int i = 0; i < 5; ++i) {
    if (Status status = sample([] { return Status{}; }, train, false, samples); !status.ok()) return status;
  }
  auto slowest = timer_->slowest(samples);
  if (slowest.ok()) per_call = harness::summarise(*slowest).median / kTrain;
  return slowest.status();
}

/// The outputs of all sets: the first time against the oracle, after that against what passed, to the bit.
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
  args.y = y_.get();
  args.counts = counts_.as<std::int32_t>();
  args.offsets = offsets_.as<std::int32_t>();
  args.table = table_.as<float>();
  args.local_experts = local_experts();
  args.hidden = config_.desc.hidden;
  args.bf16 = config_.desc.dtype == DType::kBf16;
  return launch(world_->device(), *expert_kernel_, {world_->device().shape().multiprocessors, kBenchExpertThreads, 0}, args,
                *stream_);
}

Status BenchRun::split() {
  Status status = dispatch();
  if (status.ok()) status = expert();
  if (status.ok()) status = combine();
  return status;
}

}  // namespace farwarp::moe
