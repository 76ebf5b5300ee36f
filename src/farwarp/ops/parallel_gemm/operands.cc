#include "farwarp/ops/parallel_gemm/operands.h"

#include "farwarp/base/arguments.h"
#include "farwarp/base/overlap.h"

namespace farwarp::parallel_gemm {
Status check_operands(const ParallelGemmDesc& desc, const void* x, const void* w, const void* bias, const void* y,
                      int alignment) {
  const Status status = first_failure(
      {check_pointer("x", x, alignment), check_pointer("w", w, alignment), check_pointer("y", y, alignment)});
  if (!status.ok()) return status;
  if (desc.has_bias) return check_pointer("bias", bias, alignment);
  if (bias != nullptr) return invalid_argument("bias is given; allowed: null, as ParallelGemmDesc.has_bias is false");
  return {};
}

Status check_returned_x(const ParallelGemmDesc& desc, const void* all_x, int alignment) {
  if (desc.return_x) return check_pointer("all_x", all_x, alignment);
  if (all_x != nullptr) return invalid_argument("all_x is given; allowed: null, as ParallelGemmDesc.return_x is false");
  return {};
}

Status check_memory(Kind kind, const ParallelGemmDesc& desc, int ranks, const void* x, const void* w, const void* bias,
                    const void* y, const void* all_x) {
  const LocalShape local = local_shape(kind, desc, ranks);
  const auto bytes = [&](std::int64_t rows, std::int64_t columns) {
    return rows * columns * static_cast<std::int64_t>(bytes_of(desc.dtype));
  };
  return check_apart({{"x", x, bytes(local.x_rows, local.k)},
                      {"w", w, bytes(local.w_rows, local.k)},
                      {"bias", bias, bytes(1, local.w_rows)}},
                     {{"y", y, bytes(local.y_rows, local.y_columns)}, {"all_x", all_x, bytes(desc.m, local.k)}});
}

}  // namespace farwarp::parallel_gemm
