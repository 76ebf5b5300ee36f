/* farwarp in C: everything that libfarwarp.so exports. The C++ API (the other headers) is in the static library.
 *
 * Functions return FARWARP_OK (0) or the code of a failure; farwarp_message() says what was wrong: the parameter, its
 * value, what is allowed. Nothing throws, aborts or prints.
 *
 * Handles belong to the caller. A handle is used by one thread at a time. "Collective": every rank of the world calls
 * it, in the same order.
 *
 * Tensors are DLPack's, in device memory: kDLCUDA or kDLROCM and the ordinal of the world's device, on the emulator
 * kDLCPU and memory of farwarp_allocate(). The last dimension is contiguous; where a function does not say otherwise,
 * the others are, too. Calls only enqueue: a tensor must live until the stream has passed the call. A result shares no
 * memory with another tensor of its call, except in place where that is said.
 *
 * A stream is what the device's runtime calls one (CUstream, hipStream_t); on the emulator, what
 * farwarp_stream_create() gives. NULL is the default stream.
 *
 * A descriptor begins with its size. farwarp_*_init() sets it and the defaults, in as many bytes as the program's
 * header gives the struct: later versions only append fields. FARWARP_INVALID_ARGUMENT if the library's struct is
 * smaller. */
#ifndef FARWARP_C_H
#define FARWARP_C_H

#include <dlpack/dlpack.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define FARWARP_EXPORT __attribute__((visibility("default")))
#else
#define FARWARP_EXPORT
#endif

/* Raised when a function or a field is added, and when one goes, which FARWARP_C_OLDEST then says. */
#define FARWARP_C_VERSION 8
/* Programs compiled with an older header are refused: the farwarp_*_init() of version 2 did not know their sizes. */
#define FARWARP_C_OLDEST 3
/* FARWARP_C_VERSION of the library. */
FARWARP_EXPORT int32_t farwarp_c_version(void);

/* ---- failures ---- */

typedef enum farwarp_code {
  FARWARP_OK = 0,
  FARWARP_INVALID_ARGUMENT = 1, /* a parameter is outside what is allowed */
  FARWARP_UNAVAILABLE = 2,      /* the machine lacks a device, a driver, a library or a kernel */
  FARWARP_OUT_OF_MEMORY = 3,    /* the device, the host or the symmetric heap has no room */
  FARWARP_MISMATCH = 4,         /* ranks disagree */
  FARWARP_MISUSE = 5,           /* calls in an order that is not allowed */
  FARWARP_CAPACITY = 6,         /* more rows arrived than there is room for */
  FARWARP_BAD_INPUT = 7,        /* a kernel found data that is not allowed */
  FARWARP_DEADLINE = 8,         /* a wait passed its deadline */
  FARWARP_ABORTED = 9,          /* another rank gave up */
  FARWARP_PEER_LOST = 10,       /* a rank is gone; the world is lost */
  FARWARP_INTERNAL = 11         /* a broken invariant, or an unexpected error of a driver */
} farwarp_code;

/* Of the calling thread's last failure, until its next one. Never NULL. */
FARWARP_EXPORT const char* farwarp_message(void);
/* "invalid argument", "deadline", ... */
FARWARP_EXPORT const char* farwarp_code_name(farwarp_code code);

/* A program's first call, with the FARWARP_C_VERSION that it was compiled with:
 * farwarp_require_version(FARWARP_C_VERSION). FARWARP_UNAVAILABLE if the library is older: it lacks functions or fields
 * that the program may use; or if the program is older than the library's FARWARP_C_OLDEST. Any other library has all
 * of them. FARWARP_INVALID_ARGUMENT below 1. No other function asks for it. */
FARWARP_EXPORT farwarp_code farwarp_require_version(int32_t version);

/* ---- worlds ---- */

typedef enum farwarp_target {
  FARWARP_CUDA = 0,
  FARWARP_HIP = 1,
  FARWARP_EMU_SM90 = 2,  /* the emulator as NVIDIA Hopper */
  FARWARP_EMU_GFX942 = 3 /* as AMD CDNA3 */
} farwarp_target;

/* Devices of a target on this machine that this library has kernels for; 0 of other targets. The emulator has 8. */
FARWARP_EXPORT int32_t farwarp_device_count(int32_t target);

/* Ranks with a symmetric heap each. */
typedef struct farwarp_world farwarp_world;

typedef struct farwarp_world_desc {
  size_t bytes;        /* of this struct */
  int32_t target;      /* farwarp_target; FARWARP_EMU_SM90 */
  int32_t device;      /* ordinal; -1, the default: the rank */
  int64_t deadline_ms; /* the longest wait of a kernel; 10000 */
  uint64_t heap_bytes; /* of each rank; 256 MiB */
} farwarp_world_desc;
FARWARP_EXPORT farwarp_code farwarp_world_desc_init_sized(farwarp_world_desc* desc, size_t bytes);
#define farwarp_world_desc_init(desc) farwarp_world_desc_init_sized((desc), sizeof *(desc))

/* 1 if the environment has a rank or a size, else 0. */
FARWARP_EXPORT int32_t farwarp_environment_has_ranks(void);
/* The rank and the number of ranks that a launcher gives this process, 0 and 1 without one. FARWARP_INVALID_ARGUMENT
 * names the variable that is wrong, or two launchers that disagree. */
FARWARP_EXPORT farwarp_code farwarp_environment_ranks(int32_t* rank, int32_t* ranks);
/* Collective: one of several processes of this machine, as `farwarp launch`, torchrun, mpirun or srun start them: the
 * environment has rank and size. */
FARWARP_EXPORT farwarp_code farwarp_world_from_environment(const farwarp_world_desc* desc, farwarp_world** world);

/* Gathers `bytes` bytes of every rank in rank order: `all` has room for size * bytes. Returns 0 unless it failed. */
typedef int (*farwarp_allgather)(void* context, const void* mine, size_t bytes, void* all);
/* Collective: one of several processes of this machine that have a communicator of their own. It is used during this
 * call only, to agree on a rendezvous. */
FARWARP_EXPORT farwarp_code farwarp_world_from_allgather(int32_t rank, int32_t size, farwarp_allgather allgather,
                                                         void* context, const farwarp_world_desc* desc,
                                                         farwarp_world** world);

/* Ranks that are threads of this process. */
typedef struct farwarp_threads farwarp_threads;
/* `size`: 1 to 8. Destroy it when no rank will ask for its world any more. */
FARWARP_EXPORT farwarp_code farwarp_threads_create(int32_t size, farwarp_threads** threads);
FARWARP_EXPORT void farwarp_threads_destroy(farwarp_threads* threads);
/* Collective: each rank once, from a thread of its own. When the world is destroyed, or if it is not created, the rank
 * leaves the group: collective calls of the others then end at once. */
FARWARP_EXPORT farwarp_code farwarp_world_from_threads(farwarp_threads* threads, int32_t rank,
                                                       const farwarp_world_desc* desc, farwarp_world** world);

/* Local and bounded: waits for the device. Close the operators before. NULL is allowed. */
FARWARP_EXPORT void farwarp_world_destroy(farwarp_world* world);
FARWARP_EXPORT int32_t farwarp_world_rank(const farwarp_world* world);
FARWARP_EXPORT int32_t farwarp_world_size(const farwarp_world* world);
/* The first failure of an enqueued call, since creation or farwarp_world_recover(). Does not wait for the device. */
FARWARP_EXPORT farwarp_code farwarp_world_status(const farwarp_world* world);
/* Collective, after a failure: waits for the streams and clears it. FARWARP_PEER_LOST if a rank is gone. */
FARWARP_EXPORT farwarp_code farwarp_world_recover(farwarp_world* world, void* const* streams, int32_t count);
/* Local: for a rank that cannot go on. The other ranks' kernels give up waiting, and their collective calls fail. So do
 * this rank's, at once: close its operators, then destroy the world. */
FARWARP_EXPORT void farwarp_world_leave(farwarp_world* world);

/* ---- memory and streams, for programs without a runtime of their own, and for the emulator ---- */
FARWARP_EXPORT farwarp_code farwarp_allocate(farwarp_world* world, size_t bytes, void** pointer);
/* Waits for what is enqueued on the device, which may use the memory. NULL and other pointers are ignored. */
FARWARP_EXPORT void farwarp_release(farwarp_world* world, void* pointer);
/* Ordered in the stream; returns when the host's memory may be used again. `bytes` ends within the allocation. */
FARWARP_EXPORT farwarp_code farwarp_copy_in(farwarp_world* world, void* to, const void* from_host, size_t bytes,
                                            void* stream);
/* Ordered in the stream; returns when the bytes have arrived. `bytes` ends within the allocation. */
FARWARP_EXPORT farwarp_code farwarp_copy_out(farwarp_world* world, void* to_host, const void* from, size_t bytes,
                                             void* stream);
FARWARP_EXPORT farwarp_code farwarp_stream_create(farwarp_world* world, void** stream);
FARWARP_EXPORT void farwarp_stream_destroy(farwarp_world* world, void* stream);
/* Waits at most `timeout_ms`, then returns the world's status. */
FARWARP_EXPORT farwarp_code farwarp_synchronize(farwarp_world* world, void* stream, int64_t timeout_ms);

/* ---- products of matrices ---- */

/* Whether x and w of a farwarp_gemm are e4m3 (on Hopper), and what shares a scale. */
typedef enum farwarp_gemm_scaling {
  FARWARP_SCALE_NONE = 0,   /* x and w are of dtype */
  FARWARP_SCALE_BLOCKS = 1, /* x_scale [m, ceil(k / 128)], w_scale [ceil(n / 128), ceil(k / 128)] */
  FARWARP_SCALE_ROWS = 2,   /* x_scale [m], w_scale [n] */
  FARWARP_SCALE_TENSOR = 3  /* x_scale [1], w_scale [1] */
} farwarp_gemm_scaling;

/* y[m, n] = x[m, k] * w[n, k]^T (+ bias[n]), row-major, sums in fp32, rounded once. */
typedef struct farwarp_gemm farwarp_gemm;
typedef struct farwarp_gemm_desc {
  size_t bytes;
  int32_t m, n, k;           /* n and k are multiples of 8; with scaling k of 16 */
  int32_t has_bias;          /* 0, the default, or 1 */
  DLDataType dtype;          /* of all tensors, with scaling of bias and y: bfloat16, the default, or float16 */
  int32_t max_sms;           /* multiprocessors of a call; 0, the default: all */
  int32_t scaling;           /* farwarp_gemm_scaling; FARWARP_SCALE_NONE */
  int32_t x_scale_by_column; /* 1: x_scale is [ceil(k / 128), m]; needs FARWARP_SCALE_BLOCKS; 0, the default */
} farwarp_gemm_desc;
FARWARP_EXPORT farwarp_code farwarp_gemm_desc_init_sized(farwarp_gemm_desc* desc, size_t bytes);
#define farwarp_gemm_desc_init(desc) farwarp_gemm_desc_init_sized((desc), sizeof *(desc))
/* Collective; a world of one rank is enough. Takes room of the heap. */
FARWARP_EXPORT farwarp_code farwarp_gemm_create(farwarp_world* world, const farwarp_gemm_desc* desc,
                                                farwarp_gemm** gemm);
/* `bias` is NULL exactly if has_bias is 0. y must not overlap an input. */
FARWARP_EXPORT farwarp_code farwarp_gemm_call(farwarp_gemm* gemm, const DLTensor* x, const DLTensor* w,
                                              const DLTensor* bias, DLTensor* y, void* stream);
/* With scaling: x and w of uint8 or the device's e4m3 (DLPack 1.1), scales of float32. */
FARWARP_EXPORT farwarp_code farwarp_gemm_call_scaled(farwarp_gemm* gemm, const DLTensor* x, const DLTensor* w,
                                                     const DLTensor* x_scale, const DLTensor* w_scale,
                                                     const DLTensor* bias, DLTensor* y, void* stream);
/* Collective; the streams that used it must be idle. Frees the handle in any case. So do all functions of this name. */
FARWARP_EXPORT farwarp_code farwarp_gemm_close(farwarp_gemm* gemm);

typedef enum farwarp_group_rows {
  FARWARP_GROUP_OFFSETS = 0, /* group g has rows offsets[g] to offsets[g + 1] - 1 of x [max_rows, k] */
  FARWARP_GROUP_COUNTS = 1   /* group g has the first counts[g] rows of x[g], of x [groups, max_rows, k] */
} farwarp_group_rows;
typedef enum farwarp_activation {
  FARWARP_NO_ACTIVATION = 0, /* w [groups, n, k] */
  FARWARP_SWIGLU = 1,        /* w [groups, 2 n, k], the gate's rows first: y = silu(gate) * up */
  FARWARP_CLAMPED_SWIGLU = 2 /* the same as in gpt-oss */
} farwarp_activation;

/* Products of groups of rows with matrices of their own, as the experts of a MoE layer take them (on Hopper):
 * y = x * w[group of the row]^T (+ bias[group]). */
typedef struct farwarp_grouped_gemm farwarp_grouped_gemm;
typedef struct farwarp_grouped_gemm_desc {
  size_t bytes;
  int32_t groups;        /* 1 to 480 */
  int32_t max_rows;      /* of x, or of each group */
  int32_t n, k;          /* n, of y, is a multiple of 8, with an activation of 64; k of 8, with scaling of 16 */
  DLDataType dtype;      /* of y and bias, without scaling also of x and w: bfloat16, the default, or float16 */
  int32_t scaling;       /* farwarp_gemm_scaling: FARWARP_SCALE_NONE, the default, or FARWARP_SCALE_BLOCKS */
  int32_t group_rows;    /* farwarp_group_rows; FARWARP_GROUP_OFFSETS */
  int32_t activation;    /* farwarp_activation; FARWARP_NO_ACTIVATION */
  int32_t has_bias;      /* 0, the default, or 1 */
  int32_t expected_rows; /* of a group, for the choice of a kernel; 0, the default: by max_rows */
  int32_t max_sms;       /* multiprocessors of a call; 0, the default: all */
} farwarp_grouped_gemm_desc;
FARWARP_EXPORT farwarp_code farwarp_grouped_gemm_desc_init_sized(farwarp_grouped_gemm_desc* desc, size_t bytes);
#define farwarp_grouped_gemm_desc_init(desc) farwarp_grouped_gemm_desc_init_sized((desc), sizeof *(desc))
/* Collective; a world of one rank is enough. */
FARWARP_EXPORT farwarp_code farwarp_grouped_gemm_create(farwarp_world* world, const farwarp_grouped_gemm_desc* desc,
                                                        farwarp_grouped_gemm** gemm);
/* x, w    as above; with scaling of uint8 or the device's e4m3 (DLPack 1.1)
 * x_scale [rows of x..., ceil(k / 128)] float32 with scaling, else NULL
 * w_scale [groups, ceil(n / 128), ceil(k / 128)] float32 with scaling, else NULL; with an activation
 *         [groups, 2 ceil(n / 128), ...], the gate's first
 * rows    [groups + 1] or [groups] int32. A number that is not allowed ends the call with FARWARP_BAD_INPUT.
 * bias    [groups, rows of a group's w] with has_bias, else NULL
 * y       [max_rows, n] or [groups, max_rows, n]; rows of no group are not written */
FARWARP_EXPORT farwarp_code farwarp_grouped_gemm_call(farwarp_grouped_gemm* gemm, const DLTensor* x, const DLTensor* w,
                                                      const DLTensor* x_scale, const DLTensor* w_scale,
                                                      const DLTensor* rows, const DLTensor* bias, DLTensor* y,
                                                      void* stream);
FARWARP_EXPORT farwarp_code farwarp_grouped_gemm_close(farwarp_grouped_gemm* gemm);

typedef enum farwarp_product_kind {
  FARWARP_ALL_GATHER_GEMM = 0,
  FARWARP_GEMM_REDUCE_SCATTER = 1,
  FARWARP_GEMM_ALL_REDUCE = 2
} farwarp_product_kind;
typedef enum farwarp_product_path {
  FARWARP_OWN = 0,     /* farwarp's kernels */
  FARWARP_UNFUSED = 1, /* NCCL and cuBLASLt one after the other */
  FARWARP_BEST = 2     /* the one that was measured to be faster */
} farwarp_product_path;

/* The products of tensor parallelism. Of R ranks, sizes of the whole problem:
 *   all-gather      x [m/R, k], w [n/R, k], bias [n/R] -> y [m, n/R]
 *   reduce-scatter  x [m, k/R], w [n, k/R], bias [n]   -> y [m/R, n]
 *   all-reduce      x [m, k/R], w [n, k/R], bias [n]   -> y [m, n]
 * A bias that is the same on all ranks enters a reduced result R times. */
typedef struct farwarp_product farwarp_product;
typedef struct farwarp_product_desc {
  size_t bytes;
  int32_t kind;     /* farwarp_product_kind; FARWARP_ALL_GATHER_GEMM */
  int32_t m, n, k;  /* of the whole problem */
  int32_t has_bias; /* 0, the default, or 1 */
  int32_t return_x; /* all-gather: 1: x of all ranks is a result, too */
  DLDataType dtype; /* bfloat16, the default, or float16 */
  int32_t path;     /* farwarp_product_path; FARWARP_BEST */
  int32_t max_sms;  /* 0, the default: all */
} farwarp_product_desc;
FARWARP_EXPORT farwarp_code farwarp_product_desc_init_sized(farwarp_product_desc* desc, size_t bytes);
#define farwarp_product_desc_init(desc) farwarp_product_desc_init_sized((desc), sizeof *(desc))
/* Collective. */
FARWARP_EXPORT farwarp_code farwarp_product_create(farwarp_world* world, const farwarp_product_desc* desc,
                                                   farwarp_product** product);
/* Every rank makes every call. `all_x` [m, k] is NULL exactly if return_x is 0. Tensors are aligned to 256 bytes. */
FARWARP_EXPORT farwarp_code farwarp_product_call(farwarp_product* product, const DLTensor* x, const DLTensor* w,
                                                 const DLTensor* bias, DLTensor* y, DLTensor* all_x, void* stream);
FARWARP_EXPORT farwarp_code farwarp_product_close(farwarp_product* product);

/* ---- all-reduce ---- */

/* out[i] = in_0[i] + in_1[i] + ... of all ranks, added in float32 in rank order, rounded once: the same bits on all. */
typedef struct farwarp_all_reduce farwarp_all_reduce;
typedef enum farwarp_all_reduce_mode {
  FARWARP_ALL_REDUCE_AUTO = 0,     /* by a call's bytes */
  FARWARP_ALL_REDUCE_ONE_SHOT = 1, /* every rank sends all to all ranks; up to 16 MiB */
  FARWARP_ALL_REDUCE_TWO_SHOT = 2  /* every rank adds up a part and sends the sums to all ranks */
} farwarp_all_reduce_mode;
typedef struct farwarp_all_reduce_desc {
  size_t bytes;
  int64_t max_elements; /* of a call, 1 to 2^28 */
  DLDataType dtype;     /* bfloat16, the default, float16 or float32 */
  int32_t mode;         /* farwarp_all_reduce_mode; FARWARP_ALL_REDUCE_AUTO */
  int32_t max_sms;      /* 0, the default: all */
} farwarp_all_reduce_desc;
FARWARP_EXPORT farwarp_code farwarp_all_reduce_desc_init_sized(farwarp_all_reduce_desc* desc, size_t bytes);
#define farwarp_all_reduce_desc_init(desc) farwarp_all_reduce_desc_init_sized((desc), sizeof *(desc))
/* Collective. Takes room of the heap. */
FARWARP_EXPORT farwarp_code farwarp_all_reduce_create(farwarp_world* world, const farwarp_all_reduce_desc* desc,
                                                      farwarp_all_reduce** all_reduce);
/* Every rank makes every call, with the same number of elements. Tensors have any shape and begin at multiples of 16
 * bytes. `out` has as many elements as `x`; it is the same memory or does not overlap it. */
FARWARP_EXPORT farwarp_code farwarp_all_reduce_call(farwarp_all_reduce* all_reduce, const DLTensor* x, DLTensor* out,
                                                    void* stream);
FARWARP_EXPORT farwarp_code farwarp_all_reduce_close(farwarp_all_reduce* all_reduce);

/* ---- MoE all-to-all ---- */

typedef enum farwarp_moe_mode {
  FARWARP_MOE_AUTO = 0,  /* the plan's choice */
  FARWARP_MOE_WORDS = 1, /* rows cross as words that are their own flags */
  FARWARP_MOE_BULK = 2   /* rows cross as copies, then a flag */
} farwarp_moe_mode;

typedef struct farwarp_moe farwarp_moe;
typedef struct farwarp_moe_desc {
  size_t bytes;
  int32_t num_experts;       /* expert e is of rank floor(e * ranks / num_experts) */
  int32_t experts_per_token; /* 1 to 32 */
  int32_t hidden;            /* a multiple of 8 */
  int32_t max_tokens;        /* of a rank and call, 1 to 65535 */
  DLDataType dtype;          /* bfloat16, the default, or float16 */
  DLDataType index_type;     /* int32, the default, or int64 */
  int32_t fp8_dispatch;      /* 1: rows arrive as e4m3 with a scale for each 128 numbers */
  int32_t masked; /* 0: experts one after another; 1: the same room for each, and an expert gets a token's row once */
  int32_t row_alignment; /* of an expert's first row; 1, the default; a power of two up to 1024 */
  int64_t recv_rows;     /* room for so many rows; 0, the default: the worst case */
  int32_t max_sms;       /* 0, the default: all */
  /* Version 2. */
  int32_t mode;             /* farwarp_moe_mode; FARWARP_MOE_AUTO */
  int32_t segments;         /* of a row, which different warps take; 0, the default: the plan's choice */
  int32_t send_only_blocks; /* of a dispatch in one launch; 0, the default: the plan's choice; -1: none */
  /* Version 3. */
  /* 1: scales [most experts of a rank, ceil(hidden / 128), room]; needs fp8_dispatch and masked */
  int32_t scale_columns;
  int32_t weights_at_combine; /* 1: combine is given the weights, dispatch is given NULL; no fused form */
  /* 1: a row once for each rank: farwarp_moe_dispatch_rows(); not with fp8_dispatch, scale_columns, weights_at_combine,
   * masked, row_alignment */
  int32_t rows;
  int32_t dispatch_hidden; /* 0, the default: hidden; with `rows`: of x and recv_x, whose bits nobody looks into */
  /* Version 5. */
  int32_t powers_of_two; /* 1: scales of fp8_dispatch are rounded up to powers of two */
  /* 1, with powers_of_two, scale_columns and 512 dividing hidden: scales are their biased exponents (UE8M0), uint8
   * [most experts of a rank, hidden / 512, room, 4] */
  int32_t scale_exponents;
  int32_t handles; /* 1: calls are those with handles, below; no fused form */
} farwarp_moe_desc;
FARWARP_EXPORT farwarp_code farwarp_moe_desc_init_sized(farwarp_moe_desc* desc, size_t bytes);
#define farwarp_moe_desc_init(desc) farwarp_moe_desc_init_sized((desc), sizeof *(desc))
/* Collective. */
FARWARP_EXPORT farwarp_code farwarp_moe_create(farwarp_world* world, const farwarp_moe_desc* desc, farwarp_moe** moe);
/* Bytes of the heap that the operator takes on each rank. A world's heap has 1 MiB more than its operators take. */
FARWARP_EXPORT farwarp_code farwarp_moe_heap_bytes(const farwarp_moe_desc* desc, int32_t target, int32_t device,
                                                   int32_t ranks, int64_t* bytes);
/* Rows of `recv_x`, and the rank's experts. */
FARWARP_EXPORT int64_t farwarp_moe_recv_rows(const farwarp_moe* moe);
FARWARP_EXPORT int32_t farwarp_moe_local_experts(const farwarp_moe* moe);

/* Sends tokens to the ranks of their experts.
 *   x       [tokens, hidden]
 *   indices [tokens, experts_per_token] of index_type, -1: no expert; weights the same of float32
 *   recv_x  [recv_rows, hidden] of dtype, with fp8_dispatch of uint8 or the device's e4m3 (DLPack 1.1); with `masked`
 *           [most experts of a rank, an expert's room, hidden] is the same
 *   counts  [local experts] int32: rows of each expert
 *   offsets [local experts + 1] int32: first row of each expert, and the end
 *   origins [recv_rows] int64, or NULL: source rank << 48 | token << 16 | k-slot; -1: an expert's padding, up to
 *           row_alignment, with `masked` up to its room; rows from the end on are not written
 *   scales  [recv_rows, ceil(hidden / 128)] float32 with fp8_dispatch, else NULL; with scale_columns the descriptor's
 *           shape, or the same memory as [most experts of a rank, room, ceil(hidden / 128)] (with scale_exponents int32
 *           [most experts of a rank, room, hidden / 512]) */
FARWARP_EXPORT farwarp_code farwarp_moe_dispatch(farwarp_moe* moe, const DLTensor* x, const DLTensor* indices,
                                                 const DLTensor* weights, DLTensor* recv_x, DLTensor* counts,
                                                 DLTensor* offsets, DLTensor* origins, DLTensor* scales, void* stream);
/* The second half of a call: y [recv_rows, hidden] are the experts' outputs in the rows of dispatch, out [tokens,
 * hidden] the weighted sums. */
FARWARP_EXPORT farwarp_code farwarp_moe_combine(farwarp_moe* moe, const DLTensor* y, DLTensor* out, void* stream);

/* The same with weights_at_combine: weights [tokens, experts_per_token] float32. They travel to the owners first, so
 * ..._send_weighted() waits for the other ranks. */
FARWARP_EXPORT farwarp_code farwarp_moe_combine_weighted(farwarp_moe* moe, const DLTensor* y, const DLTensor* weights,
                                                         DLTensor* out, void* stream);
/* farwarp_moe_dispatch() of as many tokens as `count` says on the device: [1] int32, 0 to max_tokens, read when the
 * call runs. x, indices and weights, and `out` of the call's second half, have max_tokens rows; rows from `count` on
 * are neither read nor written. Another value is FARWARP_BAD_INPUT, by farwarp_world_status(). */
FARWARP_EXPORT farwarp_code farwarp_moe_dispatch_counted(farwarp_moe* moe, const DLTensor* x, const DLTensor* indices,
                                                         const DLTensor* weights, const DLTensor* count,
                                                         DLTensor* recv_x, DLTensor* counts, DLTensor* offsets,
                                                         DLTensor* origins, DLTensor* scales, void* stream);

/* The halves of dispatch and combine, one launch each, in the order dispatch_send, dispatch_recv, combine_send,
 * combine_recv. Kernels in other streams may run between them, beside the transfer; max_sms leaves them
 * multiprocessors. farwarp_moe_dispatch() may stand for the first two, farwarp_moe_combine() for the last two. Every
 * rank makes all calls. Tensors are as above; `count` as in farwarp_moe_dispatch_counted(), or NULL. indices and count
 * must not change until the call's last half has run. Another order is FARWARP_MISUSE. */
FARWARP_EXPORT farwarp_code farwarp_moe_dispatch_send(farwarp_moe* moe, const DLTensor* x, const DLTensor* indices,
                                                      const DLTensor* weights, const DLTensor* count, void* stream);
FARWARP_EXPORT farwarp_code farwarp_moe_dispatch_recv(farwarp_moe* moe, DLTensor* recv_x, DLTensor* counts,
                                                      DLTensor* offsets, DLTensor* origins, DLTensor* scales,
                                                      void* stream);
FARWARP_EXPORT farwarp_code farwarp_moe_combine_send(farwarp_moe* moe, const DLTensor* y, void* stream);
FARWARP_EXPORT farwarp_code farwarp_moe_combine_recv(farwarp_moe* moe, DLTensor* out, void* stream);
FARWARP_EXPORT farwarp_code farwarp_moe_combine_send_weighted(farwarp_moe* moe, const DLTensor* y,
                                                              const DLTensor* weights, void* stream);

/* farwarp_moe_dispatch() of an operator with `rows`: a token with several experts of this rank comes once. Rows are
 * ordered by source rank and token.
 *   recv_x       [rows, hidden] of dtype, up to recv_rows rows; if more arrive, farwarp_world_status() is
 *                FARWARP_CAPACITY
 *   recv_indices [rows, experts_per_token] of index_type: a local expert, or -1, also in rows beyond the last;
 *   recv_weights the same of float32
 *   counts       [local experts] int32: entries of each expert; offsets [ranks + 1] int32: first row of each source,
 *                and the end
 * Combine takes y [rows, hidden], of each row the sum of its experts' weighted outputs. */
FARWARP_EXPORT farwarp_code farwarp_moe_dispatch_rows(farwarp_moe* moe, const DLTensor* x, const DLTensor* indices,
                                                      const DLTensor* weights, DLTensor* recv_x, DLTensor* recv_indices,
                                                      DLTensor* recv_weights, DLTensor* counts, DLTensor* offsets,
                                                      void* stream);
/* Its halves. The first waits for the other ranks' counts, so that the host can make room for these rows. */
FARWARP_EXPORT farwarp_code farwarp_moe_dispatch_rows_send(farwarp_moe* moe, const DLTensor* x, const DLTensor* indices,
                                                           const DLTensor* weights, DLTensor* counts, DLTensor* offsets,
                                                           void* stream);
FARWARP_EXPORT farwarp_code farwarp_moe_dispatch_rows_recv(farwarp_moe* moe, DLTensor* recv_x, DLTensor* recv_indices,
                                                           DLTensor* recv_weights, void* stream);

/* Calls of an operator with `handles`: what dispatch keeps for combine lies in memory of the caller. A dispatch may
 * then follow a dispatch, and combine takes any handle, any number of times; all ranks give handles of the same
 * dispatch. If it is not that of the last dispatch, or that is combined already, combine costs one launch more, two if
 * the last dispatch is not combined, and combine_send waits for the other ranks. Tensors are as above, indices those of
 * the handle's dispatch, unchanged.
 *   handle     [bytes of farwarp_moe_handle_layout()] uint8
 *   count_sums [local experts] int32, to which counts are added, or NULL
 *   expert_counts [num_experts] int32, what owners are told instead of the numbers of entries of indices, or NULL
 * In a handle, with `masked`, at byte `ranges` lie [local experts, ranks] int64, of each source its first row among the
 * expert's << 32 | its number of rows; at byte `tokens` [recv_rows] int32, each row's token at its source. */
FARWARP_EXPORT farwarp_code farwarp_moe_handle_layout(const farwarp_moe* moe, int64_t* bytes, int64_t* ranges,
                                                      int64_t* tokens);
FARWARP_EXPORT farwarp_code farwarp_moe_dispatch_kept(farwarp_moe* moe, const DLTensor* x, const DLTensor* indices,
                                                      const DLTensor* weights, DLTensor* recv_x, DLTensor* counts,
                                                      DLTensor* offsets, DLTensor* scales, DLTensor* count_sums,
                                                      DLTensor* handle, void* stream);
/* The half after farwarp_moe_dispatch_send(). */
FARWARP_EXPORT farwarp_code farwarp_moe_dispatch_recv_kept(farwarp_moe* moe, DLTensor* recv_x, DLTensor* counts,
                                                           DLTensor* offsets, DLTensor* scales, DLTensor* count_sums,
                                                           DLTensor* handle, void* stream);
/* With `rows`. */
FARWARP_EXPORT farwarp_code farwarp_moe_dispatch_rows_kept(farwarp_moe* moe, const DLTensor* x, const DLTensor* indices,
                                                           const DLTensor* weights, const DLTensor* expert_counts,
                                                           DLTensor* recv_x, DLTensor* recv_indices,
                                                           DLTensor* recv_weights, DLTensor* counts, DLTensor* offsets,
                                                           DLTensor* handle, void* stream);
FARWARP_EXPORT farwarp_code farwarp_moe_dispatch_rows_send_kept(farwarp_moe* moe, const DLTensor* x,
                                                                const DLTensor* indices, const DLTensor* weights,
                                                                const DLTensor* expert_counts, DLTensor* counts,
                                                                DLTensor* offsets, void* stream);
FARWARP_EXPORT farwarp_code farwarp_moe_dispatch_rows_recv_kept(farwarp_moe* moe, DLTensor* recv_x,
                                                                DLTensor* recv_indices, DLTensor* recv_weights,
                                                                DLTensor* handle, void* stream);
/* weights with weights_at_combine, else NULL. */
FARWARP_EXPORT farwarp_code farwarp_moe_combine_kept(farwarp_moe* moe, const DLTensor* y, const DLTensor* indices,
                                                     const DLTensor* weights, const DLTensor* handle, DLTensor* out,
                                                     void* stream);
/* The half before farwarp_moe_combine_recv(). */
FARWARP_EXPORT farwarp_code farwarp_moe_combine_send_kept(farwarp_moe* moe, const DLTensor* y, const DLTensor* indices,
                                                          const DLTensor* weights, const DLTensor* handle,
                                                          void* stream);
/* With `rows`, at most once before each combine of the same handle: row_weights [rows, experts_per_token] float32
 * return to the rows' sources, out [tokens, experts_per_token] are their sums over a token's owners, in rank order in
 * fp32. */
FARWARP_EXPORT farwarp_code farwarp_moe_return_row_weights(farwarp_moe* moe, const DLTensor* row_weights,
                                                           const DLTensor* indices, const DLTensor* handle,
                                                           DLTensor* out, void* stream);

/* Element-wise stand-ins for experts. */
typedef enum farwarp_moe_expert {
  FARWARP_MOE_RANK_SCALE = 0, /* y = x * (1 + the owner's rank) */
  FARWARP_MOE_TABLE = 1       /* y = x * scale + shift, of each expert */
} farwarp_moe_expert;
/* Dispatch, expert and combine in one launch, with the bits of the split form. Not with the layout of rows. Every rank
 * calls it.
 *   x, indices, weights  as for dispatch
 *   count        [1] int32, as in farwarp_moe_dispatch_counted(), or NULL
 *   expert       farwarp_moe_expert
 *   expert_table [local experts, 2] float32: scale and shift; NULL exactly if expert is FARWARP_MOE_RANK_SCALE
 *   out          [rows of x, hidden] */
FARWARP_EXPORT farwarp_code farwarp_moe_fused(farwarp_moe* moe, const DLTensor* x, const DLTensor* indices,
                                              const DLTensor* weights, const DLTensor* count, int32_t expert,
                                              const DLTensor* expert_table, DLTensor* out, void* stream);
/* After farwarp_world_recover(): discards a call of which not all halves were made. Every rank calls it. The next call
 * is a dispatch, dispatch_send or fused. */
FARWARP_EXPORT farwarp_code farwarp_moe_forget(farwarp_moe* moe);
FARWARP_EXPORT farwarp_code farwarp_moe_close(farwarp_moe* moe);

/* The routed experts of a MoE layer in one launch (on Hopper): tokens go to the ranks of their experts, and the
 * weighted sums of h * w2[e]^T (+ bias2[e]) come back, where h = activation(x * w1[e]^T (+ bias1[e])), of expert e. */
typedef struct farwarp_moe_layer farwarp_moe_layer;
typedef struct farwarp_moe_layer_desc {
  size_t bytes;
  int32_t num_experts; /* up to 384 of a rank: expert e is of rank floor(e * ranks / num_experts) */
  int32_t experts_per_token, hidden, max_tokens; /* as in farwarp_moe_desc */
  int32_t intermediate;                          /* columns of h, a multiple of 8 */
  DLDataType dtype;                              /* bfloat16, the default, or float16 */
  DLDataType index_type;                         /* int32, the default, or int64 */
  int32_t activation; /* farwarp_activation: FARWARP_SWIGLU, the default, or FARWARP_CLAMPED_SWIGLU */
  int32_t has_bias;   /* 0, the default, or 1: both products have one */
  int32_t max_rows;   /* room for a rank's entries of `indices`, more are FARWARP_CAPACITY; 0, the default: all */
  int32_t max_sms;    /* 0, the default: all */
  int32_t tile_rows, tile_columns; /* 64 or 128; 128, with 128 rows 256; 0, the default: the plan's choice */
} farwarp_moe_layer_desc;
FARWARP_EXPORT farwarp_code farwarp_moe_layer_desc_init_sized(farwarp_moe_layer_desc* desc, size_t bytes);
#define farwarp_moe_layer_desc_init(desc) farwarp_moe_layer_desc_init_sized((desc), sizeof *(desc))
/* Collective. Takes room of the heap. */
FARWARP_EXPORT farwarp_code farwarp_moe_layer_create(farwarp_world* world, const farwarp_moe_layer_desc* desc,
                                                     farwarp_moe_layer** layer);
/* Every rank calls it, also one without tokens. x, indices, weights, count and out are as for farwarp_moe_fused().
 *   w1, bias1  [local experts, 2 intermediate, hidden], [local experts, 2 intermediate]: the gate's rows first
 *   w2, bias2  [local experts, hidden, intermediate], [local experts, hidden]; biases only with has_bias */
FARWARP_EXPORT farwarp_code farwarp_moe_layer_call(farwarp_moe_layer* layer, const DLTensor* x, const DLTensor* indices,
                                                   const DLTensor* weights, const DLTensor* count, const DLTensor* w1,
                                                   const DLTensor* w2, const DLTensor* bias1, const DLTensor* bias2,
                                                   DLTensor* out, void* stream);
FARWARP_EXPORT farwarp_code farwarp_moe_layer_close(farwarp_moe_layer* layer);

/* ---- attention ---- */

/* Prefill: out = softmax(scale * q * k^T + mask) * v. Prefill and decode are right as long as scores, logits and sums
 * are finite in float32. */
typedef struct farwarp_attention farwarp_attention;
typedef struct farwarp_attention_desc {
  size_t bytes;
  int32_t batch, heads, kv_heads, head_dim, queries, keys; /* head_dim: a multiple of 8 up to 256, on AMD 128 */
  DLDataType dtype;                                        /* bfloat16, the default, or float16 */
  int32_t causal;      /* 1: query i attends to keys up to i + keys - queries; 0, the default */
  int32_t window_left; /* keys before a query's own that it attends to; -1, the default: all */
  float scale;         /* 0, the default: 1 / sqrt(head_dim) */
  int32_t has_lse;     /* 1: logarithms of the denominators are a result, too */
  int32_t max_sms;     /* 0, the default: all */
  /* Version 2. All are 0 by default, window_right is -1. */
  int32_t window_right;   /* keys after a query's own that it attends to; -1: all; with causal: -1 or 0 */
  int32_t has_sinks;      /* 1: a logit of each query head that only the denominator has */
  int32_t ragged_queries; /* 1: sequences follow each other in q and out; `queries` is the most of one */
  int32_t total_queries;  /* rows of a ragged q */
  int32_t ragged_keys;    /* 1: likewise k and v; `keys` is the most of one */
  int32_t total_keys;
  int32_t has_key_counts; /* 1: the sequences' numbers of keys are on the device. Paged keys always have them */
  int32_t page_size;      /* keys of a page: 16, 32, 64 or a multiple of 128; 0: not paged */
  int32_t pages;          /* of the cache */
  int32_t unused;         /* ignored: the end of version 5's struct, where it had no field */
  float softcap;          /* logits become softcap * tanh(logit / softcap), before masks; 0.001 to 1e6. Not on AMD */
} farwarp_attention_desc;
FARWARP_EXPORT farwarp_code farwarp_attention_desc_init_sized(farwarp_attention_desc* desc, size_t bytes);
#define farwarp_attention_desc_init(desc) farwarp_attention_desc_init_sized((desc), sizeof *(desc))
/* Collective; a world of one rank is enough. */
FARWARP_EXPORT farwarp_code farwarp_attention_create(farwarp_world* world, const farwarp_attention_desc* desc,
                                                     farwarp_attention** attention);
/* Of dense tensors, without what version 2 has added to the descriptor but window_right.
 * q, out [batch, queries, heads, head_dim]; k, v [batch, keys, kv_heads, head_dim]; lse [batch, heads, queries]
 * float32, NULL exactly if has_lse is 0. */
FARWARP_EXPORT farwarp_code farwarp_attention_call(farwarp_attention* attention, const DLTensor* q, const DLTensor* k,
                                                   const DLTensor* v, DLTensor* out, DLTensor* lse, void* stream);
/* The tensors of a call: those that the descriptor does not ask for are NULL. R are total_queries, K total_keys. */
typedef struct farwarp_attention_tensors {
  size_t bytes;                 /* of this struct */
  const DLTensor* q;            /* [batch, queries, heads, head_dim]; with ragged_queries [R, heads, head_dim] */
  const DLTensor* k;            /* [batch, keys, kv_heads, head_dim]; with ragged_keys [K, kv_heads, head_dim]; paged
                                 * [pages, page_size, kv_heads, head_dim] */
  const DLTensor* v;            /* as k */
  DLTensor* out;                /* as q */
  DLTensor* lse;                /* has_lse: [batch, heads, queries] float32; with ragged_queries [heads, R] */
  const DLTensor* sinks;        /* has_sinks: [heads] float32 */
  const DLTensor* query_starts; /* ragged_queries: [batch + 1] int32: first row of each sequence in q, the last is R */
  const DLTensor* key_starts;   /* ragged_keys: [batch + 1] int32, likewise rows of k */
  const DLTensor* key_counts;   /* has_key_counts, or paged: [batch] int32, 0 to keys */
  const DLTensor* block_table;  /* paged: [batch, ceil(keys / page_size)] int32; only of pages that are seen */
} farwarp_attention_tensors;
FARWARP_EXPORT farwarp_code farwarp_attention_tensors_init_sized(farwarp_attention_tensors* tensors, size_t bytes);
#define farwarp_attention_tensors_init(tensors) farwarp_attention_tensors_init_sized((tensors), sizeof *(tensors))
/* farwarp_attention_call() for every descriptor. Local. Integers are read when the call runs; those that are not
 * allowed are FARWARP_BAD_INPUT, by farwarp_world_status(), and nothing outside the tensors is touched. A query without
 * a key gets zeros, and minus infinity (or its head's sink) in lse. */
FARWARP_EXPORT farwarp_code farwarp_attention_call_tensors(farwarp_attention* attention,
                                                           const farwarp_attention_tensors* tensors, void* stream);
FARWARP_EXPORT farwarp_code farwarp_attention_close(farwarp_attention* attention);

/* Decode: a few query tokens of each sequence over a paged cache, which ranks may share. */
typedef enum farwarp_decode_exchange {
  FARWARP_DECODE_EXCHANGE_BEST = 0, /* the plan's choice */
  FARWARP_DECODE_ONE_SHOT = 1,      /* partial outputs go to all ranks */
  FARWARP_DECODE_TWO_SHOT = 2       /* partial outputs go to owners, whose results go to all */
} farwarp_decode_exchange;
typedef enum farwarp_decode_work {
  FARWARP_DECODE_WORK_BEST = 0,  /* for each sequence, by a block's share of the call's keys */
  FARWARP_DECODE_WORK_SPLIT = 1, /* one split of an item */
  FARWARP_DECODE_WORK_GROUP = 2, /* up to four; Hopper, at most 16 rows of an item */
  FARWARP_DECODE_WORK_ALL = 3    /* all; Hopper, at most 16 rows of an item */
} farwarp_decode_work;

typedef struct farwarp_decode farwarp_decode;
typedef struct farwarp_decode_desc {
  size_t bytes;
  int32_t batch, query_tokens, query_heads, kv_heads, head_dim; /* query_tokens: 1, the default, to 8 */
  int32_t page_size;                                            /* keys of a page: 1, 16 (the default), 64 or 128 */
  int32_t pages;                                                /* of the cache */
  int32_t max_pages;                                            /* of a sequence */
  DLDataType dtype;                                             /* of q and out: bfloat16, the default, or float16 */
  int32_t fp8_cache;   /* 1: keys and values are e4m3 with a scale for each KV head */
  int32_t heads_first; /* 0: [pages, page_size, kv_heads, head_dim]; 1: [pages, kv_heads, page_size, head_dim] */
  int32_t window;      /* keys that a token sees; 0, the default: all */
  float scale;         /* 0, the default: 1 / sqrt(head_dim) */
  int32_t kv_shards;   /* 1, the default: each rank has its own sequences; the world's size: ranks share all keys */
  int32_t max_sms;     /* 0, the default: all */
  /* Version 2. All are 0 by default. */
  int32_t has_sinks;  /* 1: a logit of each query head that only the denominator has */
  int32_t exchange;   /* farwarp_decode_exchange, if kv_shards is more than 1 */
  int32_t split_keys; /* keys of a split, a multiple of 64; 0: by the sequence's length */
  int32_t work;       /* farwarp_decode_work */
} farwarp_decode_desc;
FARWARP_EXPORT farwarp_code farwarp_decode_desc_init_sized(farwarp_decode_desc* desc, size_t bytes);
#define farwarp_decode_desc_init(desc) farwarp_decode_desc_init_sized((desc), sizeof *(desc))
/* Collective. */
FARWARP_EXPORT farwarp_code farwarp_decode_create(farwarp_world* world, const farwarp_decode_desc* desc,
                                                  farwarp_decode** decode);
/* q, out      [batch, query_tokens, query_heads, head_dim]
 * k, v        the cache; of uint8 or the device's e4m3 (DLPack 1.1) with fp8_cache
 * block_table [batch, max_pages] int32; entries of pages that no token sees are not used
 * lengths     [batch] int32: keys, the query tokens' own included; with kv_shards those of this rank
 * k_scale, v_scale [kv_heads] float32 with fp8_cache, else NULL; k_scale not below 0
 * lse         [batch, query_tokens, query_heads] float32, or NULL */
FARWARP_EXPORT farwarp_code farwarp_decode_call(farwarp_decode* decode, const DLTensor* q, const DLTensor* k,
                                                const DLTensor* v, const DLTensor* block_table, const DLTensor* lengths,
                                                const DLTensor* k_scale, const DLTensor* v_scale, DLTensor* out,
                                                DLTensor* lse, void* stream);
/* The same with sinks [query_heads] float32, NULL exactly if has_sinks is 0: farwarp_decode_call() gives none. */
FARWARP_EXPORT farwarp_code farwarp_decode_call_sinks(farwarp_decode* decode, const DLTensor* q, const DLTensor* k,
                                                      const DLTensor* v, const DLTensor* block_table,
                                                      const DLTensor* lengths, const DLTensor* k_scale,
                                                      const DLTensor* v_scale, const DLTensor* sinks, DLTensor* out,
                                                      DLTensor* lse, void* stream);
FARWARP_EXPORT farwarp_code farwarp_decode_close(farwarp_decode* decode);

/* ---- Qwen3 ---- */

/* A model on all ranks of a world (1, 2, 4 or 8), each with a share of it, and the keys and values of its sequences.
 * All ranks make the same calls. */
typedef struct farwarp_qwen3 farwarp_qwen3;
typedef enum farwarp_qwen3_vectors {
  FARWARP_QWEN3_FASTER = 0,  /* the plan's choice */
  FARWARP_QWEN3_PACKETS = 1, /* of activations; up to 8 sequences */
  FARWARP_QWEN3_STREAMED = 2 /* through shared memory, between steps that all workers end together */
} farwarp_qwen3_vectors;
typedef struct farwarp_qwen3_desc {
  size_t bytes;
  const char* model;      /* a folder as Hugging Face saves it, or "random:NAME": random:qwen3-8b, ... */
  uint64_t seed;          /* of random weights; 0, the default */
  int32_t sequences;      /* at once, 1 (the default) to 64, on AMD to 32 */
  int32_t positions;      /* of a sequence, its prompt included; 1024, the default */
  int32_t most_top_k;     /* 0, the default: tokens are not drawn; else up to 64 */
  int32_t prefill_tokens; /* of a prompt at a time, 16 to 8192; 0, the default: prompts are decoded */
  int32_t max_sms;        /* 0, the default: all */
  int32_t unused;         /* ignored: the end of version 3's struct, where it had no field */
  int32_t splits;         /* of a sequence's keys, 1 to 16; 0, the default: the plan's choice. Bits depend on it */
  int32_t vectors;        /* farwarp_qwen3_vectors. Bits depend on it */
} farwarp_qwen3_desc;
FARWARP_EXPORT farwarp_code farwarp_qwen3_desc_init_sized(farwarp_qwen3_desc* desc, size_t bytes);
#define farwarp_qwen3_desc_init(desc) farwarp_qwen3_desc_init_sized((desc), sizeof *(desc))
/* Bytes of the heap that each rank of a world of `ranks` ranks on that device needs: farwarp_world_desc.heap_bytes,
 * with 1 MiB more for the world. */
FARWARP_EXPORT farwarp_code farwarp_qwen3_heap_bytes(const farwarp_qwen3_desc* desc, int32_t target, int32_t device,
                                                     int32_t ranks, int64_t* bytes);
/* Collective. Loads the model. */
FARWARP_EXPORT farwarp_code farwarp_qwen3_create(farwarp_world* world, const farwarp_qwen3_desc* desc,
                                                 farwarp_qwen3** qwen3);
/* Tokens of the vocabulary, and the columns of `sampled` and `logits`: sequences, rounded up to a power of two. */
FARWARP_EXPORT int32_t farwarp_qwen3_vocabulary(const farwarp_qwen3* qwen3);
FARWARP_EXPORT int32_t farwarp_qwen3_columns(const farwarp_qwen3* qwen3);

typedef struct farwarp_sampling {
  size_t bytes;
  float temperature; /* 0, the default: the best token; else 0.001 to 1000 */
  int32_t top_k;     /* 1 to most_top_k, if there is a temperature */
  float top_p;       /* more than 0, up to 1, the default */
  uint64_t seed;     /* 0, the default */
} farwarp_sampling;
FARWARP_EXPORT farwarp_code farwarp_sampling_init_sized(farwarp_sampling* sampling, size_t bytes);
#define farwarp_sampling_init(sampling) farwarp_sampling_init_sized((sampling), sizeof *(sampling))
/* A sequence begins in place of what `column` had. `prompt` is in the host's memory. `sampling` may be NULL: the best
 * tokens. With prefill_tokens the prompt is prefilled. Waits for the stream. */
FARWARP_EXPORT farwarp_code farwarp_qwen3_start(farwarp_qwen3* qwen3, int32_t column, const int32_t* prompt,
                                                int32_t tokens, const farwarp_sampling* sampling, void* stream);
/* A sequence ends. Waits for the stream. */
FARWARP_EXPORT farwarp_code farwarp_qwen3_stop(farwarp_qwen3* qwen3, int32_t column, void* stream);
/* Decodes `tokens` tokens of every sequence. Inputs are a prompt's tokens, then the choices.
 *   sampled [columns, tokens] int32: the choices, also while inputs are a prompt's; of an ended sequence unchanged
 *   logits  [tokens, columns, vocabulary] float32, or NULL; a rank fills those of its share of the vocabulary
 *   end_token ends a sequence; -1: none does */
FARWARP_EXPORT farwarp_code farwarp_qwen3_decode(farwarp_qwen3* qwen3, int32_t tokens, int32_t end_token,
                                                 DLTensor* sampled, DLTensor* logits, void* stream);
/* The same with several end tokens: up to FARWARP_MOST_END_TOKENS, in the host's memory. */
#define FARWARP_MOST_END_TOKENS 8
FARWARP_EXPORT farwarp_code farwarp_qwen3_decode_until(farwarp_qwen3* qwen3, int32_t tokens, const int32_t* end_tokens,
                                                       int32_t end_token_count, DLTensor* sampled, DLTensor* logits,
                                                       void* stream);
/* What the model's generation_config.json (or config.json) asks for: end_tokens has room for FARWARP_MOST_END_TOKENS.
 * `sampling` is of farwarp_sampling_init(); a top_k of 0 is no limit. The caller decides what to use. Random weights
 * ask for nothing. */
FARWARP_EXPORT farwarp_code farwarp_qwen3_generation(const farwarp_qwen3* qwen3, int32_t* end_tokens,
                                                     int32_t* end_token_count, farwarp_sampling* sampling);
FARWARP_EXPORT farwarp_code farwarp_qwen3_close(farwarp_qwen3* qwen3);

#ifdef __cplusplus
}
#endif
#endif
