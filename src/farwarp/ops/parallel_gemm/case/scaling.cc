#include "farwarp/ops/parallel_gemm/case/scaling.h"

#include <algorithm>

namespace farwarp::parallel_gemm {
namespace {

constexpr int kRows = 64, kColumns = 128, kDepth = 64;  // rows and columns of a tile; K elements of a step
constexpr int kFewRows = 64;

int shrunk(int value, int unit, int units) { return std::min(value, units * unit + value % unit); }

}  // namespace

ParallelGemmDesc scaled_down(Kind kind, const ParallelGemmDesc& desc, int ranks) {
  const bool gathers = kind == Kind::kAllGather;
  const int column_ranks = gathers ? ranks : 1, depth_ranks = gathers ? 1 : ranks;  // over which n and k are spread
  if (desc.n % column_ranks != 0 || desc.k % depth_ranks != 0) return desc;         // check() refuses it
  ParallelGemmDesc scaled = desc;
  if (desc.m > kFewRows) scaled.m = shrunk(desc.m, kRows * ranks, 2);
  scaled.n = shrunk(desc.n / column_ranks, kColumns, 2) * column_ranks;
  scaled.k = shrunk(desc.k / depth_ranks, kDepth, 3) * depth_ranks;
  return scaled;
}

}  // namespace farwarp::parallel_gemm
