// The bench of Qwen3: time of a token, and its floor.
#include <fmt/format.h>

#include "farwarp/harness/contest.h"
#include "farwarp/machine/ceilings.h"
#include "farwarp/models/qwen3/case/run.h"

namespace farwarp::qwen3 {

harness::BenchOutcome RankRun::bench(const harness::BenchOptions& bench_options) {
  harness::BenchOutcome outcome;
  outcome.no_baseline = "none yet";
  Status status = open(false);
  if (status.ok()) status = measure(bench_options, outcome);
  if (decoder_) outcome.plan = fmt::format("{} workers", decoder_->plan().workers);
  outcome.check = judged(close(status));
  return outcome;
}

/// Each sample begins at the same position. Times are of one token.
Status RankRun::measure(const harness::BenchOptions& bench_options, harness::BenchOutcome& outcome) {
  auto timer = harness::DeviceTimer::create(*world_, *stream_);
  if (!timer.ok()) return timer.status();
  Qwen3Call call;
  call.sampled = sampled_.as<std::int32_t>();
  const auto restart = [&] {
    for (int column = 0; column < config_.batch; ++column) {
      if (Status status =
              decoder_->start_with_any_keys(column, config_.context, column, *stream_, sampling_of(0, column));
          !status.ok())
        return status;
    }
    return Status();
  };
  Status status = restart();
  call.tokens = 1;
  call.dispatcher = FleetDispatcher::kGraph;
  auto graph = status.ok() ? capture(world_->device(), *stream_, [&] { return decoder_->decode(call, *stream_); })
                           : ::farwarp::Result<std::unique_ptr<Graph>>(status);
  if (!graph.ok()) return graph.status();
  call.dispatcher = FleetDispatcher::kStatic;
  const auto repeated = [&](const harness::Work& work) {
    return [this, work] {
      Status done;
      for (int i = 0; i < config_.tokens && done.ok(); ++i) done = work();
      return done;
    };
  };
  Qwen3Call all = call;
  all.tokens = config_.tokens;
  std::vector<harness::Contender> contenders = {
      {.name = fmt::format("static, {} tokens a launch", config_.tokens),
       .step = [this, all] { return decoder_->decode(all, *stream_); }},
      {.name = "static, one token a launch",
       .step = repeated([this, call] { return decoder_->decode(call, *stream_); })}};
  Qwen3Call gang = all;
  gang.dispatcher = FleetDispatcher::kGang;
  if (decoder_->plan().gang && config_.limits.most_top_k == 0)
    contenders.push_back({.name = fmt::format("gang, {} tokens a launch", config_.tokens),
                          .step = [this, gang] { return decoder_->decode(gang, *stream_); }});
  if (bench_options.baselines)
    contenders.push_back({.name = "a kernel for each step, graph",
                          .step = repeated([&] { return world_->device().launch(**graph, *stream_); })});
  const std::size_t prefill = contenders.size();  // the contender, if there is one
  const std::vector<std::int32_t> prompt(static_cast<std::size_t>(config_.prompt), 0);
  const int prefilled = config_.prompt - 1;
  if (config_.limits.prefill_tokens > 0 && prefilled > 0)
    contenders.push_back({.name = fmt::format("prefill of {} tokens, {} at a time: one of them", prefilled,
                                              config_.limits.prefill_tokens),
                          .step = [this] { return decoder_->prefill(0, *stream_); }});
  std::vector<std::vector<double>> samples(contenders.size());
  for (int i = -1; i < bench_options.samples && status.ok(); ++i) {
    for (std::size_t j = 0; j < contenders.size() && status.ok(); ++j) {
      status = j == prefill ? decoder_->start(0, prompt, *stream_) : restart();
      if (!status.ok()) break;
      const auto sample = timer->sample([] { return Status(); }, contenders[j].step, true);
      status = sample.status();
      if (status.ok() && i >= 0) samples[j].push_back(*sample / (j == prefill ? prefilled : config_.tokens));
    }
  }
  if (status.ok()) status = restart();
  if (status.ok()) status = timer->trace([] { return Status(); }, contenders[0].step);
  for (std::size_t j = 0; j < contenders.size() && status.ok(); ++j) {
    const auto slowest = timer->slowest(samples[j]);
    if (!slowest.ok()) return slowest.status();
    outcome.measurements.push_back({.name = contenders[j].name, .time_us = harness::summarise(*slowest)});
  }
  const Ceilings ceilings = ceilings_of(world_->device().model(), ranks_);
  const double rate = ceilings.weights_gb_s > 0 ? ceilings.weights_gb_s : ceilings.hbm_read_gb_s;
  const double megabytes = 1e-6 * static_cast<double>(decoder_->plan().bytes_of_token(
                                      std::int64_t{config_.batch} * (config_.context + config_.tokens / 2)));
  if (rate > 0)
    outcome.floor = {megabytes / rate * 1e3,
                     fmt::format("memory ({:.1f} MB of weights, keys and values at {:.0f} GB/s)", megabytes, rate)};
  if (status.ok()) status = wait(patience(config_.tokens));
  return status.ok() ? timer->close() : status;
}

}  // namespace farwarp::qwen3
