// What a database of results says about one machine, for people: a page, tables in documents, and the JSON of both.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "farwarp/base/status.h"
#include "farwarp/results/store.h"

namespace farwarp::results {

inline constexpr int kReportVersion = 1;  ///< of the JSON
inline constexpr const char* kNoMeaning = "times of the emulator: they say nothing about any machine";

struct ReportSelection {
  std::vector<std::string> suites;  ///< empty: all, and cases of no suite
  std::string machine;              ///< empty: that of the newest complete run
};

/// The newest complete run of each case and of its taxes counts. Times are medians in microseconds, cold, of the
/// slowest rank; what is not known is null. kInvalidArgument names --suite or --machine, or says that no run is
/// complete.
Result<nlohmann::json> make_report(Store& store, const ReportSelection& selection);

/// Text that `farwarp report --json` wrote. The message of kInvalidArgument lacks the file's name.
Result<nlohmann::json> parse_report(const std::string& text);
std::string to_text(const nlohmann::json& report);

/// A trace as `farwarp trace` writes it.
struct NamedTrace {
  std::string name, text;
};

/// One file without links to others. kInvalidArgument: a trace is none.
Result<std::string> page_of(const nlohmann::json& report, const std::vector<NamedTrace>& traces);

/// SVG: for each case of each suite a row with the times of floor, fastest baseline and ours on a logarithmic scale.
std::string picture_of(const nlohmann::json& report);

struct Document {
  std::string text;
  int tables = 0;
};

/// Rewrites what is between `<!-- report: data=FILE ... -->` and `<!-- end of report -->` in the Markdown `text`, which
/// is that of the file `path`; FILE is relative to its folder. Errors begin with "path:line: ".
Result<Document> with_tables(const std::string& path, const std::string& text);

}  // namespace farwarp::results
