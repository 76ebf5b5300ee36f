// Finds the files of FlashInfer-Bench's folders.
#include <fmt/format.h>

#include <algorithm>

#include "farwarp/base/file.h"
#include "farwarp/base/json.h"
#include "farwarp/harness/params.h"
#include "flashinfer.h"

namespace farwarp::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMostWorkloadBytes = std::size_t{64} << 20;
constexpr std::size_t kMostCases = 100'000;

Status wrong(const fs::path& path, std::string_view what) {
  return invalid_argument(harness::one_line(fmt::format("{}: {}", path.string(), what)));
}

/// All files with this extension under a folder, by their names without it.
std::map<std::string, fs::path> files_under(const fs::path& folder, const char* extension) {
  std::map<std::string, fs::path> files;
  std::error_code error;
  for (auto at = fs::recursive_directory_iterator(folder, fs::directory_options::skip_permission_denied, error);
       !error && at != fs::recursive_directory_iterator(); at.increment(error)) {
    if (at->path().extension() == extension) files.emplace(at->path().stem().string(), at->path());
  }
  return files;
}

/// The folder that has `part` ("definitions") in it and the file under that, else the file's own.
fs::path root_of(const fs::path& file, const char* part) {
  const fs::path whole = fs::absolute(file).lexically_normal();
  for (fs::path at = whole.parent_path(); at != at.root_path(); at = at.parent_path()) {
    if (at.filename() == part) return at.parent_path();
  }
  return whole.parent_path();
}

/// Beside `file`, or in the other part of its folder.
Result<fs::path> partner_of(const fs::path& file, const fs::path& root, const char* part, const char* extension) {
  std::error_code error;
  fs::path beside = file;
  beside.replace_extension(extension);
  if (fs::exists(beside, error)) return beside;
  const auto files = files_under(root / part, extension);
  const auto found = files.find(file.stem().string());
  if (found != files.end()) return found->second;
  return wrong(file,
               fmt::format("there is no {} beside it or under {}", beside.filename().string(), (root / part).string()));
}

Result<Definition> read_definition(const fs::path& path) {
  const auto text = read_file(path, kMaxJsonBytes);
  if (!text.ok()) return invalid_argument(fmt::format("suite {} {}", path.string(), text.status().message()));
  auto definition = parse_definition(*text);
  if (!definition.ok()) return wrong(path, definition.status().message());
  return definition;
}

class Loader {
 public:
  explicit Loader(fs::path root) : root_(std::move(root)) {}

  /// The cases of one definition. `lenient`: what no operator of ours computes is skipped.
  Status add(const fs::path& definition_path, const fs::path& workloads_path, bool lenient) {
    const auto definition = read_definition(definition_path);
    if (!definition.ok()) return definition.status();
    const auto text = read_file(workloads_path, kMostWorkloadBytes);
    if (!text.ok()) return wrong(workloads_path, text.status().message());
    loaded_.files.push_back(definition_path.string());
    loaded_.files.push_back(workloads_path.string());
    const auto op = operator_of(*definition);
    if (!op.ok() && !lenient) return wrong(definition_path, op.status().message());
    int number = 0;
    for (std::size_t at = 0; at < text->size();) {
      const std::size_t end = std::min(text->find('\n', at), text->size());
      const std::string_view line = std::string_view(*text).substr(at, end - at);
      at = end + 1;
      ++number;
      if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
      Status status = op.ok() ? add_workload(*definition, line, definition_path) : op.status();
      if (status.ok()) continue;
      if (!lenient) return wrong(workloads_path, fmt::format("line {}: {}", number, status.message()));
      auto& skipped = loaded_.skipped[definition->name];
      ++skipped.cases;
      skipped.reason = status.message();
    }
    return {};
  }

  Result<LoadedSuite> finish(const fs::path& path) {
    harness::Suite& suite = loaded_.suite;
    std::string reasons;
    for (const auto& [name, skipped] : loaded_.skipped)
      harness::append_to_list(reasons, "; ", fmt::format("{}: {}", name, skipped.reason));
    if (suite.entries.empty())
      return wrong(path, reasons.empty() ? "it has no workload" : "it has no workload for our operators: " + reasons);
    suite.name = path.stem().string();
    suite.title = "FlashInfer-Bench";
    suite.source = path.string();
    suite.ranks = 1;
    for (const harness::SuiteEntry& entry : suite.entries) suite.ranks = std::max(suite.ranks, entry.ranks);
    return std::move(loaded_);
  }

 private:
  Status add_workload(const Definition& definition, std::string_view line, const fs::path& source) {
    const auto workload = parse_workload(line, definition);
    if (!workload.ok()) return workload.status();
    auto imported = import_workload(definition, *workload, root_);
    if (!imported.ok()) return imported.status();
    if (loaded_.suite.entries.size() == kMostCases)
      return invalid_argument(fmt::format("allowed are up to {} workloads", kMostCases));
    harness::SuiteEntry entry;
    entry.op = imported->op;
    entry.group = harness::SuiteGroup::kBenchmarks;
    entry.index = counts_[entry.op]++;
    entry.params = std::move(imported->params);
    entry.seed = static_cast<std::uint64_t>(entry.index) + 1;
    entry.states_ranks = imported->ranks != 0;
    entry.ranks = std::max(imported->ranks, 1);
    entry.source = source.string();
    entry.about = fmt::format("{} {}", definition.name, workload->uuid.substr(0, 8));
    loaded_.suite.entries.push_back(std::move(entry));
    return {};
  }

  fs::path root_;
  LoadedSuite loaded_;
  std::map<std::string, int> counts_;
};

}  // namespace

Result<LoadedSuite> load_flashinfer(const fs::path& path) {
  std::error_code error;
  if (fs::is_directory(path, error)) {
    Loader loader(path);
    const auto workloads = files_under(path / "workloads", ".jsonl");
    for (const auto& [name, definition] : files_under(path / "definitions", ".json")) {
      const auto found = workloads.find(name);
      if (found == workloads.end()) continue;
      if (Status status = loader.add(definition, found->second, true); !status.ok()) return status;
    }
    return loader.finish(path);
  }
  const bool is_workloads = path.extension() == ".jsonl";
  const fs::path root = root_of(path, is_workloads ? "workloads" : "definitions");
  const auto partner =
      is_workloads ? partner_of(path, root, "definitions", ".json") : partner_of(path, root, "workloads", ".jsonl");
  if (!partner.ok()) return partner.status();
  Loader loader(root);
  const Status status = is_workloads ? loader.add(*partner, path, false) : loader.add(path, *partner, false);
  if (!status.ok()) return status;
  return loader.finish(path);
}

}  // namespace farwarp::cli
