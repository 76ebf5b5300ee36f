// gemm and the products of tensor parallelism of c.h.
#include "farwarp/base/arguments.h"
#include "farwarp/c/operator.h"
#include "farwarp/ops/gemm/gemm.h"
#include "farwarp/ops/parallel_gemm/dispatch/parallel_gemm.h"

namespace farwarp::c {
namespace {

struct ProductDesc {
  ParallelGemm::Kind kind;
  ParallelGemm::Path path;
  ParallelGemmDesc desc;
};

}  // namespace
}  // namespace farwarp::c

struct farwarp_gemm : farwarp::c::Operator<farwarp::Gemm, farwarp::GemmDesc> {};
struct farwarp_product : farwarp::c::Operator<farwarp::ParallelGemm, farwarp::c::ProductDesc> {};

namespace farwarp::c {
namespace {

farwarp_gemm_desc gemm_defaults() {
  farwarp_gemm_desc desc = {};
  desc.bytes = sizeof desc;
  desc.dtype = type_of(DType::kBf16);
  return desc;
}

farwarp_product_desc product_defaults() {
  farwarp_product_desc desc = {};
  desc.bytes = sizeof desc;
  desc.dtype = type_of(DType::kBf16);
  desc.path = FARWARP_BEST;
  return desc;
}

Result<GemmDesc> read(const farwarp_gemm_desc* given) {
  const auto desc = read_desc(given, gemm_defaults);
  if (!desc.ok()) return desc.status();
  const auto has_bias = read_flag("has_bias", desc->has_bias);
  const auto dtype = read_dtype("dtype", desc->dtype, {DType::kBf16, DType::kF16});
  const auto by_column = read_flag("x_scale_by_column", desc->x_scale_by_column);
  if (const Status status = first_failure({has_bias.status(), dtype.status(), by_column.status()}); !status.ok())
    return status;
  if (desc->scaling < FARWARP_SCALE_NONE || desc->scaling > FARWARP_SCALE_TENSOR)
    return invalid_argument(fmt::format("desc.scaling is {}; allowed: 0 to 3, farwarp_gemm_scaling", desc->scaling));
  GemmDesc result;
  result.scaling = static_cast<GemmScaling>(desc->scaling);
  result.x_scale_by_column = *by_column;
  result.m = desc->m;
  result.n = desc->n;
  result.k = desc->k;
  result.has_bias = *has_bias;
  result.dtype = *dtype;
  result.max_sms = desc->max_sms;
  return result;
}

/// The scales of an operand: `blocks` by `steps` of them with GemmScaling::kBlocks, of `rows` rows.
const float* read_scale(Tensors& tensors, GemmScaling scaling, const char* name, const DLTensor* tensor,
                        std::int64_t blocks, std::int64_t steps, std::int64_t rows) {
  const DLDataType type = type_of(DType::kF32);
  const auto read = [&]() -> const void* {
    switch (scaling) {
      case GemmScaling::kNone: return tensors.read_if(false, name, tensor, type, {});
      case GemmScaling::kBlocks: return tensors.read(name, tensor, type, {blocks, steps});
      case GemmScaling::kRows: return tensors.read(name, tensor, type, {rows});
      case GemmScaling::kTensor: return tensors.read(name, tensor, type, {1});
    }
    return nullptr;
  };
  return static_cast<const float*>(read());
}
const float* read_x_scale(Tensors& tensors, const GemmDesc& desc, const DLTensor* tensor) {
  const std::int64_t steps = tile::scaled_blocks(desc.k);
  if (desc.x_scale_by_column) return read_scale(tensors, desc.scaling, "x_scale", tensor, steps, desc.m, desc.m);
  return read_scale(tensors, desc.scaling, "x_scale", tensor, desc.m, steps, desc.m);
}
const float* read_w_scale(Tensors& tensors, const GemmDesc& desc, const DLTensor* tensor) {
  return read_scale(tensors, desc.scaling, "w_scale", tensor, tile::scaled_blocks(desc.n), tile::scaled_blocks(desc.k),
                    desc.n);
}

Result<ProductDesc> read(const farwarp_product_desc* given) {
  const auto desc = read_desc(given, product_defaults);
  if (!desc.ok()) return desc.status();
  if (desc->kind < FARWARP_ALL_GATHER_GEMM || desc->kind > FARWARP_GEMM_ALL_REDUCE)
    return invalid_argument(fmt::format("desc.kind is {}; allowed: 0 to 2, farwarp_product_kind", desc->kind));
  if (desc->path < FARWARP_OWN || desc->path > FARWARP_BEST)
    return invalid_argument(fmt::format("desc.path is {}; allowed: 0 to 2, farwarp_product_path", desc->path));
  const auto has_bias = read_flag("has_bias", desc->has_bias), return_x = read_flag("return_x", desc->return_x);
  const auto dtype = read_dtype("dtype", desc->dtype, {DType::kBf16, DType::kF16});
  if (const Status status = first_failure({has_bias.status(), return_x.status(), dtype.status()}); !status.ok())
    return status;
  ProductDesc result{static_cast<ParallelGemm::Kind>(desc->kind), static_cast<ParallelGemm::Path>(desc->path), {}};
  result.desc.m = desc->m;
  result.desc.n = desc->n;
  result.desc.k = desc->k;
  result.desc.has_bias = *has_bias;
  result.desc.return_x = *return_x;
  result.desc.dtype = *dtype;
  result.desc.max_sms = desc->max_sms;
  return result;
}

}  // namespace
}  // namespace farwarp::c

using namespace farwarp::c;

extern "C" {

farwarp_code farwarp_gemm_desc_init_sized(farwarp_gemm_desc* desc, std::size_t bytes) {
  return init_sized(desc, bytes, gemm_defaults);
}

farwarp_code farwarp_gemm_create(farwarp_world* world, const farwarp_gemm_desc* desc, farwarp_gemm** gemm) {
  return create(
      world, gemm, [&] { return read(desc); }, farwarp::Gemm::create);
}

farwarp_code farwarp_gemm_call(farwarp_gemm* gemm, const DLTensor* x, const DLTensor* w, const DLTensor* bias,
                               DLTensor* y, void* stream) {
  return farwarp_gemm_call_scaled(gemm, x, w, nullptr, nullptr, bias, y, stream);
}

farwarp_code farwarp_gemm_call_scaled(farwarp_gemm* gemm, const DLTensor* x, const DLTensor* w, const DLTensor* x_scale,
                                      const DLTensor* w_scale, const DLTensor* bias, DLTensor* y, void* stream) {
  return guarded([&]() -> farwarp::Status {
    if (gemm == nullptr) return null_argument("gemm");
    const farwarp::GemmDesc& desc = gemm->desc;
    const DLDataType type = type_of(desc.dtype);
    const DLDataType of_operands = desc.scaling == farwarp::GemmScaling::kNone ? type : kFp8;
    Tensors tensors(gemm->world);
    const void* const from = tensors.read("x", x, of_operands, {desc.m, desc.k});
    const void* const weights = tensors.read("w", w, of_operands, {desc.n, desc.k});
    const farwarp::GemmScales scales{read_x_scale(tensors, desc, x_scale), read_w_scale(tensors, desc, w_scale)};
    const void* const added = tensors.read_if(desc.has_bias, "bias", bias, type, {desc.n});
    void* const to = tensors.read("y", y, type, {desc.m, desc.n});
    return tensors.status().ok() ? gemm->op(from, weights, scales, added, to, {stream}) : tensors.status();
  });
}

farwarp_code farwarp_gemm_close(farwarp_gemm* gemm) { return close(gemm, "gemm"); }

farwarp_code farwarp_product_desc_init_sized(farwarp_product_desc* desc, std::size_t bytes) {
  return init_sized(desc, bytes, product_defaults);
}

farwarp_code farwarp_product_create(farwarp_world* world, const farwarp_product_desc* desc, farwarp_product** product) {
  const auto make = [](farwarp::World& of, const ProductDesc& wanted) {
    return farwarp::ParallelGemm::create(of, wanted.kind, wanted.desc, wanted.path);
  };
  return create(
      world, product, [&] { return read(desc); }, make);
}

farwarp_code farwarp_product_call(farwarp_product* product, const DLTensor* x, const DLTensor* w, const DLTensor* bias,
                                  DLTensor* y, DLTensor* all_x, void* stream) {
  return guarded([&]() -> farwarp::Status {
    if (product == nullptr) return null_argument("product");
    const farwarp::ParallelGemmDesc& desc = product->desc.desc;
    const auto shape = farwarp::parallel_gemm::local_shape(product->desc.kind, desc, product->world.size());
    const DLDataType type = type_of(desc.dtype);
    Tensors tensors(product->world);
    const void* const from = tensors.read("x", x, type, {shape.x_rows, shape.k});
    const void* const weights = tensors.read("w", w, type, {shape.w_rows, shape.k});
    const void* const added = tensors.read_if(desc.has_bias, "bias", bias, type, {shape.w_rows});
    void* const to = tensors.read("y", y, type, {shape.y_rows, shape.y_columns});
    void* const gathered = tensors.read_if(desc.return_x, "all_x", all_x, type, {desc.m, shape.k});
    return tensors.status().ok() ? product->op(from, weights, added, to, {stream}, gathered) : tensors.status();
  });
}

farwarp_code farwarp_product_close(farwarp_product* product) { return close(product, "product"); }
}
