// One rank's run of the check and the bench of gemm.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "farwarp/harness/case.h"
#include "farwarp/harness/compare.h"
#include "farwarp/harness/contest.h"
#include "farwarp/harness/cublas_product.h"
#include "farwarp/harness/device_buffer.h"
#include "farwarp/harness/rank_run.h"
#include "farwarp/machine/ceilings.h"
#include "farwarp/ops/gemm/case/inputs.h"
#include "farwarp/ops/gemm/case/oracle.h"
#include "farwarp/ops/gemm/case/residue.h"
#include "farwarp/ops/gemm/gemm.h"
#include "farwarp/world/host/world.h"

namespace farwarp::gemm {

struct CheckConfig {
  GemmDesc desc;
  InputKind inputs = InputKind::kAuto;
  Residue residue = Residue::kNone;
  bool graph = false;  ///< each call from a captured graph
};

class RankRun : public harness::RankRun {
 public:
  RankRun(const CheckConfig& config, std::shared_ptr<Bootstrap> bootstrap, const harness::RunOptions& options)
      : harness::RankRun(std::move(bootstrap), options, harness::Comparison(config.desc.dtype, kTile, kTile)),
        config_(config) {}

  Status open(int sets = 1);
  Status all_calls();
  /// Collective.
  Status close(const Status& status);
  harness::BenchOutcome bench(const harness::BenchOptions& bench_options);

 private:
  /// The inputs and outputs of one call. The oracle uses the host's copies.
  struct Buffers {
    int call = 0;
    harness::DeviceBuffer x, w, bias, y, x_scale, w_scale;
    std::vector<std::uint16_t> host_x, host_w, host_bias;  // with scaling what e4m3 numbers and scales mean
    std::vector<harness::PartialSum> taken_away;           // with a residue
  };

  bool is_scaled() const { return config_.desc.scaling != GemmScaling::kNone; }
  Status fill(Buffers& buffers, int call);
  Status upload_operands(Buffers& buffers);
  Status enqueue();
  SumOfProducts product() const;
  Status verify(const harness::DeviceBuffer& y);
  void compare_residue(const Output& output);
  Status measure(const harness::BenchOptions& bench_options);
  Status add_contenders(harness::Contest& contest, const std::string& name, const harness::Work& step, bool is_ours,
                        std::vector<harness::Contender>& contenders);
  Status open_baseline(harness::Contest& contest, std::vector<harness::Contender>& contenders);
  void use(int set) { set_ = &sets_[static_cast<std::size_t>(set)]; }
  harness::Floor floor(const Ceilings& ceilings);

  CheckConfig config_;
  std::optional<Gemm> op_;
  std::vector<Buffers> sets_;
  Buffers* set_ = nullptr;
  // For the bench.
  std::optional<harness::DeviceTimer> timer_;
  std::optional<CublasProduct> baseline_;
  harness::DeviceBuffer baseline_y_;
  std::vector<std::unique_ptr<Graph>> graphs_, baseline_graphs_;
  harness::BenchOutcome outcome_;
};

}  // namespace farwarp::gemm
