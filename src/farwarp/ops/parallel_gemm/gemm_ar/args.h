// What the host hands to the kernels of gemm-ar.
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
  gemm_reduce::Args reduce;  ///< as of a gemm-rs over rows padded to a multiple of the ranks; y is that of all rows
  std::int32_t rows;         ///< m, of x and y: rows behind belong to somebody, and count for nothing
  gemm_reduce::WordInbox
      finished_inbox;  ///< owners' finished rows as words, of each owner those it owns; without rows, they don't come so
  // Offsets in the heap, where owners have boxes and flags.
  std::int64_t finished_rows;  ///< [ranks * owned][n]: finished rows from their owners
  std::int64_t signals;        ///< [ranks][chunks of an owner] cells of 8 bytes: epoch << 32
};

}  // namespace farwarp::gemm_ar
