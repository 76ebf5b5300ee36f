// What the host passes to the kernels of gemm-ar.
#pragma once

#include <cstdint>

#include "farwarp/ops/parallel_gemm/gemm_reduce/args.h"

namespace farwarp::gemm_ar {

/// Wait sites of the ledger: gemm-rs's, and one more.
enum Site : std::uint32_t { kSiteFinished = gemm_reduce::kSites, kSites };
inline constexpr const char* kSiteNames[kSites] = {gemm_reduce::kSiteNames[0], gemm_reduce::kSiteNames[1],
                                                   gemm_reduce::kSiteNames[2], "a peer's finished rows"};

/// The argument block of every kernel of gemm-ar; a kernel reads what it needs.
struct Args {
  gemm_reduce::Args reduce;  ///< as of a gemm-rs over rows padded to a multiple of the ranks; y has all rows
  std::int32_t rows;         ///< m, of x and y; padding rows have owners too, and are not used
  /// Finished rows as words; a source is an owner, and a row is counted from its first. 0 rows: not used.
  gemm_reduce::WordInbox finished_inbox;
  // For boxes and flags: offsets in the heap.
  std::int64_t finished_rows;  ///< [ranks * owned][n]: finished rows from their owners
  std::int64_t signals;        ///< [ranks][chunks of an owner] cells of 8 bytes: epoch << 32
};

}  // namespace farwarp::gemm_ar
