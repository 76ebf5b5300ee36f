// One rank's run of the bench of moe-a2a.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "farwarp/harness/contest.h"
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
  Status prepare();
  void set_floors();
  Status measure_all();
  /// Times ours and the baseline, if there is one, in turn for each sample.
  Status measure_against(const std::string& name, const harness::Work& step, const harness::Contender* baseline);
  Status measure_halves();
  Result<std::optional<harness::Contender>> open_baseline();
  Status enqueue_baseline();
  Status verify();
  Status verify_baseline(int set);
  Status measure_taxes();
  harness::Staged split_stages();

  Status fused() { return enqueue(kFused); }
  Status dispatch() { return enqueue(kDispatch); }
  Status combine() { return enqueue(kCombine); }
  Status expert();
  Status split();
  std::size_t set_index() const { return static_cast<std::size_t>(set_ - sets_.data()); }

  harness::BenchOptions bench_options_;
  std::optional<harness::DeviceTimer> timer_;
  std::optional<harness::Contest> contest_;
  std::optional<Kernel> expert_kernel_;
  harness::BenchOutcome outcome_;
  std::optional<MoeNcclBaseline> baseline_;
  std::vector<int> baseline_handles_;  ///< by set
  std::vector<std::unique_ptr<Graph>> baseline_graphs_;
  harness::DeviceBuffer baseline_out_;
  std::vector<std::vector<std::uint16_t>> verified_;  ///< by set: the output that passed
};

}  // namespace farwarp::moe
