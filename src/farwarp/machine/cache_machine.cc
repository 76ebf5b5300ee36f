#include "farwarp/machine/cache_machine.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

#include "farwarp/base/json.h"
#include "farwarp/machine/kept_file.h"

namespace farwarp {
namespace {

using nlohmann::json;

constexpr std::int64_t kKb = 1024, kMb = 1024 * 1024;
constexpr double kLargest = 1e9;

CacheMachine mi300x() {
  CacheMachine machine;
  machine.name = "mi300x";
  machine.source =
      "AMD CDNA 3 white paper: 8 XCDs of 38 CUs, 4 MB of L2 each (16 ways, 128 B lines, 2 KB a clock at 2.1 GHz), 256 "
      "MB "
      "Infinity Cache (16 ways), 5.3 TB/s, 1307 TFLOP/s of bf16. Infinity Cache 11.9 TB/s: measured by Chips and "
      "Cheese (2024). "
      "Latencies: published pointer chases on an MI300A, middle of 100 to 108, 205 to 218, 333 to 350 ns. Assumed: one "
      "workgroup "
      "to a CU; 0.4 of the peak while it has its data";
  machine.xcds = 8;
  machine.cus_per_xcd = 38;
  machine.l2 = {4 * kMb, 16, 128};
  machine.memory_side = {256 * kMb, 16, 128};
  machine.l2_gb_s = 4300;
  machine.memory_side_gb_s = 11900;
  machine.hbm_gb_s = 5300;
  machine.l2_ns = 104;
  machine.memory_side_ns = 212;
  machine.hbm_ns = 342;
  machine.cu_tflops = 0.4 * 1307 / 304;
  return machine;
}

CacheMachine mi350x() {
  CacheMachine machine = mi300x();
  machine.name = "mi350x";
  machine.source =
      "ROCm's table of specifications: 8 XCDs of 32 CUs, 4 MB of L2 each, 256 MB Infinity Cache, 8 TB/s. 2300 TFLOP/s "
      "of bf16 (AMD). "
      "L2 at 2.2 GHz. Latencies, and the rate of the Infinity Cache: those of mi300x, assumed. Assumed also: one "
      "workgroup to a CU; "
      "0.4 of the peak while it has its data";
  machine.cus_per_xcd = 32;
  machine.l2_gb_s = 4500;
  machine.hbm_gb_s = 8000;
  machine.cu_tflops = 0.4 * 2300 / 256;
  return machine;
}

CacheMachine h200() {
  CacheMachine machine;
  machine.name = "h200";
  machine.source =
      "NVIDIA's data sheet: 132 SMs, 50 MB of L2, 4.8 TB/s, 989 TFLOP/s of bf16. Its two L2 partitions are modelled as "
      "two XCDs; each "
      "keeps a copy of what its SMs read (microbenchmarks of H100 and H20; NVIDIA does not say so). Rate of an L2 "
      "partition, all "
      "latencies, ways, one workgroup to an SM, and 0.6 of the peak while it has its data: assumed. Which SM is in "
      "which "
      "partition is not documented: workgroups alternate";
  machine.xcds = 2;
  machine.cus_per_xcd = 66;
  machine.l2 = {25 * kMb, 16, 128};
  machine.reads_peer_l2 = true;
  machine.l2_gb_s = 2750;
  machine.memory_side_gb_s = 2750;
  machine.hbm_gb_s = 4800;
  machine.l2_ns = 150;
  machine.memory_side_ns = 248;
  machine.hbm_ns = 400;
  machine.cu_tflops = 0.6 * 989 / 132;
  return machine;
}

/// A field of the file; `set` assigns one of the members.
struct IntegerField {
  const char* key;
  int CacheMachine::*value;
  int low, high;
};
struct NumberField {
  const char* key;
  double CacheMachine::*value;
  bool positive;
};
constexpr IntegerField kIntegers[] = {{"xcds", &CacheMachine::xcds, 1, 64},
                                      {"cus_per_xcd", &CacheMachine::cus_per_xcd, 1, 1024},
                                      {"resident", &CacheMachine::resident, 1, 32},
                                      {"first_xcd", &CacheMachine::first_xcd, 0, 63}};
constexpr NumberField kNumbers[] = {{"l2_gb_s", &CacheMachine::l2_gb_s, true},
                                    {"memory_side_gb_s", &CacheMachine::memory_side_gb_s, false},
                                    {"hbm_gb_s", &CacheMachine::hbm_gb_s, true},
                                    {"l2_ns", &CacheMachine::l2_ns, false},
                                    {"memory_side_ns", &CacheMachine::memory_side_ns, false},
                                    {"hbm_ns", &CacheMachine::hbm_ns, false},
                                    {"cu_tflops", &CacheMachine::cu_tflops, true}};
struct LevelField {
  const char* key;
  CacheLevel CacheMachine::*value;
};
constexpr LevelField kLevels[] = {{"l2", &CacheMachine::l2}, {"memory_side", &CacheMachine::memory_side}};

Status not_allowed(const std::string& field, const std::string& value, const std::string& allowed) {
  return invalid_argument(fmt::format("{} is {}: allowed is {}", field, value, allowed));
}

Status check_level(const char* key, const CacheLevel& level, bool may_lack) {
  if (level.bytes == 0 && may_lack) return {};
  if (level.line < 16 || level.line > 4096 || (level.line & (level.line - 1)) != 0)
    return not_allowed(fmt::format("{}.line", key), std::to_string(level.line), "a power of two in 16..4096");
  if (level.ways < 1 || level.ways > 128)
    return not_allowed(fmt::format("{}.ways", key), std::to_string(level.ways), "an integer in 1..128");
  const std::int64_t set = std::int64_t{level.line} * level.ways;
  if (level.bytes < set || level.bytes > kKb * kMb * 16 || level.bytes % set != 0)
    return not_allowed(fmt::format("{}.bytes", key), std::to_string(level.bytes),
                       fmt::format("{}a multiple of line * ways = {}, at most 16 GB", may_lack ? "0 or " : "", set));
  return {};
}

/// Reads an integer member of `object`, if it is there.
template <class Integer>
Status read_integer(const json& object, const std::string& where, const char* key, Integer& value) {
  if (!object.contains(key)) return {};
  const json& given = object[key];
  constexpr std::int64_t kHighest = std::min<std::int64_t>(std::numeric_limits<Integer>::max(), std::int64_t{1} << 40);
  const bool fits = given.is_number_unsigned() ? given.get<std::uint64_t>() <= static_cast<std::uint64_t>(kHighest)
                                               : given.is_number_integer() && given.get<std::int64_t>() >= 0;
  if (!fits) return not_allowed(where + key, shown_json(given), fmt::format("an integer in 0..{}", kHighest));
  value = static_cast<Integer>(given.get<std::int64_t>());
  return {};
}

Status read_level(const json& root, const char* key, CacheLevel& level) {
  if (!root.contains(key)) return {};
  const json& object = root[key];
  if (!object.is_object()) return not_allowed(key, shown_json(object), "an object with bytes, ways, line");
  for (const auto& [name, value] : object.items()) {
    if (name != "bytes" && name != "ways" && name != "line")
      return not_allowed(fmt::format("{}: unknown field {}", key, shown_json(json(name))), shown_json(value),
                         "bytes, ways, line");
  }
  const std::string where = fmt::format("{}.", key);
  Status status = read_integer(object, where, "bytes", level.bytes);
  if (status.ok()) status = read_integer(object, where, "ways", level.ways);
  if (status.ok()) status = read_integer(object, where, "line", level.line);
  return status;
}

Status check_names(const json& root) {
  std::vector<std::string> names = {"name", "source", "like", "l2", "memory_side", "reads_peer_l2"};
  for (const IntegerField& field : kIntegers) names.emplace_back(field.key);
  for (const NumberField& field : kNumbers) names.emplace_back(field.key);
  for (const auto& [name, value] : root.items()) {
    if (std::find(names.begin(), names.end(), name) == names.end())
      return not_allowed(fmt::format("unknown field {}", shown_json(json(name))), shown_json(value),
                         fmt::format("{}", fmt::join(names, ", ")));
  }
  for (const char* text : {"name", "source", "like"}) {
    if (root.contains(text) && !root[text].is_string()) return not_allowed(text, shown_json(root[text]), "a string");
  }
  if (root.contains("reads_peer_l2") && !root["reads_peer_l2"].is_boolean())
    return not_allowed("reads_peer_l2", shown_json(root["reads_peer_l2"]), "true or false");
  return {};
}

std::string preset_names() {
  std::string names;
  for (const CacheMachine& preset : cache_machine_presets()) names += (names.empty() ? "" : ", ") + preset.name;
  return names;
}

const CacheMachine* find_preset(std::string_view name) {
  for (const CacheMachine& preset : cache_machine_presets()) {
    if (preset.name == name) return &preset;
  }
  return nullptr;
}

Result<CacheMachine> read_machine(const json& root) {
  CacheMachine machine;
  if (Status status = check_names(root); !status.ok()) return status;
  if (root.contains("like")) {
    const CacheMachine* const preset = find_preset(root["like"].get<std::string>());
    if (preset == nullptr) return not_allowed("like", shown_json(root["like"]), preset_names());
    machine = *preset;
  }
  machine.name = root.value("name", machine.name);
  machine.source = root.value("source", machine.source);
  machine.reads_peer_l2 = root.value("reads_peer_l2", machine.reads_peer_l2);
  for (const IntegerField& field : kIntegers) {
    if (Status status = read_integer(root, "", field.key, machine.*field.value); !status.ok()) return status;
  }
  for (const NumberField& field : kNumbers) {
    if (!root.contains(field.key)) continue;
    if (!root[field.key].is_number()) return not_allowed(field.key, shown_json(root[field.key]), "a number");
    machine.*field.value = root[field.key].get<double>();
  }
  for (const LevelField& field : kLevels) {
    if (Status status = read_level(root, field.key, machine.*field.value); !status.ok()) return status;
  }
  if (Status status = check(machine); !status.ok()) return status;
  return machine;
}

}  // namespace

std::span<const CacheMachine> cache_machine_presets() {
  static const CacheMachine kPresets[] = {mi300x(), mi350x(), h200()};
  return kPresets;
}

Status check(const CacheMachine& machine) {
  for (const IntegerField& field : kIntegers) {
    const int value = machine.*field.value;
    if (value < field.low || value > field.high)
      return not_allowed(field.key, std::to_string(value), fmt::format("an integer in {}..{}", field.low, field.high));
  }
  for (const NumberField& field : kNumbers) {
    const double value = machine.*field.value;
    if (!(value >= 0 && value <= kLargest) || (field.positive && value == 0))
      return not_allowed(field.key, fmt::format("{}", value),
                         fmt::format("a number {} 0, at most 1e9", field.positive ? "above" : "not below"));
  }
  for (const LevelField& field : kLevels) {
    const bool may_lack = field.value == &CacheMachine::memory_side;
    if (Status status = check_level(field.key, machine.*field.value, may_lack); !status.ok()) return status;
  }
  if ((machine.memory_side.bytes > 0 || machine.reads_peer_l2) && machine.memory_side_gb_s == 0)
    return not_allowed("memory_side_gb_s", "0", "a number above 0, because memory_side or reads_peer_l2 is used");
  return {};
}

Result<CacheMachine> parse_cache_machine(std::string_view text, std::string_view file) {
  const auto root = parse_json(text);
  if (!root.ok()) return invalid_argument(fmt::format("{}: {}", file, root.status().message()));
  if (!root->is_object()) return invalid_argument(fmt::format("{}: it is no JSON object", file));
  auto machine = read_machine(*root);
  if (!machine.ok()) return invalid_argument(fmt::format("{}: {}", file, machine.status().message()));
  if (machine->name.empty()) machine->name = std::string(file);
  return machine;
}

Result<CacheMachine> find_cache_machine(std::string_view name) {
  if (name.find('/') != std::string_view::npos || name.ends_with(".json")) {
    const auto text = read_text(std::filesystem::path(name));
    if (!text.ok()) return invalid_argument(fmt::format("machine '{}': {}", name, text.status().message()));
    return parse_cache_machine(*text, name);
  }
  if (const CacheMachine* const preset = find_preset(name)) return *preset;
  return invalid_argument(
      fmt::format("machine '{}' is unknown: allowed are {}, and the path of a JSON file", name, preset_names()));
}

}  // namespace farwarp
