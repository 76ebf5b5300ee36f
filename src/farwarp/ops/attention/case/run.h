// One rank's run of the check and the bench of attention.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "farwarp/harness/case.h"
#include "farwarp/harness/contest.h"
#include "farwarp/harness/device_buffer.h"
#include "farwarp/harness/rank_run.h"
#include "farwarp/machine/ceilings.h"
#include "farwarp/ops/attention/attention.h"
#include "farwarp/ops/attention/case/inputs.h"
#include "farwarp/ops/attention/case/oracle.h"

namespace farwarp::attention {

struct CheckConfig {
  AttentionDesc desc;
  Lengths lengths = Lengths::kWhole;
  GivenLengths given = {};  ///< with kGiven
  InputKind inputs = InputKind::kAuto;
  int row_gap = 0;     ///< elements between rows of q, k, v and out
  bool graph = false;  ///< each call from a captured graph
};

class RankRun : public harness::RankRun {
 public:
  RankRun(const CheckConfig& config, std::shared_ptr<Bootstrap> bootstrap, const harness::RunOptions& options)
      : harness::RankRun(std::move(bootstrap), options,
                         harness::Comparison(config.desc.dtype, kTileRows, config.desc.head_dim)),
        config_(config) {}

  Status open(int sets = 1);
  Status all_calls();
  /// Collective.
  Status close(const Status& status);
  harness::BenchOutcome bench(const harness::BenchOptions& bench_options);

 private:
  /// The inputs and outputs of one call.
  struct Buffers {
    int call = 0;
    std::optional<Inputs> inputs;
    harness::DeviceBuffer q, k, v, out, lse, sinks, query_starts, key_starts, key_counts, block_table;
  };
  using FillRow = std::function<void(const Sequences::Owner&, int head, std::span<std::uint16_t>)>;

  Status allocate(Buffers& set);
  Status fill(Buffers& set, int call);
  Status upload_rows(const harness::DeviceBuffer& to, const std::vector<Sequences::Owner>& owners, int heads,
                     const FillRow& fill_row);
  AttentionTensors tensors() const;
  Status enqueue();
  Status enqueue_submission();
  Status verify();
  std::string unwritten(const Sequences& sequences, std::span<const std::uint16_t> out,
                        std::span<const float> lse) const;
  std::int64_t pitch(int heads) const { return std::int64_t{heads} * config_.desc.head_dim + config_.row_gap; }
  std::int64_t lse_elements() const;

  // The bench.
  Status measure(const harness::BenchOptions& bench_options);
  double gigaflops() const;
  harness::Floor floor(const Ceilings& ceilings);
  void use(int set) { set_ = &sets_[static_cast<std::size_t>(set)]; }

  CheckConfig config_;
  std::optional<Attention> op_;
  std::vector<Buffers> sets_;
  Buffers* set_ = nullptr;
  std::vector<std::unique_ptr<Graph>> graphs_;
  harness::BenchOutcome outcome_;
};

}  // namespace farwarp::attention
