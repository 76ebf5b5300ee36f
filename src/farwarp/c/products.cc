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
  if (const Status status = first_failure({has_bias.status(), dtype.status()}); !status.ok()) return status;
  GemmDesc result;
  result.m = desc->m;
  result.n = desc->n;
  result.k = desc->k;
  result.has_bias = *has_bias;
  result.dtype = *dtype;
  result.max_sms = desc->max_sms;
  return result;
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
  return guarded([&]() -> farwarp::Status {
    if (gemm == nullptr) return null_argument("gemm");
    const farwarp::GemmDesc& desc = gemm->desc;
    const DLDataType type = type_of(desc.dtype);
    Tensors tensors(gemm->world);
    const void* const from = tensors.read("x", x, type, {desc.m, desc.k});
    const void* const weights = tensors.read("w", w, type, {desc.n, desc.k});
    const void* const added = tensors.read_if(desc.has_bias, "bias", bias, type, {desc.n});
    void* const to = tensors.read("y", y, type, {desc.m, desc.n});
    return tensors.status().ok() ? gemm->op(from, weights, added, to, {stream}) : tensors.status();
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
