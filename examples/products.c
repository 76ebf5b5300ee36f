/* A tensor-parallel product in plain C: four ranks, threads of this program, on emulated devices. Each rank has a quarter of k; all get
 * y = x * w^T. Run it with cuda as its argument on a machine with four GPUs. */
#include <farwarp/c.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum { RANKS = 4, M = 16, N = 32, K = 128, LOCAL_K = K / RANKS };

static uint16_t bf16(float value) { /* of numbers that need no rounding */
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return (uint16_t)(bits >> 16);
}
static float float_of(uint16_t half) {
  const uint32_t bits = (uint32_t)half << 16;
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

/* Small numbers, so that every sum is exact. */
static float x_at(int row, int k) { return (float)((row + k) % 3 - 1); }
static float w_at(int row, int k) { return (float)((row + 2 * k) % 3 - 1); }

typedef struct rank {
  farwarp_threads* threads;
  int number, target, failed;
} rank;

#define TRY(call)                                                                                          \
  do {                                                                                                     \
    const farwarp_code code = (call);                                                                      \
    if (code != FARWARP_OK) {                                                                              \
      fprintf(stderr, "rank %d: %s: %s\n", self->number, farwarp_code_name(code), farwarp_message());      \
      return code;                                                                                         \
    }                                                                                                      \
  } while (0)

typedef struct matrix {
  uint16_t numbers[M * N + N * LOCAL_K];
  int64_t shape[2];
  DLTensor tensor;
} matrix;

/* On the device, `fill` gives its elements; NULL: none. */
static farwarp_code make(const rank* self, farwarp_world* world, matrix* of, int rows, int columns,
                         float (*fill)(int, int), void* stream) {
  const size_t bytes = (size_t)rows * (size_t)columns * sizeof(uint16_t);
  of->shape[0] = rows;
  of->shape[1] = columns;
  of->tensor = (DLTensor){0};
  of->tensor.device.device_type = self->target == FARWARP_CUDA ? kDLCUDA : kDLCPU;
  of->tensor.device.device_id = self->target == FARWARP_CUDA ? self->number : 0;
  of->tensor.ndim = 2;
  of->tensor.dtype = (DLDataType){kDLBfloat, 16, 1};
  of->tensor.shape = of->shape;
  TRY(farwarp_allocate(world, bytes, &of->tensor.data));
  if (fill == NULL) return FARWARP_OK;
  for (int row = 0; row < rows; ++row) {
    for (int k = 0; k < columns; ++k)
      of->numbers[row * columns + k] = bf16(fill(row, self->number * LOCAL_K + k));
  }
  TRY(farwarp_copy_in(world, of->tensor.data, of->numbers, bytes, stream));
  return FARWARP_OK;
}

static farwarp_code multiply(const rank* self) {
  farwarp_world_desc options;
  farwarp_world* world;
  farwarp_product_desc desc;
  farwarp_product* product;
  static matrix x[RANKS], w[RANKS], y[RANKS];
  void* stream;
  int wrong = 0;

  farwarp_world_desc_init(&options);
  options.target = self->target;
  options.heap_bytes = 16 << 20;
  TRY(farwarp_world_from_threads(self->threads, self->number, &options, &world));
  TRY(farwarp_stream_create(world, &stream));
  TRY(make(self, world, &x[self->number], M, LOCAL_K, x_at, stream));
  TRY(make(self, world, &w[self->number], N, LOCAL_K, w_at, stream));
  TRY(make(self, world, &y[self->number], M, N, NULL, stream));

  farwarp_product_desc_init(&desc);
  desc.kind = FARWARP_GEMM_ALL_REDUCE;
  desc.m = M;
  desc.n = N;
  desc.k = K;
  TRY(farwarp_product_create(world, &desc, &product));
  TRY(farwarp_product_call(product, &x[self->number].tensor, &w[self->number].tensor, NULL, &y[self->number].tensor,
                           NULL, stream));
  TRY(farwarp_copy_out(world, y[self->number].numbers, y[self->number].tensor.data, M * N * sizeof(uint16_t), stream));
  TRY(farwarp_world_status(world));
  TRY(farwarp_product_close(product));

  for (int row = 0; row < M; ++row) {
    for (int column = 0; column < N; ++column) {
      float sum = 0;
      for (int k = 0; k < K; ++k) sum += x_at(row, k) * w_at(column, k);
      wrong += float_of(y[self->number].numbers[row * N + column]) != sum;
    }
  }
  printf("rank %d: %d of %d elements are wrong\n", self->number, wrong, M * N);
  farwarp_release(world, x[self->number].tensor.data);
  farwarp_release(world, w[self->number].tensor.data);
  farwarp_release(world, y[self->number].tensor.data);
  farwarp_stream_destroy(world, stream);
  farwarp_world_destroy(world);
  return wrong == 0 ? FARWARP_OK : FARWARP_INTERNAL;
}

static void* run(void* argument) {
  rank* self = argument;
  self->failed = multiply(self) != FARWARP_OK;
  return NULL;
}

int main(int argc, char** argv) {
  farwarp_threads* threads;
  pthread_t started[RANKS];
  rank ranks[RANKS];
  int failed = 0;
  if (farwarp_require_version(FARWARP_C_VERSION) != FARWARP_OK ||
      farwarp_threads_create(RANKS, &threads) != FARWARP_OK) {
    fprintf(stderr, "%s\n", farwarp_message());
    return 1;
  }
  for (int i = 0; i < RANKS; ++i) {
    ranks[i] = (rank){threads, i, argc > 1 && strcmp(argv[1], "cuda") == 0 ? FARWARP_CUDA : FARWARP_EMU_SM90, 0};
    pthread_create(&started[i], NULL, run, &ranks[i]);
  }
  for (int i = 0; i < RANKS; ++i) {
    pthread_join(started[i], NULL);
    failed |= ranks[i].failed;
  }
  farwarp_threads_destroy(threads);
  return failed;
}
