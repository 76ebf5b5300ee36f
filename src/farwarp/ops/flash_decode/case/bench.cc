// The bench of flash-decode, and its floor.
#include <fmt/format.h>

#include <algorithm>

#include "farwarp/machine/ceilings.h"
#include "farwarp/ops/flash_decode/case/run.h"

namespace farwarp::decode {

harness::BenchOutcome RankRun::bench(const harness::BenchOptions& bench_options) {
  outcome_.no_baseline = "no library that the harness opens has this operator";
  Status status = open(1);
  if (status.ok()) status = fill(*set_, 0);
  if (status.ok()) status = measure(bench_options);
  if (op_) outcome_.plan = op_->plan().to_string();
  outcome_.check = outcome(close(status));
  return std::move(outcome_);
}

Status RankRun::measure(const harness::BenchOptions& bench_options) {
  auto timer = harness::DeviceTimer::create(*world_, *stream_);
  if (!timer.ok()) return timer.status();
  harness::Contest contest(
      *world_, *stream_, *timer, bench_options.samples, 1, [](int) {}, [this](bool) { return poison(); });
  const harness::Contender ours{.name = "flash-decode", .step = [this] { return enqueue(); }};
  auto measured = contest.in_turn({ours});
  if (!measured.ok()) return measured.status();
  const auto graph_us = contest.from_graphs(ours);
  if (!graph_us.ok()) return graph_us.status();
  const auto train_us = contest.in_train(ours);
  if (!train_us.ok()) return train_us.status();
  measured->front().graph_us = *graph_us;
  measured->front().back_to_back_us = *train_us;
  outcome_.measurements = std::move(*measured);
  outcome_.floor = floor();
  if (Status status = verify(); !status.ok()) return status;
  return timer->close();
}

/// Memory reads each key and value that some token sees once. If ranks share keys, partial outputs then cross the links once.
harness::Floor RankRun::floor() {
  const Ceilings ceilings = ceilings_of(world_->device().model(), ranks_);
  const FlashDecodeDesc& desc = problem_.desc;
  if (ceilings.hbm_read_gb_s == 0) return {};
  double most_megabytes = 0;
  for (int rank = 0; rank < ranks_; ++rank) {
    double keys = 0;
    for (int sequence = 0; sequence < desc.batch; ++sequence) {
      const int length = set_->inputs->length(rank, sequence);
      keys += desc.window > 0 ? std::min(length, desc.window + desc.query_tokens - 1) : length;
    }
    most_megabytes = std::max(most_megabytes, 2e-6 * keys * desc.kv_heads * desc.head_dim * (problem_.fp8() ? 1 : 2));
  }
  harness::Floor floor{
      most_megabytes / ceilings.hbm_read_gb_s * 1e3,
      fmt::format("memory ({:.1f} MB of keys and values at {:.0f} GB/s)", most_megabytes, ceilings.hbm_read_gb_s)};
  if (problem_.shared_keys() && ranks_ > 1) {
    floor.us += ceilings.packet_us;
    floor.bound_by += " and one latency of a link";
  }
  floor.bound_by += "; " + ceilings.source;
  return floor;
}

}  // namespace farwarp::decode
