// One rank's run of the bench of a parallel product.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "farwarp/harness/contest.h"
#include "farwarp/ops/parallel_gemm/case_baseline.h"
#include "farwarp/ops/parallel_gemm/case_run.h"

namespace farwarp::parallel_gemm {

/// Times ours beside NCCL and cuBLASLt in one graph, and beside each of them alone.
class BenchRun : private RankRun {
 public:
  BenchRun(const CheckConfig& config, std::shared_ptr<Bootstrap> bootstrap, const harness::RunOptions& options,
           const harness::BenchOptions& bench_options);
  harness::BenchOutcome run();

 private:
  Status measure();
  Status open_baseline(harness::Contest& contest, std::vector<harness::Contender>& contenders);
  Status add_graphs(harness::Contest& contest, const std::string& name, const harness::Work& step,
                    std::vector<harness::Contender>& contenders);
  Status verify_baseline();
  Status verify_all();
  const void* bias() const { return config_.desc.has_bias ? sets_[set_].bias.get() : nullptr; }

  harness::BenchOptions bench_options_;
  std::optional<harness::DeviceTimer> timer_;
  std::size_t set_ = 0;  ///< in use
  harness::DeviceBuffer baseline_y_;
  std::optional<Baseline> baseline_;
  std::vector<std::vector<std::unique_ptr<Graph>>> baseline_graphs_;  ///< by contender and set
  harness::BenchOutcome outcome_;
};

}  // namespace farwarp::parallel_gemm
