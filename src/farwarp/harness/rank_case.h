// The Case of an operator of which each rank makes a RankRun.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "farwarp/harness/case.h"

namespace farwarp::harness {

/// `Run(config, bootstrap, options)` is the operator's RankRun, with open(), all_calls(), close(status) and
/// bench(options).
template <class Run, class Config>
class RankCase : public Case {
 public:
  RankCase(std::string description, const Config& config, const Config& bench_config)
      : description_(std::move(description)), config_(config), bench_config_(bench_config) {}
  std::string describe() const override { return description_; }
  CheckOutcome check(std::shared_ptr<Bootstrap> bootstrap, const RunOptions& options) override {
    Run run(config_, std::move(bootstrap), options);
    Status status = run.open();
    if (status.ok()) status = run.all_calls();
    return run.outcome(run.close(status));
  }
  BenchOutcome bench(std::shared_ptr<Bootstrap> bootstrap, const RunOptions& options,
                     const BenchOptions& bench_options) override {
    return Run(bench_config_, std::move(bootstrap), options).bench(bench_options);
  }

 private:
  std::string description_;
  Config config_, bench_config_;
};

/// OperatorInfo::make of such an operator. `for_bench` changes what a bench does otherwise.
template <class Run, class Config>
auto rank_case_maker(Result<Config> (*read)(const Params&), std::string (*describe)(const Config&),
                     void (*for_bench)(Config&) = nullptr) {
  return [=](const Params& params) -> Result<std::unique_ptr<Case>> {
    const Result<Config> config = read(params);
    if (!config.ok()) return config.status();
    Config bench_config = *config;
    if (for_bench != nullptr) for_bench(bench_config);
    return std::unique_ptr<Case>(new RankCase<Run, Config>(describe(*config), *config, bench_config));
  };
}

}  // namespace farwarp::harness
