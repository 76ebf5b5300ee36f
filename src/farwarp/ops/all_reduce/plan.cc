#include "farwarp/ops/all_reduce/plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "farwarp/base/arguments.h"
#include "farwarp/ops/all_reduce/args.h"
#include "farwarp/ops/all_reduce/variants.h"
#include "farwarp/world/view.h"

namespace farwarp {
namespace {

using all_reduce::kLeastChunkVectors;
using all_reduce::kMaxChunkVectors;
using all_reduce::kPartAlignment;
using all_reduce::kVectorBytes;

constexpr std::int64_t kMaxElements = std::int64_t{1} << 28;
constexpr std::int64_t kMaxOneShotBytes = 16 << 20;  ///< if asked for: the inbox has 2 * ranks times as many

std::int64_t quotient_up(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }
std::int64_t rounded_up(std::int64_t a, std::int64_t b) { return quotient_up(a, b) * b; }

std::int64_t vectors_of(const AllReduceDesc& desc, std::int64_t elements) {
  return quotient_up(elements * bytes_of(desc.dtype), kVectorBytes);
}
std::int64_t part_vectors_of(std::int64_t vectors, int ranks) {
  return rounded_up(quotient_up(vectors, ranks), kPartAlignment);
}

template <class Value>
Status wrong(const char* field, const Value& value, const std::string& allowed) {
  return invalid_argument(fmt::format("AllReduceDesc.{} is {}; allowed: {}", field, value, allowed));
}

Status check(const AllReduceDesc& desc, int ranks) {
  if (desc.dtype != DType::kBf16 && desc.dtype != DType::kF16 && desc.dtype != DType::kF32)
    return wrong("dtype", name_or_number(desc.dtype), "bf16, fp16, fp32");
  if (name_of(desc.mode) == "?") return wrong("mode", name_or_number(desc.mode), "auto, one_shot, two_shot");
  if (desc.max_elements < 1 || desc.max_elements > kMaxElements)
    return wrong("max_elements", desc.max_elements, fmt::format("1 to {}", kMaxElements));
  const std::int64_t most = kMaxOneShotBytes / bytes_of(desc.dtype);
  if (desc.mode == AllReduceMode::kOneShot && ranks > 1 && desc.max_elements > most)
    return wrong("max_elements", desc.max_elements, fmt::format("1 to {} with mode one_shot", most));
  if (desc.max_sms < 0) return wrong("max_sms", desc.max_sms, "0 (all) or more");
  return {};
}

/// The largest call that `auto` makes one-shot: as measured for two and four ranks, by arithmetic for others
/// (MEASURED.md). Two-shot sends (R - 1) (1 - 2 / R) times the bytes less, and takes a second flight and two fences, in
/// which a link moves kSecondFlightBytes. For two ranks both forms send the same.
std::int64_t most_one_shot_bytes(int ranks) {
  constexpr std::int64_t kSecondFlightBytes = 5 << 19, kOfTwoRanks = 4 << 20;
  return ranks == 2 ? kOfTwoRanks : kSecondFlightBytes * ranks / ((ranks - 1) * (ranks - 2));
}

std::int64_t one_shot_bytes_of(const AllReduceDesc& desc, int ranks) {
  const std::int64_t all = desc.max_elements * bytes_of(desc.dtype);
  if (ranks == 1) return all;  // nothing is sent
  switch (desc.mode) {
    case AllReduceMode::kOneShot: return all;
    case AllReduceMode::kTwoShot: return 0;
    case AllReduceMode::kAuto: break;
  }
  return std::min(all, most_one_shot_bytes(ranks));
}

/// Warps of a launch that send and add up, at most.
std::int64_t most_warps(const AllReducePlan& plan) {
  return std::int64_t{plan.most_blocks} * (all_reduce::kMaxThreads / plan.warp_size - 1);
}

std::string kernel_of(const AllReduceDesc& desc, int ranks, all_reduce::Form form) {
  for (const all_reduce::Variant& kernel : all_reduce::kVariants) {
    if (kernel.dtype == desc.dtype && kernel.form == form && kernel.most_ranks >= ranks) return kernel.name;
  }
  return "";
}

}  // namespace

Result<AllReducePlan> plan_all_reduce(const AllReduceDesc& desc, const MachineShape& shape, int ranks) {
  if (ranks < 1 || ranks > kMaxRanks)
    return invalid_argument(fmt::format("ranks is {}; allowed: 1 to {}", ranks, kMaxRanks));
  if (Status status = check(desc, ranks); !status.ok()) return status;
  AllReducePlan plan;
  plan.desc = desc;
  plan.ranks = ranks;
  plan.warp_size = shape.traits.warp_size;
  plan.most_blocks = desc.max_sms == 0 ? shape.multiprocessors : std::min(desc.max_sms, shape.multiprocessors);
  plan.one_shot_kernel = kernel_of(desc, ranks, all_reduce::Form::one_shot);
  plan.two_shot_kernel = kernel_of(desc, ranks, all_reduce::Form::two_shot);
  plan.one_shot_bytes = one_shot_bytes_of(desc, ranks);
  const std::int64_t vectors = vectors_of(desc, desc.max_elements);
  if (ranks > 1 && plan.one_shot_bytes > 0) {
    plan.one_shot_vectors = std::min(vectors, quotient_up(plan.one_shot_bytes, kVectorBytes));
    plan.word_bytes = 2 * ranks * plan.one_shot_vectors * kVectorBytes;
  }
  if (desc.max_elements * bytes_of(desc.dtype) > plan.one_shot_bytes) {
    plan.part_vectors = part_vectors_of(vectors, ranks);
    plan.part_bytes = all_reduce::kKinds * ranks * plan.part_vectors * kVectorBytes;
    // Chunks are smaller than the largest only while warps suffice for them.
    plan.part_chunks = std::max(quotient_up(plan.part_vectors, kMaxChunkVectors),
                                std::min(quotient_up(plan.part_vectors, kLeastChunkVectors), most_warps(plan)));
    plan.signal_bytes = all_reduce::kKinds * ranks * plan.part_chunks * 8;
  }
  return plan;
}

AllReduceLaunch launch_of(const AllReducePlan& plan, std::int64_t elements) {
  AllReduceLaunch launch;
  launch.two_shot = elements * bytes_of(plan.desc.dtype) > plan.one_shot_bytes;
  launch.vectors = vectors_of(plan.desc, elements);
  // One-shot: a vector for each thread. Two-shot: a chunk of every part for each warp, or of some parts if there are
  // warps enough. First on all multiprocessors, then in larger blocks. A block has one warp more, for the operator's
  // cells.
  std::int64_t threads = launch.vectors, block = all_reduce::kOneShotThreads;
  if (launch.two_shot) {
    launch.part_vectors = part_vectors_of(launch.vectors, plan.ranks);
    const std::int64_t most = most_warps(plan);
    launch.chunk_vectors = kLeastChunkVectors;
    while (launch.chunk_vectors < kMaxChunkVectors && quotient_up(launch.part_vectors, launch.chunk_vectors) > most)
      launch.chunk_vectors *= 2;
    const std::int64_t chunks = quotient_up(launch.part_vectors, launch.chunk_vectors);
    launch.groups = static_cast<int>(std::clamp<std::int64_t>(most / chunks, 1, std::max(1, plan.ranks - 1)));
    threads = chunks * launch.groups * plan.warp_size;
    block = plan.warp_size;
  }
  launch.blocks = static_cast<int>(std::min<std::int64_t>(plan.most_blocks, quotient_up(threads, block)));
  const std::int64_t needed = rounded_up(quotient_up(threads, launch.blocks), plan.warp_size);
  const std::int64_t sending = std::clamp<std::int64_t>(needed, block, all_reduce::kMaxThreads - plan.warp_size);
  launch.threads = static_cast<int>(sending) + plan.warp_size;
  return launch;
}

std::string AllReducePlan::to_string() const {
  const AllReduceLaunch largest = launch_of(*this, desc.max_elements);
  return fmt::format("{}: {} blocks of {} threads; one-shot up to {} bytes",
                     largest.two_shot ? two_shot_kernel : one_shot_kernel, largest.blocks, largest.threads,
                     one_shot_bytes);
}

}  // namespace farwarp
