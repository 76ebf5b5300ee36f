// For tests of the program: runs it as its user does, with a folder for what it writes.
#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "farwarp/base/temporary_folder_test.h"

struct Output {
  int code = -1;
  std::string out;
  std::string err;
};

inline std::string text_of(const std::filesystem::path& path) {
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

class ProgramTest : public testing::Test {
 protected:
  /// Benches keep their results in the folder, not among those of the test's user.
  ProgramTest() { setenv("XDG_DATA_HOME", (folder_ / "data").c_str(), 1); }
  ~ProgramTest() override { unsetenv("XDG_DATA_HOME"); }

  Output run(const std::string& arguments) const {
    const std::string command = std::string(FARWARP_PROGRAM) + " " + arguments + " >" + (folder_ / "out").string() +
                                " 2>" + (folder_ / "err").string();
    const int status = std::system(command.c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, text_of(folder_ / "out"), text_of(folder_ / "err")};
  }

  farwarp::TemporaryFolder folder_;
};
