/* A submission: a kernel of somebody else, judged by `farwarp submit check` and `farwarp submit bench`. It is a shared
 * object that defines the four functions at the end of this file. C99; nothing of farwarp is linked.
 *
 * Each rank is a process of its own, which loads the object. Data are made and results are checked in the judge's
 * process, which also decides when a call begins and ends. In each rank's process, on one thread:
 *
 *   farwarp_submission_abi_version()
 *   farwarp_submission_create(problem)    all ranks; may exchange handles by problem->allgather()
 *   farwarp_submission_run(...)           all ranks; once for each repetition, with new data at new addresses
 *   farwarp_submission_destroy()
 *
 * Between calls the processes are stopped, the judge writes new inputs, and fills all outputs and unused memory with
 * bytes 0xff. A call has ended when the stream's work of all ranks has ended. Then the processes are stopped again, and
 * the judge compares outputs with its reference, inputs with what it wrote, and the memory between tensors with 0xff.
 * Numbers of calls and seeds are not told. create(), run() and destroy() each have --time-limit-s.
 *
 * What a submission may not do, and what ends its process: start processes or programs, trace others or read their
 * memory, or send signals. Its standard output goes to the judge's standard error. */
#ifndef FARWARP_SUBMISSION_H_
#define FARWARP_SUBMISSION_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define FARWARP_SUBMISSION_ABI_VERSION 1u
/** The most bytes that a rank gives to allgather(). */
#define FARWARP_SUBMISSION_MAX_ALLGATHER 16384u

/** Types of elements. */
enum {
  FARWARP_SUBMISSION_FLOAT16 = 0,
  FARWARP_SUBMISSION_BFLOAT16 = 1,
  FARWARP_SUBMISSION_FLOAT32 = 2,
  FARWARP_SUBMISSION_INT32 = 3,
  FARWARP_SUBMISSION_INT64 = 4,
  FARWARP_SUBMISSION_FLOAT8_E4M3 = 5 /**< OCP; on AMD CDNA3 the FNUZ form */
};

/** A tensor in the memory of the rank's device. Valid only during the call that it is given to. */
typedef struct farwarp_submission_tensor {
  const char* name;       /**< "x"; the names of an operator's tensors are in case_json */
  int32_t dtype;          /**< FARWARP_SUBMISSION_... */
  int32_t dims;           /**< elements of shape and strides */
  const int64_t* shape;   /**< in elements */
  const int64_t* strides; /**< in elements, of each dimension */
  void* data;             /**< device memory, aligned to 256 bytes; on the emulator host memory. NULL in a problem */
} farwarp_submission_tensor;

/** What create() is told. Everything it points to is valid until destroy() returns. */
typedef struct farwarp_submission_problem {
  uint32_t abi_version;
  int32_t rank;       /**< 0 to ranks - 1 */
  int32_t ranks;      /**< 1 to 8 */
  int32_t device;     /**< the device's number: of CUDA or HIP, or of the emulator */
  const char* target; /**< "cuda", "hip", "emu_sm90", "emu_gfx942" */
  const char* op;     /**< "gemm-rs"; `farwarp list` has the operators, their READMEs what each computes */
  /** {"op", "params": {name: text}, "ranks", "inputs", "outputs": [{"name", "dtype", "shape"}]}. params as `farwarp
   * list` has them, all with their values. */
  const char* case_json;
  /** Shapes of this rank. Where an operator's calls differ in size (tokens of moe-a2a) the largest; run() is told the
   * call's. */
  const farwarp_submission_tensor* inputs;
  int32_t input_count;
  const farwarp_submission_tensor* outputs;
  int32_t output_count;

  /** Pass it to the next two functions. Both are for create() alone, and return 0, or another number if a rank has
   * failed. All ranks make the same calls. */
  void* context;
  /** all[i * bytes], ... gets what rank i gave. `bytes` is the same on all ranks. It carries handles of memory (CUDA
   * IPC, the name of a shared memory), not data. */
  int (*allgather)(void* context, const void* mine, size_t bytes, void* all);
  /** No rank returns before all have called it. */
  int (*barrier)(void* context);
} farwarp_submission_problem;

#if defined(_WIN32)
#error "farwarp runs on Linux"
#endif
#define FARWARP_SUBMISSION_EXPORT __attribute__((visibility("default")))

/** FARWARP_SUBMISSION_ABI_VERSION, as it was when the submission was compiled. */
FARWARP_SUBMISSION_EXPORT uint32_t farwarp_submission_abi_version(void);

/** Prepares what all calls need. Returns 0, and *state is given to the other functions. Another number refuses the
 * case: write the reason, ended by 0, to `error`, which has room for `error_bytes`. */
FARWARP_SUBMISSION_EXPORT int farwarp_submission_create(const farwarp_submission_problem* problem, void** state,
                                                        char* error, size_t error_bytes);

/** One call. inputs and outputs are in the order of the problem's. On CUDA and HIP, `stream` is the stream (CUstream,
 * hipStream_t) that the work must be enqueued on, or be joined to by events; it need not be done when run() returns. On
 * the emulator `stream` is NULL, and the work must be done when run() returns. Returns 0, or another number if it
 * failed. Inputs must not be written. */
FARWARP_SUBMISSION_EXPORT int farwarp_submission_run(void* state, const farwarp_submission_tensor* inputs,
                                                     int32_t input_count, const farwarp_submission_tensor* outputs,
                                                     int32_t output_count, void* stream);

/** Frees what create() made. Called once if create() returned 0 and no call failed. */
FARWARP_SUBMISSION_EXPORT void farwarp_submission_destroy(void* state);

#ifdef __cplusplus
}
#endif

#endif
