#include "farwarp/ops/parallel_gemm/dispatch/plan_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <span>
#include <utility>

#include "farwarp/base/json.h"
#include "farwarp/machine/kept_file.h"

namespace farwarp::parallel_gemm {
namespace {

using nlohmann::json;

constexpr int kSchemaVersion = 1;
constexpr int kMaxTileColumns = 1024;
constexpr DType kDtypes[] = {DType::kBf16, DType::kF16};
constexpr Path kPaths[] = {Path::kOwn, Path::kUnfused};

/// The value of that name, or nullptr.
template <class Enum>
const Enum* find(std::span<const Enum> values, const std::string& name) {
  const auto found =
      std::find_if(values.begin(), values.end(), [&](Enum value) { return std::string_view(name_of(value)) == name; });
  return found == values.end() ? nullptr : &*found;
}

template <class Enum>
Status read(const json& entry, const char* key, std::span<const Enum> values, Enum& value) {
  const std::string name = entry.at(key).get<std::string>();
  if (const Enum* const known = find(values, name)) {
    value = *known;
    return {};
  }
  std::string allowed;
  for (const Enum each : values) allowed += fmt::format("{}{}", allowed.empty() ? "" : ", ", name_of(each));
  return invalid_argument(fmt::format("{} is '{}'; allowed: {}", key, name, allowed));
}

Status read(const json& entry, const char* key, int low, int high, int& value) {
  const json& given = entry.at(key);
  if (given.is_number_integer() && given.get<std::int64_t>() >= low && given.get<std::int64_t>() <= high) {
    value = given.get<int>();
    return {};
  }
  return invalid_argument(fmt::format("{} is {}; allowed: {} to {}", key, shown_json(given), low, high));
}

Status read(const json& entry, const char* key, double& value) {
  const json& given = entry.at(key);
  if (given.is_number() && given.get<double>() > 0) {
    value = given.get<double>();
    return {};
  }
  return invalid_argument(fmt::format("{} is {}; allowed: microseconds, more than 0", key, shown_json(given)));
}

Status read_entry(const json& given, PlanEntry& entry) {
  entry.measured = given.at("measured").get<std::string>();
  for (const Status& status :
       {read<Kind>(given, "op", kKinds, entry.kind), read(given, "m", 1, kMaxSize, entry.m),
        read(given, "n", 1, kMaxSize, entry.n), read(given, "k", 1, kMaxSize, entry.k),
        read<DType>(given, "dtype", kDtypes, entry.dtype), read<Path>(given, "path", kPaths, entry.path),
        read(given, "tile_columns", 0, kMaxTileColumns, entry.tile_columns),
        read(given, "algorithm", 0, 1000, entry.algorithm), read(given, "own_us", entry.own_us),
        read(given, "unfused_us", entry.unfused_us)}) {
    if (!status.ok()) return status;
  }
  return {};
}

Result<PlanTable> read_table(const json& root) {
  PlanTable table;
  const json& version = root.at("schema_version");
  if (!version.is_number_integer() || version != kSchemaVersion)
    return invalid_argument("it is of another schema version");
  root.at("device").get_to(table.device);
  if (Status status = read(root, "ranks", 1, kMaxRanks, table.ranks); !status.ok()) return status;
  if (!root.at("entries").is_array()) return invalid_argument("entries is no array");
  for (const json& given : root.at("entries")) {
    PlanEntry entry;
    if (Status status = read_entry(given, entry); !status.ok())
      return invalid_argument(fmt::format("entry {}: {}", table.entries.size(), status.message()));
    table.entries.push_back(std::move(entry));
  }
  return table;
}

bool same_shape(const PlanEntry& a, const PlanEntry& b) {
  return a.kind == b.kind && a.m == b.m && a.n == b.n && a.k == b.k && a.dtype == b.dtype;
}

double distance(const PlanEntry& entry, const ParallelGemmDesc& desc) {
  const auto off = [](int a, int b) { return std::log2(static_cast<double>(a) / b); };
  return std::hypot(off(entry.m, desc.m), off(entry.n, desc.n), off(entry.k, desc.k));
}

std::string shape_of(int m, int n, int k) { return fmt::format("{} x {} x {}", m, n, k); }

/// Parses `text`; fails if it is no table, or not this machine's.
Result<PlanTable> parse_for(std::string_view text, const std::string& device, int ranks) {
  auto table = parse_plans(text);
  if (table.ok() && (table->device != device || table->ranks != ranks))  // two names can share a file name
    return invalid_argument(fmt::format("it is of {} x {}", table->ranks, table->device));
  return table;
}

PlanTable built_in(const std::string& device, int ranks) {
  for (const std::string_view text : built_in_plans()) {
    auto table = parse_for(text, device, ranks);
    if (table.ok()) return std::move(*table);
  }
  return {device, ranks, {}};
}

}  // namespace

Result<PlanTable> parse_plans(std::string_view text) {
  const auto root = parse_json(text);
  if (!root.ok()) return root.status();
  if (!root->is_object()) return invalid_argument("it is no JSON object");
  try {
    return read_table(*root);
  } catch (const json::exception& error) {
    return invalid_argument(error.what());
  }
}

std::string to_json(const PlanTable& table) {
  nlohmann::ordered_json root = {{"schema_version", kSchemaVersion}, {"device", table.device}, {"ranks", table.ranks}};
  std::string entries;  // one line each, since people read and compare these files
  for (const PlanEntry& entry : table.entries) {
    const nlohmann::ordered_json line = {{"op", name_of(entry.kind)},
                                         {"m", entry.m},
                                         {"n", entry.n},
                                         {"k", entry.k},
                                         {"dtype", name_of(entry.dtype)},
                                         {"path", name_of(entry.path)},
                                         {"tile_columns", entry.tile_columns},
                                         {"algorithm", entry.algorithm},
                                         {"own_us", entry.own_us},
                                         {"unfused_us", entry.unfused_us},
                                         {"measured", entry.measured}};
    entries += fmt::format("{}\n    {}", entries.empty() ? "" : ",",
                           line.dump(-1, ' ', false, json::error_handler_t::replace));
  }
  std::string text = root.dump(2, ' ', false, json::error_handler_t::replace);
  text.resize(text.size() - 2);  // its last line
  return fmt::format("{},\n  \"entries\": [{}\n  ]\n}}\n", text, entries);
}

void put(PlanTable& table, PlanEntry entry) {
  const auto old = std::find_if(table.entries.begin(), table.entries.end(),
                                [&](const PlanEntry& each) { return same_shape(each, entry); });
  if (old == table.entries.end()) {
    table.entries.push_back(std::move(entry));
  } else {
    *old = std::move(entry);
  }
}

Choice choose(const PlanTable& table, Kind kind, const ParallelGemmDesc& desc) {
  if (desc.max_sms != 0) return {Path::kOwn, 0, 0, "max_sms bounds our blocks, and nothing those of NCCL and cuBLASLt"};
  if (table.entries.empty())
    return {Path::kOwn, 0, 0, fmt::format("there is no table of plans for {} x {}", table.ranks, table.device)};
  const PlanEntry* nearest = nullptr;
  for (const PlanEntry& entry : table.entries) {
    if (entry.kind != kind || entry.dtype != desc.dtype) continue;
    if (nearest == nullptr || distance(entry, desc) < distance(*nearest, desc)) nearest = &entry;
  }
  if (nearest == nullptr || distance(*nearest, desc) > kFarthest)
    return {Path::kOwn, 0, 0,
            fmt::format("{} of {} in {} is not near any shape in the table of plans", name_of(kind),
                        shape_of(desc.m, desc.n, desc.k), name_of(desc.dtype))};
  const std::string times = fmt::format("measured {}: own {:.1f} us, unfused {:.1f} us", nearest->measured,
                                        nearest->own_us, nearest->unfused_us);
  if (nearest->m == desc.m && nearest->n == desc.n && nearest->k == desc.k)
    return {nearest->path, nearest->tile_columns, nearest->algorithm, times};
  return {nearest->path, 0, 0,
          fmt::format("as the nearest shape, {}, {}", shape_of(nearest->m, nearest->n, nearest->k), times)};
}

Result<std::filesystem::path> plans_file(const std::string& device, int ranks) {
  return kept_file("plans", device, ranks);
}

PlanTable plans_of(const std::string& device, int ranks) {
  const auto path = plans_file(device, ranks);
  std::error_code error;
  if (!path.ok() || !exists(std::filesystem::symlink_status(*path, error))) return built_in(device, ranks);
  const auto text = read_text(*path);
  auto kept = text.ok() ? parse_for(*text, device, ranks) : Result<PlanTable>(text.status());
  if (kept.ok()) return std::move(*kept);
  const std::string ignored = fmt::format("farwarp: ignoring {}: {}\n", path->string(), kept.status().message());
  std::fputs(ignored.c_str(), stderr);  // fmt::print would throw if stderr cannot be written
  return built_in(device, ranks);
}

}  // namespace farwarp::parallel_gemm
