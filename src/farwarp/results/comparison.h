// Two sets of results, case by case: is B faster than A, or slower?
#pragma once

#include <string>
#include <vector>

#include "farwarp/base/status.h"
#include "farwarp/results/statistics.h"
#include "farwarp/results/store.h"

namespace farwarp::results {

/// A case of a side, with the samples of all its runs that count.
struct SideCase {
  CaseRecord record;  ///< of the newest of these runs; series have samples
  std::string machine, target;
  int ranks = 0;

  /// Equal for cases that may be compared.
  std::string key() const;
  /// "gemm-rs benchmarks[1]", or without a suite the operator and what differs from its defaults.
  std::string title() const;
};

struct Side {
  std::string name;  ///< as the user gave it
  std::vector<RunRecord> runs;
  std::vector<SideCase> cases;
};

/// The runs `ids` of a store together: samples of the same case are pooled. kInvalidArgument names one that is not
/// there, and those that are, or two that are of different machines or commits.
Result<Side> side_of_runs(Store& store, const std::string& name, const std::vector<std::int64_t>& ids);
/// The newest run of each case, among the runs with this label; empty: among all.
Result<Side> newest_side(Store& store, const std::string& name, const std::string& label);

struct SeriesComparison {
  std::string name;
  bool ours = true;     ///< false: a baseline, which both sides time as a control and which decides nothing
  bool main = false;    ///< the operator's own result
  Judgement judgement;  ///< of times, confirmed by cycles where both sides have them
  bool has_cycles = false;
  Judgement cycles;  ///< of cycles
};

struct CaseComparison {
  SideCase of;         ///< as A has it
  std::string failed;  ///< the outputs of a side are wrong: nothing is compared
  std::vector<SeriesComparison> series;
};

struct Comparison {
  Side a, b;
  std::vector<CaseComparison> cases;        ///< those of both sides
  std::vector<std::string> only_a, only_b;  ///< titles of cases and series that the other side lacks
  double ratio = 0;                         ///< geometric mean of B / A over the operators' own results; 0: none

  int count(Verdict verdict) const;  ///< of our series
  int failed() const;                ///< cases whose outputs are wrong
  bool emulated() const;
};

/// kInvalidArgument if no case is on both sides.
Result<Comparison> compare(Side a, Side b);

std::string to_text(const Comparison& comparison);
std::string to_json(const Comparison& comparison);

}  // namespace farwarp::results
