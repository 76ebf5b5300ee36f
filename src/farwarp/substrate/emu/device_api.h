// The engine's functions that the emulated device vocabulary (ids.h memory.h sync.h warp.h async.h mma.h clock.h)
// calls. The vocabulary is compiled once per personality, the engine once. The running thread calls these functions, on
// its fiber.
#pragma once

#include <cstddef>
#include <cstdint>

#include "farwarp/base/half.h"
#include "farwarp/base/memory_model.h"
#include "farwarp/base/tensor_map.h"
#include "farwarp/base/trace.h"

namespace farwarp::emu {

/// The kind of typed pointer of an access.
enum class Space : std::uint8_t { shared, cluster, global, peer };

struct Access {
  Space space = Space::global;
  std::uint8_t bytes = 4;  ///< 1, 2, 4 or 8
  bool strong = false;     ///< atomic: order and scope apply
  Order order = Order::relaxed;
  Scope scope = Scope::system;
};

struct ThreadIds {
  int thread_index = 0;
  int num_threads = 0;
  int block_index = 0;
  int num_blocks = 0;
  int warp_index = 0;
  int lane_index = 0;
  int multiprocessor = 0;
  int xcc = 0;
  std::byte* shared = nullptr;
};

/// Ids of the running thread.
extern const ThreadIds* running_ids;

std::uint64_t read(const void* address, Access access);
void write(void* address, std::uint64_t value, Access access);
/// Two accesses of 8 bytes in an order that the schedule chooses. Other threads may run between them.
void read16(const void* address, std::uint64_t (&value)[2], Access access);
void write16(void* address, const std::uint64_t (&value)[2], Access access);

/// An invalid address is a fault, as in a load.
void prefetch(const void* address);

enum class Modify : std::uint8_t { add, exchange, compare_exchange };
/// Returns the old value.
std::uint64_t modify(void* address, Modify operation, std::uint64_t operand, std::uint64_t expected, Access access);

void fence(Order order, Scope scope);
void drain_stores();

void block_sync();
bool block_any(bool predicate);

/// `number` is 1 to 15; `threads` is a multiple of the warp size.
void group_sync(int number, int threads);
void group_arrive(int number, int threads);

int cluster_rank();
void cluster_arrive(Order order);
void cluster_wait();
/// The address in the shared memory of block `rank` of the thread's cluster that corresponds to `address` in its own
/// block.
void* place_in_cluster(void* address, int rank);

enum class WarpOp : std::uint8_t { sync, shuffle, ballot, match, mma };
/// The values of the warp's lanes, for the lanes in `present`. Valid until the caller's next warp operation.
struct WarpValues {
  const std::uint64_t* values;
  std::uint64_t present;
};
WarpValues warp_exchange(WarpOp operation, std::uint64_t value);
/// Aborts the launch because a shuffle read from a lane that does not exist.
[[noreturn]] void fault_bad_lane(int source_lane);

void mbarrier_init(void* barrier, int arrivals);
void mbarrier_init_fence();
void mbarrier_arrive_expect(void* barrier, int bytes);
bool mbarrier_test(void* barrier, std::uint32_t parity);
void bulk_load(void* shared_destination, const void* source, int bytes, void* barrier);
void bulk_store(void* peer_destination, const void* shared_source, int bytes);
void bulk_commit();
void bulk_wait_read(int pending);
void bulk_wait_all(int pending);
void proxy_fence();
/// `matrix`: which of a grid; {-1, -1} if the map has none.
void tensor_load(void* shared_destination, const TensorMap& map, GridIndex matrix, int row, int column, void* barrier);
void tensor_store(const TensorMap& map, int row, int column, const void* shared_source);

/// The operands of one wgmma instruction: tiles in shared memory, or A in registers.
struct MatrixOperands {
  const std::byte* a = nullptr;  ///< null: A is in registers
  const std::byte* b = nullptr;
  int k = 0;
  bool a_is_mn_major = false;
  int panel_bytes = 0;  ///< of an MN-major B: from 64 columns to the next 64; 0: B is K-major
  int columns = 0;
  bool accumulate = false;
  DType type = DType::kBf16;  ///< unless they are fp8
  bool fp8 = false;
  friend bool operator==(const MatrixOperands&, const MatrixOperands&) = default;
};
void wgmma_fence();
/// `sums` has columns / 2 floats of the running thread. It is poisoned until wgmma_wait(0). `a`: the thread's four
/// words of A, if A is in registers; they are read when the instruction runs.
void wgmma(const MatrixOperands& operands, float* sums, const std::uint32_t* a = nullptr);
void wgmma_commit();
void wgmma_wait(int pending);

std::uint64_t cycles();
std::uint64_t nanoseconds();
void park(const void* const* addresses, int used, std::uint64_t deadline);

/// The step of the schedule, from 1; 0 if nothing records traces. Neither function counts as a step.
std::uint64_t trace_time();
/// Writes `record` of the running thread, begun at `begin`.
void trace_end(std::uint64_t begin, TraceRecord record);

}  // namespace farwarp::emu
