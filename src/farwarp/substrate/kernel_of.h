// FARWARP_KERNEL_OF(SPACE, name, Args, max_threads) { ... }
//   FARWARP_KERNEL(SPACE_name, Args, max_threads), which profilers on CUDA show as farwarp::SPACE::name: what reads
//   profiles, DeepEP's tests for one, looks for such names. At global scope.
#pragma once

#include "farwarp/base/attributes.h"

#if defined(FARWARP_TARGET_CUDA)

// As FARWARP_KERNEL, but with C++ linkage (vendor/kernel_info.h, kernel_name_of()).
#define FARWARP_KERNEL_OF(space, name, Args, max_threads)                                     \
  static FARWARP_DEVICE void space##_##name##_body(const Args& args);                         \
  namespace farwarp::space {                                                                  \
  __global__ void __launch_bounds__(max_threads, 1) name(const __grid_constant__ Args args) { \
    asm volatile("griddepcontrol.wait;" ::: "memory");                                        \
    FARWARP_TRACED(::space##_##name##_body(args));                                            \
  }                                                                                           \
  }                                                                                           \
  static FARWARP_DEVICE void space##_##name##_body([[maybe_unused]] const Args& args)

#else

#define FARWARP_KERNEL_OF(space, name, Args, max_threads) FARWARP_KERNEL(space##_##name, Args, max_threads)

#endif
