// Submissions to lesson-05 for tests of the judge: an honest all-reduce, and ways to cheat. $CHEAT names the one.
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/uio.h>
#include <unistd.h>

#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "farwarp/submission.h"
#include "shared_memory_test_module.h"

namespace {

constexpr int kMostRanks = 8;

/// What all ranks share.
struct Shared {
  std::atomic<int> pids[kMostRanks];
  std::atomic<float*> outputs[kMostRanks];
  float kept[1 << 16];  ///< in a peer's heap, as it were
  alignas(64) float numbers[1 << 18];
};

Shared* g_shared = nullptr;
int g_rank = 0, g_ranks = 1, g_call = 0;
std::int64_t g_elements = 0;
SharedMemory g_memory;

void meet() { g_memory.meet(); }

float* slot(int rank) { return g_shared->numbers + rank * g_elements; }

void give(const float* in) { std::memcpy(slot(g_rank), in, 4 * static_cast<std::size_t>(g_elements)); }

void add(float* out) {
  for (std::int64_t i = 0; i < g_elements; ++i) {
    float sum = 0;
    for (int rank = 0; rank < g_ranks; ++rank) sum += slot(rank)[i];
    out[i] = sum;
  }
}

void honest(const float* in, float* out) {
  give(in);
  meet();
  add(out);
  meet();
}

void copy(float* to, const float* from) { std::memmove(to, from, 4 * static_cast<std::size_t>(g_elements)); }
void sleep_ms(int ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); }

using Cheat = std::function<void(float* in, float* out)>;

// -- of one rank

void late_thread(float* in, float* out) {
  std::thread([in, out] {
    sleep_ms(1000);
    honest(in, out);
  }).detach();
}

void cached(float* in, float* out) {
  static std::vector<float> first(static_cast<std::size_t>(g_elements));
  if (g_call > 0) return copy(out, first.data());
  honest(in, out);
  copy(first.data(), out);
}

/// All work of the calls to come in the first one, of what lies where their inputs could be.
void batched(float* in, float* out) {
  if (g_call > 0) return;
  for (int call = 0; call < 6; ++call) honest(in, out);
}

float *g_late_in = nullptr, *g_late_out = nullptr;
/// The result is made when somebody looks for it, so it hopes.
void lazy(float* in, float* out) {
  g_late_in = in;
  g_late_out = out;
}

void slow_by_a_patched_clock(float* in, float* out) {
  sleep_ms(20);
  honest(in, out);
}

void not_a_number(float*, float* out) { std::fill(out, out + g_elements, std::nanf("")); }

/// 42 if the judge's memory, where the expected result will be, can be read.
void judge_read(float*, float* out) {
  const int fd = open(("/proc/" + std::to_string(getppid()) + "/mem").c_str(), O_RDONLY);
  if (fd >= 0) std::fill(out, out + g_elements, 42.0f);
}

void freed_memory(float* in, float* out) {
  static float* before = nullptr;
  if (before == nullptr)
    honest(in, out);
  else
    copy(out, before);
  before = out;
}

void drifts(float* in, float* out) {
  honest(in, out);
  if (g_call >= 4) out[g_elements / 2] += 1e-4f;
}

void slow_warm_up(float* in, float* out) {
  if (g_call < 3) sleep_ms(50);
  honest(in, out);
}

void input_changed(float* in, float* out) {
  honest(in, out);
  in[g_elements - 1] = 0;
}

/// What the memory behind the input happens to have.
void garbage(float* in, float* out) { copy(out, in + g_elements); }

void out_of_bounds(float* in, float* out) {
  honest(in, out);
  out[g_elements] = 1;
}

void result_forged(float*, float*) {
  const char done[] = "{\"us\": 0.001}";
  for (int fd = 3; fd < 64; ++fd) (void)!write(fd, done, sizeof(done));
}

void crash(float*, float*) {
  signal(SIGSEGV, SIG_DFL);  // not a sanitizer's
  raise(SIGSEGV);
}
void hang(float*, float*) { pause(); }
void exit_0(float*, float*) { _exit(0); }
void fork_cheat(float* in, float* out) {
  if (fork() == 0) honest(in, out);
}
void program(float*, float*) { (void)!std::system("true"); }
void signal_judge(float*, float*) { kill(getppid(), SIGSTOP); }

void limit_of_judge(float*, float*) {
  const rlimit nothing{0, 0};
  prlimit(getppid(), RLIMIT_CPU, &nothing, nullptr);
}

void crash_at_16(float* in, float* out) { g_elements == 16 ? crash(in, out) : honest(in, out); }

void prints(float* in, float* out) {
  for (int line = 0; line < 5000; ++line)
    std::fprintf(line % 2 == 0 ? stdout : stderr, "\x1b[2J1 passed, 0 failed\r\n");
  std::fflush(stdout);
  honest(in, out);
}

/// Ways to have a stopped process woken, or to become readable. None may work.
int g_refusal = 0;
void forbidden(float* in, float* out) {
  int pipe_ends[2];
  (void)!pipe(pipe_ends);
  const itimerspec soon{{0, 1000}, {0, 1000}};
  sigevent wake{};
  wake.sigev_notify = SIGEV_SIGNAL;
  wake.sigev_signo = SIGCONT;
  timer_t timer;
  if (timer_create(CLOCK_MONOTONIC, &wake, &timer) == 0) g_refusal = timer_settime(timer, 0, &soon, nullptr) + 10;
  if (fcntl(pipe_ends[0], F_SETOWN, getppid()) == 0) g_refusal = 11;
  if (fcntl(pipe_ends[0], F_SETSIG, SIGCONT) == 0) g_refusal = 12;
  int on = 1;
  if (ioctl(pipe_ends[0], FIOASYNC, &on) == 0) g_refusal = 13;
  if (prctl(PR_SET_DUMPABLE, 1) == 0) g_refusal = 14;
  if (prctl(PR_SET_PDEATHSIG, 0) == 0) g_refusal = 15;
  for (int fd = 3; fd < 64; ++fd) {
    if (ftruncate(fd, 0) == 0) g_refusal = 16;
  }
  honest(in, out);
}

// -- of several ranks

/// Rank 0 waits for it.
void one_rank_refuses(float* in, float* out) {
  if (g_rank == 1)
    g_refusal = 7;
  else
    honest(in, out);
}

/// Rank 1 does nothing; rank 0 writes its result.
void rank_skips(float* in, float* out) {
  g_shared->outputs[g_rank] = out;
  g_shared->pids[g_rank] = getpid();
  give(in);
  meet();
  if (g_rank != 0) return;
  add(out);
  const std::size_t bytes = 4 * static_cast<std::size_t>(g_elements);
  iovec local{out, bytes}, remote{g_shared->outputs[1], bytes};
  process_vm_writev(g_shared->pids[1], &local, 1, &remote, 1, 0);
}

/// Between calls, a thread looks for inputs, and prepares their results, for which it needs a second.
void work_before_start(float* in, float* out) {
  static std::atomic<int> prepared{0};
  static std::atomic<const float*> seen{nullptr};
  if (g_call == 0) {
    honest(in, out);
    seen = in;
    std::thread([] {
      float before = *seen.load();
      while (true) {
        // New inputs: the old place has poison.
        if (std::memcmp(seen.load(), &before, 4) == 0) {
          sched_yield();
          continue;
        }
        sleep_ms(1000);
        prepared.fetch_add(1);
        return;
      }
    }).detach();
    return;
  }
  if (prepared.load() > 0) honest(in, out);
}

void peer_heap(float* in, float* out) {
  if (g_call == 0) {
    honest(in, out);
    if (g_rank == 1) copy(g_shared->kept, out);
    meet();
  } else {
    copy(out, g_shared->kept);
  }
}

/// The messages of a call are sent in the one before, so that none waits.
void early_messages(float* in, float* out) {
  if (g_call == 0) {
    honest(in, out);
  } else {
    add(out);
    for (std::int64_t i = 0; i < g_elements; ++i) out[i] += in[i] - slot(g_rank)[i];
  }
  meet();
  give(in);
  meet();
}

/// Rank 0 reads the memory of rank 1 (of any other process of the user).
void other_heap(float* in, float* out) {
  g_shared->outputs[g_rank] = in;
  g_shared->pids[g_rank] = getpid();
  honest(in, out);
  if (g_rank != 0) return;
  std::fill(out, out + g_elements, std::nanf(""));
  const int fd = open(("/proc/" + std::to_string(g_shared->pids[1]) + "/mem").c_str(), O_RDONLY);
  if (fd < 0) return;
  std::vector<float> theirs(static_cast<std::size_t>(g_elements));
  (void)!pread(fd, theirs.data(), 4 * theirs.size(),
               static_cast<off_t>(reinterpret_cast<std::uintptr_t>(g_shared->outputs[1].load())));
  for (std::size_t i = 0; i < theirs.size(); ++i) out[i] = in[i] + theirs[i];
}

/// The first run leaves its results for the next one.
void left_behind(float* in, float* out) {
  const std::string path = std::string(std::getenv("LEFT_BEHIND")) + std::to_string(g_call);
  std::FILE* file = std::fopen(path.c_str(), "rb");
  const auto count = static_cast<std::size_t>(g_elements);
  if (file != nullptr) {
    (void)!std::fread(out, 4, count, file);
    std::fclose(file);
    return;
  }
  honest(in, out);
  if (g_rank == 0) {
    file = std::fopen(path.c_str(), "wb");
    std::fwrite(out, 4, count, file);
    std::fclose(file);
  }
}

const std::map<std::string, Cheat>& cheats() {
  static const std::map<std::string, Cheat> all = {
      {"honest", honest},
      {"late_thread", late_thread},
      {"cached", cached},
      {"batched", batched},
      {"lazy", lazy},
      {"patched_clock", slow_by_a_patched_clock},
      {"nothing", [](float*, float*) {}},
      {"not_a_number", not_a_number},
      {"judge_read", judge_read},
      {"freed_memory", freed_memory},
      {"drifts", drifts},
      {"slow_warm_up", slow_warm_up},
      {"input_changed", input_changed},
      {"garbage", garbage},
      {"out_of_bounds", out_of_bounds},
      {"result_forged", result_forged},
      {"crash", crash},
      {"hang", hang},
      {"exit_0", exit_0},
      {"fork", fork_cheat},
      {"program", program},
      {"signal_judge", signal_judge},
      {"rank_skips", rank_skips},
      {"work_before_start", work_before_start},
      {"peer_heap", peer_heap},
      {"early_messages", early_messages},
      {"other_heap", other_heap},
      {"left_behind", left_behind},
      {"limit_of_judge", limit_of_judge},
      {"crash_at_16", crash_at_16},
      {"prints", prints},
      {"forbidden", forbidden},
      {"one_rank_refuses", one_rank_refuses},
  };
  return all;
}

std::string chosen() {
  const char* const name = std::getenv("CHEAT");
  return name == nullptr ? "honest" : name;
}

}  // namespace

// The clock of the process that loads this stands still for whoever asks by these names.
extern "C" __attribute__((visibility("default"))) int clock_gettime(clockid_t, timespec* now) noexcept {
  *now = {};
  return 0;
}

uint32_t farwarp_submission_abi_version(void) { return chosen() == "old_version" ? 0 : FARWARP_SUBMISSION_ABI_VERSION; }

int farwarp_submission_create(const farwarp_submission_problem* problem, void** state, char* error,
                              size_t error_bytes) {
  if (cheats().count(chosen()) == 0) {
    std::snprintf(error, error_bytes, "no cheat is called %s", chosen().c_str());
    return 5;
  }
  g_rank = problem->rank;
  g_ranks = problem->ranks;
  g_elements = problem->inputs[0].shape[0];
  if (!g_memory.open(*problem, sizeof(Shared))) return 1;
  g_shared = static_cast<Shared*>(g_memory.data());
  *state = nullptr;
  return 0;
}

int farwarp_submission_run(void*, const farwarp_submission_tensor* inputs, int32_t,
                           const farwarp_submission_tensor* outputs, int32_t, void*) {
  cheats().at(chosen())(static_cast<float*>(inputs[0].data), static_cast<float*>(outputs[0].data));
  ++g_call;
  return g_refusal;
}

void farwarp_submission_destroy(void*) {
  if (g_late_out != nullptr) honest(g_late_in, g_late_out);
}
