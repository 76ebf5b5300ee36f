// Parallel products as the harness sees them: their parameters, their check and their bench.
#include <fmt/format.h>

#include <utility>

#include "farwarp/harness/params.h"
#include "farwarp/ops/parallel_gemm/case/bench.h"
#include "farwarp/ops/parallel_gemm/case/operator.h"
#include "farwarp/ops/parallel_gemm/case/run.h"
#include "farwarp/ops/parallel_gemm/case/scaling.h"

namespace farwarp::parallel_gemm {
namespace {

using harness::ParamInfo;
using harness::Params;

/// A static inside a function, because static initialisers of other files register operators, in any order.
const std::vector<ParamInfo>& params() {
  static const std::vector<ParamInfo> infos = {
      {"m", "256", "a multiple of the ranks; gemm-ar: 1 or more"},
      {"n", "1024", "a multiple of 8, ag-gemm: n/ranks too"},
      {"k", "512", "a multiple of 8, gemm-rs and gemm-ar: k/ranks too"},
      {"has_bias", "0", "0|1"},
      {"dtype", "bf16", "bf16|fp16"},
      {"path", "own", "own|unfused (NCCL and cuBLASLt)|best (by the table of plans)"},
      {"tile_columns", "0", "0 (the plan's choice), on Hopper also a width that has a kernel"},
      {"splits", "0", "0 (the plan's choice) to 16 parts of k"},
      {"comm_blocks", "0", "0 (the plan's choice) or blocks that only send; ag-gemm"},
      {"exchange", "auto",
       "auto (the plan's choice), on Hopper also boxes|words|one_shot_words (gemm-ar)|fetch (gemm-rs, 2 ranks): how "
       "data crosses the links"},
      {"return_x", "0", "1: x of all ranks is a result, too; ag-gemm"},
      {"max_sms", "0", "0 (all) or more"},
      {"inputs", "auto", gemm::kInputKindNames},
      {"graph", "0", "1: capture one call and replay it"},
      {"burst", "1", "1..64: calls enqueued without waiting for any of them"},
      {"delay", "0", "0..1000000: longest random delay, in us, of each rank before each call"},
      {"repeat", "1", "1..1000: how often a call is made with the same inputs; all outputs must be equal to the bit"},
  };
  return infos;
}

Result<CheckConfig> read_config(const CaseKind& kind, const Params& given) {
  static constexpr harness::Choice<Path> kPaths[] = {
      {"own", Path::kOwn}, {"unfused", Path::kUnfused}, {"best", Path::kBest}};
  using enum ParallelGemmExchange;
  static constexpr harness::Choice<ParallelGemmExchange> kExchanges[] = {
      {"auto", kAuto}, {"boxes", kBoxes}, {"words", kWords}, {"one_shot_words", kOneShotWords}, {"fetch", kFetch}};
  harness::ParamReader reader(given, params());
  CheckConfig config{kind, {}};
  ParallelGemmDesc& desc = config.desc;
  desc.m = reader.small_integer("m", 1, kMaxSize);
  desc.n = reader.small_integer("n", 8, kMaxSize);
  desc.k = reader.small_integer("k", 8, kMaxSize);
  desc.has_bias = reader.flag("has_bias");
  desc.dtype = reader.choice("dtype", harness::kSixteenBitTypes);
  config.path = reader.choice("path", kPaths);
  desc.tile_columns = reader.small_integer("tile_columns", 0, 1024);
  desc.splits = reader.small_integer("splits", 0, kMaxSplits);
  desc.comm_blocks = reader.small_integer("comm_blocks", 0, 1 << 16);
  desc.exchange = reader.choice("exchange", kExchanges);
  desc.return_x = reader.flag("return_x");
  desc.max_sms = reader.small_integer("max_sms", 0, 1 << 16);
  config.inputs = reader.choice("inputs", gemm::kInputKinds);
  config.graph = reader.flag("graph");
  config.burst = reader.small_integer("burst", 1, 64);
  config.longest_delay_ns = static_cast<std::uint64_t>(reader.integer("delay", 0, 1'000'000)) * 1000;
  config.repeat = reader.small_integer("repeat", 1, 1000);
  if (!reader.status().ok()) return reader.status();
  return config;
}

Params scaled_params(const CaseKind& kind, const Params& given, int ranks) {
  const auto config = read_config(kind, given);
  if (!config.ok()) return given;  // make() reports the error
  const ParallelGemmDesc scaled = scaled_down(kind.kind, config->desc, ranks);
  Params result = given;
  result["m"] = std::to_string(scaled.m);
  result["n"] = std::to_string(scaled.n);
  result["k"] = std::to_string(scaled.k);
  return result;
}

class ParallelCase : public harness::Case {
 public:
  explicit ParallelCase(CheckConfig config) : config_(std::move(config)) {}
  std::string describe() const override {
    const ParallelGemmDesc& desc = config_.desc;
    return fmt::format("{}, {} x {} x {}{}, {}", config_.kind.name, desc.m, desc.n, desc.k,
                       desc.has_bias ? " with bias" : "", name_of(desc.dtype));
  }
  harness::CheckOutcome check(std::shared_ptr<Bootstrap> bootstrap, const harness::RunOptions& options) override {
    RankRun run(config_, std::move(bootstrap), options);
    Status status = run.open(config_.burst);
    if (status.ok()) status = run.all_calls();
    return run.outcome(run.close(status));
  }
  harness::BenchOutcome bench(std::shared_ptr<Bootstrap> bootstrap, const harness::RunOptions& options,
                              const harness::BenchOptions& bench_options) override {
    if (Status status = parallel_gemm::check(config_.kind.kind, config_.desc, bootstrap->size()); !status.ok()) {
      harness::BenchOutcome outcome;
      outcome.check = harness::judge(config_.kind.name, status, {}, "");
      return outcome;
    }
    CheckConfig config = config_;
    if (config.inputs == gemm::InputKind::kAuto) config.inputs = gemm::InputKind::kUniform;
    return BenchRun(config, std::move(bootstrap), options, bench_options).run();
  }

 private:
  CheckConfig config_;
};

}  // namespace

bool register_case(const CaseKind& kind) {
  using enum harness::Fault::Kind;
  harness::OperatorInfo info{kind.name, kind.summary, params(), {}};
  info.make = [kind](const Params& given) -> Result<std::unique_ptr<harness::Case>> {
    auto config = read_config(kind, given);
    if (!config.ok()) return config.status();
    return std::unique_ptr<harness::Case>(new ParallelCase(std::move(*config)));
  };
  info.faults = {kDropPut, kDelay, kKill, kMismatch};
  info.scaled_down = [kind](const Params& given, int ranks) { return scaled_params(kind, given, ranks); };
  // The weights are split by rows (n) or by columns (k).
  const char* const split = kind.kind == Kind::kAllGather ? "n" : "k";
  info.spread = [split](const Params&) { return harness::Spread{.of_all = {split}, .of_each = {}}; };
  info.has_taxes = true;
  info.submission =
      Params{{"path", "own"}, {"return_x", "0"}, {"graph", "0"}, {"burst", "1"}, {"delay", "0"}, {"repeat", "1"}};
  harness::register_operator(std::move(info));
  return true;
}

}  // namespace farwarp::parallel_gemm
