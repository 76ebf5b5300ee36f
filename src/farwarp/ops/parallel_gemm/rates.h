// Rates that plans of the parallel products reckon with.
#pragma once

namespace farwarp::parallel_gemm {

/// Out of a rank, to all peers at once: 16 blocks that send boxes reach 327 GB/s (8 H200s, 2026-11).
inline constexpr double kLinkBytesPerUs = 330e3;

}  // namespace farwarp::parallel_gemm
