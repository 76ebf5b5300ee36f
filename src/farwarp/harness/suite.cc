#include "farwarp/harness/suite.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "farwarp/base/json.h"
#include "farwarp/harness/params.h"
#include "farwarp/harness/problem.h"

namespace farwarp::harness {
namespace {

using nlohmann::json;

constexpr std::int64_t kLargestValue = std::numeric_limits<std::int32_t>::max();
constexpr std::string_view kSpeedOfLight = "speed_of_light_us_";

class SuiteParser {
 public:
  explicit SuiteParser(std::string_view file) : file_(file) {}

  Result<Suite> parse(std::string_view text) {
    const auto root = parse_json(text);
    if (!root.ok()) fail("", root.status().message());
    if (ok()) read_root(*root);
    if (!ok()) return status_;
    return std::move(suite_);
  }

 private:
  bool ok() const { return status_.ok(); }

  void fail(std::string_view where, std::string_view what) {
    const auto text = [&] { return fmt::format("{}: {}{}{}", file_, where, where.empty() ? "" : ": ", what); };
    if (ok()) status_ = invalid_argument(one_line(text()));
  }
  void reject(std::string_view where, std::string_view key, const json& value, std::string_view allowed) {
    fail(where, fmt::format("{} is {}: allowed is {}", key, shown_json(value), allowed));
  }

  void only_keys(std::string_view where, const json& object, std::initializer_list<std::string_view> allowed) {
    for (const auto& [key, value] : object.items()) {
      if (std::find(allowed.begin(), allowed.end(), key) != allowed.end()) continue;
      std::string names;
      for (const std::string_view name : allowed) append_to_list(names, ", ", name);
      return reject(where, fmt::format("unknown key {}", shown_json(json(key))), value, names);
    }
  }

  std::string read_text(std::string_view where, const json& object, const char* key, bool required) {
    if (!object.contains(key)) {
      if (required) fail(where, fmt::format("{} is missing", key));
      return {};
    }
    if (object[key].is_string()) return object[key].get<std::string>();
    reject(where, key, object[key], "a string");
    return {};
  }

  void read_root(const json& root) {
    if (!root.is_object()) return reject("", "the file", root, "an object");
    only_keys("", root, {"name", "title", "source", "sources", "ranks", "ranking", "ops"});
    suite_.name = read_text("", root, "name", true);
    suite_.title = read_text("", root, "title", false);
    suite_.source = read_text("", root, "source", false);
    read_sources(root.value("sources", json::object()));
    read_text("", root, "ranking", false);
    suite_.ranks = read_ranks("", root.value("ranks", json()));
    const json ops = root.value("ops", json());
    if (!ops.is_object() || ops.empty()) return reject("", "ops", ops, "an object with at least one operator");
    for (const auto& [name, op] : ops.items()) {
      if (ok()) read_op(name, op);
    }
  }

  void read_sources(const json& sources) {
    if (!sources.is_object()) return reject("", "sources", sources, "an object of texts");
    for (const auto& [name, text] : sources.items()) {
      if (!text.is_string()) return reject("sources", name, text, "a string");
      sources_[name] = text.get<std::string>();
    }
  }

  int read_ranks(std::string_view where, const json& value) {
    return static_cast<int>(read_integer(where, "ranks", value, 1, kMaxSuiteRanks));
  }

  std::int64_t read_integer(std::string_view where, std::string_view key, const json& value, std::int64_t low,
                            std::int64_t high) {
    const bool fits = value.is_number_unsigned() ? value.get<std::uint64_t>() <= static_cast<std::uint64_t>(high)
                                                 : value.is_number_integer();
    if (fits && value.get<std::int64_t>() >= low && value.get<std::int64_t>() <= high) return value.get<std::int64_t>();
    reject(where, key, value, fmt::format("an integer in {}..{}", low, high));
    return low;
  }

  void read_op(const std::string& name, const json& op) {
    const std::string where = fmt::format("op {}", shown_json(json(name)));
    if (!op.is_object()) return reject(where, "its value", op, "an object");
    only_keys(where, op, {"dtype", "inputs", "tolerance_of_the_challenge", "tests", "benchmarks"});
    const std::string dtype = read_text(where, op, "dtype", false);
    read_text(where, op, "inputs", false);
    read_tolerance(where, op.value("tolerance_of_the_challenge", json::object()));
    std::set<std::string> keys;
    for (const SuiteGroup group : {SuiteGroup::kTests, SuiteGroup::kBenchmarks}) {
      const json entries = op.value(std::string(name_of(group)), json::array());
      if (!entries.is_array()) return reject(where, name_of(group), entries, "an array of entries");
      std::set<json> seen;
      for (std::size_t i = 0; i < entries.size() && ok(); ++i) {
        const std::string at = fmt::format("{}: {}[{}]", where, name_of(group), i);
        if (!seen.insert(entries[i]).second)
          return reject(at, "the entry", entries[i], "an entry that is not there already");
        SuiteEntry entry;
        entry.op = name;
        entry.group = group;
        entry.index = static_cast<int>(i);
        entry.ranks = suite_.ranks;
        entry.source = suite_.source;
        if (!dtype.empty()) entry.params["dtype"] = dtype;
        read_entry(at, entries[i], entry, keys);
      }
    }
  }

  void read_tolerance(std::string_view where, const json& tolerance) {
    if (!tolerance.is_object())
      return reject(where, "tolerance_of_the_challenge", tolerance, "an object with rtol and atol");
    only_keys(where, tolerance, {"rtol", "atol"});
    for (const auto& [key, value] : tolerance.items()) {
      if (!value.is_number() || !(value.get<double>() >= 0 && value.get<double>() <= 1))
        reject(where, key, value, "a number in 0..1");
    }
  }

  // `keys` holds the parameters of the operator's first entry. All its entries must have the same ones.
  void read_entry(const std::string& where, const json& object, SuiteEntry& entry, std::set<std::string>& keys) {
    if (!object.is_object()) return reject(where, "the entry", object, "an object");
    if (!object.contains("seed")) return fail(where, "seed is missing");
    std::set<std::string> own_keys;
    for (const auto& [key, value] : object.items()) {
      if (key == "seed") {
        entry.seed =
            static_cast<std::uint64_t>(read_integer(where, key, value, 0, std::numeric_limits<std::int64_t>::max()));
      } else if (key.starts_with(kSpeedOfLight)) {
        if (!value.is_number() || !(value.get<double>() > 0 && value.get<double>() < 1e9)) {
          return reject(where, key, value, "microseconds above 0 and below 1e9");
        }
        entry.speed_of_light_us = value.get<double>();
      } else if (key == "ranks") {
        entry.ranks = read_ranks(where, value);
        entry.states_ranks = true;
      } else if (key == "source" || key == "about") {
        read_text(where, object, key.c_str(), true);
      } else if (value.is_boolean()) {
        entry.params[key] = std::to_string(value.get<bool>());
        own_keys.insert(key);
      } else if (value.is_string()) {
        entry.params[key] = value.get<std::string>();
        own_keys.insert(key);
      } else {
        entry.params[key] = std::to_string(read_integer(where, key, value, 0, kLargestValue));
        own_keys.insert(key);
      }
    }
    if (ok()) read_origin(where, object, entry);
    if (!ok()) return;
    if (keys.empty()) keys = own_keys;
    check_same_keys(where, object, own_keys, keys);
    check_against_op(where, entry);
    if (ok()) suite_.entries.push_back(std::move(entry));
  }

  void read_origin(const std::string& where, const json& object, SuiteEntry& entry) {
    entry.about = object.value("about", "");
    const std::string name = object.value("source", "");
    if (name.empty()) return;
    const auto found = sources_.find(name);
    if (found == sources_.end()) {
      std::string names;
      for (const auto& [known, text] : sources_) append_to_list(names, ", ", known);
      return reject(where, "source", object["source"], names.empty() ? "a name in the suite's sources" : names);
    }
    entry.source = found->second;
    entry.about = entry.about.empty() ? name : fmt::format("{}, {}", name, entry.about);
  }

  void check_same_keys(const std::string& where, const json& object, const std::set<std::string>& own,
                       const std::set<std::string>& keys) {
    for (const std::string& key : own) {
      if (!keys.contains(key))
        reject(where, fmt::format("unknown key {}", shown_json(json(key))), object[key],
               "the keys of the op's first entry");
    }
    for (const std::string& key : keys) {
      if (!own.contains(key))
        fail(where, fmt::format("{} is missing: the op's first entry has it", shown_json(json(key))));
    }
  }

  void check_against_op(const std::string& where, const SuiteEntry& entry) {
    const OperatorInfo* op = find_operator(entry.op);
    if (op == nullptr || !ok()) return;
    const auto made = op->make(entry.params);
    if (!made.ok()) fail(where, made.status().message());
  }

  std::string_view file_;
  Status status_;
  Suite suite_;
  std::map<std::string, std::string> sources_;
};

}  // namespace

Result<Suite> parse_suite(std::string_view text, std::string_view file) { return SuiteParser(file).parse(text); }

}  // namespace farwarp::harness
