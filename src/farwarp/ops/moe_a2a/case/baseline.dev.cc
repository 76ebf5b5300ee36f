// The kernels of the baseline: everything that NCCL does not do. They move whole rows in local memory.
#include "farwarp/ops/moe_a2a/case/baseline_args.h"
#include "farwarp/ops/moe_a2a/rows.dev.h"

namespace farwarp::FARWARP_TARGET::moe {

using farwarp::moe::BaselineExpertArgs;
using farwarp::moe::BaselineTokenArgs;
using farwarp::moe::kBaselineThreads;

/// [block] Calls work(token, vector) on all threads. The threads of a warp get one token and consecutive vectors; some
/// may be beyond the row's end.
template <class Work>
FARWARP_DEVICE void for_each_vector(const BaselineTokenArgs& args, const Work& work) {
  const int warps = num_threads() / Target::kWarpSize;
  const int segments = (args.vectors + Target::kWarpSize - 1) / Target::kWarpSize;
  for (int item = block_index() * warps + warp_index(); item < args.tokens * segments; item += num_blocks() * warps) {
    const int token = item / segments;
    work(token, (item - token * segments) * Target::kWarpSize + lane_index());
  }
}

/// [warp] On lane j: the row of entry j, or -1. One load serves all entries, because k is at most the size of a warp.
FARWARP_DEVICE std::int32_t packed_row_of_lane(const BaselineTokenArgs& args, int token) {
  return lane_index() < args.k ? load(args.packed_rows + (token * args.k + lane_index())) : -1;
}

FARWARP_DEVICE Global<Vec16> row_vector(const BaselineTokenArgs& args, std::int32_t packed_row, int vector) {
  return args.rows + (static_cast<std::int64_t>(packed_row) * args.vectors + vector);
}

/// Each row of x is read once and written to the packed row of each of its entries.
FARWARP_DEVICE void pack(const BaselineTokenArgs& args) {
  for_each_vector(args, [&args](int token, int vector) {
    const bool inside = vector < args.vectors;
    const std::int32_t packed_rows = packed_row_of_lane(args, token);
    Vec16 x{0, 0};
    if (inside) x = load<Cache::streaming>(args.x + (static_cast<std::int64_t>(token) * args.vectors + vector));
    for (int j = 0; j < args.k; ++j) {
      const std::int32_t packed_row = shuffle(packed_rows, j);
      if (inside && packed_row >= 0) store(row_vector(args, packed_row, vector), x);
    }
  });
}

template <class T>
FARWARP_DEVICE void apply_expert(const BaselineExpertArgs& args) {
  const auto threads = static_cast<std::int64_t>(num_blocks()) * num_threads();
  const auto first = static_cast<std::int64_t>(block_index()) * num_threads() + thread_index();
  for (std::int64_t i = first; i < args.vectors; i += threads) {
    const Vec16 x = load(args.rows + i);
    float y[kElementsPer<Vec16>];
#pragma unroll
    for (int e = 0; e < kElementsPer<Vec16>; ++e) y[e] = multiply(to_float(element<T>(x, e)), args.scale);
    store(args.rows + i, rounded<T, Vec16>(y));
  }
}

/// The weighted sum of a token's rows in k-slot order, in fp32, rounded once. A token without rows gives zeros.
template <class T>
FARWARP_DEVICE void unpack(const BaselineTokenArgs& args) {
  constexpr int kInFlight = 8;  // rows that a thread loads before it uses the first; divides the size of a warp
  for_each_vector(args, [&args](int token, int vector) {
    const bool inside = vector < args.vectors;
    const std::int32_t packed_rows = packed_row_of_lane(args, token);
    const float weights = packed_rows >= 0 ? load(args.weights + (token * args.k + lane_index())) : 0.0f;
    float sum[kElementsPer<Vec16>] = {};
    for (int first = 0; first < args.k; first += kInFlight) {
      Vec16 y[kInFlight];
#pragma unroll
      for (int j = 0; j < kInFlight; ++j) {
        const std::int32_t packed_row = shuffle(packed_rows, first + j);
        y[j] = {0, 0};
        if (inside && packed_row >= 0) y[j] = load<Cache::streaming>(row_vector(args, packed_row, vector));
      }
#pragma unroll
      for (int j = 0; j < kInFlight; ++j) {
        const float weight = shuffle(weights, first + j);
#pragma unroll
        for (int e = 0; e < kElementsPer<Vec16>; ++e)
          sum[e] = fused_multiply_add(weight, to_float(element<T>(y[j], e)), sum[e]);
      }
    }
    if (!inside) return;
    store<Cache::streaming>(args.out + (static_cast<std::int64_t>(token) * args.vectors + vector),
                            rounded<T, Vec16>(sum));
  });
}

}  // namespace farwarp::FARWARP_TARGET::moe

namespace {
namespace target = farwarp::FARWARP_TARGET;
using farwarp::Bf16;
using farwarp::Half;
using farwarp::moe::BaselineExpertArgs;
using farwarp::moe::BaselineTokenArgs;
using farwarp::moe::kBaselineThreads;
}  // namespace

FARWARP_KERNEL(moe_a2a_baseline_pack, BaselineTokenArgs, kBaselineThreads) { target::moe::pack(args); }
FARWARP_KERNEL(moe_a2a_baseline_expert_bf16, BaselineExpertArgs, kBaselineThreads) {
  target::moe::apply_expert<Bf16>(args);
}
FARWARP_KERNEL(moe_a2a_baseline_expert_fp16, BaselineExpertArgs, kBaselineThreads) {
  target::moe::apply_expert<Half>(args);
}
FARWARP_KERNEL(moe_a2a_baseline_unpack_bf16, BaselineTokenArgs, kBaselineThreads) { target::moe::unpack<Bf16>(args); }
FARWARP_KERNEL(moe_a2a_baseline_unpack_fp16, BaselineTokenArgs, kBaselineThreads) { target::moe::unpack<Half>(args); }
