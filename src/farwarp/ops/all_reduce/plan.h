// Desc + machine -> plan of the all-reduce. Pure: no device, no World.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "farwarp/base/half.h"
#include "farwarp/base/machine_shape.h"
#include "farwarp/base/status.h"

namespace farwarp {

enum class AllReduceMode : std::uint8_t {
  kAuto,     ///< by a call's bytes
  kOneShot,  ///< every rank sends all to all ranks, by words
  kTwoShot,  ///< every rank adds up a part and sends the sums to all ranks
};

constexpr std::string_view name_of(AllReduceMode mode) {
  return mode == AllReduceMode::kAuto      ? "auto"
         : mode == AllReduceMode::kOneShot ? "one_shot"
         : mode == AllReduceMode::kTwoShot ? "two_shot"
                                           : "?";
}

struct AllReduceDesc {
  std::int64_t max_elements = 0;  ///< of a call, 1 to 2^28
  DType dtype = DType::kBf16;     ///< kBf16, kF16 or kF32
  AllReduceMode mode = AllReduceMode::kAuto;
  int max_sms = 0;  ///< most blocks of a launch; 0: all multiprocessors
};

struct AllReducePlan {
  AllReduceDesc desc;
  int ranks = 0;
  int most_blocks = 0;
  int warp_size = 32;
  std::string one_shot_kernel, two_shot_kernel;
  std::int64_t one_shot_bytes = 0;    ///< calls of at most so many bytes are one-shot
  std::int64_t one_shot_vectors = 0;  ///< 16 bytes each, for which `words` has room
  std::int64_t part_vectors = 0;      ///< of a part of the largest call, for which `parts` has room
  std::int64_t part_chunks = 0;       ///< most chunks of a part in any call
  // Of this rank's heap. 0: no call uses it.
  std::int64_t word_bytes = 0;    ///< words of peers, two buffers
  std::int64_t part_bytes = 0;    ///< partial and finished sums of peers
  std::int64_t signal_bytes = 0;  ///< one for each of their chunks
  std::string to_string() const;
};

/// One call of so many elements.
struct AllReduceLaunch {
  bool two_shot = false;
  int blocks = 0;
  int threads = 0;
  std::int64_t vectors = 0;       ///< of the tensor, the last one perhaps not full
  std::int64_t part_vectors = 0;  ///< of every rank's part but the last ones, which may be shorter or empty; two-shot
  int chunk_vectors = 0;          ///< of a chunk of a part; two-shot
  int groups = 0;                 ///< warps that share the peers of a chunk; two-shot
};

/// kInvalidArgument names the field, its value and what is allowed.
Result<AllReducePlan> plan_all_reduce(const AllReduceDesc& desc, const MachineShape& shape, int ranks);

/// `elements`: 1 to the plan's max_elements.
AllReduceLaunch launch_of(const AllReducePlan& plan, std::int64_t elements);

}  // namespace farwarp
