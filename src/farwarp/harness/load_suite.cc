// Where suites are: files, the folder $FARWARP_SUITES, the program.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <set>

#include "farwarp/base/file.h"
#include "farwarp/harness/params.h"
#include "farwarp/harness/suite.h"

namespace farwarp::harness {
namespace {

namespace fs = std::filesystem;

/// Also of suites of others, which the command line reads.
constexpr std::string_view kExtensions[] = {".json", ".jsonl", ".yml", ".yaml"};

Result<Suite> load_file(const fs::path& path) {
  const auto text = read_file(path, kMaxJsonBytes);
  if (!text.ok()) return invalid_argument(fmt::format("suite {} {}", path.string(), text.status().message()));
  return parse_suite(*text, path.string());
}

/// Empty if $FARWARP_SUITES is not set.
fs::path folder_of_suites() {
  const char* folder = std::getenv("FARWARP_SUITES");
  return folder == nullptr ? "" : folder;
}

}  // namespace

bool is_suite_file(std::string_view name) {
  if (name.find('/') != std::string_view::npos) return true;
  return std::any_of(std::begin(kExtensions), std::end(kExtensions),
                     [&](std::string_view extension) { return name.ends_with(extension); });
}

std::vector<std::string> suite_names() {
  std::set<std::string> names;
  for (const BuiltInSuite& suite : built_in_suites()) names.emplace(suite.name);
  std::error_code error;
  if (const fs::path folder = folder_of_suites(); !folder.empty()) {
    for (auto at = fs::directory_iterator(folder, error); !error && at != fs::directory_iterator();
         at.increment(error)) {
      if (at->path().extension() == ".json") names.insert(at->path().stem().string());
    }
  }
  return {names.begin(), names.end()};
}

Result<Suite> load_suite(std::string_view name) {
  if (is_suite_file(name)) return load_file(fs::path(name));
  const fs::path folder = folder_of_suites();
  if (!folder.empty()) {
    std::error_code error;
    const auto path = folder / (std::string(name) + ".json");
    if (fs::exists(path, error)) return load_file(path);
  }
  std::string allowed;
  for (const BuiltInSuite& suite : built_in_suites()) {
    if (suite.name == name) return parse_suite(suite.text, std::string(name) + ".json");
    append_to_list(allowed, ", ", suite.name);
  }
  return invalid_argument(fmt::format("suite '{}' is unknown: allowed are {}, {}a path with a slash or .json", name,
                                      allowed, folder.empty() ? "" : fmt::format("those in {}, ", folder.string())));
}

}  // namespace farwarp::harness
