// The records of devices, launches, blocks, warps and threads. The engine's parts act on them.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "farwarp/base/machine_shape.h"
#include "farwarp/base/memory_model.h"
#include "farwarp/base/status.h"
#include "farwarp/base/swizzle.h"
#include "farwarp/substrate/emu/arena.h"
#include "farwarp/substrate/emu/device_api.h"
#include "farwarp/substrate/emu/fiber.h"
#include "farwarp/substrate/emu/machine.h"
#include "farwarp/substrate/emu/vector_clock.h"

namespace farwarp::emu {

struct Warp;
struct Block;
struct Launch;
struct Device;
struct Thread;

/// One thread's clock: the shared base, and the times up to which it covers the writes of its own block, of its warp
/// and its own.
struct View {
  ClockRef base;
  Time block = 0;
  Time warp = 0;
  Time self = 0;
};

/// The knowledge that a release passes on. `known` has the writes that the releaser knew. `published` has those of them
/// that the async proxy may read (sm90) or that are visible beyond the block (gfx942); see knowledge.h.
struct Snapshot {
  ClockRef known;
  ClockRef published;
  Uid writer = 0;
  Time time = 0;
  Scope scope = Scope::block;
  bool sequence = false;  ///< of several releases, which read-modify-writes continued; `writer` is the last one's
  mutable int references = 0;
};
using SnapshotRef = Ref<const Snapshot>;

enum class Wait : std::uint8_t { none, block_sync, block_any, group_sync, cluster, warp, wgmma, parked, exited };

/// A parked thread in the list of one granule.
struct Watch {
  Thread* thread = nullptr;
  Granule granule = 0;
  Watch* next = nullptr;
  Watch* previous = nullptr;
};

struct Thread : ThreadIds {
  Warp* warp = nullptr;
  Block* block = nullptr;
  Launch* launch = nullptr;
  Fiber fiber;
  Uid uid = 0;
  Wait wait = Wait::none;
  WarpOp warp_op = WarpOp::sync;
  const void* site = nullptr;  ///< code address of the wait

  View seen;                   ///< the writes that this thread knows; seen.self is kForever
  View published;              ///< see Snapshot
  Time first_unpublished = 0;  ///< its first store since the last proxy fence (sm90) or drain (gfx942); 0: none
  Time last_store = 0;
  SnapshotRef release_fence;          ///< every later atomic store passes it on
  std::vector<SnapshotRef> unfenced;  ///< read by relaxed loads; the next acquire fence acquires them
  Uid last_acquired_from = 0;         ///< writer of the last Snapshot acquired; two writers may share a time
  Time last_acquired = 0;

  Time poll_since = 0;   ///< when the current round of polls began
  bool learned = false;  ///< its knowledge has grown since then
  std::uint32_t park_number = 0;
  std::uint64_t waiting_since_ns = 0;
  std::uint64_t deadline_ns = 0;
  std::vector<Watch> watches;

  std::uint64_t cluster_phases = 0;  ///< phases of its cluster's barrier at which it has arrived
  bool in_cluster_barrier = false;   ///< has arrived and not waited yet

  int open_group = 0;  ///< the group of bulk stores issued now; earlier groups are committed

  // wgmma: how many it has issued and waited for, the open group, and whether it has called wgmma_fence() since the
  // last wait.
  std::uint64_t matrix_issued = 0;
  std::uint64_t matrix_waited = 0;
  int open_matrix_group = 0;
  bool matrix_fenced = false;
};

struct Warp {
  std::uint64_t runnable = 0;  ///< lanes
  std::uint64_t present = 0;   ///< lanes that exist
  std::uint64_t live = 0;      ///< lanes that have not exited
  std::uint64_t arrived = 0;   ///< lanes waiting in the warp operation
  int ready_index = -1;        ///< index in the scheduler's list; -1: not there
  std::uint8_t speed = 255;    ///< chance out of 256 that the warp runs when picked
  int parity = 0;
  std::array<std::array<std::uint64_t, 64>, 2> values;  ///< values of the current and the last operation
  Block* block = nullptr;
  Thread* threads = nullptr;  ///< lane 0
};

struct Mbarrier {
  void* address = nullptr;
  int arrivals = 0;  ///< arrivals of a phase
  int pending = 0;   ///< arrivals that the current phase still waits for
  std::int64_t bytes =
      0;  ///< bytes that the current phase still waits for; below 0 if copies complete before they are expected
  std::uint64_t phase = 0;  ///< completed phases
  Uid initialiser = 0;
  Time initialised_at = 0;
  bool fenced = false;
  ClockRef known;  ///< of the threads that arrived at the current phase, and of its copies
  ClockRef published;
  ClockRef completed_known;  ///< of the completed phases
  ClockRef completed_published;
};

/// The memory outside the block that a copy moves: consecutive bytes, or a box of a matrix. It is divided into units of
/// 16 bytes, which swizzles permute.
struct CopyBox {
  std::byte* base = nullptr;  ///< address of the box's first row and column, which may lie outside the matrix
  std::int64_t pitch = 0;     ///< bytes from row to row
  int rows = 1;
  int row_units = 0;
  // Rows, and units of a row, that lie inside the matrix: the first, and one past the last.
  int first_row = 0, end_row = 1;
  int first_unit = 0, end_unit = 0;
  bool swizzled = false;

  int units() const { return rows * row_units; }
  int bytes() const { return 16 * units(); }
  /// Address of unit `unit`, counted row by row; null if it lies outside the matrix.
  std::byte* outside(int unit) const {
    const int row = unit / row_units, column = unit % row_units;
    const bool inside = row >= first_row && row < end_row && column >= first_unit && column < end_unit;
    return inside ? base + row * pitch + 16 * column : nullptr;
  }
  /// Offset of that unit in the block's shared memory, from the start of the box.
  int offset(int unit) const { return swizzled ? swizzled_offset(unit / row_units, unit % row_units * 16) : 16 * unit; }
};

struct BulkCopy {
  std::uint32_t id = 0;
  Thread* issuer = nullptr;
  std::byte* shared = nullptr;
  CopyBox box;
  void* barrier = nullptr;  ///< of a load; null for a store
  int group = 0;            ///< of a store
  View seen;                ///< the issuer's knowledge at issue
  View published;
  bool captured = false;            ///< the source has been read
  std::vector<std::uint64_t> data;  ///< two words for each unit
};

/// One of the block's numbered barriers (group_sync(), group_arrive()).
struct NamedBarrier {
  int threads = 0;               ///< number of threads that it waits for; 0: none has arrived
  std::vector<Thread*> waiting;  ///< threads in group_sync()
  std::vector<Thread*> passed;   ///< threads that called group_arrive()
  ClockRef known;                ///< of the threads that passed, when they arrived
  ClockRef published;
};

/// The sums of a chain of wgmma. Threads cannot access them until they have waited for the last wgmma.
struct MatrixSums {
  std::array<float*, 128> registers{};  ///< for each thread that has issued and not waited yet
  std::vector<float> values;            ///< [64, columns]
};

struct MatrixOp {
  std::uint32_t id = 0;
  MatrixOperands operands;
  int group = 0;
  int issued = 0;  ///< number of threads that have issued it; it can run when all have
  int waited = 0;
  bool done = false;
  std::shared_ptr<MatrixSums> sums;
  std::array<View, 4> seen;  ///< each warp's knowledge at issue
  std::array<View, 4> published;
  std::array<const std::uint32_t*, 128> a_registers{};  ///< each thread's four words of A, if A is in registers
};

/// Four warps, and the wgmma operations for which some of their threads have not waited.
struct Warpgroup {
  Thread* first = nullptr;
  std::deque<MatrixOp> ops;
  std::uint64_t forgotten = 0;  ///< number of operations before ops.front()
};

/// The barrier of a cluster's threads.
struct ClusterBarrier {
  int arrived = 0;          ///< threads that have arrived at the current phase
  std::uint64_t phase = 0;  ///< completed phases
  std::vector<Thread*> waiting;
  ClockRef known;  ///< of the threads that arrived at the current phase
  ClockRef published;
  ClockRef completed_known;
  ClockRef completed_published;
};

struct Block {
  Launch* launch = nullptr;
  int index = 0;
  int threads = 0;
  int live = 0;
  int arrived = 0;
  bool any = false;           ///< the predicates so far of the current block_any()
  bool any_result = false;    ///< the result of the last block_any()
  Wait barrier = Wait::none;  ///< the kind of barrier that threads wait at
  Uid uid = 0;                ///< uid of its first thread
  int multiprocessor = 0;
  int xcc = 0;
  int slot = 0;
  Thread* first = nullptr;
  std::byte* shared = nullptr;
  std::vector<Warp> warps;
  std::array<NamedBarrier, 16> named_barriers;  ///< 1 to 15
  std::vector<Warpgroup> warpgroups;
  ClusterBarrier cluster;  ///< used if this block is the first of its cluster
  std::vector<Mbarrier> mbarriers;
  std::vector<std::unique_ptr<BulkCopy>> copies;
};

/// The part of a launch that outlives it: enough to decide which threads know its writes.
struct LaunchInfo {
  const KernelRecord* kernel = nullptr;
  int device = 0;   ///< Device::index
  int ordinal = 0;  ///< Device::ordinal
  Time start = 0;
  Time finish = kForever;
  Time host_synchronised = kForever;  ///< time at which the host synchronised with its end
};

struct Launch {
  const KernelRecord* kernel = nullptr;
  LaunchShape shape;
  Device* device = nullptr;
  StreamId stream = 0;
  struct alignas(128) ArgumentLine {  ///< has the alignment of a TensorMap
    std::byte bytes[128];
  };
  std::vector<ArgumentLine> args;
  std::shared_ptr<LaunchInfo> info;
  Uid first_uid = 0;
  // What the host knew when it enqueued the launch:
  Time enqueued = 0;
  Time quiet = 0;       ///< all threads know all writes up to this time
  ClockRef host_known;  ///< what the devices that the host has synchronised with knew of others
  int live_blocks = 0;
  int copies = 0;  ///< in flight
  bool failed = false;
  std::vector<Block> blocks;
  std::unique_ptr<Thread[]> threads;
  int thread_count = 0;
  std::shared_ptr<LaunchTrace> trace;  ///< null: it records nothing
};

struct WorkItem {
  enum class Kind : std::uint8_t { launch, host, delay };
  Kind kind = Kind::host;
  std::unique_ptr<Launch> launch;
  std::function<void()> host;
  std::uint64_t nanoseconds = 0;  ///< of a delay: its length; after it has started: its end
  bool started = false;
};

struct StreamQueue {
  std::deque<WorkItem> items;
  Status error;  ///< reported by the next synchronize()
};

struct Multiprocessor {
  int threads = 0;
  std::size_t shared_bytes = 0;
  std::uint32_t slots = 0;  ///< mask of slots in use
};

struct Device {
  TargetKind personality = TargetKind::kEmuSm90;
  int ordinal = 0;
  int index = 0;  ///< region of the arena
  MachineShape shape;
  std::vector<Multiprocessor> multiprocessors;
  std::map<StreamId, StreamQueue> streams;
  StreamId next_stream = 1;
  ClockRef known;                                           ///< what its finished launches knew of other devices
  std::vector<std::shared_ptr<LaunchInfo>> unsynchronised;  ///< finished launches that the host has not waited for
  std::vector<Launch*> running;
  bool tracing = false;
  std::vector<std::shared_ptr<LaunchTrace>> traces;

  bool sm90() const { return personality == TargetKind::kEmuSm90; }
};

}  // namespace farwarp::emu
