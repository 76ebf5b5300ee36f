// The bench of attention. Its floor, and why it has no baseline.
#include <fmt/format.h>

#include <algorithm>

#include "farwarp/harness/floors.h"
#include "farwarp/harness/submission.h"
#include "farwarp/ops/attention/case/run.h"

namespace farwarp::attention {
namespace {

using harness::BenchOptions;
using harness::BenchOutcome;
using harness::Contender;

constexpr std::int64_t kPreparedElements = 256 << 20;  // a limit, because the host fills and verifies them
constexpr double kLongestInTrain = 50e3;               // us: no trains of longer calls

int sets_for(const AttentionDesc& desc) {
  const std::int64_t of_q = std::int64_t{desc.batch} * desc.max_queries * desc.heads * desc.head_dim;
  const std::int64_t of_k = std::int64_t{desc.batch} * desc.max_keys * desc.kv_heads * desc.head_dim;
  return static_cast<int>(std::clamp<std::int64_t>(kPreparedElements / (2 * of_q + 2 * of_k), 1, 2));
}

}  // namespace

BenchOutcome RankRun::bench(const BenchOptions& bench_options) {
  outcome_.no_baseline = "PyTorch's backends are timed by tools/attention_pytorch.py, for the same suites";
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
  if (status.ok() && !submitted) {
    const double us = outcome_.measurements[1].time_us.median;
    outcome_.plan += fmt::format("; {:.1f} GFLOP, from a graph {:.0f} TFLOP/s", gigaflops(), gigaflops() / us * 1e3);
  }
  graphs_.clear();
  outcome_.check = outcome(close(status));
  return std::move(outcome_);
}

Status RankRun::measure(const BenchOptions& bench_options) {
  auto timer = harness::DeviceTimer::create(*world_, *stream_);
  if (!timer.ok()) return timer.status();
  harness::Contest contest(
      *world_, *stream_, *timer, bench_options.samples, static_cast<int>(sets_.size()), [this](int set) { use(set); },
      [this](bool) { return set_->out.poison(*stream_); });
  auto captured = contest.capture([this] { return enqueue(); });
  if (!captured.ok()) return captured.status();
  graphs_ = std::move(*captured);
  const auto replay = [this] {
    return world_->device().launch(*graphs_[static_cast<std::size_t>(set_ - sets_.data())], *stream_);
  };
  const std::vector<Contender> contenders{{"attention", [this] { return enqueue(); }, true},
                                          {"attention, graph", replay, true, true}};
  auto measured = contest.in_turn(contenders);
  if (!measured.ok()) return measured.status();
  outcome_.measurements = std::move(*measured);
  outcome_.measurements[0].graph_us = outcome_.measurements[1].time_us.median;
  for (std::size_t i = 0; i < contenders.size(); ++i) {
    if (outcome_.measurements[i].time_us.median > kLongestInTrain) continue;
    const auto train_us = contest.in_train(contenders[i]);
    if (!train_us.ok()) return train_us.status();
    outcome_.measurements[i].back_to_back_us = *train_us;
  }
  Status status;
  for (int set = 0; set < static_cast<int>(sets_.size()) && status.ok(); ++set) {
    use(set);
    status = verify();
  }
  return status.ok() ? timer->close() : status;
}

/// Two products of head_dim for each pair of a query and a key that it sees.
double RankRun::gigaflops() const {
  const AttentionDesc& desc = config_.desc;
  return 4e-9 * desc.head_dim * desc.heads * set_->inputs->sequences().pairs();
}

/// The larger of two times: the matrix unit works at its rate while clocks are high; memory reads q, k and v once and
/// writes out once.
harness::Floor RankRun::floor(const Ceilings& ceilings) {
  const AttentionDesc& desc = config_.desc;
  const Sequences& sequences = set_->inputs->sequences();
  double queries = 0, keys = 0;
  for (int b = 0; b < desc.batch; ++b) {
    queries += sequences.queries(b);
    keys += sequences.keys(b);
  }
  const double megabytes = 4e-6 * desc.head_dim * (queries * desc.heads + keys * desc.kv_heads);
  const double mma_us = ceilings.mma_bf16_tflops_short > 0 ? gigaflops() / ceilings.mma_bf16_tflops_short * 1e3 : 0;
  const double memory_us = ceilings.hbm_read_gb_s > 0 ? megabytes / ceilings.hbm_read_gb_s * 1e3 : 0;
  if (mma_us == 0 && memory_us == 0) return {};
  if (mma_us >= memory_us)
    return {mma_us, fmt::format("matrix unit ({:.1f} GFLOP at {:.0f} TFLOP/s); {}", gigaflops(),
                                ceilings.mma_bf16_tflops_short, ceilings.source)};
  return {memory_us,
          fmt::format("memory ({:.1f} MB at {:.0f} GB/s); {}", megabytes, ceilings.hbm_read_gb_s, ceilings.source)};
}

}  // namespace farwarp::attention
