#include "farwarp/models/qwen3/config.h"

#include <fmt/format.h>

#include "farwarp/base/arguments.h"
#include "farwarp/fleet/layout.h"
#include "farwarp/models/qwen3/decode/args.h"

namespace farwarp {
namespace {

struct Named {
  std::string_view name;
  Qwen3Config config;
};

const Named kConfigs[] = {
    {"nano", {256, 2, 4, 1, 64, 256, 40}},
    {"tiny", {256, 3, 4, 1, 128, 512, 1003}},
    {"tiny64", {256, 3, 8, 2, 64, 768, 1003}},
    {"nano4", {256, 2, 16, 4, 64, 1024, 100}},
    {"nano8", {256, 1, 32, 8, 64, 2048, 100}},
    {"qwen3-0.6b", {1024, 28, 16, 8, 128, 3072, 151936, 1e-6f, 1e6f, true}},
    {"qwen3-1.7b", {2048, 28, 16, 8, 128, 6144, 151936, 1e-6f, 1e6f, true}},
    {"qwen3-4b", {2560, 36, 32, 8, 128, 9728, 151936, 1e-6f, 1e6f, true}},
    {"qwen3-8b", {4096, 36, 32, 8, 128, 12288, 151936}},
    {"qwen3-14b", {5120, 40, 40, 8, 128, 17408, 151936}},
    {"qwen3-32b", {5120, 64, 64, 8, 128, 25600, 151936}},
};

Status wrong(const char* field, std::int64_t value, const std::string& allowed) {
  return invalid_argument(fmt::format("Qwen3Config.{} is {}; allowed: {}", field, value, allowed));
}

}  // namespace

Status Qwen3Config::check() const {
  constexpr int kStep = fleet::kSliceDepth, kMaxHidden = fleet::kMaxPassSlices * fleet::kSliceDepth;
  if (hidden < kStep || hidden % kStep != 0 || hidden > kMaxHidden)
    return wrong("hidden", hidden, fmt::format("a multiple of {} up to {}", kStep, kMaxHidden));
  if (layers < 1 || layers > 1000) return wrong("layers", layers, "1 to 1000");
  if (head_dim != 64 && head_dim != 128) return wrong("head_dim", head_dim, "64, 128");
  if (kv_heads < 1 || kv_heads > 256) return wrong("kv_heads", kv_heads, "1 to 256");
  if (query_heads < kv_heads || query_heads % kv_heads != 0 || query_heads > kv_heads * qwen3::kMaxHeadsPerKvHead)
    return wrong(
        "query_heads", query_heads,
        fmt::format("a multiple of kv_heads ({}) up to {} times as many", kv_heads, qwen3::kMaxHeadsPerKvHead));
  if (query_heads * head_dim % kStep != 0)
    return wrong(
        "query_heads", query_heads,
        fmt::format("so many that query_heads * head_dim ({}) is a multiple of {}", query_heads * head_dim, kStep));
  if (intermediate < kStep || intermediate % kStep != 0 || intermediate > (1 << 20))
    return wrong("intermediate", intermediate, fmt::format("a multiple of {} up to {}", kStep, 1 << 20));
  if (vocabulary < 1 || vocabulary > (1 << 24)) return wrong("vocabulary", vocabulary, fmt::format("1 to {}", 1 << 24));
  return {};
}

Result<Qwen3Config> qwen3_config(std::string_view name) {
  std::string names;
  for (const Named& named : kConfigs) {
    if (named.name == name) return named.config;
    names += (names.empty() ? "" : ", ") + std::string(named.name);
  }
  return invalid_argument(fmt::format("model is {}; allowed: {}", name, names));
}

}  // namespace farwarp
