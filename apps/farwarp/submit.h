// farwarp submit: kernels of somebody else.
#pragma once

#include <string>

#include "commands.h"

namespace farwarp::cli {

/// Options of submit check and submit bench.
struct SubmitOptions {
  CheckOptions selection;  ///< `what` is --op
  std::string file;
  std::string limit_s;  ///< the text that the user gave; empty if none
};
int submit_check_command(const SubmitOptions& options);
int submit_bench_command(const SubmitOptions& options);
/// Writes the header, an example and its CMakeLists.txt to a new folder.
int submit_new_command(const std::string& folder);

}  // namespace farwarp::cli
