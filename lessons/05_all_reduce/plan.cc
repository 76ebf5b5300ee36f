#include "plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "args.h"

namespace farwarp::lessons {

Result<AllReducePlan> plan_all_reduce(const AllReduceDesc& desc, const MachineShape& shape, int ranks) {
  constexpr int kMaxElements = 1 << 20;
  if (desc.elements < 1 || desc.elements > kMaxElements)
    return invalid_argument(fmt::format("AllReduceDesc.elements is {}; allowed: 1 to {}", desc.elements, kMaxElements));
  if (desc.max_sms < 0)
    return invalid_argument(fmt::format("AllReduceDesc.max_sms is {}; allowed: 0 (all) or more", desc.max_sms));
  const int most_blocks = desc.max_sms == 0 ? shape.multiprocessors : std::min(desc.max_sms, shape.multiprocessors);
  AllReducePlan plan{.desc = desc, .ranks = ranks};
  plan.blocks = std::clamp(desc.elements / all_reduce::kThreads, 1, most_blocks);
  plan.flag_bytes = std::int64_t{2} * ranks * plan.blocks * 8;
  plan.vector_bytes = std::int64_t{2} * ranks * desc.elements * 4;
  return plan;
}

}  // namespace farwarp::lessons
