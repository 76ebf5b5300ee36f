// One rank's run of the check and the bench of grouped_gemm.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "farwarp/harness/case.h"
#include "farwarp/harness/compare.h"
#include "farwarp/harness/contest.h"
#include "farwarp/harness/device_buffer.h"
#include "farwarp/harness/rank_run.h"
#include "farwarp/machine/ceilings.h"
#include "farwarp/ops/gemm/case/inputs.h"
#include "farwarp/ops/gemm/case/oracle.h"
#include "farwarp/ops/grouped_gemm/grouped_gemm.h"

namespace farwarp::grouped_gemm {

/// How many rows the groups have.
enum class Spread {
  kRandom,  ///< each call others, every fourth group none
  kEven,    ///< as many rows as there is room for
  kOne,     ///< all in one group
};

struct CheckConfig {
  GroupedGemmDesc desc;
  gemm::InputKind inputs = gemm::InputKind::kAuto;
  Spread spread = Spread::kRandom;
  bool graph = false;  ///< one captured call is replayed; the groups' rows change
};

class RankRun : public harness::RankRun {
 public:
  RankRun(const CheckConfig& config, std::shared_ptr<Bootstrap> bootstrap, const harness::RunOptions& options)
      : harness::RankRun(std::move(bootstrap), options,
                         harness::Comparison(config.desc.dtype, gemm::kTile, gemm::kTile)),
        config_(config) {}

  Status open();
  Status all_calls();
  /// Collective.
  Status close(const Status& status);
  harness::BenchOutcome bench(const harness::BenchOptions& bench_options);

 private:
  /// A matrix [rows, k] in device memory, and what its numbers and scales mean in 16 bits.
  struct Operand {
    harness::DeviceBuffer memory, scales;
    std::vector<std::uint16_t> host;
  };
  /// A group's rows of x.
  struct Group {
    int begin = 0, count = 0;
  };

  bool is_scaled() const { return config_.desc.scaling != GemmScaling::kNone; }
  bool is_gated() const { return config_.desc.activation != Activation::kNone; }
  /// Matrices of w: [n, k] each.
  int matrices() const { return config_.desc.groups * op_->plan().parts(); }
  gemm::InputKind kind_of(int call) const;
  Status fill(int call);
  Status fill_rows(int call);
  /// Of each row of x, whether a group has it.
  std::vector<bool> rows_in_groups() const;
  /// `block_rows`: rows that share scales. `matrix_rows`: rows of one of its matrices.
  Status fill_operand(Operand& operand, gemm::Operand which, int call, int matrix_rows, int block_rows);
  Status enqueue();
  Status verify();
  void check_written(std::span<const std::uint16_t> got);
  gemm::SumOfProducts product_of(int group) const;
  Status verify_group(int group, std::span<const std::uint16_t> got);
  void compare_gated(int group, const gemm::Output& output);
  Status measure(const harness::BenchOptions& bench_options);
  harness::Floor floor(const Ceilings& ceilings) const;

  CheckConfig config_;
  std::optional<GroupedGemm> op_;
  int call_ = 0;
  Operand x_, w_;
  harness::DeviceBuffer rows_, bias_, y_;
  std::vector<std::uint16_t> host_bias_;
  std::vector<Group> groups_;
  std::optional<harness::DeviceTimer> timer_;  // of the bench, as the next two
  std::vector<std::unique_ptr<Graph>> graphs_;
  harness::BenchOutcome outcome_;
};

}  // namespace farwarp::grouped_gemm
