// One rank's run of lesson 04: its World, its inputs, and the rung that is open.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "args.h"
#include "farwarp/harness/case.h"
#include "farwarp/harness/contest.h"
#include "farwarp/harness/device_buffer.h"
#include "farwarp/harness/rank_run.h"
#include "farwarp/ops/moe_a2a/case/inputs.h"
#include "farwarp/ops/moe_a2a/case/oracle.h"
#include "farwarp/world/host/device_barrier.h"
#include "farwarp/world/host/opened_operator.h"

namespace farwarp::lessons::ladder {

struct Config {
  MoeAllToAllDesc desc;  ///< experts, top-k, hidden, tokens; bf16
  moe::InputOptions inputs;
  int first_rung = 1, last_rung = kRungs;
  int segments = 0;  ///< most segments of a row; 0: as many as give all warps work
  int max_sms = 0;   ///< 0: all
  bool graph = false;
};

class RankRun : private harness::RankRun {
 public:
  /// `sets`: calls in flight at once, each with inputs and an output of its own.
  RankRun(const Config& config, std::shared_ptr<Bootstrap> bootstrap, const harness::RunOptions& options, int sets);

  /// Collective.
  harness::CheckOutcome check();
  harness::BenchOutcome bench(const harness::BenchOptions& options);

 private:
  struct CallSet {
    harness::DeviceBuffer x, experts, weights, out;
    std::vector<moe::Routing> routings;  // of all ranks
    int call = 0;
  };

  Status open();
  Status open_rung(int rung);
  Status check_rung();
  Status check_calls(int first, int count);

  Status prepare(CallSet& set, int call);
  Status enqueue(const CallSet& set);
  Status wait_for_sets();
  Status measure_rung(harness::Contest& contest, harness::Measurement& measurement);
  Status verify_all();
  harness::CheckOutcome outcome(const Status& status) const;
  Status verify(const CallSet& set);
  Status compare(const CallSet& set, const std::vector<std::uint16_t>& out);
  harness::Floor floor_of_case();

  std::size_t hidden() const { return static_cast<std::size_t>(config_.desc.hidden); }

  Config config_;
  int blocks_ = 0;
  Shape shape_{};
  std::optional<DeviceBarrier> barrier_;
  std::vector<CallSet> sets_;
  CallSet* set_ = nullptr;  // that is timed
  std::vector<moe::ExpertFunction> experts_;

  int rung_ = 0;
  OpenedOperator opened_;  // of the rung
  std::size_t kernels_ = 0;
  Args args_{};

  /// Outputs that have passed, by call. [0]: of rungs below kRankDedup; [1]: of the others, which round at other
  /// places.
  std::map<int, std::vector<std::uint16_t>> passed_[2];
};

}  // namespace farwarp::lessons::ladder
