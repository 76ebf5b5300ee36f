// What a bench has measured, as the store keeps it.
#pragma once

#include <string>

#include "farwarp/harness/runner.h"
#include "farwarp/results/store.h"

namespace farwarp::results {

/// Where a case comes from.
struct Origin {
  std::string suite;     ///< its name, or empty
  std::string settings;  ///< of the user, which differ from the suite: "dtype=bf16"
};

/// "farwarp 0123456789ab": its entry on leaderboards.
std::string own_entry(const std::string& commit);

/// `result` must be of a bench. `entry`: whose the operator's own time is, as own_entry().
CaseRecord record_of(const harness::CaseResult& result, const Origin& origin, const std::string& entry);

/// `result` must have taxes.
TaxRecord tax_record_of(const harness::CaseResult& result, const Origin& origin);

}  // namespace farwarp::results
