// The oracle's kernel on real devices: a plain matrix product that shares no code with the kernel that it checks. A
// thread computes one column of a few rows.
#include "farwarp/ops/gemm/case/partial_sums_args.h"
#include "farwarp/substrate/device.h"

namespace farwarp::FARWARP_TARGET::gemm {

using farwarp::gemm::kPartialSumsRows;
using farwarp::gemm::PartialSumsArgs;

inline constexpr int kVector = 8;  ///< elements of a Vec16

template <class T>
FARWARP_DEVICE void load_vector(Global<const Vec16> row, int vector, float (&values)[kVector]) {
  const Vec16 bits = load(row + vector);
#pragma unroll
  for (int i = 0; i < kVector; ++i)
    values[i] = to_float(T{static_cast<std::uint16_t>((i < 4 ? bits.lo : bits.hi) >> (16 * (i % 4)))});
}

/// [thread] Computes up to kPartialSumsRows rows from `first` of one column. Eight products are added in fp32, and
/// those sums in fp64.
template <class T>
FARWARP_DEVICE void partial_sums_of(const PartialSumsArgs& args, int first, int column) {
  const int vectors = args.k / kVector;
  const Global<const Vec16> x(static_cast<const Vec16*>(args.x)), w(static_cast<const Vec16*>(args.w));
  const int rows = args.rows - first < kPartialSumsRows ? args.rows - first : kPartialSumsRows;
  double values[kPartialSumsRows] = {}, squares[kPartialSumsRows] = {};
  for (int vector = 0; vector < vectors; ++vector) {
    float right[kVector];
    load_vector<T>(w + static_cast<std::int64_t>(column) * vectors, vector, right);
#pragma unroll
    for (int row = 0; row < kPartialSumsRows; ++row) {
      if (row >= rows) break;
      float left[kVector], value = 0, square = 0;
      load_vector<T>(x + static_cast<std::int64_t>(first + row) * vectors, vector, left);
#pragma unroll
      for (int i = 0; i < kVector; ++i) {
        const float product = multiply(left[i], right[i]);
        value = add(value, product);
        square = fused_multiply_add(product, product, square);
      }
      values[row] += static_cast<double>(value);
      squares[row] += static_cast<double>(square);
    }
  }
  float bias = 0;
  if (args.bias != nullptr) bias = to_float(load(Global<const T>(static_cast<const T*>(args.bias)) + column));
  for (int row = 0; row < rows; ++row) {
    const std::int64_t at = static_cast<std::int64_t>(first + row) * args.columns + column;
    store(Global<float>(args.values) + at, static_cast<float>(values[row] + static_cast<double>(bias)));
    store(Global<float>(args.squares) + at, static_cast<float>(squares[row]) + bias * bias);
  }
}

template <class T>
FARWARP_DEVICE void partial_sums(const PartialSumsArgs& args) {
  const std::int64_t stride = static_cast<std::int64_t>(num_blocks()) * num_threads();
  for (std::int64_t i = static_cast<std::int64_t>(block_index()) * num_threads() + thread_index();
       i < partial_sums_threads(args); i += stride) {
    partial_sums_of<T>(args, static_cast<int>(i / args.columns) * kPartialSumsRows, static_cast<int>(i % args.columns));
  }
}

}  // namespace farwarp::FARWARP_TARGET::gemm

FARWARP_KERNEL(gemm_partial_sums, farwarp::gemm::PartialSumsArgs, farwarp::gemm::kPartialSumsThreads) {
  if (args.bf16 != 0) {
    farwarp::FARWARP_TARGET::gemm::partial_sums<farwarp::Bf16>(args);
  } else {
    farwarp::FARWARP_TARGET::gemm::partial_sums<farwarp::Half>(args);
  }
}
