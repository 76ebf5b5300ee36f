#include "farwarp/ops/moe_a2a/reference.h"

#include <algorithm>
#include <cmath>

namespace farwarp::moe {
namespace {

struct Arrival {
  std::int32_t expert;
  std::int64_t origin;
};

// Whether an entry's row arrives for it: in the masked layout not if an earlier entry of the token has the same expert.
bool has_row(const MoeAllToAllDesc& desc, const Routing& routing, int token, int k_slot) {
  const auto entries = routing.experts.begin() + static_cast<std::ptrdiff_t>(token) * desc.experts_per_token;
  return desc.layout != MoeLayout::kMasked || std::find(entries, entries + k_slot, entries[k_slot]) == entries + k_slot;
}

// What arrives on `rank`, by expert; within an expert by source rank, token and k-slot, because the sort is stable.
std::vector<Arrival> arrivals_of(const MoeAllToAllDesc& desc, int rank, std::span<const Routing> routings) {
  const int ranks = static_cast<int>(routings.size());
  const int k = desc.experts_per_token;
  std::vector<Arrival> arrivals;
  for (int source = 0; source < ranks; ++source) {
    const Routing& routing = routings[static_cast<std::size_t>(source)];
    for (int token = 0; token < routing.tokens; ++token) {
      for (int k_slot = 0; k_slot < k; ++k_slot) {
        const std::int32_t expert = routing.experts[static_cast<std::size_t>(token) * k + k_slot];
        if (expert >= 0 && moe_rank_of(expert, ranks, desc.num_experts) == rank &&
            has_row(desc, routing, token, k_slot))
          arrivals.push_back({expert, moe_origin(source, token, k_slot)});
      }
    }
  }
  std::stable_sort(arrivals.begin(), arrivals.end(),
                   [](const Arrival& a, const Arrival& b) { return a.expert < b.expert; });
  return arrivals;
}

// The local experts of the rank that has most. The masked layout's room is recv_rows over this number, so it is the
// same on all ranks.
int max_local_experts(const MoeAllToAllDesc& desc, int ranks) { return (desc.num_experts + ranks - 1) / ranks; }

std::int64_t align_up(std::int64_t value, std::int64_t alignment) {
  return (value + alignment - 1) / alignment * alignment;
}

// MoeLayout::kRows: a row once for each token with an entry of `rank`.
ExpectedDispatch expected_rows(const MoeAllToAllDesc& desc, std::int64_t recv_rows, int rank,
                               std::span<const Routing> routings) {
  const int ranks = static_cast<int>(routings.size()), k = desc.experts_per_token;
  const int first = moe_first_expert(rank, ranks, desc.num_experts);
  const int end = moe_first_expert(rank + 1, ranks, desc.num_experts);
  ExpectedDispatch expected;
  expected.counts.resize(static_cast<std::size_t>(end - first));
  for (int source = 0; source < ranks; ++source) {
    expected.offsets.push_back(static_cast<std::int32_t>(expected.origins.size()));
    const Routing& routing = routings[static_cast<std::size_t>(source)];
    for (int token = 0; token < routing.tokens; ++token) {
      std::vector<std::int32_t> experts(static_cast<std::size_t>(k), -1);
      std::vector<float> weights(static_cast<std::size_t>(k), 0.0f);
      bool here = false;
      for (std::size_t k_slot = 0; k_slot < experts.size(); ++k_slot) {
        const std::size_t entry = static_cast<std::size_t>(token) * experts.size() + k_slot;
        const std::int32_t expert = routing.experts[entry];
        if (expert < first || expert >= end) continue;
        here = true;
        experts[k_slot] = expert - first;
        weights[k_slot] = routing.weights[entry];
        ++expected.counts[static_cast<std::size_t>(expert - first)];
      }
      if (!here) continue;
      expected.origins.push_back(moe_origin(source, token, 0));
      expected.experts.insert(expected.experts.end(), experts.begin(), experts.end());
      expected.weights.insert(expected.weights.end(), weights.begin(), weights.end());
    }
  }
  expected.offsets.push_back(static_cast<std::int32_t>(expected.origins.size()));
  expected.experts.resize(static_cast<std::size_t>(recv_rows * k), -1);
  expected.weights.resize(static_cast<std::size_t>(recv_rows * k), 0.0f);
  return expected;
}

}  // namespace

ExpectedDispatch expected_dispatch(const MoeAllToAllDesc& desc, std::int64_t recv_rows, int rank,
                                   std::span<const Routing> routings) {
  if (desc.layout == MoeLayout::kRows) return expected_rows(desc, recv_rows, rank, routings);
  const int ranks = static_cast<int>(routings.size());
  const int first = moe_first_expert(rank, ranks, desc.num_experts);
  const int local_experts = moe_first_expert(rank + 1, ranks, desc.num_experts) - first;
  const std::vector<Arrival> arrivals = arrivals_of(desc, rank, routings);
  ExpectedDispatch expected;
  expected.counts.resize(static_cast<std::size_t>(local_experts));
  for (const Arrival& arrival : arrivals) ++expected.counts[static_cast<std::size_t>(arrival.expert - first)];
  const std::int64_t room = recv_rows / max_local_experts(desc, ranks);
  std::int64_t end = 0;
  for (const std::int32_t count : expected.counts) {
    expected.offsets.push_back(static_cast<std::int32_t>(end));
    end += desc.layout == MoeLayout::kMasked ? room : align_up(count, desc.row_alignment);
  }
  expected.offsets.push_back(static_cast<std::int32_t>(end));
  expected.origins.assign(static_cast<std::size_t>(end), -1);
  auto arrival = arrivals.begin();
  for (int local = 0; local < local_experts; ++local) {
    const auto offset = expected.offsets[static_cast<std::size_t>(local)];
    for (int i = 0; i < expected.counts[static_cast<std::size_t>(local)]; ++i, ++arrival) {
      expected.origins[static_cast<std::size_t>(offset) + i] = arrival->origin;
    }
  }
  return expected;
}

std::int64_t least_recv_rows(const MoeAllToAllDesc& desc, int rank, std::span<const Routing> routings) {
  if (desc.layout == MoeLayout::kRows) return std::max(1, expected_rows(desc, 0, rank, routings).offsets.back());
  const int ranks = static_cast<int>(routings.size());
  const int first = moe_first_expert(rank, ranks, desc.num_experts);
  const int end = moe_first_expert(rank + 1, ranks, desc.num_experts);
  std::vector<std::int64_t> counts(static_cast<std::size_t>(end - first));
  for (const Arrival& arrival : arrivals_of(desc, rank, routings))
    ++counts[static_cast<std::size_t>(arrival.expert - first)];
  if (desc.layout == MoeLayout::kMasked) {
    return std::max<std::int64_t>(1, *std::ranges::max_element(counts)) * max_local_experts(desc, ranks);
  }
  std::int64_t rows = 0;
  for (const std::int64_t count : counts) rows += align_up(count, desc.row_alignment);
  return std::max<std::int64_t>(1, rows);
}

std::int64_t least_recv_rows(const MoeAllToAllDesc& desc, std::span<const Routing> routings) {
  std::int64_t least = 1;
  for (int rank = 0; rank < static_cast<int>(routings.size()); ++rank)
    least = std::max(least, least_recv_rows(desc, rank, routings));
  return least;
}

QuantisedRow quantised_row(Fp8Format format, std::span<const std::uint16_t> row) {
  constexpr std::size_t kGroup = 128;
  const float limit = largest_fp8(format);
  QuantisedRow result;
  for (std::size_t first = 0; first < row.size(); first += kGroup) {
    const auto group = row.subspan(first, std::min(kGroup, row.size() - first));
    float largest = 0x1p-100f;
    for (const std::uint16_t bits : group) largest = std::max(largest, std::abs(float_from(Bf16{bits})));
    const float inverse = limit / largest;
    result.scales.push_back(largest * (1.0f / limit));
    for (const std::uint16_t bits : group) result.numbers.push_back(fp8_from(format, float_from(Bf16{bits}) * inverse));
  }
  return result;
}

std::vector<float> row_values(const MoeAllToAllDesc& desc, Fp8Format format, std::span<const std::uint16_t> row) {
  std::vector<float> values(row.size());
  if (desc.fp8_dispatch) {
    const QuantisedRow quantised = quantised_row(format, row);
    for (std::size_t i = 0; i < row.size(); ++i) {
      values[i] = float_from_fp8(format, quantised.numbers[i]) * quantised.scales[i / 128];
    }
  } else {
    for (std::size_t i = 0; i < row.size(); ++i) {
      values[i] = desc.dtype == DType::kF16 ? float_from(Half{row[i]}) : float_from(Bf16{row[i]});
    }
  }
  return values;
}

double expert_output(DType dtype, const ExpertFunction& expert, float x) {
  const float y = std::fma(x, expert.scale, expert.shift);
  return dtype == DType::kF16 ? float_from(half_from(y)) : float_from(bf16_from(y));
}

}  // namespace farwarp::moe
