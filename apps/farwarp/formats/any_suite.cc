#include "any_suite.h"

#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>

#include "farwarp/base/file.h"
#include "farwarp/base/json.h"
#include "farwarp/harness/params.h"
#include "flashinfer.h"

namespace farwarp::cli {
namespace {

namespace fs = std::filesystem;

Result<LoadedSuite> load_task(const fs::path& path, const std::string& op) {
  const auto text = read_file(path, kMaxJsonBytes);
  if (!text.ok()) return invalid_argument(fmt::format("suite {} {}", path.string(), text.status().message()));
  auto suite = parse_task(*text, path.string(), op);
  if (!suite.ok()) return suite.status();
  return LoadedSuite{std::move(*suite), {}, {path.string()}};
}

/// Whether a file that can be read is a definition. What is wrong with another is for its own parser to say.
bool is_definition(const fs::path& path) {
  const auto text = read_file(path, kMaxJsonBytes);
  if (!text.ok()) return false;
  const auto root = parse_json(*text);
  return root.ok() && root->is_object() && root->contains("op_type");
}

Result<LoadedSuite> load_own(const std::string& name) {
  auto suite = harness::load_suite(name);
  if (!suite.ok()) return suite.status();
  const char* const folder = std::getenv("FARWARP_SUITES");
  const std::string file =
      harness::is_suite_file(name) ? name : fmt::format("{}/{}.json", folder != nullptr ? folder : "", name);
  return LoadedSuite{std::move(*suite), {}, {file}};
}

}  // namespace

Result<LoadedSuite> load_any_suite(const std::string& name, const std::string& op) {
  const fs::path path = name;
  const auto extension = path.extension();
  std::error_code error;
  if (extension == ".yml" || extension == ".yaml") return load_task(path, op);
  if (extension == ".jsonl") return load_flashinfer(path);
  if (harness::is_suite_file(name)) {
    if (fs::is_directory(path / "definitions", error)) return load_flashinfer(path);
    if (fs::is_directory(path, error) && fs::exists(path / "task.yml", error)) return load_task(path / "task.yml", op);
    if (is_definition(path)) return load_flashinfer(path);
  }
  return load_own(name);
}

}  // namespace farwarp::cli
