// Results of benches that are kept, one database for all: runs, their cases, the series of each case, raw samples.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "farwarp/base/status.h"
#include "farwarp/results/database.h"

namespace farwarp::results {

/// One process that timed cases.
struct RunRecord {
  std::int64_t id = 0;  ///< from 1, given by the store
  std::string label;    ///< the user's name for it, or empty
  std::string began;    ///< UTC, "2026-11-28T02:00:00Z"
  std::string machine;  ///< its devices, as their driver calls them: "NVIDIA H200"
  std::string target;   ///< "cuda", "emu_sm90"
  std::string driver;   ///< version; empty: not known
  std::string clocks;   ///< the highest ones; empty: not known
  int ranks = 0;
  std::string version, commit;  ///< of farwarp
  std::string command;          ///< as it was typed
  bool complete = false;        ///< no case was left to run

  /// Times of the emulator's virtual clock say nothing about any machine.
  bool emulated() const { return target.starts_with("emu_"); }
};

/// One way of doing a case's work, timed. Times are in microseconds, cold, of the slowest rank.
struct SeriesRecord {
  std::int64_t id = 0;
  std::string name;        ///< "fused", "NCCL 2.28.9, sorted, graph"
  std::string entry = {};  ///< whose time it is on a leaderboard; empty: a part of a case, or the same in another way
  bool ours = true;
  double graph_us = 0, back_to_back_us = 0;  ///< medians; 0: not measured
  std::vector<double> us = {};               ///< samples, in the order in which they were taken
  std::vector<double> cycles = {};           ///< the same in the multiprocessors' cycles; empty: not known
};

struct CaseRecord {
  std::int64_t id = 0, run = 0;
  std::string op;
  std::string suite;     ///< its name, or empty
  std::string label;     ///< "benchmarks[3]", or empty
  std::string settings;  ///< what the user changed of the suite's case: "dtype=bf16"
  std::string params;    ///< all parameters, as a JSON object with sorted keys
  bool scaled = false;   ///< the suite's, scaled down for the emulator
  std::uint64_t seed = 0;
  double floor_us = 0;  ///< the least time that the machine's ceilings allow; 0: not known
  std::string floor_bound_by;
  double speed_of_light_us = 0;  ///< the suite author's; 0: not stated
  bool verified = false;         ///< the outputs of the timed calls are right
  std::string detail;            ///< why not
  std::string plan;
  std::string no_baseline;  ///< why there is none
  std::vector<SeriesRecord> series;
};

/// The three taxes of a case: parts of its bulk-synchronous baseline's time, in microseconds; nullopt: not measured.
struct TaxRecord {
  std::int64_t id = 0, run = 0;
  std::string suite;    ///< its name, or empty
  std::string of_case;  ///< "gemm-rs benchmarks[1]", or without a suite the operator and what differs from its defaults
  std::string baseline;  ///< whose time it is that is taken apart
  double baseline_us = 0;
  std::optional<double> launch_us, bulk_us, locality_us;
  std::optional<double> rest_us;   ///< of baseline_us, that no experiment explains
  std::optional<double> fused_us;  ///< the operator's own time, which is what is left of baseline_us
  std::string detail = "{}";       ///< a JSON object: how each was measured, and what the fused kernel saves of each
};

/// farwarp/results.db in $XDG_DATA_HOME, or in $HOME/.local/share; kUnavailable if neither is set.
Result<std::filesystem::path> default_path();

class Store {
 public:
  /// kInvalidArgument says why not; see open_results().
  static Result<Store> open(const std::string& path, Database::Access access);

  /// Writes a case, and its run with the first one (`run.id` is 0 until then), in one transaction: a writer that is
  /// killed loses at most the case that it was writing.
  Status add(RunRecord& run, const CaseRecord& added);
  /// The same of a case's taxes. kInvalidArgument: `detail` is not a JSON object.
  Status add(RunRecord& run, const TaxRecord& added);
  /// Notes that no case of the run is left.
  Status complete(const RunRecord& run);

  /// All runs, the oldest first.
  Result<std::vector<RunRecord>> runs();
  /// The cases of a run, or of a suite, in the order in which they were written; their series have no samples yet.
  Result<std::vector<CaseRecord>> cases_of_run(std::int64_t run);
  Result<std::vector<CaseRecord>> cases_of_suite(const std::string& suite);
  /// In the order in which they were written.
  Result<std::vector<TaxRecord>> taxes_of_run(std::int64_t run);
  /// Fills the samples of `series`.
  Status read_samples(SeriesRecord& series);

 private:
  explicit Store(Database database) : database_(std::move(database)) {}
  Status add(RunRecord& run, const std::function<Status(std::int64_t run)>& insert_of_run);
  Result<std::int64_t> insert(const RunRecord& run);
  Result<std::int64_t> insert(const CaseRecord& added, std::int64_t run);
  Status insert(const SeriesRecord& series, std::int64_t of_case);
  Status insert(const TaxRecord& added, std::int64_t run);
  Result<std::vector<CaseRecord>> read_cases(Result<Statement> statement);
  Status read_series(CaseRecord& of_case);

  Database database_;
};

}  // namespace farwarp::results
