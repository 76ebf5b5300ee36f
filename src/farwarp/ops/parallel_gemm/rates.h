// Rates that the plans of the parallel products assume.
#pragma once

namespace farwarp::parallel_gemm {

/// From one rank to all peers together. 16 blocks that send boxes reach 327 GB/s (8 H200s, 2026-11).
inline constexpr double kLinkBytesPerUs = 330e3;

}  // namespace farwarp::parallel_gemm
