// farwarp cache: a simulation of the caches, for each mapping of an attention's works to its blocks, or each traversal
// of a token's products.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <iterator>
#include <nlohmann/json.hpp>
#include <thread>
#include <vector>

#include "cache_qwen3.h"
#include "commands.h"
#include "farwarp/harness/params.h"
#include "farwarp/machine/cache_model.h"
#include "farwarp/machine/kept_file.h"
#include "farwarp/ops/attention/best_mapping.h"
#include "json_sink.h"
#include "print.h"
#include "published_cache.h"

namespace farwarp::cli {
namespace {

using attention::kMappings;
using attention::Mapping;
using attention::PrefillAccesses;
using attention::PrefillShape;
using nlohmann::json;

constexpr std::size_t kMappingCount = std::size(kMappings);
constexpr double kGb = 1e9;

const std::vector<harness::ParamInfo>& shape_params() {
  static const std::vector<harness::ParamInfo> kParams = {{"batch", "1", "1..65536"},
                                                          {"heads", "32", "1..65536"},
                                                          {"kv_heads", "0", "a divisor of heads; 0: heads"},
                                                          {"seq", "8192", "1..67108864"},
                                                          {"seq_q", "0", "0: seq"},
                                                          {"seq_k", "0", "0: seq"},
                                                          {"head_dim", "128", "1..1024"},
                                                          {"block_m", "128", "rows of Q of a block"},
                                                          {"block_n", "64", "rows of K that are loaded at once"},
                                                          {"causal", "0", "0|1"},
                                                          {"window", "0", "of causal: rows; 0: no limit"},
                                                          {"element_bytes", "2", "1..4"},
                                                          {"folded", "0", "0|1: the last query blocks first"}};
  return kParams;
}

struct Request {
  PrefillShape shape;
  bool folded = false;
};

Result<Request> read_request(const std::vector<std::string>& settings) {
  harness::Params params;
  for (const std::string& text : settings) {
    if (Status status = harness::add_settings(text, params); !status.ok()) return status;
  }
  constexpr int kMost = 1 << 26;
  harness::ParamReader reader(params, shape_params());
  const auto read = [&](const char* name, int low) { return reader.small_integer(name, low, kMost); };
  const auto or_else = [](int value, int other) { return value == 0 ? other : value; };
  Request request;
  PrefillShape& shape = request.shape;
  shape.batch = read("batch", 1);
  shape.heads = read("heads", 1);
  shape.kv_heads = or_else(read("kv_heads", 0), shape.heads);
  const int seq = read("seq", 1);
  shape.seq_q = or_else(read("seq_q", 0), seq);
  shape.seq_k = or_else(read("seq_k", 0), seq);
  shape.head_dim = read("head_dim", 1);
  shape.block_m = read("block_m", 1);
  shape.block_n = read("block_n", 1);
  shape.causal = reader.flag("causal");
  shape.window = read("window", 0);
  shape.element_bytes = read("element_bytes", 1);
  request.folded = reader.flag("folded");
  if (!reader.status().ok()) return reader.status();
  if (Status status = check(shape); !status.ok()) return status;
  return request;
}

Result<CacheOptions> read_options(const CacheCommandOptions& given) {
  CacheOptions options;
  if (!given.skew.empty()) {
    char* end = nullptr;
    options.skew = std::strtod(given.skew.c_str(), &end);
    if (*end != '\0' || !(options.skew >= 0 && options.skew <= 1))
      return invalid_argument(
          fmt::format("--skew is '{}': allowed is a number in 0..1", harness::one_line(given.skew)));
  }
  if (!given.seed.empty()) {
    const auto seed = harness::parse_integer("--seed", given.seed, 0, std::int64_t{1} << 62);
    if (!seed.ok()) return seed.status();
    options.seed = static_cast<std::uint64_t>(*seed);
  }
  if (!given.accesses.empty()) {
    const auto accesses = harness::parse_integer("--accesses", given.accesses, 1000, 10'000'000'000);
    if (!accesses.ok()) return accesses.status();
    options.most_accesses = *accesses;
  }
  static constexpr harness::Choice<Granularity> kChoices[] = {
      {"auto", Granularity::kAuto}, {"line", Granularity::kLine}, {"tile", Granularity::kTile}};
  const std::vector<harness::ParamInfo> info = {{"granularity", "auto", "auto|line|tile"}};
  const harness::Params params = {{"granularity", given.granularity}};
  harness::ParamReader reader(params, info);
  options.granularity = reader.choice("granularity", kChoices);
  if (!reader.status().ok()) return reader.status();
  return options;
}

using Results = std::array<CacheResult, kMappingCount>;

/// The first mapping whose simulation gives what this one's does.
std::size_t representative(const Request& request, std::size_t mapping, int xcds) {
  std::size_t first = 0;
  while (first < mapping && !same_sharing(request.shape, kMappings[first], kMappings[mapping], request.folded, xcds))
    ++first;
  return first;
}

/// Of all mappings, side by side in threads.
Result<Results> simulate_all(const CacheMachine& machine, const Request& request, const CacheOptions& options) {
  std::array<Result<CacheResult>, kMappingCount> found{CacheResult{}, CacheResult{}, CacheResult{}, CacheResult{}};
  std::vector<std::thread> threads;
  std::array<std::size_t, kMappingCount> simulated{};
  for (std::size_t i = 0; i < kMappingCount; ++i) {
    simulated[i] = representative(request, i, machine.xcds);
    if (simulated[i] != i) continue;
    threads.emplace_back([&, i] {
      const PrefillAccesses plan(request.shape, kMappings[i], request.folded, machine.xcds);
      found[i] = simulate_caches(machine, plan, options);
    });
  }
  for (std::thread& thread : threads) thread.join();
  Results results;
  for (std::size_t i = 0; i < kMappingCount; ++i) {
    const Result<CacheResult>& result = found[simulated[i]];
    if (!result.ok()) return result.status();
    results[i] = *result;
  }
  return results;
}

std::string text_of(const PrefillShape& shape, bool folded) {
  return fmt::format("batch {}, heads {}/{}, rows {} x {}, head_dim {}, blocks of {} x {}{}{}{}", shape.batch,
                     shape.heads, shape.kv_heads, shape.seq_q, shape.seq_k, shape.head_dim, shape.block_m,
                     shape.block_n, shape.causal ? ", causal" : "",
                     shape.window > 0 ? fmt::format(", window {}", shape.window) : "", folded ? ", folded" : "");
}

json to_json(const CacheResult& result) {
  return {{"granularity", name_of(result.granularity)},
          {"workgroups", result.workgroups},
          {"simulated_workgroups", result.simulated},
          {"counted_workgroups", result.counted},
          {"accesses", result.accesses},
          {"l2_hit_rate", result.l2_hit_rate},
          {"l2_pending_rate", result.l2_pending_rate},
          {"memory_side_hit_rate", result.memory_side_hit_rate},
          {"l2_bytes", result.l2_bytes},
          {"fabric_bytes", result.fabric_bytes},
          {"hbm_bytes", result.hbm_bytes},
          {"microseconds", result.microseconds},
          {"balance", result.balance}};
}

json to_json(const CacheMachine& machine, const Request& request, const CacheOptions& options, const Results& results) {
  const PrefillShape& shape = request.shape;
  json mappings = json::object();
  for (std::size_t i = 0; i < kMappingCount; ++i) mappings[name_of(kMappings[i])] = to_json(results[i]);
  return {{"machine", machine.name},    {"skew", options.skew},
          {"seed", options.seed},       {"batch", shape.batch},
          {"heads", shape.heads},       {"kv_heads", shape.kv_heads},
          {"seq_q", shape.seq_q},       {"seq_k", shape.seq_k},
          {"head_dim", shape.head_dim}, {"block_m", shape.block_m},
          {"block_n", shape.block_n},   {"causal", shape.causal},
          {"window", shape.window},     {"element_bytes", shape.element_bytes},
          {"folded", request.folded},   {"mappings", mappings}};
}

void print_results(std::FILE* stream, const Results& results) {
  print_text(stream, "{:<21} {:>7} {:>8} {:>8} {:>10} {:>10} {:>10} {:>8}  simulated\n", "mapping", "L2 hit", "pending",
             "next hit", "fabric GB", "memory GB", "rough ms", "balance");
  for (std::size_t i = 0; i < kMappingCount; ++i) {
    const CacheResult& result = results[i];
    print_text(
        stream, "{:<21} {:>6.1f}% {:>7.1f}% {:>7.1f}% {:>10.2f} {:>10.2f} {:>10.2f} {:>8.3f}  {}s, {} of {} works\n",
        name_of(kMappings[i]), 100 * result.l2_hit_rate, 100 * result.l2_pending_rate,
        100 * result.memory_side_hit_rate, result.fabric_bytes / kGb, result.hbm_bytes / kGb,
        result.microseconds * 1e-3, result.balance, name_of(result.granularity), result.counted, result.workgroups);
  }
}

double metric_of(CacheMetric metric, const Results& results, Mapping mapping) {
  const CacheResult& result = results[static_cast<std::size_t>(mapping)];
  if (metric == CacheMetric::kL2HitRate) return 100 * result.l2_hit_rate;
  return 100 * results[static_cast<std::size_t>(Mapping::kHeadFirstSwizzled)].microseconds / result.microseconds;
}

/// How far `value` is outside the range, with its sign; 0 inside.
double error_of(const PublishedFigure& figure, double value) {
  return value < figure.low ? value - figure.low : value > figure.high ? value - figure.high : 0;
}

std::string range_text(const PublishedFigure& figure) {
  return figure.low == figure.high ? fmt::format("{:g}", figure.low)
                                   : fmt::format("{:g} to {:g}", figure.low, figure.high);
}

void print_case(std::FILE* stream, const PublishedCase& entry, const Results& results) {
  std::string hits;
  for (const CacheResult& result : results) hits += fmt::format(" {:>6.1f}", 100 * result.l2_hit_rate);
  const std::string name =
      fmt::format("{} {:>3}/{:<3} {:>6} {:>3}", entry.machine, entry.heads, entry.kv_heads, entry.seq, entry.head_dim);
  print_text(stream, "{} |{}\n", name, hits);
  for (const PublishedFigure& figure : entry.figures) {
    const double value = metric_of(figure.metric, results, figure.mapping);
    print_text(stream, "{:>26} {:<21} {:<14} published {:>10}  simulated {:>6.1f}  error {:>+6.1f}\n", "",
               name_of(figure.mapping), figure.metric == CacheMetric::kL2HitRate ? "L2 hit, %" : "speed, %",
               range_text(figure), value, error_of(figure, value));
  }
  std::fflush(stream);
}

Result<json> sweep(std::FILE* stream, const CacheOptions& options) {
  print_text(stream,
             "machine, heads, rows, head_dim | L2 hit rate, %: block_first, block_first_swizzled, head_first, "
             "head_first_swizzled\nspeed: relative to head_first_swizzled\n");
  json all = json::array();
  for (const PublishedCase& entry : published_cases()) {
    const auto machine = find_cache_machine(entry.machine);
    if (!machine.ok()) return machine.status();
    Request request;
    request.shape.heads = entry.heads;
    request.shape.kv_heads = entry.kv_heads;
    request.shape.seq_q = request.shape.seq_k = entry.seq;
    request.shape.head_dim = entry.head_dim;
    request.shape.block_m = entry.block_m;
    const auto results = simulate_all(*machine, request, options);
    if (!results.ok()) return results.status();
    print_case(stream, entry, *results);
    json row = to_json(*machine, request, options, *results);
    row["source"] = entry.source;
    row["published"] = json::array();
    for (const PublishedFigure& figure : entry.figures) {
      const double value = metric_of(figure.metric, *results, figure.mapping);
      row["published"].push_back({{"mapping", name_of(figure.mapping)},
                                  {"metric", figure.metric == CacheMetric::kL2HitRate ? "l2_hit" : "relative_speed"},
                                  {"low", figure.low},
                                  {"high", figure.high},
                                  {"simulated", value},
                                  {"error", error_of(figure, value)}});
    }
    all.push_back(std::move(row));
  }
  return all;
}

Result<json> one_case(std::FILE* stream, const CacheMachine& machine, const std::vector<std::string>& settings,
                      const CacheOptions& options) {
  const auto request = read_request(settings);
  if (!request.ok()) return request.status();
  const auto results = simulate_all(machine, *request, options);
  if (!results.ok()) return results.status();
  const auto best = attention::best_mapping(machine, request->shape, request->folded);
  if (!best.ok()) return best.status();
  print_text(stream, "{}: {}\nskew {:g}, seed {}\n\n", machine.name, text_of(request->shape, request->folded),
             options.skew, options.seed);
  print_results(stream, *results);
  print_text(stream, "\na plan takes: {}\n", name_of(*best));
  json root = to_json(machine, *request, options, *results);
  root["best"] = name_of(*best);
  return root;
}

}  // namespace

int cache_command(const CacheCommandOptions& given) {
  const auto fail = [](const Status& status) {
    usage_error(status.message());
    return kExitUsage;
  };
  const bool qwen3 = given.what == "qwen3";
  if (given.what != "attention" && !qwen3)
    return usage_error(fmt::format("cache is of '{}': allowed are attention, qwen3", harness::one_line(given.what)));
  if (given.sweep && qwen3) return usage_error("--sweep has cases of attention only");
  if (given.sweep && (!given.settings.empty() || !given.machine.empty()))
    return usage_error("--sweep takes neither --set nor --machine: it has its own cases");
  const auto options = read_options(given);
  if (!options.ok()) return fail(options.status());
  const auto machine = find_cache_machine(given.machine.empty() ? "mi300x" : given.machine);
  if (!machine.ok()) return fail(machine.status());
  JsonSink json;
  if (Status status = json.open(given.json, {given.machine}); !status.ok()) return fail(status);
  std::FILE* const stream = json.to_stdout() ? stderr : stdout;
  const auto root = qwen3         ? cache_qwen3(stream, *machine, given.settings, *options)
                    : given.sweep ? sweep(stream, *options)
                                  : one_case(stream, *machine, given.settings, *options);
  if (!root.ok()) return fail(root.status());
  const Status written = json.write(root->dump(2) + "\n");
  if (written.ok()) return 0;
  usage_error(written.message());
  return kExitLacking;
}

}  // namespace farwarp::cli
