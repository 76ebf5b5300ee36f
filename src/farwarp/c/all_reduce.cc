// The all-reduce of c.h.
#include "farwarp/ops/all_reduce/all_reduce.h"

#include "farwarp/base/arguments.h"
#include "farwarp/c/operator.h"

struct farwarp_all_reduce : farwarp::c::Operator<farwarp::AllReduce, farwarp::AllReduceDesc> {};

namespace farwarp::c {
namespace {

Result<AllReduceMode> read_mode(std::int32_t mode) {
  if (mode >= FARWARP_ALL_REDUCE_AUTO && mode <= FARWARP_ALL_REDUCE_TWO_SHOT) return static_cast<AllReduceMode>(mode);
  return invalid_argument(fmt::format("desc.mode is {}; allowed: 0, 1, 2", mode));
}
static_assert(static_cast<int>(AllReduceMode::kAuto) == FARWARP_ALL_REDUCE_AUTO &&
              static_cast<int>(AllReduceMode::kOneShot) == FARWARP_ALL_REDUCE_ONE_SHOT &&
              static_cast<int>(AllReduceMode::kTwoShot) == FARWARP_ALL_REDUCE_TWO_SHOT);

farwarp_all_reduce_desc all_reduce_defaults() {
  farwarp_all_reduce_desc desc = {};
  desc.bytes = sizeof desc;
  desc.dtype = type_of(DType::kBf16);
  return desc;
}

Result<AllReduceDesc> read(const farwarp_all_reduce_desc* given) {
  const auto desc = read_desc(given, all_reduce_defaults);
  if (!desc.ok()) return desc.status();
  const auto dtype = read_dtype("dtype", desc->dtype, {DType::kBf16, DType::kF16, DType::kF32});
  const auto mode = read_mode(desc->mode);
  if (const Status status = first_failure({dtype.status(), mode.status()}); !status.ok()) return status;
  return AllReduceDesc{.max_elements = desc->max_elements, .dtype = *dtype, .mode = *mode, .max_sms = desc->max_sms};
}

}  // namespace
}  // namespace farwarp::c

using farwarp::DType;
using farwarp::Status;
using namespace farwarp::c;

extern "C" {

farwarp_code farwarp_all_reduce_desc_init_sized(farwarp_all_reduce_desc* desc, std::size_t bytes) {
  return init_sized(desc, bytes, all_reduce_defaults);
}

farwarp_code farwarp_all_reduce_create(farwarp_world* world, const farwarp_all_reduce_desc* desc,
                                       farwarp_all_reduce** all_reduce) {
  return create(
      world, all_reduce, [&] { return read(desc); }, farwarp::AllReduce::create);
}

farwarp_code farwarp_all_reduce_call(farwarp_all_reduce* all_reduce, const DLTensor* x, DLTensor* out, void* stream) {
  return guarded([&]() -> Status {
    if (all_reduce == nullptr) return null_argument("all_reduce");
    const farwarp::AllReduceDesc& desc = all_reduce->desc;
    std::int64_t elements = 0, results = 0;
    Tensors tensors(all_reduce->world);
    const void* const from = tensors.read_any_shape("x", x, type_of(desc.dtype), desc.max_elements, elements);
    void* const to = tensors.read_any_shape("out", out, type_of(desc.dtype), desc.max_elements, results);
    if (!tensors.status().ok()) return tensors.status();
    if (results != elements)
      return farwarp::invalid_argument(
          fmt::format("out has {} elements; allowed: {}, as many as x", results, elements));
    return all_reduce->op(from, to, elements, {stream});
  });
}

farwarp_code farwarp_all_reduce_close(farwarp_all_reduce* all_reduce) { return close(all_reduce, "all_reduce"); }
}
