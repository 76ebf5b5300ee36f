// The commands of the command line. Each returns the process's exit code:
//   0 all passed, 1 a check failed, 2 bad usage or input (or no case selected), 3 the machine lacks something (also
//   room for output), 4 timeout or abort, 130 interrupted.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "farwarp/base/status.h"

namespace farwarp::cli {

inline constexpr int kExitUsage = 2;
inline constexpr int kExitLacking = 3;
inline constexpr int kExitInterrupted = 130;
inline constexpr std::int64_t kLongestDeadlineMs = 3'600'000;

/// Options of check, bench and tune.
struct CheckOptions {
  std::string what;   ///< an operator, or a suite file
  std::string suite;  ///< --suite: a name or a file
  std::string which = "all";
  std::string problem = "whole";
  std::string target = "auto";
  std::vector<std::string> settings;  ///< --set
  std::string fault;
  std::string json;
  // The text that the user gave; empty if none.
  std::string ranks, seed, schedules, calls, deadline_ms;
  std::string samples;        ///< bench and tune
  bool no_baselines = false;  ///< bench
  std::string out;            ///< tune
  // bench
  std::string results, label;
  bool no_results = false;
  std::string command;  ///< as it was typed, kept with the results
};

int check_command(const CheckOptions& options);
int bench_command(const CheckOptions& options);
/// `added`: --add-tax
int taxes_command(const CheckOptions& options, const std::string& added);
int tune_command(const CheckOptions& options);

struct TraceOptions {
  CheckOptions selection;
  std::string label;  ///< --case
  std::string out;
};
int trace_command(const TraceOptions& options);

/// Options of doctor.
struct DoctorOptions {
  bool measure = false;
  std::string target = "auto";
  std::string ranks;  ///< the text that the user gave; empty if none
};

int doctor_command();
/// doctor --measure
int measure_command(const DoctorOptions& options);
int list_command(bool kernels);

/// Options of suites.
struct SuitesCommandOptions {
  std::string what;  ///< a suite's name or file; empty: all suites
  std::string json;
  std::string export_flashinfer;  ///< an operator
  std::string out;                ///< the folder that it is written to
};
int suites_command(const SuitesCommandOptions& options);

/// Options of cache. Texts that the user gave; empty if none.
struct CacheCommandOptions {
  std::string what;
  std::string machine;
  std::vector<std::string> settings;  ///< --set
  std::string skew, seed, accesses;
  std::string granularity = "auto";
  bool sweep = false;
  std::string json;
};
int cache_command(const CacheCommandOptions& options);

/// Options of decode. Texts that the user gave; empty if none.
struct DecodeCommandOptions {
  std::string model;
  std::string prompt = "1";
  std::string tokens, batch, positions, end_token, prefill, seed, ranks;
  std::string temperature, top_k, top_p, sampling_seed;
  std::string dispatcher = "static";
  std::string target = "auto";
  std::string logits;
  std::string json;
};
int decode_command(const DecodeCommandOptions& options);

/// Options of graph.
struct GraphCommandOptions {
  std::string what;
  std::string model = "random:qwen3-8b";
  std::string batch, workers;  ///< the text that the user gave; empty if none
  std::string format = "text";
  bool all = false;
};
int graph_command(const GraphCommandOptions& options);

/// Options of leaderboard.
struct LeaderboardOptions {
  std::string op, suite, results, json;
};
int leaderboard_command(const LeaderboardOptions& options);

/// Options of compare.
struct CompareOptions {
  std::string a, b;
  CheckOptions bench;  ///< what was given of it; texts that were not are empty
  bool strict = false;
};
int compare_command(const CompareOptions& options);

/// Options of report.
struct ReportOptions {
  std::string out;  ///< -o
  std::string json, picture, results, machine;
  std::string from;                   ///< the JSON of an earlier report
  std::vector<std::string> suites;    ///< --suite
  std::vector<std::string> traces;    ///< --trace
  std::vector<std::string> markdown;  ///< documents
  bool check = false;                 ///< of markdown: write nothing
};
int report_command(const ReportOptions& options);

/// Prints "farwarp: message" on stderr, in one line.
int usage_error(std::string_view message);
/// The same with the error's message. Returns its exit code.
int fail(const Status& status);

}  // namespace farwarp::cli
