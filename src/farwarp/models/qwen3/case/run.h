// One rank's run of the check and the bench of Qwen3.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "farwarp/harness/case.h"
#include "farwarp/harness/device_buffer.h"
#include "farwarp/harness/rank_run.h"
#include "farwarp/models/qwen3/case/draw_oracle.h"
#include "farwarp/models/qwen3/case/judge.h"
#include "farwarp/models/qwen3/case/oracle.h"
#include "farwarp/models/qwen3/qwen3.h"

namespace farwarp::qwen3 {

struct CheckConfig {
  Qwen3Config config;
  Qwen3Limits limits;
  std::string model;
  float epsilon = 0;  ///< of a check: of all norms; 0: the model's
  int batch = 1, prompt = 1, tokens = 1, launches = 1;
  int context = 0;  ///< of a bench
  int zeros = 0;    ///< of a check: positions before the first, whose keys and values are zeros
  std::vector<FleetDispatcher> dispatchers;  ///< all must give the same bits; the first is compared with float64
  Qwen3Sampling sampling;                    ///< of the first sequence; others differ
  bool oracle = true;                        ///< logits are compared with float64
  std::uint64_t longest_delay_ns = 0;        ///< of each rank before each launch of one more pass; 0: no such pass
};

class RankRun : public harness::RankRun {
 public:
  RankRun(const CheckConfig& config, std::shared_ptr<Bootstrap> bootstrap, const harness::RunOptions& options);

  harness::CheckOutcome check();
  harness::BenchOutcome bench(const harness::BenchOptions& bench_options);

 private:
  /// What a launch gives.
  struct Result {
    std::vector<std::int32_t> sampled;  ///< [columns][tokens]
    std::vector<float> logits;          ///< [tokens][columns][vocabulary]
    std::vector<std::uint16_t> hidden;  ///< after the last token
  };

  struct Followed {
    std::optional<SequenceOracles> oracles;
    std::vector<std::int32_t> inputs;
    int first_launch = 0;      ///< before which the sequence is started
    std::size_t position = 0;  ///< of the next input
  };

  Status open(bool logits);
  Status call_once(int call);
  Status start_before(int call, int launch);
  Qwen3Sampling sampling_of(int call, int column) const;
  std::span<const float> logits_of(const Result& result, int token, int column) const;
  Status launch(FleetDispatcher dispatcher, Result& result, int tokens = 0);
  Status launch_aimed(int call, const Result& first);
  Status launch_late(int call, const std::vector<Result>& results);
  Status burst_late(int call, int first, int count, Result& last);
  Status take(Status status, Result& result);
  Status gather(Result& result);
  void compare(int call, int launch, const Result& result);
  void compare_bits(int call, int launch, const Result& first, const Result& second, const char* whose);
  harness::CheckOutcome judged(const Status& status) const;
  Status close(const Status& status);
  // bench.cc
  Status measure(const harness::BenchOptions& bench_options, harness::BenchOutcome& outcome);

  CheckConfig config_;
  std::optional<Qwen3Decoder> decoder_;
  harness::DeviceBuffer sampled_, logits_;
  std::vector<std::vector<std::int32_t>> prompts_;  ///< of each sequence
  std::unique_ptr<OracleWeights> weights_;
  std::vector<Followed> followed_;
  LogitsJudge judge_;
};

}  // namespace farwarp::qwen3
