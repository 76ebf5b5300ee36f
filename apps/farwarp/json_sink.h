// Where a command writes its results as JSON.
#pragma once

#include <string>
#include <vector>

#include "farwarp/base/status.h"

namespace farwarp::cli {

/// SIGINT ends the process with kExitInterrupted; if a file of results is being replaced, after that.
void report_interrupts();

/// kInvalidArgument if the file that `option` is to write is one of those that the command reads, under whatever name.
Status check_output(const char* option, const std::string& path, const std::vector<std::string>& read);

/// Writes the JSON results. A file is replaced as a whole after each case, so an interrupted run keeps the results of
/// finished cases.
class JsonSink {
 public:
  /// Checks the path before anything runs, so that no results are lost to a wrong path. `read`: the files that the
  /// command reads; it is none of them. `option` is how errors call the path.
  Status open(const std::string& path, const std::vector<std::string>& read, const char* option = "--json");
  bool to_stdout() const { return path_ == "-"; }
  void keep(const std::string& text) const;
  Status write(const std::string& text) const;

 private:
  Status replace(const std::string& text) const;

  std::string path_;
  bool device_ = false;
};

}  // namespace farwarp::cli
