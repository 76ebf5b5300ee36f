// attention as the harness sees it: its parameters and its check.
#include <fmt/format.h>

#include <algorithm>

#include "farwarp/harness/length_list.h"
#include "farwarp/harness/params.h"
#include "farwarp/harness/rank_case.h"
#include "farwarp/ops/attention/case/run.h"

namespace farwarp::attention {
namespace {

using harness::Choice;
using harness::ParamInfo;
using harness::Params;

const std::vector<ParamInfo> kParams = {
    {"batch", "1", "1 to 65536"},
    {"heads", "4", "1 to 4096"},
    {"kv_heads", "2", "a divisor of heads"},
    {"head_dim", "64", "a multiple of 8 up to 256; on CDNA up to 128"},
    {"queries", "200", "1 or more: rows of q of a sequence"},
    {"keys", "0", "0 (as queries) or more: rows of k and v of a sequence"},
    {"dtype", "bf16", "bf16|fp16"},
    {"causal", "0", "0|1"},
    {"window_left", "-1", "-1 (all) or more: keys before a query's own that it sees"},
    {"window_right", "-1", "-1 (all) or more: keys after its own; -1 or 0 if causal"},
    {"softcap", "0", "0 (none) or 0.001 to 1e6: logits become softcap * tanh(logit / softcap)"},
    {"sinks", "0", "0|1: a logit for each head that only adds to the denominator"},
    {"lse", "1", "0|1: also the logarithms of the denominators"},
    {"ragged", "0", "0|1 (random lengths, some zero)|padded (random numbers of keys in full tensors)"},
    {"query_lengths", "none", "none, or rows of q of each sequence, as 12+400+0; key_lengths likewise"},
    {"key_lengths", "none", "as query_lengths; with page_size in pages"},
    {"page_size", "0", "0 (not paged), 16, 32, 64, or a multiple of 128; pages are in random order"},
    {"mapping", "auto", "auto|block_first|block_first_swizzled|head_first|head_first_swizzled"},
    {"max_sms", "0", "0 (all) or more"},
    {"row_gap", "0", "elements between rows of q, k, v and out, a multiple of 8"},
    {"inputs", "auto", kInputKindNames},
    {"graph", "0", "1: capture one call and replay it"},
};

enum class MappingChoice : std::uint8_t { kAuto, kBlockFirst, kBlockFirstSwizzled, kHeadFirst, kHeadFirstSwizzled };

void read_mapping(harness::ParamReader& reader, AttentionDesc& desc) {
  static constexpr Choice<MappingChoice> kChoices[] = {
      {"auto", MappingChoice::kAuto},
      {name_of(Mapping::kBlockFirst), MappingChoice::kBlockFirst},
      {name_of(Mapping::kBlockFirstSwizzled), MappingChoice::kBlockFirstSwizzled},
      {name_of(Mapping::kHeadFirst), MappingChoice::kHeadFirst},
      {name_of(Mapping::kHeadFirstSwizzled), MappingChoice::kHeadFirstSwizzled}};
  const MappingChoice choice = reader.choice("mapping", kChoices);
  desc.choose_mapping = choice == MappingChoice::kAuto;
  switch (choice) {
    case MappingChoice::kAuto: break;
    case MappingChoice::kBlockFirst: desc.mapping = Mapping::kBlockFirst; break;
    case MappingChoice::kBlockFirstSwizzled: desc.mapping = Mapping::kBlockFirstSwizzled; break;
    case MappingChoice::kHeadFirst: desc.mapping = Mapping::kHeadFirst; break;
    case MappingChoice::kHeadFirstSwizzled: desc.mapping = Mapping::kHeadFirstSwizzled; break;
  }
}

/// One list of lengths alone, or one beside ragged=1, is an error.
Status read_lengths(harness::ParamReader& reader, CheckConfig& config) {
  const std::string queries = reader.text("query_lengths"), keys = reader.text("key_lengths");
  if (queries == "none" && keys == "none") return {};
  if (config.lengths != Lengths::kWhole) reader.reject("ragged", reader.text("ragged"), "0 with query_lengths");
  if (!reader.status().ok()) return reader.status();
  auto query_lengths = harness::parse_lengths("query_lengths", queries, config.desc.batch, config.desc.max_queries);
  if (!query_lengths.ok()) return query_lengths.status();
  auto key_lengths = harness::parse_lengths("key_lengths", keys, config.desc.batch, config.desc.max_keys);
  if (!key_lengths.ok()) return key_lengths.status();
  config.lengths = Lengths::kGiven;
  config.given = {std::move(*query_lengths), std::move(*key_lengths)};
  return {};
}

Result<CheckConfig> read_config(const Params& params) {
  static constexpr Choice<Lengths> kLengths[] = {
      {"0", Lengths::kWhole}, {"1", Lengths::kRagged}, {"padded", Lengths::kPadded}};
  constexpr int kMost = 1 << 24;
  harness::ParamReader reader(params, kParams);
  CheckConfig config;
  AttentionDesc& desc = config.desc;
  desc.batch = reader.small_integer("batch", 1, 1 << 16);
  desc.heads = reader.small_integer("heads", 1, 1 << 12);
  desc.kv_heads = reader.small_integer("kv_heads", 1, 1 << 12);
  desc.head_dim = reader.small_integer("head_dim", 8, 256);
  desc.max_queries = reader.small_integer("queries", 1, kMost);
  desc.max_keys = reader.small_integer("keys", 0, kMost);
  if (desc.max_keys == 0) desc.max_keys = desc.max_queries;
  desc.dtype = reader.choice("dtype", harness::kSixteenBitTypes);
  desc.causal = reader.flag("causal");
  desc.window_left = reader.small_integer("window_left", -1, kMost);
  desc.window_right = reader.small_integer("window_right", -1, kMost);
  desc.softcap = static_cast<float>(reader.number("softcap", 0, 1e6));
  desc.has_sinks = reader.flag("sinks");
  desc.has_lse = reader.flag("lse");
  config.lengths = reader.choice("ragged", kLengths);
  desc.page_size = reader.small_integer("page_size", 0, 1 << 16);
  read_mapping(reader, desc);
  desc.max_sms = reader.small_integer("max_sms", 0, 1 << 16);
  config.row_gap = reader.small_integer("row_gap", 0, 1 << 16);
  config.inputs = reader.choice("inputs", kInputKinds);
  config.graph = reader.flag("graph");
  for (const char* name : {"head_dim", "row_gap"}) {
    if (reader.integer(name, 0, kMost) % 8 != 0) reader.reject(name, reader.text(name), "a multiple of 8");
  }
  if (config.inputs == InputKind::kNeedle && desc.softcap != 0)
    reader.reject("inputs", "needle", "another with a softcap");
  if (config.inputs == InputKind::kNeedle && !has_needles(desc.head_dim, desc.max_keys))
    reader.reject("inputs", "needle",
                  fmt::format("another with {} keys and head_dim {}", desc.max_keys, desc.head_dim));
  if (std::int64_t{desc.batch} * desc.max_queries > kMost || std::int64_t{desc.batch} * desc.max_keys > kMost)
    reader.reject("batch", reader.text("batch"), fmt::format("up to {} rows of all sequences", kMost));
  if (!reader.status().ok()) return reader.status();
  if (Status status = read_lengths(reader, config); !status.ok()) return status;
  return config;
}

/// Queries and keys keep three blocks of 128 and a partial one; a batch keeps 2 sequences, the heads 2 KV heads of at
/// most 2 query heads.
Params scaled_params(const Params& given, int) {
  const auto config = read_config(given);
  if (!config.ok()) return given;  // make() reports the error
  const AttentionDesc& desc = config->desc;
  if (desc.heads % desc.kv_heads != 0) return given;
  const auto shrunk = [](int rows) { return std::min(rows, 3 * 128 + rows % 128); };
  const int kv_heads = std::min(desc.kv_heads, 2), group = std::min(desc.heads / desc.kv_heads, 2);
  Params result = given;
  result["batch"] = std::to_string(std::min(desc.batch, 2));
  result["kv_heads"] = std::to_string(kv_heads);
  result["heads"] = std::to_string(kv_heads * group);
  result["queries"] = std::to_string(shrunk(desc.max_queries));
  result["keys"] = std::to_string(shrunk(desc.max_keys));
  for (const auto& [name, rows] : {std::pair("query_lengths", desc.max_queries), {"key_lengths", desc.max_keys}}) {
    const auto lengths = result.find(name);
    if (lengths != result.end())
      lengths->second = harness::shortened_lengths(lengths->second, std::min(desc.batch, 2), shrunk(rows));
  }
  return result;
}

std::string describe(const CheckConfig& config) {
  const AttentionDesc& desc = config.desc;
  return fmt::format("attention, {} x {} queries, {} keys, {}/{} heads of {}{}, {}", desc.batch, desc.max_queries,
                     desc.max_keys, desc.heads, desc.kv_heads, desc.head_dim, desc.causal ? ", causal" : "",
                     name_of(desc.dtype));
}

void for_bench(CheckConfig& config) {
  if (config.inputs == InputKind::kAuto) config.inputs = InputKind::kNormal;
}

const bool kRegistered = [] {
  harness::register_operator({.name = "attention",
                              .summary = "attention of many queries (prefill) on one device, each rank its own",
                              .params = kParams,
                              .make = harness::rank_case_maker<RankRun>(read_config, describe, for_bench),
                              .scaled_down = scaled_params,
                              .plain = {{{"keys", "300"}, {"sinks", "1"}},
                                        {{"batch", "3"},
                                         {"queries", "140"},
                                         {"keys", "270"},
                                         {"head_dim", "128"},
                                         {"dtype", "fp16"},
                                         {"ragged", "1"},
                                         {"page_size", "16"},
                                         {"causal", "1"},
                                         {"window_left", "150"},
                                         {"sinks", "1"}}},
                              .submission = Params{{"row_gap", "0"}, {"graph", "0"}}});
  return true;
}();

}  // namespace
}  // namespace farwarp::attention
