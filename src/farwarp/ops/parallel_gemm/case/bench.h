// One rank's run of the bench of a parallel product.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "farwarp/harness/contest.h"
#include "farwarp/ops/parallel_gemm/case/run.h"
#include "farwarp/ops/parallel_gemm/dispatch/parallel_gemm.h"
#include "farwarp/ops/parallel_gemm/unfused.h"

namespace farwarp::parallel_gemm {

/// Times our operator, the dispatcher's path, NCCL and cuBLASLt in one graph, and each of those alone, all in turn.
class BenchRun : private RankRun {
 public:
  BenchRun(const CheckConfig& config, std::shared_ptr<Bootstrap> bootstrap, const harness::RunOptions& options,
           const harness::BenchOptions& bench_options);
  harness::BenchOutcome run();

 private:
  Status measure();
  Result<std::int64_t> heap_bytes(const Device& device, const ParallelGemmDesc& desc) const override;
  Status open_baseline();
  Status open_dispatched();
  Path dispatched_path() const { return asked_path_ == Path::kOwn ? Path::kBest : asked_path_; }
  Status add_dispatched(harness::Contest& contest, std::vector<harness::Contender>& contenders);
  Status prepare_baseline();
  Status measure_taxes();
  Status baseline_call();
  Status baseline_product();
  Status baseline_exchange();
  Status add_baseline(harness::Contest& contest, std::vector<harness::Contender>& contenders);
  Status add_graphs(harness::Contest& contest, const std::string& name, const harness::Work& step, bool ours,
                    std::vector<harness::Contender>& contenders);
  Status verify_others();
  Status verify_baseline(const harness::DeviceBuffer& y, int roundings, const std::string& whose);
  Status verify_graph(std::size_t graphs, const harness::DeviceBuffer& y, int roundings, const std::string& whose);
  Status verify_all();
  const void* bias() const { return config_.desc.has_bias ? sets_[set_].bias.get() : nullptr; }

  harness::BenchOptions bench_options_;
  std::optional<harness::DeviceTimer> timer_;
  std::size_t set_ = 0;  ///< index of the set in use
  Path asked_path_;  ///< of the parameter; if kOwn, the dispatcher is timed with kBest, and only if there is a baseline
  std::optional<ParallelGemm> dispatched_;
  harness::DeviceBuffer baseline_y_;
  std::optional<Unfused> baseline_;
  std::vector<std::vector<std::unique_ptr<Graph>>> graphs_;  ///< by contender (without ours) and set
  harness::BenchOutcome outcome_;
};

}  // namespace farwarp::parallel_gemm
