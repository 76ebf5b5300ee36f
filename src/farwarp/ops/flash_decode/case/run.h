// One rank's run of the check and the bench of flash-decode.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "farwarp/harness/case.h"
#include "farwarp/harness/contest.h"
#include "farwarp/harness/device_buffer.h"
#include "farwarp/harness/rank_run.h"
#include "farwarp/machine/ceilings.h"
#include "farwarp/ops/flash_decode/case/inputs.h"
#include "farwarp/ops/flash_decode/case/oracle.h"
#include "farwarp/ops/flash_decode/case/unfused.h"
#include "farwarp/ops/flash_decode/flash_decode.h"

namespace farwarp::decode {

struct CheckConfig {
  FlashDecodeDesc desc;
  bool shared = false;  ///< kv_shards is the World's size
  bool lse = true;
  Lengths lengths = Lengths::kRagged;
  std::vector<int> given_lengths = {};  ///< with kGiven
  Logits logits = Logits::kNormal;
  Wrong wrong = Wrong::kNothing;
  bool graph = false;  ///< each call from a captured graph
  int burst = 1;       ///< calls enqueued without waiting, on the same inputs
  int delay_us = 0;    ///< the longest delay of a rank before a call of a burst
};

class RankRun : public harness::RankRun {
 public:
  RankRun(const CheckConfig& config, std::shared_ptr<Bootstrap> bootstrap, const harness::RunOptions& options);

  /// `with_unfused`: the heap also has room for UnfusedDecode.
  Status open(int sets = 1, bool with_unfused = false);
  Status all_calls();
  /// Collective.
  Status close(const Status& status);
  harness::BenchOutcome bench(const harness::BenchOptions& bench_options);

 private:
  /// The inputs and outputs of one call.
  struct Buffers {
    int call = 0;
    harness::DeviceBuffer q, k, v, table, lengths, k_scale, v_scale, sinks, out, lse;
    std::vector<std::uint16_t> host_q;
    std::vector<float> host_sinks;
    std::optional<Inputs> inputs;
  };

  Status fill(Buffers& set, int call);
  Status fill_cache(const Inputs& inputs, const std::vector<std::int32_t>& table, Inputs::Operand operand,
                    const harness::DeviceBuffer& cache);
  FlashDecodeTensors tensors() const;
  Status enqueue();
  Status call_once(int call);
  Status poison();
  Status verify();
  RowProblem row_problem(int sequence, int token, int query_head) const;
  void compare_row(int sequence, int token, int query_head, std::span<const std::uint16_t> out, float lse);
  // bench.cc
  Status measure(const harness::BenchOptions& bench_options, bool unfused);
  Status open_unfused(harness::Contest& contest, std::vector<harness::Contender>& contenders);
  Status verify_unfused();
  Status compare_with_ours(const std::string& whose);
  Result<FlashDecodeTensors> create_unfused();
  Status measure_taxes(harness::DeviceTimer& timer, const harness::TaxOptions& options, bool unfused);
  harness::Floor floor(const Ceilings& ceilings);
  void use(int set) { set_ = &sets_[static_cast<std::size_t>(set)]; }

  CheckConfig config_;
  Problem problem_;
  std::optional<FlashDecode> op_;
  std::vector<Buffers> sets_;
  Buffers* set_ = nullptr;
  std::unique_ptr<Graph> graph_;
  harness::BenchOutcome outcome_;
  std::optional<UnfusedDecode> unfused_;
  harness::DeviceBuffer unfused_out_, unfused_lse_;
  std::vector<std::unique_ptr<Graph>> unfused_graphs_;  ///< the operator, fused-wait, this rank's keys alone, bsp
};

}  // namespace farwarp::decode
