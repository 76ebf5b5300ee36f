// flash-decode as the harness sees it: its parameters and its check.
#include <fmt/format.h>

#include <algorithm>

#include "farwarp/harness/length_list.h"
#include "farwarp/harness/params.h"
#include "farwarp/harness/rank_case.h"
#include "farwarp/ops/flash_decode/case/run.h"

namespace farwarp::decode {
namespace {

using harness::Choice;
using harness::ParamInfo;
using harness::Params;

const std::vector<ParamInfo> kParams = {
    {"batch", "3", "1 to 4096"},
    {"query_tokens", "1", "1 to 8; 1 if ranks share keys"},
    {"query_heads", "8", "a multiple of kv_heads"},
    {"kv_heads", "2", "1 to 256"},
    {"head_dim", "64", "a multiple of 8 (fp8: of 16) up to 128"},
    {"page_size", "16", "1|16|64|128"},
    {"max_keys", "320", "keys of the longest sequence, on each rank; a multiple of page_size"},
    {"dtype", "bf16", "bf16|fp16"},
    {"kv_dtype", "same", "same|fp8"},
    {"layout", "nhd", "nhd|hnd"},
    {"window", "0", "0 (all keys) or keys that a token sees; 0 if ranks share keys"},
    {"sinks", "0", "0|1"},
    {"kv_shards", "1", "1 (each rank its own sequences) or all (ranks share the keys of each sequence)"},
    {"exchange", "best", "best|one-shot|two-shot"},
    {"split_keys", "0", "0 (by length) or a multiple of 64"},
    {"work", "best", "best|split|group|all: splits that a block takes at a time; the bits are the same"},
    {"max_sms", "0", "0 (all) or more"},
    {"lse", "1", "0|1"},
    {"lengths", "ragged", "full|ragged|short (0 to query_tokens + 1)|empty, or one of each sequence, as 12+400+0"},
    {"logits", "normal", "normal|large (deviation 5000)"},
    {"wrong", "none", "none|page|negative_page|length: wrong in the first call, on rank 0"},
    {"graph", "0", "1: capture one call and replay it"},
    {"burst", "1", "calls on the same inputs without waiting"},
    {"delay", "0", "us: the longest delay of a rank before a call"},
};

Result<CheckConfig> read_config(const Params& params) {
  static constexpr Choice<KvDType> kKvDtypes[] = {{"same", KvDType::kSame}, {"fp8", KvDType::kFp8}};
  static constexpr Choice<KvLayout> kLayouts[] = {{"nhd", KvLayout::kTokensFirst}, {"hnd", KvLayout::kHeadsFirst}};
  static constexpr Choice<bool> kShards[] = {{"1", false}, {"all", true}};
  static constexpr Choice<DecodeExchange> kExchanges[] = {
      {"best", DecodeExchange::kBest}, {"one-shot", DecodeExchange::kOneShot}, {"two-shot", DecodeExchange::kTwoShot}};
  static constexpr Choice<Lengths> kLengths[] = {
      {"full", Lengths::kFull}, {"ragged", Lengths::kRagged}, {"short", Lengths::kShort}, {"empty", Lengths::kEmpty}};
  static constexpr Choice<Logits> kLogits[] = {{"normal", Logits::kNormal}, {"large", Logits::kLarge}};
  static constexpr Choice<Wrong> kWrongs[] = {{"none", Wrong::kNothing},
                                              {"page", Wrong::kPage},
                                              {"negative_page", Wrong::kNegativePage},
                                              {"length", Wrong::kLength}};
  static constexpr Choice<DecodeWork> kWorks[] = {{"best", DecodeWork::kBest},
                                                  {"split", DecodeWork::kSplit},
                                                  {"group", DecodeWork::kGroup},
                                                  {"all", DecodeWork::kAll}};
  static constexpr Choice<int> kPageSizes[] = {{"1", 1}, {"16", 16}, {"64", 64}, {"128", 128}};
  harness::ParamReader reader(params, kParams);
  CheckConfig config;
  FlashDecodeDesc& desc = config.desc;
  desc.batch = reader.small_integer("batch", 1, 4096);
  desc.query_tokens = reader.small_integer("query_tokens", 1, 8);
  desc.query_heads = reader.small_integer("query_heads", 1, 4096);
  desc.kv_heads = reader.small_integer("kv_heads", 1, 256);
  desc.head_dim = reader.small_integer("head_dim", 8, 128);
  desc.page_size = reader.choice("page_size", kPageSizes);
  const int max_keys = reader.small_integer("max_keys", 1, 1 << 24);
  if (max_keys % desc.page_size != 0) reader.reject("max_keys", reader.text("max_keys"), "a multiple of page_size");
  desc.max_pages = max_keys / desc.page_size;
  desc.dtype = reader.choice("dtype", harness::kSixteenBitTypes);
  desc.kv_dtype = reader.choice("kv_dtype", kKvDtypes);
  desc.layout = reader.choice("layout", kLayouts);
  desc.window = reader.small_integer("window", 0, 1 << 24);
  desc.sinks = reader.flag("sinks");
  config.shared = reader.choice("kv_shards", kShards);
  desc.exchange = reader.choice("exchange", kExchanges);
  desc.split_keys = reader.small_integer("split_keys", 0, 1 << 24);
  desc.work = reader.choice("work", kWorks);
  desc.max_sms = reader.small_integer("max_sms", 0, 1 << 16);
  config.lse = reader.flag("lse");
  const std::string lengths = reader.text("lengths");
  const bool given = !lengths.empty() && lengths[0] >= '0' && lengths[0] <= '9';
  config.lengths = given ? Lengths::kGiven : reader.choice("lengths", kLengths);
  config.logits = reader.choice("logits", kLogits);
  config.wrong = reader.choice("wrong", kWrongs);
  if (config.wrong != Wrong::kNothing && config.lengths != Lengths::kFull)
    reader.reject("lengths", reader.text("lengths"), "full with wrong inputs");
  config.graph = reader.flag("graph");
  config.burst = reader.small_integer("burst", 1, 1000);
  config.delay_us = reader.small_integer("delay", 0, 1000);
  if (!reader.status().ok()) return reader.status();
  if (!given) return config;
  auto list = harness::parse_lengths("lengths", lengths, desc.batch, max_keys);
  if (!list.ok()) return list.status();
  config.given_lengths = std::move(*list);
  return config;
}

std::string describe(const CheckConfig& config) {
  const FlashDecodeDesc& desc = config.desc;
  return fmt::format("flash-decode, {} x {} keys in pages of {}{}, {}/{} heads of {}, {}{}", desc.batch,
                     desc.max_pages * desc.page_size, desc.page_size, config.shared ? " per rank" : "",
                     desc.query_heads, desc.kv_heads, desc.head_dim, name_of(desc.dtype),
                     desc.kv_dtype == KvDType::kFp8 ? ", fp8 keys and values" : "");
}

/// For the emulator: at most 4 sequences, 512 keys and 4 KV heads, with the same group, head_dim, pages and features.
/// If keys are cut, a window is at most 128.
Params scaled_down(const Params& given, int /*ranks*/) {
  Params params = given;
  const auto number = [&](const char* name, int otherwise) {
    const auto at = params.find(name);
    const auto value =
        at == params.end() ? Result<std::int64_t>(otherwise) : harness::parse_integer(name, at->second, 0, 1 << 24);
    return value.ok() ? static_cast<int>(*value) : otherwise;
  };
  const int keys = number("max_keys", 320), kv_heads = number("kv_heads", 2), heads = number("query_heads", 8);
  if (number("batch", 3) > 4) params["batch"] = "4";
  if (kv_heads > 4 && heads % kv_heads == 0) {
    params["kv_heads"] = "4";
    params["query_heads"] = std::to_string(heads / kv_heads * 4);
  }
  if (keys > 512) {
    params["max_keys"] = "512";
    if (const int window = number("window", 0); window > 128) params["window"] = "128";
  }
  if (const auto lengths = params.find("lengths"); lengths != params.end())
    lengths->second = harness::shortened_lengths(lengths->second, 4, 512);
  return params;
}

harness::Spread spread(const Params& params) {
  const auto shards = params.find("kv_shards");
  if (shards == params.end() || shards->second != "all") return {};  // each rank has its own sequences
  return {.of_all = {}, .of_each = {"max_keys"}};
}

const bool kRegistered = [] {
  using enum harness::Fault::Kind;
  harness::register_operator(
      {"flash-decode",
       "attention of a few query tokens over a paged cache, whose keys ranks may share",
       kParams,
       harness::rank_case_maker<RankRun>(read_config, describe),
       {kDropPut, kDelay, kKill, kMismatch},
       scaled_down,
       // Splits of several stages for each multiplier; a window, pages of one key; ranks that share keys.
       {{{"sinks", "1"}, {"split_keys", "192"}},
        {{"batch", "2"},
         {"query_tokens", "2"},
         {"head_dim", "128"},
         {"page_size", "1"},
         {"max_keys", "256"},
         {"dtype", "fp16"},
         {"kv_dtype", "fp8"},
         {"layout", "hnd"},
         {"window", "100"}},
        {{"batch", "2"},
         {"page_size", "64"},
         {"max_keys", "256"},
         {"kv_dtype", "fp8"},
         {"sinks", "1"},
         {"kv_shards", "all"},
         {"exchange", "two-shot"},
         {"split_keys", "64"},
         {"work", "split"}}},
       spread,
       true,
       Params{{"wrong", "none"}, {"graph", "0"}, {"burst", "1"}, {"delay", "0"}}});
  return true;
}();

}  // namespace
}  // namespace farwarp::decode
