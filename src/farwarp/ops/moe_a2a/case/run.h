// One rank's run of the check of moe-a2a.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "farwarp/harness/case.h"
#include "farwarp/harness/compare.h"
#include "farwarp/harness/device_buffer.h"
#include "farwarp/harness/rank_run.h"
#include "farwarp/ops/moe_a2a/args.h"
#include "farwarp/ops/moe_a2a/case/inputs.h"
#include "farwarp/ops/moe_a2a/case/oracle.h"
#include "farwarp/ops/moe_a2a/moe_a2a.h"
#include "farwarp/ops/moe_a2a/reference.h"
#include "farwarp/world/host/world.h"

namespace farwarp::moe {

/// A value of MoeAllToAllDesc::recv_rows in a CheckConfig: as many rows as the tokens of the run need.
inline constexpr std::int64_t kAutoRows = -1;

template <class T>
std::string first_difference(const char* what, std::span<const T> got, std::span<const T> expected) {
  for (std::size_t i = 0; i < expected.size(); ++i) {
    if (got[i] != expected[i]) return fmt::format("{}[{}] is {}, expected {}", what, i, got[i], expected[i]);
  }
  return {};
}

struct CheckConfig {
  MoeAllToAllDesc desc;
  InputOptions inputs;
  bool fused = true;
  bool auto_expert = false;  ///< the user named no expert; inputs.expert is the check's choice
  bool count_on_device = false;
  bool halves =
      false;  ///< form=split: dispatch and combine in two launches each; layout=rows: the first has the counts
  bool graph = false;
  int burst = 1;  ///< calls enqueued without waiting
  int in_flight =
      1;  ///< form=split: calls dispatched before the first of them is combined, each by an operator of its own
  std::uint64_t longest_delay_ns = 0;
};

/// One rank's part in a check: its World, its operator, its buffers, and what it found.
class RankRun : public harness::RankRun {
 public:
  RankRun(const CheckConfig& config, std::shared_ptr<Bootstrap> bootstrap, const harness::RunOptions& options)
      : harness::RankRun(std::move(bootstrap), options, harness::Comparison(config.desc.dtype, 1, config.desc.hidden)),
        config_(config) {
    config_.inputs.seed = options.seed;
  }

  Status open();
  /// The calls of the check. After an injected fault from which a World can recover, also recover() and one more call.
  Status all_calls();
  /// Collective.
  Status close(const Status& status);

 protected:
  enum Phase { kFused, kDispatch, kCombine, kPhases };

  /// What one call of a burst reads and writes.
  struct CallBuffers {
    harness::DeviceBuffer x, indices, weights, token_count, table, out;
    std::vector<Routing> routings;        // of all ranks
    std::vector<ExpertFunction> experts;  // of all ranks
    std::unique_ptr<Graph> graphs[kPhases];
  };
  /// An operator, and what its split calls receive.
  struct Instance {
    std::optional<MoeAllToAll> op;
    harness::DeviceBuffer recv_x, counts, offsets, origins, scales, y;
    harness::DeviceBuffer experts, weights;  // of layout=rows
  };

  void use_set(int number);
  Status create_operators();
  Status allocate_buffers();
  Status burst(int first, int count);
  Status prepare_call(int call);
  Status upload_inputs(int call);
  Status poison_outputs();
  Status inject_fault();
  Status enqueue(Phase phase);
  Status launch_phase(Phase phase);
  Status wait_for_burst();
  Status check_dispatch(int call);
  std::string row_difference(int call) const;
  Status check_entries(int call);
  bool row_arrived(std::span<const std::uint16_t> x, std::size_t row) const;
  std::vector<float> received_values(std::size_t row) const;
  float received_scale(std::size_t row, std::size_t group) const;
  Status apply_experts();
  Status apply_experts_to_rows();
  Status check_output(int call);

  std::size_t row_bytes() const { return static_cast<std::size_t>(config_.desc.hidden) * 2; }
  std::size_t received_row_bytes() const { return config_.desc.fp8_dispatch ? hidden() : row_bytes(); }
  std::size_t groups() const {
    return config_.desc.fp8_dispatch ? static_cast<std::size_t>(fp8_groups(config_.desc.hidden)) : 0;
  }
  const MoeAllToAllPlan& plan() const { return instances_[0].op->plan(); }
  Fp8Format fp8() const { return plan().fp8; }
  std::size_t hidden() const { return static_cast<std::size_t>(config_.desc.hidden); }
  const Routing& own_routing() const { return set_->routings[static_cast<std::size_t>(rank_)]; }
  int first_expert() const { return moe_first_expert(rank_, ranks_, config_.desc.num_experts); }
  int local_experts() const { return moe_first_expert(rank_ + 1, ranks_, config_.desc.num_experts) - first_expert(); }

  CheckConfig config_;
  std::vector<Instance> instances_;  // one for each call in flight
  std::vector<CallBuffers> sets_;    // one for each call of a burst
  CallBuffers* set_ = nullptr;       // of the current call, as is the next
  Instance* instance_ = nullptr;
  ExpectedDispatch expected_;  // form=split: of the current call
  // form=split: the received rows, and their scales if they are fp8.
  std::vector<std::byte> received_;
  std::vector<float> received_scales_;
};

}  // namespace farwarp::moe
