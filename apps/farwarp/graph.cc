// farwarp graph: the task graph of a token.
#include <fmt/format.h>

#include "commands.h"
#include "decode_request.h"
#include "farwarp/harness/params.h"
#include "print.h"

namespace farwarp::cli {
namespace {

/// Of a Hopper with as many multiprocessors as `workers`.
Result<Qwen3Plan> plan_of(const GraphCommandOptions& given, const Qwen3Config& config) {
  const auto batch = harness::parse_integer("--batch", given.batch.empty() ? "1" : given.batch, 1, fleet::kMaxColumns);
  if (!batch.ok()) return batch.status();
  const auto workers = harness::parse_integer("--workers", given.workers.empty() ? "132" : given.workers, 1, 256);
  if (!workers.ok()) return workers.status();
  const MachineShape shape{.target = TargetKind::kCuda,
                           .traits = traits_of(TargetKind::kCuda),
                           .multiprocessors = static_cast<int>(*workers)};
  return plan_qwen3(config, {.sequences = static_cast<int>(*batch)}, shape);
}

}  // namespace

int graph_command(const GraphCommandOptions& given) {
  if (given.what != "qwen3")
    return usage_error(fmt::format("graph is of '{}': allowed is qwen3", harness::one_line(given.what)));
  if (given.format != "text" && given.format != "dot")
    return usage_error(fmt::format("--format is '{}': allowed is text|dot", harness::one_line(given.format)));
  const auto model = find_model(given.model);
  if (!model.ok()) return usage_error(model.status().message());
  Qwen3Config config = model->config;
  if (!given.all) config.layers = 1;
  const auto plan = plan_of(given, config);
  if (!plan.ok()) return usage_error(plan.status().message());
  if (given.format == "dot") {
    print_text("{}", plan->graph.to_dot(plan->workers));
    return 0;
  }
  print_text("{}, {} of {} layers, {} workers, {} sequence{}\n{}", harness::one_line(model->name), config.layers,
             model->config.layers, plan->workers, plan->limits.sequences, plan->limits.sequences == 1 ? "" : "s",
             plan->graph.to_string(plan->workers));
  return 0;
}

}  // namespace farwarp::cli
