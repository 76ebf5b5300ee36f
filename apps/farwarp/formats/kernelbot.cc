// Of a task.yml only the cases are read: its files, timeouts and ranking are for the program that runs submissions.
// yaml-cpp throws; no exception leaves this file.
#include <fmt/format.h>
#include <yaml-cpp/yaml.h>

#include <filesystem>
#include <set>

#include "any_suite.h"
#include "farwarp/base/json.h"
#include "farwarp/harness/params.h"
#include "farwarp/harness/problem.h"

namespace farwarp::cli {
namespace {

using harness::Suite;
using harness::SuiteEntry;
using harness::SuiteGroup;

constexpr std::size_t kMostCases = 10'000;

/// Folders of the tasks, and the operators that compute them.
constexpr std::pair<std::string_view, std::string_view> kTasks[] = {
    {"all2all", "moe-a2a"}, {"ag-gemm", "ag-gemm"}, {"gemm-rs", "gemm-rs"}};

class TaskReader {
 public:
  TaskReader(const std::string& file, const std::string& op) : file_(file), op_(op) {}

  Result<Suite> read(std::string_view text) {
    try {
      read_root(YAML::Load(std::string(text)));
    } catch (const YAML::Exception& error) {
      fail("", fmt::format("not valid YAML at line {}: {}", error.mark.line + 1, error.msg));
    }
    if (!status_.ok()) return status_;
    return std::move(suite_);
  }

 private:
  void fail(std::string_view where, std::string_view what) {
    if (status_.ok())
      status_ =
          invalid_argument(harness::one_line(fmt::format("{}: {}{}{}", file_, where, where.empty() ? "" : ": ", what)));
  }
  void reject(std::string_view where, std::string_view key, std::string_view value, std::string_view allowed) {
    fail(where, fmt::format("{} is '{}': allowed is {}", key, harness::one_line(value), allowed));
  }

  void find_op() {
    if (!op_.empty()) return;
    std::error_code error;
    const std::string folder = std::filesystem::absolute(file_, error).parent_path().filename().string();
    for (const auto& [task, op] : kTasks) {
      if (folder == task) op_ = op;
    }
    if (op_.empty())
      reject("", "the task's folder", folder, "all2all, ag-gemm or gemm-rs, or an operator named before --suite");
  }

  void read_root(const YAML::Node& root) {
    if (!root.IsMap()) return fail("", "it is no map");
    find_op();
    const std::filesystem::path path = file_;
    suite_.name = path.parent_path().filename().empty() ? path.stem().string() : path.parent_path().filename().string();
    suite_.title = "KernelBot task";
    suite_.source = file_;
    for (const SuiteGroup group : {SuiteGroup::kTests, SuiteGroup::kBenchmarks}) {
      const YAML::Node cases = root[std::string(name_of(group))];
      if (!cases) continue;
      if (!cases.IsSequence() || cases.size() > kMostCases)
        return fail(name_of(group), fmt::format("allowed is a list of up to {} cases", kMostCases));
      for (std::size_t i = 0; i < cases.size() && status_.ok(); ++i) read_case(cases[i], group, static_cast<int>(i));
    }
    if (suite_.entries.empty()) return fail("", "it has no case: allowed are tests and benchmarks");
    std::set<int> ranks;
    for (const SuiteEntry& entry : suite_.entries) ranks.insert(entry.ranks);
    suite_.ranks = *ranks.rbegin();
    for (SuiteEntry& entry : suite_.entries) entry.states_ranks = ranks.size() > 1;
  }

  void read_case(const YAML::Node& node, SuiteGroup group, int index) {
    const std::string where = fmt::format("{}[{}]", name_of(group), index);
    if (!node.IsMap()) return fail(where, "it is no map");
    SuiteEntry entry;
    entry.op = op_;
    entry.group = group;
    entry.index = index;
    entry.source = suite_.source;
    bool has_seed = false;
    for (const auto& pair : node) {
      if (!pair.first.IsScalar() || !pair.second.IsScalar())
        return fail(where, "its keys and values are not all scalars");
      const std::string key = pair.first.Scalar(), value = pair.second.Scalar();
      if (key == "seed") {
        has_seed = true;
        entry.seed = static_cast<std::uint64_t>(number(where, key, value, 0, (std::int64_t{1} << 62)));
      } else if (key == "world_size") {
        entry.ranks = static_cast<int>(number(where, key, value, 1, harness::kMaxSuiteRanks));
      } else if (!entry.params.emplace(key, as_parameter(pair.second)).second) {
        return fail(where, fmt::format("{} is given twice", key));
      }
    }
    if (!has_seed) fail(where, "seed is missing");
    if (entry.ranks == 0) fail(where, "world_size is missing: allowed are tasks of several ranks, which state it");
    check_against_op(where, entry);
    if (status_.ok()) suite_.entries.push_back(std::move(entry));
  }

  std::int64_t number(std::string_view where, std::string_view key, std::string_view text, std::int64_t low,
                      std::int64_t high) {
    const auto value = harness::parse_integer(key, text, low, high);
    if (value.ok()) return *value;
    fail(where, value.status().message());
    return low;
  }

  /// YAML writes true in several ways, which operators do not read.
  static std::string as_parameter(const YAML::Node& value) {
    bool flag = false;
    if (YAML::convert<bool>::decode(value, flag)) return flag ? "1" : "0";
    return value.Scalar();
  }

  void check_against_op(std::string_view where, const SuiteEntry& entry) {
    if (!status_.ok()) return;
    const harness::OperatorInfo* op = harness::find_operator(entry.op);
    if (op == nullptr) return fail("", fmt::format("operator {} is not in this build", entry.op));
    const auto made = op->make(entry.params);
    if (!made.ok()) fail(where, made.status().message());
  }

  std::string file_, op_;
  Status status_;
  Suite suite_;
};

}  // namespace

Result<Suite> parse_task(std::string_view text, const std::string& file, const std::string& op) {
  return TaskReader(file, op).read(text);
}

}  // namespace farwarp::cli
