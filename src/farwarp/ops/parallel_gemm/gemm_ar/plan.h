// Desc + machine -> plan of gemm-ar. Pure: no device, no World.
#pragma once

#include <cstdint>
#include <string>

#include "farwarp/ops/parallel_gemm/gemm_reduce/plan.h"

namespace farwarp {

struct GemmAllReducePlan {
  ParallelGemmDesc desc;
  /// The product, its owners and their inboxes: as of a gemm-rs whose rows are desc.m padded to a multiple of the ranks.
  gemm_reduce::Plan reduce;
  /// Owners' finished rows as words, after the inbox of partial sums in its buffer; 0 rows: there is none.
  gemm_reduce::WordInbox finished_inbox{};
  std::string kernel;
  // For boxes: offsets in the workspace, after those of `reduce`.
  std::int64_t finished_rows = 0, signals = 0;
  std::int64_t workspace_bytes = 0;

  bool by_words() const { return reduce.word_inbox.rows != 0; }
  /// True: partial sums go to all ranks. False: owners add them up and send finished rows to all.
  bool one_shot() const { return by_words() && finished_inbox.rows == 0; }
  /// Bytes of both inboxes of words.
  std::int64_t word_bytes() const { return reduce.word_inbox.bytes() + finished_inbox.bytes(); }
  /// Bytes of the workspace and the inboxes of words.
  std::int64_t heap_bytes() const;
  std::string to_string() const;
};

/// kInvalidArgument names the field, its value and what is allowed.
Result<GemmAllReducePlan> plan_gemm_all_reduce(const ParallelGemmDesc& desc, const MachineShape& shape, int ranks);

}  // namespace farwarp
