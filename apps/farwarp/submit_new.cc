// farwarp submit new: the files that a submission begins with.
#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <string_view>
#include <utility>

#include "print.h"
#include "submit.h"

namespace farwarp::cli {
namespace {

constexpr std::pair<const char*, std::string_view> kFiles[] = {
#include "submission_files.inc"  // the build writes it from examples/submission and submission.h
};

}  // namespace

int submit_new_command(const std::string& folder) {
  std::error_code error;
  if (std::filesystem::exists(folder, error))
    return usage_error(fmt::format("folder is '{}': it exists; allowed is a new one", folder));
  std::filesystem::create_directories(folder, error);
  if (error) return usage_error(fmt::format("folder is '{}': {}", folder, error.message()));
  for (const auto& [name, text] : kFiles) {
    std::ofstream file(std::filesystem::path(folder) / name, std::ios::binary);
    file << text;
    if (!file.flush()) {
      usage_error(fmt::format("folder is '{}': {} cannot be written", folder, name));
      return kExitLacking;
    }
    print_text(stdout, "{}\n", (std::filesystem::path(folder) / name).string());
  }
  return 0;
}

}  // namespace farwarp::cli
