// farwarp trace: what the warps of one call do, and when, as a file that Perfetto opens.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>

#include "commands.h"
#include "farwarp/harness/params.h"
#include "farwarp/harness/report.h"
#include "farwarp/harness/trace_json.h"
#include "farwarp/harness/tracing.h"
#include "job.h"
#include "json_sink.h"
#include "print.h"

namespace farwarp::cli {
namespace {

using harness::CaseRequest;
using harness::CaseResult;

/// One case: of a suite the one that `label` names.
Status choose_case(Job& job, const std::string& label) {
  if (!label.empty()) std::erase_if(job.cases, [&](const CaseRequest& request) { return request.label != label; });
  if (job.cases.size() == 1) return {};
  if (job.cases.empty())
    return invalid_argument(
        fmt::format("--case is '{}': allowed are the labels of the suite's cases, as "
                    "benchmarks[0]",
                    label));
  return invalid_argument(
      fmt::format("{} cases are selected; name one: --case {}", job.cases.size(), job.cases[0].label));
}

/// A GPU's case is timed, so that the ranks start together on a cold L2; the emulator's is checked under the schedule
/// of its seed.
void prepare(CaseRequest& request) {
  request.options.adversarial = true;
  if (is_emulated(request.options.target)) {
    request.bench.reset();
  } else {
    request.bench = harness::BenchOptions{.samples = 3, .baselines = false};
  }
}

/// Collective: the events of all processes.
Result<std::vector<std::string>> gather(Bootstrap* group, std::vector<std::string> events) {
  if (group == nullptr) return events;
  std::string text;
  for (const std::string& event : events) text += event + "\n";
  std::vector<std::byte> bytes(text.size());
  std::memcpy(bytes.data(), text.data(), text.size());
  const auto all = group->allgather(bytes, std::chrono::minutes(2));
  if (!all.ok()) return all.status();
  events.clear();
  for (const auto& theirs : *all) {
    const std::string_view lines(reinterpret_cast<const char*>(theirs.data()), theirs.size());
    for (std::size_t first = 0; first < lines.size();) {
      const std::size_t end = lines.find('\n', first);
      events.emplace_back(lines.substr(first, end - first));
      first = end + 1;
    }
  }
  return events;
}

std::string description_of(const CaseResult& result, const harness::TraceCollector& collector) {
  const harness::RunOptions& options = result.request.options;
  std::string text =
      fmt::format("farwarp {}, {} rank{}: ", result.request.op->name, options.ranks, options.ranks == 1 ? "" : "s");
  if (is_emulated(options.target)) {
    text += fmt::format("a microsecond stands for a step of the schedule of seed {}", options.seed);
    if (!result.schedule_hashes.empty()) text += fmt::format(" ({:016x})", result.schedule_hashes[0]);
  } else {
    text += fmt::format("times are right within {:.0f} ns", collector.clock_error_ns);
  }
  if (collector.dropped > 0) text += fmt::format("; {} records found no room", collector.dropped);
  return text;
}

}  // namespace

int trace_command(const TraceOptions& options) {
  if (options.out.empty()) return usage_error("-o is needed: the file to write");
  auto job = make_job(options.selection, "trace");
  if (!job.ok()) return fail(job.status());
  if (Status status = choose_case(*job, options.label); !status.ok()) return fail(status);
  JsonSink sink;
  if (Status status = sink.open(options.out, job->files, "-o"); !status.ok()) return fail(status);
  if (!job->why_target.empty()) print_text(stderr, "{}\n", job->why_target);
  CaseRequest& request = job->cases[0];
  prepare(request);
  harness::TraceCollector collector;
  harness::set_trace_collector(&collector);
  const CaseResult result = harness::run_case(request, job->group, [](int) {});
  harness::set_trace_collector(nullptr);
  const bool first = job->group == nullptr || job->group->rank() == 0;
  const auto events = result.group_lost ? Result<std::vector<std::string>>(collector.take())
                                        : gather(job->group.get(), collector.take());
  if (!events.ok()) return fail(events.status());
  if (!result.outcome.pass && first) usage_error(result.outcome.detail);
  if (events->empty()) return std::max(harness::exit_code(result), 1);
  if (first) {
    const std::string description = description_of(result, collector);
    if (Status status = sink.write(harness::trace_file(*events, description)); !status.ok()) return fail(status);
    print_text(sink.to_stdout() ? stderr : stdout,
               "{}: {} events; {}\nopen it at ui.perfetto.dev, or with trace_processor\n", options.out, events->size(),
               description);
  }
  return harness::exit_code(result);
}

}  // namespace farwarp::cli
