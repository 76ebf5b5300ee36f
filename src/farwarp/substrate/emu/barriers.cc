// Barriers of blocks and clusters, and operations of warps.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <utility>

#include "farwarp/substrate/emu/engine.h"
#include "farwarp/substrate/emu/knowledge.h"

namespace farwarp::emu {
namespace {

void check_warp_not_divided(Thread& thread) {
  if (thread.warp->arrived != 0) {
    engine().fault(fmt::format("reached a block barrier while {} lanes of its warp wait in a warp operation",
                               std::popcount(thread.warp->arrived)));
  }
}

void release_block(Block& block, Thread& last) {
  Engine& the_engine = engine();
  the_engine.note_progress();
  barrier_met(block, the_engine.schedule.now());
  block.arrived = 0;
  block.barrier = Wait::none;
  block.any_result = std::exchange(block.any, false);
  for (int i = 0; i < block.threads; ++i) {
    if (&block.first[i] != &last) the_engine.schedule.make_ready(block.first[i]);
  }
}

void arrive_at_block(Wait kind, bool predicate, const void* site) {
  Engine& the_engine = engine();
  the_engine.step();
  Thread& thread = the_engine.running();
  Block& block = *thread.block;
  check_warp_not_divided(thread);
  if (block.live < block.threads)
    the_engine.fault(
        fmt::format("at a barrier that {} threads of its block exited before", block.threads - block.live));
  if (block.arrived > 0 && block.barrier != kind)
    the_engine.fault("reached block_sync while others of its block wait in block_any, or the reverse");
  block.barrier = kind;
  block.any |= predicate;
  if (++block.arrived == block.threads) {
    release_block(block, thread);
  } else {
    the_engine.block(kind, site);
  }
}

/// A step of the running thread, and the barrier, which no thread uses otherwise at this time.
NamedBarrier& enter_group(const char* function, int number, int threads) {
  Engine& the_engine = engine();
  the_engine.step();
  Thread& thread = the_engine.running();
  Block& block = *thread.block;
  const int lanes = std::popcount(thread.warp->present);
  if (!thread.launch->device->sm90())
    the_engine.fault(fmt::format("{}: this target has no numbered barriers", function));
  if (number < 1 || number > 15 || threads < lanes || threads % lanes != 0 || threads > block.threads) {
    the_engine.fault(
        fmt::format("{}: number is {}, threads is {}; allowed: 1 to 15, and whole warps of {} up to the block's {}",
                    function, number, threads, lanes, block.threads));
  }
  NamedBarrier& barrier = block.named_barriers[static_cast<std::size_t>(number)];
  if (barrier.threads != 0 && barrier.threads != threads) {
    the_engine.fault(fmt::format("{} {} for {} threads, while others of its block wait in it for {}", function, number,
                                 threads, barrier.threads));
  }
  if (std::find(barrier.passed.begin(), barrier.passed.end(), &thread) != barrier.passed.end())
    the_engine.fault(
        fmt::format("{} {}: the thread has arrived before, and the barrier is not complete", function, number));
  barrier.threads = threads;
  return barrier;
}

/// The warps of these threads, which must be all their lanes.
std::vector<Warp*> whole_warps(const std::vector<Thread*>& threads, int lanes, int number) {
  std::vector<Warp*> warps;
  for (const Thread* thread : threads) {
    if (thread->lane_index == 0) warps.push_back(thread->warp);
  }
  if (warps.size() * static_cast<std::size_t>(lanes) != threads.size())
    engine().fault(fmt::format("group_sync {}: {} threads came, but not as whole warps", number, threads.size()));
  return warps;
}

/// True if all threads have arrived. Those that wait then learn what all have done, and are ready; the barrier can be
/// used again.
bool complete_group(NamedBarrier& barrier, int number) {
  Engine& the_engine = engine();
  const Thread& running = the_engine.running();
  if (static_cast<int>(barrier.waiting.size() + barrier.passed.size()) < barrier.threads) return false;
  the_engine.note_progress();
  const int lanes = std::popcount(running.warp->present);
  whole_warps(barrier.passed, lanes, number);
  barrier_met(*running.block, whole_warps(barrier.waiting, lanes, number), the_engine.schedule.now());
  for (Thread* thread : barrier.waiting) {
    if (!barrier.passed.empty()) acquire_clocks(*thread, barrier.known, barrier.published);
    if (thread != &running) the_engine.schedule.make_ready(*thread);
  }
  barrier = {};
  return true;
}

ClusterBarrier& barrier_of_cluster(const Thread& thread) {
  const int first = thread.block_index / thread.launch->shape.cluster * thread.launch->shape.cluster;
  return thread.launch->blocks[static_cast<std::size_t>(first)].cluster;
}

}  // namespace

void block_sync() { arrive_at_block(Wait::block_sync, false, __builtin_return_address(0)); }

bool block_any(bool predicate) {
  arrive_at_block(Wait::block_any, predicate, __builtin_return_address(0));
  return engine().running().block->any_result;
}

void group_sync(int number, int threads) {
  check_warp_not_divided(engine().running());
  NamedBarrier& barrier = enter_group("group_sync", number, threads);
  barrier.waiting.push_back(&engine().running());
  if (!complete_group(barrier, number)) engine().block(Wait::group_sync, __builtin_return_address(0));
}

void group_arrive(int number, int threads) {
  NamedBarrier& barrier = enter_group("group_arrive", number, threads);
  Thread& thread = engine().running();
  barrier.passed.push_back(&thread);
  const SnapshotRef released = snapshot(thread, Scope::block, engine().schedule.now());
  barrier.known = join(barrier.known, released->known);
  barrier.published = join(barrier.published, released->published);
  complete_group(barrier, number);
}

int cluster_rank() {
  const Thread& thread = engine().running();
  return thread.block_index % thread.launch->shape.cluster;
}

void* place_in_cluster(void* address, int rank) {
  Engine& the_engine = engine();
  const Thread& thread = the_engine.running();
  const LaunchShape& shape = thread.launch->shape;
  if (thread.cluster_phases == (thread.in_cluster_barrier ? 1u : 0u))
    the_engine.fault(
        "store_at: before the thread has waited at the cluster's barrier, other blocks may not have begun");
  if (rank < 0 || rank >= shape.cluster)
    the_engine.fault(fmt::format("store_at: rank is {}, the cluster has {} blocks", rank, shape.cluster));
  const auto offset = static_cast<std::size_t>(static_cast<std::byte*>(address) - thread.shared);
  if (offset >= shape.shared_bytes)
    the_engine.fault(fmt::format("store_at: {} is not in the block's shared memory", fmt::ptr(address)));
  const Block& block =
      thread.launch->blocks[static_cast<std::size_t>(thread.block_index / shape.cluster * shape.cluster + rank)];
  if (block.live == 0) the_engine.fault(fmt::format("store_at: block {} of the cluster has ended", rank));
  return block.shared + offset;
}

void cluster_arrive(Order order) {
  Engine& the_engine = engine();
  the_engine.step();
  Thread& thread = the_engine.running();
  if (thread.in_cluster_barrier) the_engine.fault("cluster_arrive: the thread has arrived before, and not waited");
  thread.in_cluster_barrier = true;
  ++thread.cluster_phases;
  ClusterBarrier& barrier = barrier_of_cluster(thread);
  if (order == Order::release) {
    const SnapshotRef released = snapshot(thread, Scope::device, the_engine.schedule.now());
    barrier.known = join(barrier.known, released->known);
    barrier.published = join(barrier.published, released->published);
  }
  if (++barrier.arrived < thread.launch->shape.cluster * thread.block->threads) return;
  the_engine.note_progress();
  barrier.arrived = 0;
  ++barrier.phase;
  barrier.completed_known = join(barrier.completed_known, std::exchange(barrier.known, {}));
  barrier.completed_published = join(barrier.completed_published, std::exchange(barrier.published, {}));
  for (Thread* waiting : std::exchange(barrier.waiting, {})) the_engine.schedule.make_ready(*waiting);
}

void cluster_wait() {
  Engine& the_engine = engine();
  the_engine.step();
  Thread& thread = the_engine.running();
  if (!thread.in_cluster_barrier) the_engine.fault("cluster_wait: the thread has not arrived");
  thread.in_cluster_barrier = false;
  ClusterBarrier& barrier = barrier_of_cluster(thread);
  if (barrier.phase < thread.cluster_phases) {
    barrier.waiting.push_back(&thread);
    the_engine.block(Wait::cluster, __builtin_return_address(0));
  }
  acquire_clocks(thread, barrier.completed_known, barrier.completed_published);
}

WarpValues warp_exchange(WarpOp operation, std::uint64_t value) {
  Engine& the_engine = engine();
  the_engine.step();
  Thread& thread = the_engine.running();
  Warp& warp = *thread.warp;
  if (warp.live != warp.present) {
    the_engine.fault(fmt::format("in a warp operation that {} lanes of its warp exited before",
                                 std::popcount(warp.present & ~warp.live)));
  }
  if (warp.arrived != 0 && warp.threads[std::countr_zero(warp.arrived)].warp_op != operation)
    the_engine.fault("lanes of the warp are in different warp operations");
  for (std::uint64_t others = warp.live & ~warp.arrived & ~warp.runnable; others != 0; others &= others - 1) {
    const Wait wait = warp.threads[std::countr_zero(others)].wait;
    if (wait == Wait::block_sync || wait == Wait::block_any || wait == Wait::group_sync || wait == Wait::cluster) {
      the_engine.fault(fmt::format("in a warp operation while lane {} of its warp waits at a block barrier",
                                   std::countr_zero(others)));
    }
  }
  const auto& values = warp.values[static_cast<std::size_t>(warp.parity)];
  warp.values[static_cast<std::size_t>(warp.parity)][static_cast<std::size_t>(thread.lane_index)] = value;
  thread.warp_op = operation;
  warp.arrived |= std::uint64_t{1} << thread.lane_index;
  if (warp.arrived != warp.present) {
    the_engine.block(Wait::warp, __builtin_return_address(0));
  } else {
    if (operation == WarpOp::sync)
      barrier_met(warp, the_engine.schedule.now());  // the other operations exchange registers and order no memory
    the_engine.note_progress();
    warp.arrived = 0;
    warp.parity ^= 1;
    for (std::uint64_t others = warp.present & ~(std::uint64_t{1} << thread.lane_index); others != 0;
         others &= others - 1) {
      the_engine.schedule.make_ready(warp.threads[std::countr_zero(others)]);
    }
  }
  return {values.data(), warp.present};
}

void fault_bad_lane(int source_lane) {
  engine().fault(fmt::format("shuffle from lane {}, which its warp does not have", source_lane));
}

}  // namespace farwarp::emu
