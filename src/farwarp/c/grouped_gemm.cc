// The grouped products of c.h.
#include "farwarp/ops/grouped_gemm/grouped_gemm.h"

#include "farwarp/base/arguments.h"
#include "farwarp/c/operator.h"

struct farwarp_grouped_gemm : farwarp::c::Operator<farwarp::GroupedGemm, farwarp::GroupedGemmDesc> {};

namespace farwarp::c {
namespace {

farwarp_grouped_gemm_desc grouped_defaults() {
  farwarp_grouped_gemm_desc desc = {};
  desc.bytes = sizeof desc;
  desc.dtype = type_of(DType::kBf16);
  return desc;
}

Result<GroupedGemmDesc> read(const farwarp_grouped_gemm_desc* given) {
  const auto desc = read_desc(given, grouped_defaults);
  if (!desc.ok()) return desc.status();
  const auto has_bias = read_flag("has_bias", desc->has_bias);
  const auto dtype = read_dtype("dtype", desc->dtype, {DType::kBf16, DType::kF16});
  if (const Status status = first_failure({has_bias.status(), dtype.status(),
                                           check_choice("desc.group_rows", desc->group_rows, FARWARP_GROUP_COUNTS),
                                           check_choice("desc.activation", desc->activation, FARWARP_CLAMPED_SWIGLU),
                                           check_choice("desc.scaling", desc->scaling, FARWARP_SCALE_BLOCKS)});
      !status.ok())
    return status;
  GroupedGemmDesc result;
  result.groups = desc->groups;
  result.max_rows = desc->max_rows;
  result.n = desc->n;
  result.k = desc->k;
  result.dtype = *dtype;
  result.scaling = static_cast<GemmScaling>(desc->scaling);
  result.group_rows = static_cast<GroupRows>(desc->group_rows);
  result.activation = static_cast<Activation>(desc->activation);
  result.has_bias = *has_bias;
  result.expected_rows = desc->expected_rows;
  result.max_sms = desc->max_sms;
  return result;
}

/// A tensor of rows of x: [rows, columns] or [groups, rows of each, columns].
void* read_rows(Tensors& tensors, const GroupedGemmDesc& desc, bool wanted, const char* name, const DLTensor* tensor,
                DLDataType type, std::int64_t columns) {
  if (desc.group_rows == GroupRows::kCounts)
    return tensors.read_if(wanted, name, tensor, type, {desc.groups, desc.max_rows, columns});
  return tensors.read_if(wanted, name, tensor, type, {desc.max_rows, columns});
}

}  // namespace
}  // namespace farwarp::c

using namespace farwarp::c;

extern "C" {

farwarp_code farwarp_grouped_gemm_desc_init_sized(farwarp_grouped_gemm_desc* desc, std::size_t bytes) {
  return init_sized(desc, bytes, grouped_defaults);
}

farwarp_code farwarp_grouped_gemm_create(farwarp_world* world, const farwarp_grouped_gemm_desc* desc,
                                         farwarp_grouped_gemm** gemm) {
  return create(
      world, gemm, [&] { return read(desc); }, farwarp::GroupedGemm::create);
}

farwarp_code farwarp_grouped_gemm_call(farwarp_grouped_gemm* gemm, const DLTensor* x, const DLTensor* w,
                                       const DLTensor* x_scale, const DLTensor* w_scale, const DLTensor* rows,
                                       const DLTensor* bias, DLTensor* y, void* stream) {
  return guarded([&]() -> farwarp::Status {
    if (gemm == nullptr) return null_argument("gemm");
    const farwarp::GroupedGemmDesc& desc = gemm->desc;
    const bool scaled = desc.scaling != farwarp::GemmScaling::kNone;
    const std::int64_t parts = desc.activation == farwarp::Activation::kNone ? 1 : 2;
    const std::int64_t steps = farwarp::tile::scaled_blocks(desc.k), blocks = farwarp::tile::scaled_blocks(desc.n);
    const DLDataType type = type_of(desc.dtype), of_operands = scaled ? kFp8 : type;
    const DLDataType floats = type_of(farwarp::DType::kF32);
    Tensors tensors(gemm->world);
    farwarp::GroupedGemmTensors given;
    given.x = read_rows(tensors, desc, true, "x", x, of_operands, desc.k);
    given.w = tensors.read("w", w, of_operands, {desc.groups, parts * desc.n, desc.k});
    given.x_scale = static_cast<const float*>(read_rows(tensors, desc, scaled, "x_scale", x_scale, floats, steps));
    given.w_scale = static_cast<const float*>(
        tensors.read_if(scaled, "w_scale", w_scale, floats, {desc.groups, parts * blocks, steps}));
    const std::int64_t numbers = desc.groups + (desc.group_rows == farwarp::GroupRows::kOffsets ? 1 : 0);
    given.rows = static_cast<const std::int32_t*>(tensors.read("rows", rows, type_of(farwarp::DType::kI32), {numbers}));
    given.bias = tensors.read_if(desc.has_bias, "bias", bias, type, {desc.groups, parts * desc.n});
    given.y = read_rows(tensors, desc, true, "y", y, type, desc.n);
    return tensors.status().ok() ? gemm->op(given, {stream}) : tensors.status();
  });
}

farwarp_code farwarp_grouped_gemm_close(farwarp_grouped_gemm* gemm) { return close(gemm, "gemm"); }
}
