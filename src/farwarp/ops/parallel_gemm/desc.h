// The descriptor of the products of tensor parallelism: the sizes of the whole problem, and each rank's part of it.
#pragma once

#include <cstdint>

#include "farwarp/base/half.h"
#include "farwarp/base/status.h"
#include "farwarp/world/view.h"

namespace farwarp {

/// How data crosses the links. Only Hopper has a choice; elsewhere only kAuto is allowed.
enum class ParallelGemmExchange : std::uint8_t {
  kAuto,          ///< the plan's choice
  kBoxes,         ///< copies (lanes where rows have several owners), then a flag for each band or piece
  kWords,         ///< stores that are their own flags (world/device/words.dev.h); an all-reduce is two-shot
  kOneShotWords,  ///< all-reduce of few rows only: words, one-shot (each rank's partial sums to all ranks)
  kFetch,         ///< reduce-scatter of two ranks only: the owner loads the peer's boxes when it adds them up
};
/// "auto", "boxes", "words", "one_shot_words", "fetch".
const char* name_of(ParallelGemmExchange exchange);

/// A product spread over R ranks. The sizes are those of the whole problem. All matrices are row-major and contiguous,
/// sums are in fp32.
///
///   all-gather      x [m/R, k], w [n/R, k], bias [n/R] of each rank -> y [m, n/R] = all ranks' x * w^T + bias
///   reduce-scatter  x [m, k/R], w [n, k/R], bias [n] of each rank   -> y [m/R, n]: this rank's rows of the sum over
///                                                                      ranks of x * w^T + bias
///   all-reduce      the same                                        -> y [m, n]: all rows of that sum
///
/// So a bias that is the same on all ranks enters a reduced result R times, as in the challenge.
struct ParallelGemmDesc {
  int m = 0;                   ///< 1 or more; a multiple of R, except in an all-reduce
  int n = 0;                   ///< a multiple of 8; in an all-gather n/R is, too
  int k = 0;                   ///< a multiple of 8; in a reduce-scatter or all-reduce k/R is, too
  DType dtype = DType::kBf16;  ///< of x, w, bias and y: kBf16 or kF16
  bool has_bias = false;
  int max_sms = 0;       ///< at most so many blocks of a launch; 0: all multiprocessors
  int tile_columns = 0;  ///< rows of w (swap_ab: of x) in a tile; 0: the plan's choice
  /// Parts of k that different blocks sum, 1 to 16; 0: the plan's choice. On Hopper: 1 with tiles of more than 128
  /// columns; where splits are blocks of a cluster (all-gather; few rows as words) 1 or 2, with swap_ab also 4.
  int splits = 0;
  int comm_blocks =
      0;  ///< all-gather: blocks that send x and do not multiply, on Hopper a multiple of splits; 0: the plan's choice
  ParallelGemmExchange exchange = ParallelGemmExchange::kAuto;
  bool return_x = false;  ///< all-gather: x of all ranks is a result, too
};

namespace parallel_gemm {

enum class Kind : std::uint8_t { kAllGather, kReduceScatter, kAllReduce };
inline constexpr Kind kKinds[] = {Kind::kAllGather, Kind::kReduceScatter, Kind::kAllReduce};
/// The operator's name on the command line: "ag-gemm", "gemm-rs", "gemm-ar".
const char* name_of(Kind kind);

/// How a parallel product is computed: by our kernels, by NCCL and cuBLASLt one after the other, or as the table of
/// plans says.
enum class Path : std::uint8_t { kOwn, kUnfused, kBest };
/// "own", "unfused", "best".
const char* name_of(Path path);

inline constexpr int kMaxSize = 1 << 24;
inline constexpr int kMaxSplits = 16;

/// One rank's matrices: x [x_rows, k], w [w_rows, k], bias [w_rows], y [y_rows, y_columns]; y_columns is w_rows.
struct LocalShape {
  int x_rows = 0, w_rows = 0, k = 0, y_rows = 0, y_columns = 0;
};
/// `desc` must pass check().
LocalShape local_shape(Kind kind, const ParallelGemmDesc& desc, int ranks);

/// kInvalidArgument unless `path` is one of the three.
Status check_path(Path path);
/// kInvalidArgument names the field, its value and what is allowed.
Status check(Kind kind, const ParallelGemmDesc& desc, int ranks);

/// A hash of everything that all ranks must agree on, for World::open_operator.
std::uint64_t configuration_of(Kind kind, const ParallelGemmDesc& desc, int ranks);

}  // namespace parallel_gemm
}  // namespace farwarp
