// Desc + machine -> plan of gemm-ar. Pure: no device, no World.
#pragma once

#include <cstdint>
#include <string>

#include "farwarp/ops/parallel_gemm/gemm_reduce/plan.h"

namespace farwarp {

struct GemmAllReducePlan {
  ParallelGemmDesc desc;
  /// Of a gemm-rs whose rows are desc.m padded to a multiple of the ranks: product, owners, and their inboxes.
  gemm_reduce::Plan reduce;
  gemm_reduce::WordInbox
      finished_inbox{};  ///< owners' rows as words, behind the inbox of partial sums; without rows, there are none
  std::string kernel;
  // Offsets in the workspace, behind what the gemm-rs takes.
  std::int64_t finished_rows = 0, signals = 0;
  std::int64_t workspace_bytes = 0;

  bool by_words() const { return reduce.word_inbox.rows != 0; }
  /// Partial sums to all ranks, instead of sums by owners and their rows to all.
  bool one_shot() const { return by_words() && finished_inbox.rows == 0; }
  /// Of both inboxes of words.
  std::int64_t word_bytes() const { return reduce.word_inbox.bytes() + finished_inbox.bytes(); }
  /// Of the workspace and the inboxes of words.
  std::int64_t heap_bytes() const;
  std::string to_string() const;
};

/// kInvalidArgument names the field, its value and what is allowed.
Result<GemmAllReducePlan> plan_gemm_all_reduce(const ParallelGemmDesc& desc, const MachineShape& shape, int ranks);

}  // namespace farwarp
