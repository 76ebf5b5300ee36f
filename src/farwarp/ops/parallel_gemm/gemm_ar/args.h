// What the host hands to the kernels of gemm-ar.
#pragma once

#include <cstdint>

#include "farwarp/ops/parallel_gemm/gemm_rs/args.h"

namespace farwarp::gemm_ar {

/// Wait sites of the ledger: gemm-rs's, and one more.
enum Site : std::uint32_t { kSiteSums = gemm_rs::kSites, kSites };
inline constexpr const char* kSiteNames[kSites] = {gemm_rs::kSiteNames[0], gemm_rs::kSiteNames[1],
                                                   gemm_rs::kSiteNames[2], "a peer's finished rows"};

/// Up to as many rows, every rank sends its sums to every other as words. On Hopper, tiles of so many columns do nothing else.
inline constexpr int kMostOneShotRows = 16;

/// The argument block of every kernel of gemm-ar; a kernel reads what it needs.
struct Args {
  /// As of a gemm-rs over rows padded to a multiple of the ranks; y is that of all rows. As words, they go to all, and each adds for
  /// itself; else owners add and hand out.
  gemm_rs::Args rs;
  std::int32_t rows;  ///< m, of x and y: rows behind belong to somebody, and count for nothing
  // Offsets in the heap.
  std::int64_t sums;  ///< [ranks * owned][n]: finished rows from their owners
  std::int64_t told;  ///< [ranks][units of an owner] cells of 8 bytes: epoch << 32
};

}  // namespace farwarp::gemm_ar
