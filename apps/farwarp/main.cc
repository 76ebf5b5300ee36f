#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string_view>

#include "commands.h"
#include "farwarp/harness/params.h"
#include "farwarp/judge/rank_main.h"
#include "farwarp/world/view.h"
#include "launch.h"
#include "options.h"
#include "submit.h"
#include "version.h"

namespace farwarp::cli {
namespace {
int launch(const std::string& processes, const std::string& deadline_ms, const std::vector<std::string>& command) {
  const auto ranks = harness::parse_integer("-n", processes, 1, kMaxRanks);
  if (!ranks.ok()) return usage_error(ranks.status().message());
  LaunchOptions options;
  if (!deadline_ms.empty()) {
    const auto deadline = harness::parse_integer("--deadline-ms", deadline_ms, 1, kLongestDeadlineMs);
    if (!deadline.ok()) return usage_error(deadline.status().message());
    options.deadline = std::chrono::milliseconds(*deadline);
  }
  if (command.empty()) return usage_error("launch needs a command: farwarp launch -n N -- COMMAND ...");
  return launch_command(static_cast<int>(*ranks), command, options);
}

int submission_rank(const std::string& text) {
  const auto socket = harness::parse_integer("socket", text, 3, 1 << 20);
  if (!socket.ok()) return usage_error(socket.status().message());
  struct stat status {};
  if (::fstat(static_cast<int>(*socket), &status) != 0 || !S_ISSOCK(status.st_mode))
    return usage_error(fmt::format("socket is '{}': it is none; `farwarp submit check` starts this itself", text));
  return judge::rank_main(static_cast<int>(*socket));
}

int run(int argc, char** argv) {
  CLI::App app("farwarp: distributed LLM-inference kernels that communicate from inside the kernel", "farwarp");
  app.require_subcommand(1);
  app.set_version_flag("--version", [] { return version_line(); });
  DoctorOptions doctor_options;
  CLI::App* doctor = add_doctor(app, doctor_options);
  CLI::App* list = app.add_subcommand("list", "operators and their parameters");
  bool kernels = false;
  list->add_flag("--kernels", kernels, "kernels per target instead");
  SuitesCommandOptions suites_options;
  CLI::App* suites = add_suites(app, suites_options);
  CheckOptions options, bench_options, tune_options;
  TraceOptions trace_options;
  CLI::App* trace = add_trace(app, trace_options);
  CLI::App* check = add_check(app, options);
  CLI::App* bench = add_bench(app, bench_options);
  CLI::App* tune = add_tune(app, tune_options);
  CheckOptions taxes_options;
  std::string added_tax;
  CLI::App* taxes = add_taxes(app, taxes_options, added_tax);
  SubmitOptions submit_check_options, submit_bench_options;
  std::string submit_folder, submit_socket;
  CLI::App* submit = add_submit(app, submit_check_options, submit_bench_options, submit_folder, submit_socket);
  LeaderboardOptions leaderboard_options;
  CLI::App* leaderboard = add_leaderboard(app, leaderboard_options);
  ReportOptions report_options;
  CLI::App* report = add_report(app, report_options);
  CompareOptions compare_options;
  CLI::App* compare = add_compare(app, compare_options);
  CacheCommandOptions cache_options;
  CLI::App* cache = add_cache(app, cache_options);
  DecodeCommandOptions decode_options;
  CLI::App* decode = add_decode(app, decode_options);
  GraphCommandOptions graph_options;
  CLI::App* graph = add_graph(app, graph_options);
  CLI::App* launcher =
      app.add_subcommand("launch", "farwarp launch -n N -- COMMAND ...: N processes that find each other");
  std::string processes, deadline_ms;
  add_option(launcher, "-n", processes, "1..8 processes")->required();
  add_option(launcher, "--deadline-ms", deadline_ms,
             "how long COMMAND's kernels may wait (its own --deadline-ms, or 10000): when a process is killed, "
             "the others have this time and 10 s to report");
  // Everything after "--" is the command to launch, with its own options.
  char** const command = std::find(argv, argv + argc, std::string_view("--"));
  try {
    app.parse(static_cast<int>(command - argv), argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help, --version
    return usage_error(error.what());
  }
  if (*doctor) return doctor_options.measure ? measure_command(doctor_options) : doctor_command();
  if (*list) return list_command(kernels);
  if (*suites) return suites_command(suites_options);
  if (*check) return check_command(options);
  if (*bench) {
    for (int i = 0; i < argc; ++i) harness::append_to_list(bench_options.command, " ", argv[i]);
    return bench_command(bench_options);
  }
  if (*taxes) {
    for (int i = 0; i < argc; ++i) harness::append_to_list(taxes_options.command, " ", argv[i]);
    return taxes_command(taxes_options, added_tax);
  }
  if (*submit) {
    if (*submit->get_subcommand("check")) return submit_check_command(submit_check_options);
    if (*submit->get_subcommand("new")) return submit_new_command(submit_folder);
    if (*submit->get_subcommand("rank")) return submission_rank(submit_socket);
    for (int i = 0; i < argc; ++i) harness::append_to_list(submit_bench_options.selection.command, " ", argv[i]);
    return submit_bench_command(submit_bench_options);
  }
  if (*leaderboard) return leaderboard_command(leaderboard_options);
  if (*report) return report_command(report_options);
  if (*compare) return compare_command(compare_options);
  if (*trace) return trace_command(trace_options);
  if (*tune) return tune_command(tune_options);
  if (*cache) return cache_command(cache_options);
  if (*decode) return decode_command(decode_options);
  if (*graph) return graph_command(graph_options);
  return launch(processes, deadline_ms, {std::min(command + 1, argv + argc), argv + argc});
}

}  // namespace
}  // namespace farwarp::cli

/// Opens those of the three that the caller has closed, so that no other file gets their number: what is printed would
/// go into it. Each can only be used the wrong way round, so that its use fails as before.
static void hold_standard_files() {
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(fd, F_GETFD) == -1) (void)!open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY);
  }
}

int main(int argc, char** argv) {
  hold_standard_files();
  const int code = farwarp::cli::run(argc, argv);
  const bool flushed = std::fflush(stdout) == 0;
  if (flushed && std::ferror(stdout) == 0) return code;
  farwarp::cli::usage_error("what was to be printed cannot be written to the standard output");
  return std::max(code, farwarp::cli::kExitLacking);
}
