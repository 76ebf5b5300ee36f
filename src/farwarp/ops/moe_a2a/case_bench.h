// One rank's run of the bench of moe-a2a.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "farwarp/harness/timing.h"
#include "farwarp/ops/moe_a2a/case_run.h"

namespace farwarp::moe {

/// Times the fused form, the split form with an expert kernel between its halves, and dispatch and combine alone.
class BenchRun : private RankRun {
 public:
  BenchRun(const CheckConfig& config, std::shared_ptr<Bootstrap> bootstrap, const harness::RunOptions& options,
           const harness::BenchOptions& bench_options);
  harness::BenchOutcome run();

 private:
  using Step = Status (BenchRun::*)();

  Status prepare();
  Status measure_all();
  Status measure(const std::string& name, Step step);
  Status measure_halves();
  Status time_cold(Step step, std::vector<double>& samples);
  Status time_graphs(Step step, double& median);
  Status time_train(Step step, double& per_call);
  Status sample(const harness::Work& prepare, const harness::Work& work, bool cold, std::vector<double>& samples);
  Status verify();

  Status fused() { return enqueue(kFused); }
  Status dispatch() { return enqueue(kDispatch); }
  Status combine() { return enqueue(kCombine); }
  Status expert();
  Status split();
  Status poison_all() { return poison_outputs(); }
  void use_set(int sample) { set_ = &sets_[static_cast<std::size_t>(sample) % sets_.size()]; }

  harness::BenchOptions bench_options_;
  std::optional<harness::DeviceTimer> timer_;
  std::optional<Kernel> expert_kernel_;
  harness::BenchOutcome outcome_;
  std::vector<std::vector<std::uint16_t>> verified_;  ///< by set: the output that passed
};

}  // namespace farwarp::moe
