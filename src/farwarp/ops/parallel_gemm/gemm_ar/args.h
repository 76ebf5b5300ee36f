// The argument block of the kernels of gemm-ar.
#pragma once

#include <cstdint>

#include "farwarp/ops/parallel_gemm/gemm_reduce/args.h"

namespace farwarp::gemm_ar {

/// Wait sites of the ledger: those of gemm_reduce, and one more.
enum Site : std::uint32_t { kSiteFinished = gemm_reduce::kSites, kSites };
inline constexpr const char* kSiteNames[kSites] = {gemm_reduce::kSiteNames[0], gemm_reduce::kSiteNames[1],
                                                   gemm_reduce::kSiteNames[2], "a peer's finished rows"};

/// One block for all kernels. Each reads the members that it needs.
struct Args {
  gemm_reduce::Args reduce;               ///< of m padded to a multiple of the ranks; its y has all rows
  std::int32_t rows;                      ///< m, of x and y; the rows from here on are padding
  gemm_reduce::WordInbox finished_inbox;  ///< finished rows as words, by owner; rows is 0: they are not sent as words
  // Offsets in the heap, if finished rows are sent as boxes with flags.
  std::int64_t finished_rows;  ///< [ranks * owned][n]: finished rows, stored by their owners
  std::int64_t signals;        ///< [ranks][chunks of an owner] cells of 8 bytes: epoch << 32
};

}  // namespace farwarp::gemm_ar
