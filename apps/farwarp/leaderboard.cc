// farwarp leaderboard: the entries of a suite, ranked.
#include "farwarp/results/leaderboard.h"

#include <fmt/format.h>

#include "commands.h"
#include "farwarp/harness/runner.h"
#include "farwarp/harness/suite.h"
#include "json_sink.h"
#include "print.h"
#include "results_sink.h"

namespace farwarp::cli {

int leaderboard_command(const LeaderboardOptions& options) {
  const auto suite = harness::load_suite(options.suite);
  if (!suite.ok()) return fail(suite.status());
  if (!options.op.empty() && harness::find_operator(options.op) == nullptr)
    return usage_error(fmt::format("operator is '{}': allowed are those of `farwarp list`", options.op));
  const auto path = results_path(options.results);
  if (!path.ok()) return fail(path.status());
  auto store = open_store(options.results, results::Database::Access::kRead);
  if (!store.ok()) return fail(store.status());
  JsonSink json;
  if (Status status = json.open(options.json, {*path, options.suite}); !status.ok()) return fail(status);
  const auto boards = results::leaderboard(*store, *suite, options.op);
  if (!boards.ok()) return fail(boards.status());
  if (boards->empty())
    return usage_error(fmt::format("{} has no times of suite {}{}{}; `farwarp bench {}{}--suite {}` takes them", *path,
                                   suite->name, options.op.empty() ? "" : " of ", options.op, options.op,
                                   options.op.empty() ? "" : " ", options.suite));
  std::FILE* const stream = json.to_stdout() ? stderr : stdout;
  print_text(stream, "{}", results::to_text(*boards, suite->name));
  const Status written = json.write(results::to_json(*boards, suite->name));
  return written.ok() ? 0 : fail(written);
}

}  // namespace farwarp::cli
