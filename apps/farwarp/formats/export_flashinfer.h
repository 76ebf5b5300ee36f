// Our operators as definitions of FlashInfer-Bench, with an axis `ranks`.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "farwarp/base/status.h"
#include "farwarp/harness/suite.h"

namespace farwarp::cli {

/// Names of the operators that can be written, with commas.
std::string exported_operators();

/// Writes definitions/TYPE/NAME.json and workloads/TYPE/NAME.jsonl into `folder`: one definition for each set of
/// constants among the entries, whose workloads have random inputs. load_flashinfer() reads them back. Returns the
/// files. kInvalidArgument if `op` cannot be written.
Result<std::vector<std::string>> export_flashinfer(const std::string& op,
                                                   const std::vector<harness::SuiteEntry>& entries,
                                                   const std::filesystem::path& folder);

}  // namespace farwarp::cli
