// A suite: the shapes of a challenge or a regression run, as data. suites/amd2025.json shows the format.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "farwarp/base/status.h"
#include "farwarp/harness/case.h"

namespace farwarp::harness {

enum class SuiteGroup : std::uint8_t { kTests, kBenchmarks };
constexpr std::string_view name_of(SuiteGroup group) { return group == SuiteGroup::kTests ? "tests" : "benchmarks"; }

struct SuiteEntry {
  std::string op;
  SuiteGroup group = SuiteGroup::kTests;
  int index = 0;  ///< within its op and group, from 0
  Params params;  ///< the entry's, and the op's dtype
  std::uint64_t seed = 0;
  int ranks = 0;                            ///< that the parameters are of: the entry's, or the suite's
  bool states_ranks = false;                ///< the entry does itself
  std::string source;                       ///< where the shape is from: the entry's, or the suite's
  std::string about;                        ///< in a few words, with the name of the entry's source; or empty
  std::optional<double> speed_of_light_us;  ///< stated by the suite's author, for the author's machine
};

struct Suite {
  std::string name;
  std::string title;
  std::string source;
  int ranks = 0;
  std::vector<SuiteEntry> entries;
};

/// `file` is the name of the suite in errors. Entries of registered operators are checked by these operators, other
/// entries only in form. The message of kInvalidArgument is one line: file, op, entry, key, value, what is allowed.
Result<Suite> parse_suite(std::string_view text, std::string_view file);

/// A file of suites/, as it was when the program was built. The build generates built_in_suites().
struct BuiltInSuite {
  std::string_view name, text;
};
std::span<const BuiltInSuite> built_in_suites();

/// Whether `name` is one of a file: it has a slash, or ends in .json, .jsonl, .yml or .yaml.
bool is_suite_file(std::string_view name);

/// The built-in suites and those in $FARWARP_SUITES, sorted.
std::vector<std::string> suite_names();

/// Loads the file `name` if is_suite_file(name); else name.json in the folder $FARWARP_SUITES if it
/// exists there; else the built-in suite of that name.
Result<Suite> load_suite(std::string_view name);

}  // namespace farwarp::harness
