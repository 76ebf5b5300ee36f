// Where bench keeps its results for leaderboards and comparisons.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "commands.h"
#include "farwarp/base/status.h"
#include "farwarp/harness/runner.h"
#include "farwarp/results/record.h"
#include "farwarp/results/store.h"

namespace farwarp::cli {

/// The database that --results names, or the default one.
Result<std::string> results_path(const std::string& option);

/// A label is none of the other things that `farwarp compare` takes (run numbers, paths), and can be printed. `what`
/// begins the error: "--label is".
Status check_label(const std::string& what, const std::string& label);

/// Whether a database named by --results can be used; the error names the option.
Result<results::Store> open_store(const std::string& option, results::Database::Access access);

class ResultsSink {
 public:
  /// Opens the database before anything runs, so that no results are lost to a wrong path. An error says what is wrong
  /// with --results or --label. The default database is not worth a bench: if it cannot be used, stderr says so.
  Status open(const CheckOptions& options, const results::Origin& origin, std::map<std::string, std::string> build);
  /// Empty if nothing is kept.
  const std::string& path() const { return path_; }
  /// Keeps a case. The first error is kept instead, and no more cases are. `entry`: whose time it is; empty: farwarp's.
  void keep(const harness::CaseResult& result, const std::string& entry = {});
  /// `all`: no case was left to run. Returns the first error.
  Status finish(bool all);
  /// "kept as run 3 in ...", or empty.
  std::string summary() const;

 private:
  std::string path_;
  std::optional<results::Store> store_;
  results::RunRecord run_;
  results::Origin origin_;
  Status status_;
};

}  // namespace farwarp::cli
