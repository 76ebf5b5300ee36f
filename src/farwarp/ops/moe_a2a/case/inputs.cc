#include "farwarp/ops/moe_a2a/case/inputs.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "farwarp/harness/compare.h"

namespace farwarp::moe {
namespace {

using harness::InputKind;
using harness::RandomStream;

// Which stream of the seed a value comes from.
enum StreamId : std::uint64_t {
  kTokensStream,
  kExpertsStream,
  kMaskStream,
  kWeightsStream,
  kRowStream,
  kTableStream,
  kHotStream,
  kDelayStream
};

int token_count(const MoeAllToAllDesc& desc, const InputOptions& options, int call, int rank) {
  if (options.tokens == TokenCounts::kFull) return desc.max_tokens;
  if (options.tokens == TokenCounts::kEmptyRanks && (rank + call) % 2 == 1) return 0;
  const RandomStream stream(options.seed,
                            {kTokensStream, static_cast<std::uint64_t>(call), static_cast<std::uint64_t>(rank)});
  return 1 + static_cast<int>(stream.below(0, static_cast<std::uint64_t>(std::max(1, desc.max_tokens - 1))));
}

// Floyd's sampling: distinct values below `bound`, every set equally likely.
void draw_distinct(const RandomStream& stream, int bound, std::span<std::int32_t> experts) {
  for (std::size_t i = 0; i < experts.size(); ++i) {
    const int top = bound - static_cast<int>(experts.size() - i);
    const auto drawn = static_cast<std::int32_t>(stream.below(i, static_cast<std::uint64_t>(top) + 1));
    const auto chosen = experts.first(i);
    experts[i] = std::find(chosen.begin(), chosen.end(), drawn) == chosen.end() ? drawn : top;
  }
}

// The k largest of log(popularity) + Gumbel noise: sampling without replacement by popularity 1 / (1 + position).
void draw_zipf(const RandomStream& stream, int num_experts, int hottest, std::span<std::int32_t> experts) {
  std::vector<double> scores(static_cast<std::size_t>(num_experts));
  for (int e = 0; e < num_experts; ++e) {
    const int position = (e - hottest + num_experts) % num_experts;
    const double noise = -std::log(-std::log(1 - stream.uniform(static_cast<std::uint64_t>(e)) * (1 - 0x1p-53)));
    scores[static_cast<std::size_t>(e)] = noise - std::log(1.0 + position);
  }
  std::vector<std::int32_t> order(scores.size());
  std::iota(order.begin(), order.end(), 0);
  const auto middle = order.begin() + static_cast<std::ptrdiff_t>(experts.size());
  std::partial_sort(order.begin(), middle, order.end(), [&](std::int32_t a, std::int32_t b) {
    return scores[static_cast<std::size_t>(a)] > scores[static_cast<std::size_t>(b)];
  });
  std::copy(order.begin(), middle, experts.begin());
}

void draw_one_rank(const RandomStream& stream, const MoeAllToAllDesc& desc, int ranks, int hottest,
                   std::span<std::int32_t> experts) {
  const int rank = moe_rank_of(hottest, ranks, desc.num_experts);
  const int first = moe_first_expert(rank, ranks, desc.num_experts);
  const int local = moe_first_expert(rank + 1, ranks, desc.num_experts) - first;
  const auto chosen = experts.first(std::min(experts.size(), static_cast<std::size_t>(local)));
  std::fill(experts.begin(), experts.end(), -1);
  draw_distinct(stream, local, chosen);
  for (std::int32_t& expert : chosen) expert += first;
}

void mask_some(const RandomStream& stream, int token, std::span<std::int32_t> experts) {
  for (std::size_t i = 0; i < experts.size(); ++i) {
    if (token % 5 == 0 || stream.below(i, 4) == 0) experts[i] = -1;
  }
}

void draw_experts(const MoeAllToAllDesc& desc, int ranks, const InputOptions& options, int call, int rank, int token,
                  std::span<std::int32_t> experts) {
  const auto path = [&](StreamId id) {
    return RandomStream(options.seed, {id, static_cast<std::uint64_t>(call), static_cast<std::uint64_t>(rank),
                                       static_cast<std::uint64_t>(token)});
  };
  const RandomStream stream = path(kExpertsStream);
  const auto bound = static_cast<std::uint64_t>(desc.num_experts);
  const RandomStream hot(options.seed, {kHotStream, static_cast<std::uint64_t>(call)});
  const auto hottest = static_cast<std::int32_t>(hot.below(0, bound));
  switch (options.routing) {
    case RoutingKind::kUniform: return draw_distinct(stream, desc.num_experts, experts);
    case RoutingKind::kZipf: return draw_zipf(stream, desc.num_experts, hottest, experts);
    case RoutingKind::kRepeated:
      for (std::size_t i = 0; i < experts.size(); ++i) experts[i] = static_cast<std::int32_t>(stream.below(i, bound));
      return;
    case RoutingKind::kOneExpert:
      std::fill(experts.begin(), experts.end(), -1);
      experts[hot.below(1, experts.size())] = hottest;
      return;
    case RoutingKind::kOneRank: return draw_one_rank(stream, desc, ranks, hottest, experts);
    case RoutingKind::kSkipped: return std::fill(experts.begin(), experts.end(), -1);
    case RoutingKind::kPartial:
      draw_distinct(stream, desc.num_experts, experts);
      return mask_some(path(kMaskStream), token, experts);
  }
}

constexpr double kLargestUniform = 0.01;

/// Approximate deviation of x. Shifts of the table have the same scale.
double deviation(InputKind kind, DType dtype) {
  if (kind == InputKind::kTiny) return harness::tiny_deviation(dtype);
  return kind == InputKind::kUniform ? kLargestUniform : 1;
}

// ---- exact inputs: |x| <= largest, scales and shifts are small integers, weights 1 or 1/2 ---------------------------

constexpr int kLargestScale = 3;  // of the table; its shifts are -1, 0 and 1

struct ExactRange {
  double least_weight = 0.5;  ///< 1/2, or 1 where there is no room for halves
  int largest = 1;            ///< of |x|, a power of two
};

/// The range in which all sums of a token's k-slots are multiples of the least weight that the dtype represents
/// exactly.
ExactRange exact_range(const MoeAllToAllDesc& desc, int ranks, MoeExpert expert) {
  const bool table = expert == MoeExpert::kTable;
  const double most = harness::largest_exact_integer(desc.dtype);
  const auto largest_sum = [&](int x) {
    return desc.experts_per_token * (double{1} * x * (table ? kLargestScale : ranks) + (table ? 1 : 0));
  };
  ExactRange range;
  if (largest_sum(1) / range.least_weight > most) range.least_weight = 1;
  while (largest_sum(2 * range.largest) / range.least_weight <= most) range.largest *= 2;
  return range;
}

void fill_exact_row(const RandomStream& stream, DType dtype, int largest, std::span<std::uint16_t> row) {
  std::vector<std::uint16_t> numbers = {0};
  for (int power = 1; power <= largest; power *= 2) {
    for (const int sign : {-1, 1}) numbers.push_back(harness::encode(dtype, static_cast<float>(sign * power)));
  }
  for (std::size_t i = 0; i < row.size(); ++i) row[i] = numbers[stream.below(i, numbers.size())];
}

ExpertFunction exact_expert(const RandomStream& stream, std::uint64_t index, bool has_shift) {
  ExpertFunction expert;
  expert.scale = static_cast<float>(1 + stream.below(2 * index, kLargestScale));
  if (has_shift) expert.shift = static_cast<float>(stream.below(2 * index + 1, 3)) - 1;
  return expert;
}

}  // namespace

std::vector<Routing> make_routings(const MoeAllToAllDesc& desc, int ranks, const InputOptions& options, int call) {
  const auto k = static_cast<std::size_t>(desc.experts_per_token);
  const bool exact = kind_in_call(options, call) == InputKind::kExact;
  const double least_weight = exact_range(desc, ranks, options.expert).least_weight;
  std::vector<Routing> routings(static_cast<std::size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank) {
    Routing& routing = routings[static_cast<std::size_t>(rank)];
    routing.tokens = token_count(desc, options, call, rank);
    routing.experts.resize(static_cast<std::size_t>(routing.tokens) * k);
    routing.weights.resize(routing.experts.size());
    for (int token = 0; token < routing.tokens; ++token) {
      draw_experts(desc, ranks, options, call, rank, token,
                   std::span(routing.experts).subspan(static_cast<std::size_t>(token) * k, k));
    }
    const RandomStream stream(options.seed,
                              {kWeightsStream, static_cast<std::uint64_t>(call), static_cast<std::uint64_t>(rank)});
    for (std::size_t i = 0; i < routing.weights.size(); ++i) {
      const double weight = exact ? (stream.below(i, 2) == 0 ? 1 : least_weight) : stream.uniform(i);
      routing.weights[i] = static_cast<float>(weight);
    }
  }
  return routings;
}

void fill_row(const MoeAllToAllDesc& desc, int ranks, const InputOptions& options, int call, int rank, int token,
              std::span<std::uint16_t> row) {
  const RandomStream stream(options.seed, {kRowStream, static_cast<std::uint64_t>(call),
                                           static_cast<std::uint64_t>(rank), static_cast<std::uint64_t>(token)});
  const InputKind kind = kind_in_call(options, call);
  float lowest = -64;  // below all values of the other kinds
  if (kind == InputKind::kExact) {
    const int largest = exact_range(desc, ranks, options.expert).largest;
    lowest = static_cast<float>(-largest);
    fill_exact_row(stream, desc.dtype, largest, row);
  } else if (kind == InputKind::kUniform) {
    harness::fill_uniform(stream, -kLargestUniform, kLargestUniform, desc.dtype, row);
  } else {
    harness::fill_normal(stream, 0, deviation(kind, desc.dtype), desc.dtype, row);
  }
  if (!desc.fp8_dispatch || token % 3 != 0) return;
  // The lowest e4m3 number eight times: in FNUZ this is all ones, which words mode has to send differently.
  const std::uint16_t least = bf16_from(lowest).bits;
  for (std::size_t unit = 0; unit + 8 <= row.size(); unit += 200) std::ranges::fill(row.subspan(unit, 8), least);
}

std::vector<ExpertFunction> make_experts(const MoeAllToAllDesc& desc, int ranks, const InputOptions& options,
                                         int call) {
  std::vector<ExpertFunction> experts(static_cast<std::size_t>(desc.num_experts));
  const RandomStream stream(options.seed, {kTableStream});
  for (int e = 0; e < desc.num_experts; ++e) {
    ExpertFunction& expert = experts[static_cast<std::size_t>(e)];
    const auto index = static_cast<std::uint64_t>(e);
    if (options.expert == MoeExpert::kRankScale) {
      expert.scale = static_cast<float>(1 + moe_rank_of(e, ranks, desc.num_experts));
    } else if (kind_in_call(options, call) == InputKind::kExact) {
      expert =
          exact_expert(stream, index, !desc.fp8_dispatch);  // scaled fp8 numbers are integers up to an error of 2^-24
    } else {
      expert.scale = static_cast<float>(0.5 + stream.uniform(2 * index));
      expert.shift = static_cast<float>(deviation(kind_in_call(options, call), desc.dtype) *
                                        (stream.uniform(2 * index + 1) - 0.5));
    }
  }
  return experts;
}

std::uint64_t delay_before(const InputOptions& options, int call, int rank, std::uint64_t longest) {
  const RandomStream stream(options.seed,
                            {kDelayStream, static_cast<std::uint64_t>(call), static_cast<std::uint64_t>(rank)});
  return stream.below(0, longest + 1);
}

}  // namespace farwarp::moe
