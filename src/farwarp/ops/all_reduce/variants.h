// The kernels of the all-reduce.
#pragma once

#include <cstdint>

#include "farwarp/base/half.h"

// Lists of KERNEL(name, T, most, form): T is the element type, `most` the most ranks.
#define FARWARP_ALL_REDUCE_RANKS(KERNEL, form, type, T) \
  KERNEL(all_reduce_##form##_##type##_2, T, 2, form)    \
  KERNEL(all_reduce_##form##_##type##_4, T, 4, form)    \
  KERNEL(all_reduce_##form##_##type##_8, T, 8, form)
#define FARWARP_ALL_REDUCE_FORM(KERNEL, form)        \
  FARWARP_ALL_REDUCE_RANKS(KERNEL, form, bf16, Bf16) \
  FARWARP_ALL_REDUCE_RANKS(KERNEL, form, fp16, Half) \
  FARWARP_ALL_REDUCE_RANKS(KERNEL, form, fp32, float)
#define FARWARP_ALL_REDUCE(KERNEL) FARWARP_ALL_REDUCE_FORM(KERNEL, one_shot) FARWARP_ALL_REDUCE_FORM(KERNEL, two_shot)

namespace farwarp::all_reduce {

enum class Form : std::uint8_t { one_shot, two_shot };

template <class T>
constexpr DType dtype_of() {
  if constexpr (requires { T::kDType; }) return T::kDType;
  return DType::kF32;
}

struct Variant {
  const char* name;
  DType dtype;
  int most_ranks;
  Form form;
};

#define FARWARP_ALL_REDUCE_VARIANT(name, T, most, form) Variant{#name, dtype_of<T>(), most, Form::form},
inline constexpr Variant kVariants[] = {FARWARP_ALL_REDUCE(FARWARP_ALL_REDUCE_VARIANT)};
#undef FARWARP_ALL_REDUCE_VARIANT

}  // namespace farwarp::all_reduce
