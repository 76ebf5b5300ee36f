// A submission to farwarp: an all-reduce in plain C++, for the emulator. Replace what is between the lines of dashes.
//
//   cmake -B build && cmake --build build
//   farwarp submit check build/submission.so --op all-reduce --ranks 2
//   farwarp submit bench build/submission.so --suite all_reduce --ranks 2 --target emu_sm90 --label mine
//   farwarp leaderboard --suite all_reduce
#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstring>

#include "farwarp_submission.h"

namespace {

// A number of 16 or 32 bits, as the dtype of the tensor says.
float load(const void* data, int32_t dtype, int64_t i) {
  if (dtype == FARWARP_SUBMISSION_FLOAT32) return static_cast<const float*>(data)[i];
  const uint32_t bits = uint32_t{static_cast<const uint16_t*>(data)[i]} << 16;
  float value;
  std::memcpy(&value, &bits, 4);
  return value;
}

void store(void* data, int32_t dtype, int64_t i, float value) {
  if (dtype == FARWARP_SUBMISSION_FLOAT32) {
    static_cast<float*>(data)[i] = value;
    return;
  }
  uint32_t bits;
  std::memcpy(&bits, &value, 4);
  bits += 0x7fff + (bits >> 16 & 1);  // to the nearest bfloat16, ties to even
  static_cast<uint16_t*>(data)[i] = static_cast<uint16_t>(bits >> 16);
}

// ---------------------------------------------------------------------------------------------------------------------

// What all ranks share: a counter, then each rank's numbers.
struct Shared {
  std::atomic<uint64_t> arrived;
  alignas(64) float numbers[];
};

struct State {
  int32_t rank = 0, ranks = 0;
  int64_t elements = 0;
  Shared* shared = nullptr;
  size_t bytes = 0;
  uint64_t meetings = 0;

  // No rank goes on before all ranks are here.
  void meet() {
    shared->arrived.fetch_add(1);
    ++meetings;
    while (shared->arrived.load() < meetings * static_cast<uint64_t>(ranks)) sched_yield();
  }
};

Shared* map(const char* name, size_t bytes, bool create) {
  const int fd = shm_open(name, create ? O_CREAT | O_EXCL | O_RDWR : O_RDWR, 0600);
  if (fd < 0) return nullptr;
  void* memory = MAP_FAILED;
  if (!create || ftruncate(fd, static_cast<off_t>(bytes)) == 0)
    memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  return memory == MAP_FAILED ? nullptr : static_cast<Shared*>(memory);
}

}  // namespace

uint32_t farwarp_submission_abi_version(void) { return FARWARP_SUBMISSION_ABI_VERSION; }

int farwarp_submission_create(const farwarp_submission_problem* problem, void** state, char* error,
                              size_t error_bytes) {
  const int32_t dtype = problem->inputs[0].dtype;
  if (std::strcmp(problem->op, "all-reduce") != 0 || std::strncmp(problem->target, "emu_", 4) != 0 ||
      (dtype != FARWARP_SUBMISSION_FLOAT32 && dtype != FARWARP_SUBMISSION_BFLOAT16)) {
    std::snprintf(error, error_bytes, "%s on %s: this example has an all-reduce of fp32 or bf16 for the emulator",
                  problem->op, problem->target);
    return 1;
  }
  State* mine = new State;
  mine->rank = problem->rank;
  mine->ranks = problem->ranks;
  mine->elements = problem->inputs[0].shape[0];
  mine->bytes = sizeof(Shared) + sizeof(float) * static_cast<size_t>(mine->elements * mine->ranks);
  // Rank 0 makes the memory, the others get its name.
  char name[64] = {}, names[8][64] = {};
  std::snprintf(name, sizeof(name), "/submission-%d", static_cast<int>(getpid()));
  if (problem->rank == 0) mine->shared = map(name, mine->bytes, true);
  if (problem->allgather(problem->context, name, sizeof(name), names) != 0) return 2;
  if (problem->rank != 0) mine->shared = map(names[0], mine->bytes, false);
  if (problem->barrier(problem->context) != 0) return 2;
  if (problem->rank == 0) shm_unlink(name);
  if (mine->shared == nullptr) {
    std::snprintf(error, error_bytes, "no shared memory");
    return 3;
  }
  *state = mine;
  return 0;
}

int farwarp_submission_run(void* state, const farwarp_submission_tensor* inputs, int32_t,
                           const farwarp_submission_tensor* outputs, int32_t, void*) {
  State& mine = *static_cast<State*>(state);
  float* const numbers = mine.shared->numbers;
  for (int64_t i = 0; i < mine.elements; ++i)
    numbers[mine.rank * mine.elements + i] = load(inputs[0].data, inputs[0].dtype, i);
  mine.meet();
  for (int64_t i = 0; i < mine.elements; ++i) {
    float sum = 0;
    for (int32_t rank = 0; rank < mine.ranks; ++rank) sum += numbers[rank * mine.elements + i];
    store(outputs[0].data, outputs[0].dtype, i, sum);
  }
  mine.meet();  // the next call writes `numbers`
  return 0;
}

void farwarp_submission_destroy(void* state) {
  State* mine = static_cast<State*>(state);
  munmap(mine->shared, mine->bytes);
  delete mine;
}

// ---------------------------------------------------------------------------------------------------------------------
