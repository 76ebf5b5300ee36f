// The options of the command line's commands.
#include "options.h"

#include <fmt/format.h>

#include <string>

#include "farwarp/harness/params.h"
#include "farwarp/models/qwen3/decode/args.h"
#include "farwarp/models/qwen3/limits.h"
#include "farwarp/world/view.h"

namespace farwarp::cli {
namespace {

/// The options that check, bench and tune share.
void add_selection(CLI::App* check, CheckOptions& options) {
  add_option(check, "what", options.what,
             "an operator (see `farwarp list`) or a suite file; an operator restricts --suite");
  add_option(
      check, "--suite", options.suite,
      "a suite's name (amd2025), its file, a FlashInfer-Bench definition, its workloads or a folder of them, or a "
      "KernelBot task.yml");
  add_option(check, "--which", options.which, "of a suite: tests|benchmarks|all (all)");
  add_option(check, "--problem", options.problem,
             "of a suite on other ranks than its own: whole (all ranks do what its ranks do together) or share (each "
             "rank has the weights, tokens or keys of one of its ranks) (whole)");
  add_option(check, "--target", options.target,
             "auto|cuda|hip|emu_sm90|emu_gfx942 (auto: idle GPUs; check: else emu_sm90)");
  add_option(check, "--ranks", options.ranks, "1..8 (8, or what the suite says)");
  add_option(check, "--set", options.settings, "key=value[,key=value...], repeatable")->allow_extra_args(false);
  add_option(check, "--seed", options.seed, "of inputs and schedules (1, or what the suite says)");
  add_option(check, "--deadline-ms", options.deadline_ms, "longest wait of a kernel (10000)");
}

void add_json(CLI::App* command, CheckOptions& options) {
  add_option(command, "--json", options.json, "write the results to this file; - is stdout");
}

/// The options that bench and taxes share.
void add_timing(CLI::App* command, CheckOptions& options) {
  add_selection(command, options);
  add_json(command, options);
  add_option(command, "--samples", options.samples, "timed calls of each kind, 1..1000 (40)");
  CLI::Option* results = add_option(
      command, "--results", options.results,
      "SQLite database that keeps samples and machine of each case as soon as it is done, for leaderboard and "
      "compare (farwarp/results.db in $XDG_DATA_HOME or ~/.local/share)");
  add_option(command, "--label", options.label, "name of this run, for compare");
  command->add_flag("--no-results", options.no_results, "keep no results")->excludes(results);
}

CLI::App* add_submission(CLI::App* submit, const char* name, const char* help, SubmitOptions& options) {
  CheckOptions& selection = options.selection;
  CLI::App* command = submit->add_subcommand(name, help);
  add_option(command, "file", options.file, "a shared object (submit new), or a Python file (.py, GPUs)")->required();
  add_option(command, "--op", selection.what, "an operator (see `farwarp list`); it restricts --suite");
  add_option(command, "--suite", selection.suite, "a suite's name or file, as of check");
  add_option(command, "--which", selection.which, "of a suite: tests|benchmarks|all");
  add_option(command, "--problem", selection.problem, "of a suite on other ranks than its own: whole or share (whole)");
  add_option(command, "--target", selection.target, "auto|cuda|hip|emu_sm90|emu_gfx942 (auto: as of check and bench)");
  add_option(command, "--ranks", selection.ranks, "1..8 (8, or what the suite says)");
  add_option(command, "--set", selection.settings, "key=value[,key=value...], repeatable")->allow_extra_args(false);
  add_option(command, "--time-limit-s", options.limit_s, "of create(), of each run() and of destroy(), 1..3600 (30)");
  add_json(command, selection);
  return command;
}

}  // namespace

CLI::App* add_check(CLI::App& app, CheckOptions& options) {
  CLI::App* check =
      app.add_subcommand("check", "correctness of an operator, or of a suite's shapes, against the oracle");
  add_selection(check, options);
  add_json(check, options);
  add_option(check, "--schedules", options.schedules, "emulator: repeat under this many adversarial schedules");
  add_option(check, "--calls", options.calls, "calls of the operator per check, fresh inputs each (2)");
  add_option(check, "--fault", options.fault, "drop_put:N, delay:RANK:MS, kill:RANK or mismatch:RANK");
  return check;
}

CLI::App* add_trace(CLI::App& app, TraceOptions& options) {
  CLI::App* trace = app.add_subcommand("trace", "what the warps of one call do, as a file for Perfetto");
  add_selection(trace, options.selection);
  add_option(trace, "--case", options.label, "of a suite: tests[0], benchmarks[3], ...");
  add_option(trace, "--calls", options.selection.calls, "emulator: calls, of which the last is recorded (2)");
  add_option(trace, "--fault", options.selection.fault, "drop_put:N, delay:RANK:MS or mismatch:RANK");
  add_option(trace, "-o,--out", options.out, "the file to write (JSON)");
  return trace;
}

CLI::App* add_bench(CLI::App& app, CheckOptions& options) {
  CLI::App* bench =
      app.add_subcommand("bench", "times of an operator, or of a suite's benchmark shapes, on real devices");
  add_timing(bench, options);
  bench->add_flag("--no-baselines", options.no_baselines, "do not time other libraries beside ours");
  return bench;
}

CLI::App* add_taxes(CLI::App& app, CheckOptions& options, std::string& added) {
  CLI::App* taxes = app.add_subcommand(
      "taxes",
      "what launches, bulk synchronisation and lost locality cost a baseline of several kernels (ag-gemm, gemm-rs, "
      "gemm-ar, moe-a2a, flash-decode)");
  add_timing(taxes, options);
  add_option(taxes, "--add-tax", added,
             "a tax added on purpose, before the baseline's last exchange: sleep:US of the last rank, flush of the L2, "
             "or launches:N of empty kernels");
  return taxes;
}

CLI::App* add_submit(CLI::App& app, SubmitOptions& check, SubmitOptions& bench, std::string& folder,
                     std::string& socket) {
  CLI::App* submit =
      app.add_subcommand("submit", "judge a kernel of your own: a shared object (see `submit new`) or a Python file");
  submit->require_subcommand(1);
  CLI::App* checked = add_submission(submit, "check", "whether its results are right", check);
  add_option(checked, "--calls", check.selection.calls, "calls of each case, fresh inputs and addresses each (6)");
  CLI::App* timed = add_submission(submit, "bench", "its times, and whether its results are right", bench);
  add_option(timed, "--samples", bench.selection.samples, "timed calls, 1..1000 (40)");
  CLI::Option* results = add_option(timed, "--results", bench.selection.results, "database, as of bench");
  add_option(timed, "--label", bench.selection.label, "its name on leaderboards and for compare (the file's)");
  timed->add_flag("--no-results", bench.selection.no_results, "keep no results")->excludes(results);
  CLI::App* created = submit->add_subcommand("new", "write the header, an example and its CMakeLists.txt");
  add_option(created, "folder", folder, "that is created")->required();
  CLI::App* rank = submit->add_subcommand("rank", "what the judge starts for each rank")->group("");
  add_option(rank, "socket", socket, "")->required();
  return submit;
}

CLI::App* add_leaderboard(CLI::App& app, LeaderboardOptions& options) {
  CLI::App* leaderboard = app.add_subcommand(
      "leaderboard",
      "rank farwarp's commits and the baselines that bench has timed, by the geometric mean of a suite's benchmarks");
  add_option(leaderboard, "operator", options.op, "of the suite: its benchmarks alone");
  add_option(leaderboard, "--suite", options.suite, "a suite's name (amd2025) or file")->required();
  add_option(leaderboard, "--results", options.results, "database (where bench keeps results)");
  add_option(leaderboard, "--json", options.json, "write the results to this file; - is stdout");
  return leaderboard;
}

CLI::App* add_report(CLI::App& app, ReportOptions& options) {
  CLI::App* report = app.add_subcommand(
      "report", "a page of what bench and taxes have kept: tables, bars, traces; or the tables of Markdown documents");
  CLI::Option* out = add_option(report, "-o,--out", options.out, "the page to write (HTML, one file)");
  CLI::Option* json = add_option(report, "--json", options.json, "write the figures to this file; - is stdout");
  CLI::Option* picture =
      add_option(report, "--picture", options.picture, "write an SVG picture of all cases to this file; - is stdout");
  CLI::Option* suite = add_option(report, "--suite", options.suites, "of this suite alone, repeatable (all)");
  suite->allow_extra_args(false);
  CLI::Option* results = add_option(report, "--results", options.results, "database (where bench keeps results)");
  CLI::Option* machine =
      add_option(report, "--machine", options.machine, "whose complete runs (that of the newest one)");
  CLI::Option* from = add_option(report, "--from", options.from, "JSON of an earlier report, instead of a database");
  CLI::Option* trace = add_option(report, "--trace", options.traces, "draw this file of `farwarp trace`, repeatable");
  trace->needs(out)->allow_extra_args(false);
  for (CLI::Option* option : {suite, results, machine}) from->excludes(option);
  CLI::Option* markdown = add_option(
      report, "--markdown", options.markdown,
      "documents: rewrite what is between <!-- report: data=FILE [suite= ranks= settings= op= table=cases|means|taxes] "
      "--> and <!-- end of report -->, from the JSON of a report");
  for (CLI::Option* option : {out, json, picture, suite, results, machine, from, trace}) markdown->excludes(option);
  report->add_flag("--check", options.check, "of --markdown: write nothing; exit status 1 if a table would change")
      ->needs(markdown);
  return report;
}

CLI::App* add_compare(CLI::App& app, CompareOptions& options) {
  CLI::App* compare = app.add_subcommand(
      "compare",
      "is B faster than A, or slower? Exit status: 0, or 1 if B is slower or its results are wrong anywhere");
  add_option(compare, "A", options.a,
             "kept results: numbers of runs (3 or 3,6, together), a label, or a database (of the last two the newest "
             "run of each case); or a farwarp program, as ./old/farwarp")
      ->required();
  add_option(compare, "B", options.b, "the same; two programs are run by turns, A B B A, with the options of bench")
      ->required();
  options.bench.which = options.bench.target = "";
  add_selection(compare, options.bench);
  add_option(compare, "--samples", options.bench.samples, "timed calls of each kind, 1..1000 (40)");
  compare->add_flag("--no-baselines", options.bench.no_baselines, "do not time other libraries beside ours");
  add_option(compare, "--results", options.bench.results, "database (where bench keeps results)");
  compare->add_flag("--strict", options.strict, "exit status 2 if nothing is slower and something is UNDECIDED");
  add_json(compare, options.bench);
  return compare;
}

CLI::App* add_tune(CLI::App& app, CheckOptions& options) {
  CLI::App* tune = app.add_subcommand(
      "tune",
      "measure our kernels and NCCL + cuBLASLt on real devices, and keep which is faster: the table of plans, "
      "of ag-gemm, gemm-rs and gemm-ar");
  add_selection(tune, options);
  add_option(tune, "--samples", options.samples, "timed calls of each kind, 1..1000 (40)");
  add_option(tune, "--out", options.out,
             "the table's file; what it has of other shapes stays (this machine's, beside the ceilings)");
  return tune;
}

CLI::App* add_doctor(CLI::App& app, DoctorOptions& options) {
  CLI::App* doctor = app.add_subcommand("doctor", "what this machine can do, and what is missing");
  CLI::Option* measure =
      doctor->add_flag("--measure", options.measure, "measure the devices and links, and keep the figures");
  add_option(doctor, "--target", options.target, "of --measure: auto|cuda|hip|emu_sm90|emu_gfx942 (auto: idle GPUs)")
      ->needs(measure);
  add_option(doctor, "--ranks", options.ranks, "of --measure: 1..8 (as many as there are devices)")->needs(measure);
  return doctor;
}

CLI::App* add_suites(CLI::App& app, SuitesCommandOptions& options) {
  CLI::App* suites = app.add_subcommand("suites", "the suites, or the cases of one");
  add_option(suites, "what", options.what, "a suite's name or file");
  add_option(suites, "--json", options.json, "write the same to this file; - is stdout");
  add_option(
      suites, "--export-flashinfer", options.export_flashinfer,
      "write the suite's cases of this operator, or its defaults, as FlashInfer-Bench definitions and workloads");
  add_option(suites, "-o", options.out, "of --export-flashinfer: the folder to write to");
  return suites;
}

CLI::App* add_cache(CLI::App& app, CacheCommandOptions& options) {
  CLI::App* cache = app.add_subcommand(
      "cache", "simulate a device's caches, for each mapping of an operator's works to its blocks; needs no device");
  add_option(cache, "what", options.what, "attention (prefill), or qwen3 (the products of a token)")->required();
  add_option(cache, "--machine", options.machine, "mi300x|mi350x|h200, or a JSON file (mi300x)");
  add_option(cache, "--set", options.settings,
             "key=value[,key=value...], repeatable: heads, kv_heads, seq, causal, ...")
      ->allow_extra_args(false);
  cache->add_flag("--sweep", options.sweep, "simulate the published cases, and print published and simulated figures");
  add_option(cache, "--skew", options.skew, "standard deviation of the blocks' pace (0.05)");
  add_option(cache, "--seed", options.seed, "of the blocks' pace (1)");
  add_option(cache, "--accesses", options.accesses, "to tiles, that are simulated at most (20000000)");
  add_option(cache, "--granularity", options.granularity, "auto|line|tile (auto)");
  add_option(cache, "--json", options.json, "write the results to this file; - is stdout");
  return cache;
}

CLI::App* add_decode(CLI::App& app, DecodeCommandOptions& options) {
  CLI::App* decode = app.add_subcommand("decode", "decode tokens of a Qwen3, by one kernel on each device");
  add_option(decode, "--model", options.model,
             "a folder as Hugging Face saves it (config.json, safetensors), or random:NAME, as random:qwen3-8b")
      ->required();
  add_option(decode, "--prompt", options.prompt,
             "token ids, as 1,2,3, or a file with a sequence of them on each line (1)");
  add_option(decode, "--tokens", options.tokens, "after each prompt; 0: the prompts are decoded alone (16)");
  add_option(decode, "--batch", options.batch,
             fmt::format("1..{} sequences of the same prompt (as many as there are prompts)", fleet::kMaxColumns));
  add_option(decode, "--positions", options.positions, "of a sequence, that there is room for (as many as are needed)");
  add_option(decode, "--end-token", options.end_token,
             "ends a sequence; several with commas between them, or none (those of the model's files)");
  add_option(
      decode, "--prefill", options.prefill,
      fmt::format("tokens of a prompt that are prefilled at a time, {}..{}; 0: prompts are decoded (2048 or fewer if a "
                  "prompt has more than 64 tokens and there is no --logits, else 0)",
                  qwen3::kLeastPrefillTokens, qwen3::kMaxPrefillTokens));
  add_option(decode, "--dispatcher", options.dispatcher,
             "static|graph|gang: one kernel, one for each step, or one in which each XCD has a scheduler (static)");
  add_option(decode, "--target", options.target,
             "auto|cuda|hip|emu_sm90|emu_gfx942 (auto: an idle GPU, else emu_sm90)");
  add_option(decode, "--ranks", options.ranks,
             "1|2|4|8 devices that decode together (1, or as many as the launched group has processes)");
  add_option(decode, "--temperature", options.temperature,
             fmt::format("0 takes the best token; else {}..{}, and a token of the top-k is drawn (0)",
                         qwen3::kLeastTemperature, qwen3::kMaxTemperature));
  add_option(decode, "--top-k", options.top_k,
             fmt::format("1..{} best tokens that are drawn from; needed with a temperature", qwen3::kMaxTopK));
  add_option(decode, "--top-p", options.top_p, "of these, the best ones that have this probability together (1)");
  add_option(decode, "--sampling-seed", options.sampling_seed, "of draws; each sequence has the next one (0)");
  add_option(decode, "--seed", options.seed, "of random weights (1)");
  add_option(
      decode, "--logits", options.logits,
      "write the logits to this file, as float32 .npy: [positions][sequences][vocabulary], NaN after a sequence's "
      "last position");
  add_option(decode, "--json", options.json, "write the results to this file; - is stdout");
  return decode;
}

CLI::App* add_graph(CLI::App& app, GraphCommandOptions& options) {
  CLI::App* graph = app.add_subcommand("graph", "print the task graph of a token; needs no device");
  add_option(graph, "what", options.what, "qwen3")->required();
  add_option(graph, "--model", options.model,
             "a folder, of which config.json is read, or random:NAME (random:qwen3-8b)");
  add_option(graph, "--batch", options.batch, "1..8 sequences (1)");
  add_option(graph, "--workers", options.workers, "multiprocessors, 1..256 (132)");
  graph->add_flag("--all", options.all, "all layers, not one alone");
  add_option(graph, "--format", options.format, "text|dot (text)");
  return graph;
}

}  // namespace farwarp::cli
