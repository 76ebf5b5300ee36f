#include "farwarp/ops/moe_layer/case/inputs.h"

#include <algorithm>
#include <cmath>

namespace farwarp::moe_layer {
namespace {

using harness::InputKind;
using harness::RandomStream;

enum StreamId : std::uint64_t { kRowStream = 301, kWindowStream, kPoolStream, kSignStream };

constexpr int kWindows = 8192;
constexpr float kFirst = 8;                  // of an exact row of x and of a gate's row: the gate is their product
constexpr int kUsedOfUp = 2, kLargestX = 2;  // exact: numbers of a row of the up projection that are not 0

std::size_t size(std::int64_t value) { return static_cast<std::size_t>(value); }

/// Numbers of an exact row of w2 that are not 0: so many that k sums, in units of 64, have 8 bits.
int used_of_w2(const MoeLayerDesc& desc) {
  constexpr int kLargestUp = kUsedOfUp * kLargestX + 1;  // with a bias
  return std::clamp((256 / desc.experts_per_token - 1) / kLargestUp, 1, 6);
}

moe::InputOptions of_routing(const InputOptions& options) {
  return {.routing = options.routing, .tokens = options.tokens, .kind = InputKind::kNormal, .seed = options.seed};
}

std::vector<float> random_pool(const MoeLayerDesc& desc, std::uint64_t seed, std::uint64_t which, int call, int k,
                               double deviation) {
  std::vector<std::uint16_t> bits(size(k + kWindows));
  harness::fill_normal(RandomStream(seed, {kPoolStream, which, size(call)}), 0, deviation, desc.dtype, bits);
  std::vector<float> values(bits.size());
  std::ranges::transform(bits, values.begin(), [&](std::uint16_t value) { return harness::decode(desc.dtype, value); });
  return values;
}

}  // namespace

InputKind kind_in_call(const MoeLayerDesc& desc, const InputOptions& options, int call) {
  const InputKind kind = harness::kind_in_call(options.kind, call, InputKind::kNormal);
  return desc.activation == Activation::kClampedSwiGlu ? InputKind::kNormal : kind;
}

std::vector<moe::Routing> make_routings(const MoeLayerDesc& desc, int ranks, const InputOptions& options, int call) {
  MoeAllToAllDesc exchange;
  exchange.num_experts = desc.num_experts;
  exchange.experts_per_token = desc.experts_per_token;
  exchange.hidden = desc.hidden;
  exchange.max_tokens = desc.max_tokens;
  exchange.dtype = desc.dtype;
  std::vector<moe::Routing> routings = moe::make_routings(exchange, ranks, of_routing(options), call);
  if (kind_in_call(desc, options, call) != InputKind::kExact) return routings;
  for (std::size_t rank = 0; rank < routings.size(); ++rank) {
    const RandomStream stream(options.seed, {kSignStream, size(call), rank});
    for (std::size_t i = 0; i < routings[rank].weights.size(); ++i)
      routings[rank].weights[i] = stream.below(i, 2) == 0 ? 1.0f : -1.0f;
  }
  return routings;
}

void fill_row(const MoeLayerDesc& desc, const InputOptions& options, int call, int rank, int token,
              std::span<std::uint16_t> row) {
  const RandomStream stream(options.seed, {kRowStream, size(call), size(rank), size(token)});
  if (kind_in_call(desc, options, call) != InputKind::kExact)
    return harness::fill_normal(stream, 0, 1, desc.dtype, row);
  for (std::size_t i = 0; i < row.size(); ++i)
    row[i] = harness::encode(desc.dtype, static_cast<float>(stream.below(i, 2 * kLargestX + 1)) - kLargestX);
  row[0] = harness::encode(desc.dtype, kFirst);
}

Weights::Weights(const MoeLayerDesc& desc, const InputOptions& options, int call)
    : desc_(desc), seed_(options.seed + size(call)), exact_(kind_in_call(desc, options, call) == InputKind::kExact) {
  if (exact_) return;
  const double wide = desc.activation == Activation::kClampedSwiGlu ? 4 : 1;
  of_w1_ = random_pool(desc, options.seed, kW1, call, desc.hidden, wide / std::sqrt(desc.hidden));
  of_w2_ = random_pool(desc, options.seed, kW2, call, desc.intermediate, 1 / std::sqrt(desc.intermediate));
}

void Weights::fill(Matrix matrix, int expert, int row, std::span<float> values) const {
  const RandomStream stream(seed_, {kWindowStream, matrix, size(expert), size(row)});
  if (!exact_) {
    const std::vector<float>& pool = matrix == kW1 ? of_w1_ : of_w2_;
    std::copy_n(pool.begin() + static_cast<std::ptrdiff_t>(stream.below(0, kWindows)), values.size(), values.begin());
    return;
  }
  std::ranges::fill(values, 0.0f);
  const bool of_gate = matrix == kW1 && row < desc_.intermediate;
  if (of_gate) {
    values[0] = kFirst;
    return;
  }
  // The first element of x is another number than the rest.
  const std::size_t first = matrix == kW1 ? 1 : 0;
  const int used = matrix == kW1 ? kUsedOfUp : used_of_w2(desc_);
  for (int i = 0; i < used; ++i) {
    const std::size_t at = first + stream.below(size(2 * i), values.size() - first);
    values[at] = stream.below(size(2 * i + 1), 2) == 0 ? 1.0f : -1.0f;
  }
}

float Weights::random_bias(Matrix matrix, int expert, int row, float deviation) const {
  std::uint16_t value = 0;
  harness::fill_normal(RandomStream(seed_, {kWindowStream, matrix, size(expert), size(row)}), 0, deviation, desc_.dtype,
                       std::span(&value, 1));
  return harness::decode(desc_.dtype, value);
}

float Weights::bias1(int expert, int row) const {
  if (!desc_.has_bias) return 0;
  if (!exact_) return random_bias(kBias1, expert, row, 0.5f);
  if (row < desc_.intermediate) return 0;
  const RandomStream stream(seed_, {kWindowStream, kBias1, size(expert), size(row)});
  return static_cast<float>(stream.below(0, 3)) - 1;
}

float Weights::bias2(int expert, int row) const {
  if (!desc_.has_bias) return 0;
  if (!exact_) return random_bias(kBias2, expert, row, 0.5f);
  const RandomStream stream(seed_, {kWindowStream, kBias2, size(expert), size(row)});
  return kFirst * kFirst * (static_cast<float>(stream.below(0, 3)) - 1);
}

}  // namespace farwarp::moe_layer
