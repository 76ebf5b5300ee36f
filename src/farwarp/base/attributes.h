// The four macros of farwarp, and the only place outside substrate/ where code asks which target it is compiled for.
//
//   FARWARP_DEVICE           marks a device function
//   FARWARP_COLD             marks a device function that almost never runs and is used at many places: one copy,
//                            called
//   FARWARP_KERNEL(name, Args, max_threads) { ... }
//                            defines a kernel entry: extern "C", one trivially copyable argument block named `args`
//   FARWARP_TARGET           the target's namespace, farwarp::FARWARP_TARGET
//
// The build defines exactly one FARWARP_TARGET_* for each compilation of a kernel file. Host code defines none.
#pragma once

// The stamps around a kernel's body (substrate/gpu_trace.h).
#if defined(FARWARP_TRACE)
#define FARWARP_TRACED(body)                       \
  ::farwarp::FARWARP_TARGET::trace_block_begins(); \
  body;                                            \
  ::farwarp::FARWARP_TARGET::trace_block_ends()
#else
#define FARWARP_TRACED(body) body
#endif

#if defined(FARWARP_TARGET_CUDA)

#define FARWARP_TARGET on_cuda
#define FARWARP_DEVICE __device__ __forceinline__
#define FARWARP_COLD inline __device__ __noinline__
// A kernel may be launched before its predecessor in the stream is complete (runtime/cuda_device.cc), so it first waits
// for that.
#define FARWARP_KERNEL(name, Args, max_threads)                                                          \
  static FARWARP_DEVICE void name##_body(const Args& args);                                              \
  extern "C" __global__ void __launch_bounds__(max_threads, 1) name(const __grid_constant__ Args args) { \
    asm volatile("griddepcontrol.wait;" ::: "memory");                                                   \
    FARWARP_TRACED(name##_body(args));                                                                   \
  }                                                                                                      \
  static FARWARP_DEVICE void name##_body([[maybe_unused]] const Args& args)

#elif defined(FARWARP_TARGET_HIP)

#define FARWARP_TARGET on_hip
#define FARWARP_DEVICE __attribute__((device, always_inline)) inline
// Inlined nevertheless: a call would give every kernel a stack in device memory.
#define FARWARP_COLD FARWARP_DEVICE
#if defined(FARWARP_TRACE)
#define FARWARP_KERNEL(name, Args, max_threads)                                                                \
  static FARWARP_DEVICE void name##_body(const Args& args);                                                    \
  extern "C" __attribute__((global, amdgpu_flat_work_group_size(1, max_threads))) void name(const Args args) { \
    FARWARP_TRACED(name##_body(args));                                                                         \
  }                                                                                                            \
  static FARWARP_DEVICE void name##_body([[maybe_unused]] const Args& args)
#else
#define FARWARP_KERNEL(name, Args, max_threads) \
  extern "C" __attribute__((global, amdgpu_flat_work_group_size(1, max_threads))) void name(const Args args)
#endif

#elif defined(FARWARP_TARGET_EMU_SM90) || defined(FARWARP_TARGET_EMU_GFX942)

#if defined(FARWARP_TARGET_EMU_SM90)
#define FARWARP_TARGET on_emu_sm90
#else
#define FARWARP_TARGET on_emu_gfx942
#endif
#define FARWARP_DEVICE inline
#define FARWARP_COLD inline
// An emulated kernel is an ordinary function and a record in the emulator's table of kernels
// (substrate/emu/registry.h).
#define FARWARP_KERNEL(name, Args, max_threads)                                       \
  static void name(const Args& args);                                                 \
  static const ::farwarp::emu::KernelRecord name##_record(                            \
      #name, ::farwarp::FARWARP_TARGET::Target::kEmulated, sizeof(Args), max_threads, \
      [](const void* args) { name(*static_cast<const Args*>(args)); });               \
  static void name([[maybe_unused]] const Args& args)

#else

#define FARWARP_DEVICE inline
#define FARWARP_COLD inline

#endif
