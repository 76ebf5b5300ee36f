// One rank's run of the check and the bench of moe_layer.
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
#include "farwarp/ops/moe_layer/case/inputs.h"
#include "farwarp/ops/moe_layer/case/unfused.h"
#include "farwarp/ops/moe_layer/moe_layer.h"

namespace farwarp::moe_layer {

struct CheckConfig {
  MoeLayerDesc desc;
  InputOptions inputs;
  bool count_on_device = false;
  bool graph = false;  ///< one captured call is replayed
  int burst = 1;       ///< calls that are enqueued without a wait in between
  int longest_delay_us = 0;
  bool unfused = false;  ///< compare with Unfused, to the bit; a bench times it, too. All ranks have as many experts
};

class RankRun : public harness::RankRun {
 public:
  RankRun(const CheckConfig& config, std::shared_ptr<Bootstrap> bootstrap, const harness::RunOptions& options);

  Status open();
  Status all_calls();
  /// Collective.
  Status close(const Status& status);
  harness::BenchOutcome bench(const harness::BenchOptions& bench_options);

 private:
  /// What a call reads and writes; calls of a burst have their own.
  struct CallBuffers {
    harness::DeviceBuffer x, topk, weights, token_count, w1, w2, bias1, bias2, out;
    std::vector<moe::Routing> routings;
    int call = -1;
    std::unique_ptr<Graph> graph;
  };

  const moe::Routing& own_routing(const CallBuffers& set) const {
    return set.routings[static_cast<std::size_t>(rank_)];
  }
  std::size_t hidden() const { return static_cast<std::size_t>(config_.desc.hidden); }
  int first_expert() const { return moe_first_expert(rank_, ranks_, config_.desc.num_experts); }
  int local_experts() const { return moe_first_expert(rank_ + 1, ranks_, config_.desc.num_experts) - first_expert(); }

  Status create_operators();
  Status allocate_buffers();
  Status upload_tokens(CallBuffers& set);
  Status upload_matrices(CallBuffers& set);
  Status upload_matrix(const harness::DeviceBuffer& buffer, const Weights& weights, bool is_w1);
  Status upload_biases(CallBuffers& set, const Weights& weights);
  Status fill(CallBuffers& set, int call);
  MoeLayerTensors tensors_of(const CallBuffers& set) const;
  Status enqueue(CallBuffers& set);
  Status burst(int first, int count);
  Status verify(const CallBuffers& set);
  Status verify_unfused(const CallBuffers& set);
  std::vector<int> checked_tokens(int tokens, int call) const;
  Status measure(const harness::BenchOptions& bench_options);
  harness::Floor floor(const Ceilings& ceilings) const;

  CheckConfig config_;
  std::optional<MoeLayer> op_;
  Unfused unfused_;
  harness::DeviceBuffer unfused_out_;
  std::vector<CallBuffers> sets_;
  std::optional<harness::DeviceTimer> timer_;  // of the bench, as the next two
  std::vector<std::unique_ptr<Graph>> graphs_;
  harness::BenchOutcome outcome_;
};

}  // namespace farwarp::moe_layer
