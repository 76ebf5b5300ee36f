#include "farwarp/ops/moe_a2a/case/bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "farwarp/harness/floors.h"
#include "farwarp/harness/submission.h"
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
  config.in_flight = 1;
  if (harness::submission() != nullptr) {
    config.fused = true;
    config.burst = 1;
  }
  return config;
}

harness::RunOptions bench_run_options(harness::RunOptions options, int sets) {
  if (harness::submission() == nullptr) options.calls = sets;
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
  if (harness::submission() != nullptr) {
    if (status.ok()) status = all_calls();
    if (status.ok()) set_floors();
  } else {
    if (status.ok()) status = prepare();
    if (status.ok()) status = measure_all();
  }
  if (!instances_.empty()) outcome_.plan = plan().to_string();
  if (timer_ && status.ok()) status = timer_->close();
  baseline_graphs_.clear();
  baseline_.reset();
  outcome_.check = outcome(close(status));
  return std::move(outcome_);
}

Status BenchRun::prepare() {
  if (config_.desc.layout == MoeLayout::kRows)
    return invalid_argument("layout is rows; allowed in a bench: expert_major and masked, whose rows its experts read");
  if (config_.desc.scales == MoeScales::kColumns)
    return invalid_argument("scales is columns; allowed in a bench: rows, which its experts read");
  auto timer = harness::DeviceTimer::create(*world_, *stream_);
  if (!timer.ok()) return timer.status();
  timer_.emplace(std::move(*timer));
  contest_.emplace(
      *world_, *stream_, *timer_, bench_options_.samples, config_.burst, [this](int set) { use_set(set); },
      [this](bool ours) { return ours ? poison_outputs() : baseline_out_.poison(*stream_); });
  auto kernel = world_->device().kernel("moe_a2a_bench_expert");
  if (!kernel.ok()) return kernel.status();
  expert_kernel_ = *kernel;
  Status status;
  for (int i = 0; i < config_.burst && status.ok(); ++i) {
    use_set(i);
    status = prepare_call(i);
  }
  if (status.ok()) set_floors();
  return status;
}

void BenchRun::set_floors() {
  harness::set_floors(outcome_, world_->device().model(), ranks_,
                      [this](const Ceilings& ceilings) { return floor_of(config_.desc, sets_[0].routings, ceilings); });
}

Status BenchRun::measure_all() {
  const auto baseline = open_baseline();
  if (!baseline.ok()) return baseline.status();
  if (bench_options_.taxes) return measure_taxes();
  const harness::Contender* rival = baseline->has_value() ? &**baseline : nullptr;
  Status status;
  if (!config_.desc.weights_at_combine) {  // which the fused form has not
    status = measure_against(
        "fused", [this] { return fused(); }, std::exchange(rival, nullptr));
  }
  if (status.ok())
    status = measure_against(
        "split", [this] { return split(); }, rival);
  if (status.ok()) status = measure_halves();
  return status;
}

Status BenchRun::measure_against(const std::string& name, const harness::Work& step,
                                 const harness::Contender* baseline) {
  const harness::Contender ours{.name = name, .step = step};
  std::vector<harness::Contender> all = {ours};
  if (baseline != nullptr) all.push_back(*baseline);
  auto measured = contest_->in_turn(all);
  if (!measured.ok()) return measured.status();
  Status status = verify();
  if (status.ok() && baseline != nullptr) status = verify_baseline(bench_options_.samples - 1);
  if (!status.ok()) return status;
  const auto graph_us = contest_->from_graphs(ours);
  if (!graph_us.ok()) return graph_us.status();
  const auto train_us =
      contest_->in_train(ours);  // not of the baseline: NCCL's next launch waits for a stream that is held
  if (!train_us.ok()) return train_us.status();
  measured->front().graph_us = *graph_us;
  measured->front().back_to_back_us = *train_us;
  outcome_.measurements.insert(outcome_.measurements.end(), measured->begin(), measured->end());
  return verify();
}

// ---- the baseline ---------------------------------------------------------------------------------------------------

/// Graphs of the NCCL baseline, one for each set. If there is no NCCL, the outcome says why, the same on all ranks.
Result<std::optional<harness::Contender>> BenchRun::open_baseline() {
  if (!bench_options_.baselines) {
    outcome_.no_baseline = "not asked for";
    return std::optional<harness::Contender>();
  }
  if (config_.inputs.expert != MoeExpert::kRankScale) {
    outcome_.no_baseline = "its experts are rank_scale, not table";
    return std::optional<harness::Contender>();
  }
  auto opened = MoeNcclBaseline::create(*world_, config_.desc);
  if (!opened.ok() && opened.status().code() == StatusCode::kUnavailable) {
    outcome_.no_baseline = opened.status().message();
    return std::optional<harness::Contender>();
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
  auto graphs = contest_->capture([this] { return enqueue_baseline(); });
  if (!graphs.ok()) return graphs.status();
  baseline_graphs_ = std::move(*graphs);
  return std::optional(
      harness::Contender{.name = baseline_->describe() + ", graph",
                         .step = [this] { return world_->device().launch(*baseline_graphs_[set_index()], *stream_); },
                         .ours = false});
}

Status BenchRun::enqueue_baseline() {
  return baseline_->enqueue(baseline_handles_[set_index()], set_->x.get(), set_->weights.as<float>(),
                            baseline_out_.get(), *stream_);
}

/// Compares the baseline's output with the oracle: a wrong baseline does not count.
Status BenchRun::verify_baseline(int set) {
  use_set(set);
  std::swap(set_->out, baseline_out_);
  const Status status = check_output(static_cast<int>(set_index()));
  std::swap(set_->out, baseline_out_);
  return status;
}

/// Our own kernels one after the other: the way of several kernels where there is no NCCL.
harness::Staged BenchRun::split_stages() {
  const auto span_of = [](const DeviceBuffer& buffer) { return harness::DeviceSpan{buffer.get(), buffer.bytes()}; };
  return {"split",
          {{.name = "dispatch", .exchange = true, .enqueue = [this] { return dispatch(); }},
           {.name = "experts", .enqueue = [this] { return expert(); }, .reads = {span_of(instance_->recv_x)}},
           {.name = "combine",
            .exchange = true,
            .enqueue = [this] { return combine(); },
            .reads = {span_of(instance_->y)}}},
          true};
}

/// Of the first set.
Status BenchRun::measure_taxes() {
  const bool has_fused = !config_.desc.weights_at_combine;
  Status status;
  for (int set = 0; set < config_.burst && status.ok(); ++set) {
    use_set(set);
    status = split();
    if (status.ok()) status = wait(patience(3));
  }
  if (status.ok()) status = verify();
  if (!status.ok()) return status;
  use_set(0);
  const harness::Staged staged =
      baseline_ ? harness::Staged{baseline_->describe(),
                                  baseline_->stages(baseline_handles_[0], set_->x.get(), set_->weights.as<float>(),
                                                    baseline_out_.get(), *stream_)}
                : split_stages();
  auto taxes = harness::measure_taxes(*world_, *stream_, *timer_, staged, [&] { return has_fused ? fused() : split(); },
                                      {bench_options_.samples, *bench_options_.taxes});
  if (!taxes.ok()) return taxes.status();
  outcome_.taxes = std::move(*taxes);
  status = verify();
  return status.ok() && baseline_ ? verify_baseline(0) : status;
}

// ---- timing ---------------------------------------------------------------------------------------------------------

/// Times dispatch and combine alone; the other one runs untimed. A sample is taken again if the host was late, so the
/// preparation of either first brings the call into the phase that it needs.
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
  const auto take = [this](const harness::Work& prepare, const harness::Work& work, std::vector<double>& samples) {
    const auto us = timer_->sample(prepare, work, true);
    if (us.ok()) samples.push_back(*us);
    return us.status();
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
    status = take(before_dispatch, send, dispatch_us);
    if (status.ok()) status = take(before_combine, bring_back, combine_us);
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
    if (out != verified_[i] && findings_.difference.empty()) {
      findings_.difference = fmt::format("the output of set {} changed from one form or call to another", i);
    }
  }
  return {};
}

Status BenchRun::expert() {
  BenchExpertArgs args{};
  args.x = instance_->recv_x.get();
  args.scales = config_.desc.fp8_dispatch ? instance_->scales.as<float>() : nullptr;
  args.y = instance_->y.get();
  args.counts = instance_->counts.as<std::int32_t>();
  args.offsets = instance_->offsets.as<std::int32_t>();
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
