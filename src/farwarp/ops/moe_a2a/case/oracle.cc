#include "farwarp/ops/moe_a2a/case/oracle.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "farwarp/harness/inputs.h"

namespace farwarp::moe {
namespace {

/// k-slots that are returned in one sum and whose experts compute the same.
struct Slots {
  int sum = 0;  ///< which sum: the owner, or the k-slot
  ExpertFunction function;
  double weight = 0, magnitude = 0;  // sums of weights and of |weights|
};

/// In the order of sums.
std::vector<Slots> slots_of(const MoeAllToAllDesc& desc, int ranks, std::span<const std::int32_t> experts,
                            std::span<const float> weights, std::span<const ExpertFunction> functions,
                            Returned returned) {
  std::vector<Slots> all;
  for (std::size_t slot = 0; slot < experts.size(); ++slot) {
    if (experts[slot] < 0) continue;
    const ExpertFunction& function = functions[static_cast<std::size_t>(experts[slot])];
    const int sum = returned == Returned::kEachOutput ? static_cast<int>(slot)
                                                      : moe_rank_of(experts[slot], ranks, desc.num_experts);
    auto same = std::ranges::find_if(all, [&](const Slots& slots) {
      return slots.sum == sum && slots.function.scale == function.scale && slots.function.shift == function.shift;
    });
    if (same == all.end()) same = all.insert(same, {sum, function});
    same->weight += weights[slot];
    same->magnitude += std::abs(weights[slot]);
  }
  std::ranges::stable_sort(all, {}, &Slots::sum);
  return all;
}

double nearest(DType dtype, double value) {
  return harness::decode(dtype, harness::encode(dtype, static_cast<float>(value)));
}

}  // namespace

void expected_row(const MoeAllToAllDesc& desc, int ranks, std::span<const std::int32_t> experts,
                  std::span<const float> weights, std::span<const float> x, std::span<const ExpertFunction> functions,
                  std::span<harness::ExpectedElement> expected, Returned returned) {
  const std::vector<Slots> slots = slots_of(desc, ranks, experts, weights, functions, returned);
  // The error of an fp32 addition is at most 2^-24 of its result, or half the least distance of two numbers.
  // `additions`: an upper bound.
  const auto additions = static_cast<double>(experts.size()) + ranks;
  const auto error_of = [&](double magnitude) { return additions * (0x1p-24 * magnitude + 0x1p-150); };
  for (std::size_t i = 0; i < x.size(); ++i) {
    harness::ExpectedElement element;
    double sum = 0, magnitude = 0, of_all = 0, rounded = 0;
    for (std::size_t s = 0; s < slots.size(); ++s) {
      const double y = expert_output(desc.dtype, slots[s].function, x[i]);
      sum += slots[s].weight * y;
      magnitude += slots[s].magnitude * std::abs(y);
      if (s + 1 < slots.size() && slots[s + 1].sum == slots[s].sum) continue;
      element.add_rounded(desc.dtype, sum, error_of(magnitude));
      rounded += nearest(desc.dtype, sum);
      of_all += magnitude;
      sum = magnitude = 0;
    }
    element.accumulated += error_of(of_all);
    element.predicted = nearest(desc.dtype, rounded) - element.value;
    expected[i] = slots.empty() ? harness::ExpectedElement{} : element;
  }
}

}  // namespace farwarp::moe
