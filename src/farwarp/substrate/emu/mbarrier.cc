// The mbarriers of sm90.
#include <fmt/format.h>

#include <algorithm>

#include "farwarp/substrate/emu/async_proxy.h"
#include "farwarp/substrate/emu/engine.h"
#include "farwarp/substrate/emu/knowledge.h"

namespace farwarp::emu {
namespace {

constexpr std::uint64_t kBarrierWord = 0xba7717e2ba7717e2ull;  ///< what an mbarrier's memory holds: opaque to loads

}  // namespace

Thread& enter_async_proxy(const char* function) {
  Engine& the_engine = engine();
  the_engine.step();
  Thread& thread = the_engine.running();
  if (!thread.launch->device->sm90())
    the_engine.fault(fmt::format("{}: this target has no bulk copies (Target::kHasBulkCopy)", function));
  return thread;
}

void check_in_shared(Thread& thread, const void* address, std::size_t bytes, const char* what) {
  const auto offset = static_cast<std::size_t>(static_cast<const std::byte*>(address) - thread.shared);
  if (offset + bytes > thread.launch->shape.shared_bytes || offset + bytes < bytes) {
    engine().fault(
        fmt::format("{}: {} bytes at {} are not in the block's shared memory", what, bytes, fmt::ptr(address)));
  }
}

Mbarrier* find_mbarrier(Block& block, const void* address) {
  const auto it = std::find_if(block.mbarriers.begin(), block.mbarriers.end(),
                               [address](const Mbarrier& b) { return b.address == address; });
  return it == block.mbarriers.end() ? nullptr : &*it;
}

Mbarrier& checked_mbarrier(Thread& thread, const void* address) {
  Engine& the_engine = engine();
  Mbarrier* barrier = find_mbarrier(*thread.block, address);
  if (barrier == nullptr)
    the_engine.fault(fmt::format("used an mbarrier that was not initialised ({})", the_engine.arena.describe(address)));
  if (!knows(thread, Stamp(barrier->initialiser, barrier->initialised_at, 0))) {
    the_engine.fault("used an mbarrier before something ordered its initialisation");
  }
  return *barrier;
}

void maybe_complete(Mbarrier& barrier, Uid by) {
  if (barrier.pending > 0 || barrier.bytes != 0) return;
  Engine& the_engine = engine();
  ++barrier.phase;
  barrier.pending = barrier.arrivals;
  barrier.completed_known = join(barrier.completed_known, barrier.known);
  barrier.completed_published = join(barrier.completed_published, barrier.published);
  barrier.known = barrier.published = {};
  const Granule granule = the_engine.arena.granule_of(barrier.address);
  Shadow& shadow = the_engine.arena.shadow_at(granule);
  shadow.stamp = Stamp(by, the_engine.schedule.now(), Stamp::kStrong | shadow.stamp.flags(Stamp::kWatched));
  if (shadow.stamp.has(Stamp::kWatched)) the_engine.wake_watchers(granule);
}

void mbarrier_init(void* address, int arrivals) {
  Thread& thread = enter_async_proxy("mbarrier_init");
  Engine& the_engine = engine();
  check_in_shared(thread, address, 8, "mbarrier_init");
  if (arrivals < 1) the_engine.fault(fmt::format("mbarrier_init: arrivals is {}, must be at least 1", arrivals));
  write(address, kBarrierWord, {.space = Space::shared, .bytes = 8});
  std::erase_if(thread.block->mbarriers, [address](const Mbarrier& b) { return b.address == address; });
  Mbarrier barrier;
  barrier.address = address;
  barrier.arrivals = barrier.pending = arrivals;
  barrier.initialiser = thread.uid;
  barrier.initialised_at = the_engine.schedule.now();
  thread.block->mbarriers.push_back(barrier);
}

void mbarrier_init_fence() {
  Thread& thread = enter_async_proxy("mbarrier_init_fence");
  for (Mbarrier& barrier : thread.block->mbarriers) barrier.fenced |= barrier.initialiser == thread.uid;
}

void mbarrier_arrive_expect(void* address, int bytes) {
  Thread& thread = enter_async_proxy("mbarrier_arrive_expect");
  Mbarrier& barrier = checked_mbarrier(thread, address);
  if (barrier.pending == 0) engine().fault("mbarrier_arrive_expect: more arrivals than the phase has");
  if (bytes < 0) engine().fault(fmt::format("mbarrier_arrive_expect: bytes is {}, must not be negative", bytes));
  const SnapshotRef released = snapshot(thread, Scope::block, engine().schedule.now());
  barrier.known = join(barrier.known, released->known);
  barrier.published = join(barrier.published, released->published);
  --barrier.pending;
  barrier.bytes += bytes;
  maybe_complete(barrier, thread.uid);
}

bool mbarrier_test(void* address, std::uint32_t parity) {
  Thread& thread = enter_async_proxy("mbarrier_test");
  const Mbarrier& barrier = checked_mbarrier(thread, address);
  if ((barrier.phase & 1) == parity) return false;
  acquire_clocks(thread, barrier.completed_known, barrier.completed_published);
  return true;
}

}  // namespace farwarp::emu
