// One rank's run of the bench of moe-a2a.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "farwarp/harness/timing.h"
#include "farwarp/ops/moe_a2a/case/baseline.h"
#include "farwarp/ops/moe_a2a/case/run.h"

namespace farwarp::moe {

/// Times the fused form, the split form with an expert kernel between its halves, and dispatch and combine alone.
class BenchRun : private RankRun {
 public:
  BenchRun(const CheckConfig& config, std::shared_ptr<Bootstrap> bootstrap, const harness::RunOptions& options,
           const harness::BenchOptions& bench_options);
  harness::BenchOutcome run();

 private:
  /// One thing to time; `step` enqueues it for the current set.
  struct Contender {
    std::string name;
    std::function<Status()> step;
    bool ours = true;
    std::vector<double> cold = {};
  };

  Status prepare();
  Status measure_all();
  /// Times ours and the baselines, if there are any, in turn for each sample.
  Status measure_against(Contender ours, std::vector<Contender> baselines);
  Status measure_halves();
  Status time_in_turn(const std::vector<Contender*>& contenders);
  Status time_graphs(const Contender& contender, double& median);
  Status time_train(const Contender& contender, double& per_call);
  Status sample(const harness::Work& prepare, const harness::Work& work, bool cold, std::vector<double>& samples);
  Result<std::vector<std::unique_ptr<Graph>>> capture(const std::function<Status()>& step);
  Status open_baseline(std::vector<Contender>& baselines);
  Status enqueue_baseline();
  Status verify();
  Status verify_baseline();

  Status fused() { return enqueue(kFused); }
  Status dispatch() { return enqueue(kDispatch); }
  Status combine() { return enqueue(kCombine); }
  Status expert();
  Status split();
  void use_set(int sample) { set_ = &sets_[static_cast<std::size_t>(sample) % sets_.size()]; }
  std::size_t set_index() const { return static_cast<std::size_t>(set_ - sets_.data()); }

  harness::BenchOptions bench_options_;
  std::optional<harness::DeviceTimer> timer_;
  std::optional<Kernel> expert_kernel_;
  harness::BenchOutcome outcome_;
  std::optional<MoeNcclBaseline> baseline_;
  std::vector<int> baseline_handles_;  ///< by set
  std::vector<std::unique_ptr<Graph>> baseline_graphs_;
  harness::DeviceBuffer baseline_out_;
  std::vector<std::vector<std::uint16_t>> verified_;  ///< by set: the output that passed
};

}  // namespace farwarp::moe
