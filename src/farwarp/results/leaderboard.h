// Entries of a suite, ranked by the geometric mean of their cases' medians.
#pragma once

#include <string>
#include <vector>

#include "farwarp/base/status.h"
#include "farwarp/harness/suite.h"
#include "farwarp/results/store.h"

namespace farwarp::results {

/// A benchmark of the suite.
struct Slot {
  std::string op, label;
  bool operator==(const Slot&) const = default;
  std::string name() const { return op + " " + label; }
};

/// An entry's newest time of a benchmark.
struct Time {
  double median_us = 0;  ///< of the slowest rank, cold; 0: none
  std::int64_t run = 0;
  std::string refused;  ///< why it does not count, or empty
};

struct Place {
  std::string entry;
  std::vector<Time> times;       ///< one for each slot
  double geometric_mean_us = 0;  ///< 0 if it is not ranked
  std::string newest;            ///< when the newest of its runs began

  int lacking() const;  ///< slots without a time
  int refused() const;
  bool ranked() const { return geometric_mean_us > 0; }
};

/// Only times of one machine, number of ranks and settings are compared.
struct Board {
  std::string machine;
  int ranks = 0;
  std::string settings;  ///< what the runs changed of the suite
  bool emulated = false;
  std::vector<Slot> slots;
  /// Ranked ones, the fastest first; then those with a refused time; then incomplete ones.
  std::vector<Place> places;
};

/// Not in the store: in each benchmark the fastest of the baselines.
inline constexpr const char* kFastestBaseline = "fastest baseline";

/// One board for each machine, number of ranks and settings of which there are times. `op`: of this operator's
/// benchmarks alone; empty: of all. Of an entry's runs the newest counts in each case. A time counts if its outputs
/// were verified, it is not below its floor, and its parameters are those of the newest run of the case.
Result<std::vector<Board>> leaderboard(Store& store, const harness::Suite& suite, const std::string& op);

/// Tables for people, and JSON for programs.
std::string to_text(const std::vector<Board>& boards, const std::string& suite);
std::string to_json(const std::vector<Board>& boards, const std::string& suite);

}  // namespace farwarp::results
