// The results of a run: a table for people, JSON for programs.
#pragma once

#include <map>
#include <span>
#include <string>

#include "farwarp/harness/runner.h"

namespace farwarp::harness {

inline constexpr int kSchemaVersion = 2;

/// Cases of a suite that did not run: operator -> how many, and why.
struct Skipped {
  int cases = 0;
  std::string reason;
};
using SkippedByOp = std::map<std::string, Skipped>;

/// Parts of a table's lines: a case's name and parameters; "pass" or "FAIL"; text that is moved to the right.
std::string title_of(const CaseRequest& request);
std::string marked(bool pass, bool colour);
std::string indented(const std::string& text);

/// One line of the table; if the case failed, the lines below it say why. `colour`: the result is coloured.
std::string table_header();
std::string table_row(const CaseResult& result, bool colour);
/// The same for a bench: a line per measurement, then the floor and the plan.
std::string bench_header();
std::string bench_rows(const CaseResult& result, bool colour);
/// "9 passed, 0 failed, 22 skipped (ag-gemm 11, gemm-rs 11: not in this build)".
std::string summary(std::span<const CaseResult> results, const SkippedByOp& skipped);

/// `build`: version, commit and targets, as --version prints them.
/// `complete`: no case is left to run.
std::string to_json(std::span<const CaseResult> results, const SkippedByOp& skipped,
                    const std::map<std::string, std::string>& build, bool complete = true);

}  // namespace farwarp::harness
