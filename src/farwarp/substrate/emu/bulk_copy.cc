// The async proxy of sm90: bulk and tensor copies, and mbarriers. A copy reads its source and writes its destination at two moments
// that the schedule chooses, at the latest when a thread waits for them.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "farwarp/substrate/emu/engine.h"
#include "farwarp/substrate/emu/knowledge.h"
#include "farwarp/substrate/emu/machine.h"
#include "farwarp/substrate/emu/tensor_map.h"

namespace farwarp::emu {
namespace {

constexpr std::uint64_t kBarrierWord = 0xba7717e2ba7717e2ull;  ///< what an mbarrier's memory holds: opaque to loads

/// The running thread, after a step. A fault if the personality has no async proxy.
Thread& enter(const char* function) {
  Engine& the_engine = engine();
  the_engine.step();
  Thread& thread = the_engine.running();
  if (!thread.launch->device->sm90())
    the_engine.fault(fmt::format("{}: this target has no bulk copies (Target::kHasBulkCopy)", function));
  return thread;
}

Mbarrier* find_barrier(Block& block, const void* address) {
  const auto it = std::find_if(block.mbarriers.begin(), block.mbarriers.end(),
                               [address](const Mbarrier& b) { return b.address == address; });
  return it == block.mbarriers.end() ? nullptr : &*it;
}

Mbarrier& checked_barrier(Thread& thread, const void* address) {
  Engine& the_engine = engine();
  Mbarrier* barrier = find_barrier(*thread.block, address);
  if (barrier == nullptr)
    the_engine.fault(fmt::format("used an mbarrier that was not initialised ({})", the_engine.arena.describe(address)));
  if (!knows(thread, Stamp(barrier->initialiser, barrier->initialised_at, 0))) {
    the_engine.fault("used an mbarrier before something ordered its initialisation");
  }
  return *barrier;
}

void check_in_shared(Thread& thread, const void* address, std::size_t bytes, const char* what) {
  const auto offset = static_cast<std::size_t>(static_cast<const std::byte*>(address) - thread.shared);
  if (offset + bytes > thread.launch->shape.shared_bytes || offset + bytes < bytes) {
    engine().fault(
        fmt::format("{}: {} bytes at {} are not in the block's shared memory", what, bytes, fmt::ptr(address)));
  }
}

void check_copy(Thread& thread, const char* what, const void* in_shared, const void* outside, int bytes,
                bool own_device_only) {
  Engine& the_engine = engine();
  const auto bits = reinterpret_cast<std::uintptr_t>(in_shared) | reinterpret_cast<std::uintptr_t>(outside) |
                    static_cast<std::uintptr_t>(bytes);
  if (bytes <= 0 || bits % 16 != 0) {
    the_engine.fault(fmt::format(
        "{}: size and addresses must be positive multiples of 16; size {}, shared address {}, other address {}", what,
        bytes, fmt::ptr(in_shared), fmt::ptr(outside)));
  }
  check_in_shared(thread, in_shared, static_cast<std::size_t>(bytes), what);
  const Allocation* allocation = the_engine.arena.find(outside, static_cast<std::size_t>(bytes));
  if (allocation == nullptr || (own_device_only && allocation->device != thread.launch->device->index)) {
    the_engine.fault(fmt::format("{} out of bounds: {} bytes at {} ({})", what, bytes, fmt::ptr(outside),
                                 the_engine.arena.describe(outside)));
  }
}

/// Completes the phase if all threads and all bytes have arrived.
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

/// A load copies to the block's shared memory, a store from it.
bool is_load(const BulkCopy& copy) { return copy.barrier != nullptr; }

std::uint64_t capture_word(const BulkCopy& copy, const std::byte* address) {
  Engine& the_engine = engine();
  const Thread& issuer = *copy.issuer;
  const Granule granule = the_engine.arena.granule_of(address);
  const Shadow& shadow = the_engine.arena.shadow_at(granule);
  // What the async proxy wrote for this block needs no proxy fence; all other writes do.
  const bool own_proxy = shadow.stamp.has(Stamp::kAsync) && block_uid(shadow.stamp.uid()) == issuer.block->uid;
  const bool known =
      the_engine.several_processes || covers(issuer, own_proxy ? copy.seen : copy.published, shadow.stamp);
  if (!known && the_engine.arena.word_at(granule) != shadow.previous)
    the_engine.note_race(issuer, Engine::Reading::bulk_copy, address, 8, shadow.stamp);
  const bool newest = known || the_engine.schedule.sees_weak(issuer.uid, granule, shadow.stamp.time());
  return newest ? the_engine.arena.word_at(granule) : shadow.previous;
}

void capture_source(BulkCopy& copy) {
  copy.data.reserve(2 * static_cast<std::size_t>(copy.box.units()));
  for (int unit = 0; unit < copy.box.units(); ++unit) {
    const std::byte* const source = is_load(copy) ? copy.box.outside(unit) : copy.shared + copy.box.offset(unit);
    for (int word = 0; word < 2; ++word)  // elements outside the matrix are zeros
      copy.data.push_back(source == nullptr ? 0 : capture_word(copy, source + 8 * word));
  }
  copy.captured = true;
}

void write_word(const BulkCopy& copy, std::byte* address, std::uint64_t value, Time now) {
  Engine& the_engine = engine();
  const Granule granule = the_engine.arena.granule_of(address);
  Shadow& shadow = the_engine.arena.shadow_at(granule);
  const bool is_watched = shadow.stamp.has(Stamp::kWatched);
  shadow.previous = the_engine.arena.word_at(granule);
  __atomic_store_n(&the_engine.arena.word_at(granule), value, __ATOMIC_RELEASE);
  shadow.stamp = Stamp(copy.issuer->uid, now, Stamp::kAsync | shadow.stamp.flags(Stamp::kWatched));
  if (is_watched) the_engine.wake_watchers(granule);
}

void write_destination(const BulkCopy& copy, Time now) {
  engine().note_progress();
  for (int unit = 0; unit < copy.box.units(); ++unit) {
    std::byte* const destination = is_load(copy) ? copy.shared + copy.box.offset(unit) : copy.box.outside(unit);
    if (destination == nullptr) continue;
    for (int word = 0; word < 2; ++word)
      write_word(copy, destination + 8 * word, copy.data[static_cast<std::size_t>(2 * unit + word)], now);
  }
}

void finish_copy(BulkCopy& copy) {
  Engine& the_engine = engine();
  Block& block = *copy.issuer->block;
  const Time now = the_engine.schedule.now();
  write_destination(copy, now);
  if (copy.barrier) {
    Mbarrier& barrier = *find_barrier(block, copy.barrier);
    const std::vector<ClockEntry> written{{async_key(copy.issuer->uid), now}};
    barrier.known = with(barrier.known, written);
    barrier.published = with(barrier.published, written);
    barrier.bytes -= copy.box.bytes();
    maybe_complete(barrier, copy.issuer->uid);
  }
}

void remove_copy(Block& block, std::uint32_t id) {
  engine().copies.erase(id);
  --block.launch->copies;
  std::erase_if(block.copies, [id](const auto& copy) { return copy->id == id; });
}

CopyBox run_of(void* memory, int bytes) {
  return {.base = static_cast<std::byte*>(memory), .row_units = bytes / 16, .end_unit = bytes / 16};
}

/// The box of a tensor copy, checked.
CopyBox box_of(Thread& thread, const char* what, const TensorMap& map, GridIndex matrix, int row, int column,
               const void* in_shared, bool own_device_only) {
  Engine& the_engine = engine();
  const EncodedTensorMap encoded = decode(map);
  const auto& desc = encoded.desc;
  if (encoded.magic != EncodedTensorMap::kMagic)
    the_engine.fault(fmt::format("{}: not a map that Device::encode() made", what));
  if (column % 8 != 0) the_engine.fault(fmt::format("{}: column is {}, must be a multiple of 8", what, column));
  const bool has_grid = desc.grid[0] > 0, wants_grid = matrix.i != -1 || matrix.j != -1;
  if (has_grid != wants_grid)
    the_engine.fault(fmt::format("{}: the map has {} grid of matrices", what, has_grid ? "a" : "no"));
  const bool exists =
      !has_grid || (matrix.i >= 0 && matrix.i < desc.grid[0] && matrix.j >= 0 && matrix.j < desc.grid[1]);
  CopyBox box;
  box.pitch = desc.pitch * 2;
  box.base = static_cast<std::byte*>(desc.base) + row * box.pitch + column * std::int64_t{2};
  if (has_grid) box.base += 2 * (matrix.i * desc.grid_pitch[0] + matrix.j * desc.grid_pitch[1]);
  box.rows = desc.box_rows;
  box.row_units = desc.box_columns / 8;
  box.swizzled = desc.swizzled;
  const auto within = [](std::int64_t bound, int size) {
    return static_cast<int>(std::clamp<std::int64_t>(bound, 0, size));
  };
  box.first_row = within(-row, box.rows);
  box.end_row = exists ? within(desc.rows - row, box.rows) : box.first_row;
  box.first_unit = within(-column / 8, box.row_units);
  box.end_unit = within((desc.columns - column + 7) / 8, box.row_units);
  const auto alignment = desc.swizzled ? kSwizzleAlignment : 128;
  if (reinterpret_cast<std::uintptr_t>(in_shared) % static_cast<std::uintptr_t>(alignment) != 0)
    the_engine.fault(
        fmt::format("{}: shared address {} must be a multiple of {}", what, fmt::ptr(in_shared), alignment));
  check_in_shared(thread, in_shared, static_cast<std::size_t>(box.bytes()), what);
  if (box.first_row >= box.end_row || box.first_unit >= box.end_unit) return box;  // entirely outside the matrix
  for (const int at : {box.first_row, box.end_row - 1}) {
    const std::byte* const begin = box.outside(at * box.row_units + box.first_unit);
    check_copy(thread, what, in_shared, begin, 16 * (box.end_unit - box.first_unit), own_device_only);
  }
  return box;
}

void issue(Thread& thread, BulkCopy copy) {
  Engine& the_engine = engine();
  copy.id = the_engine.next_copy++;
  copy.issuer = &thread;
  copy.seen = thread.seen;
  copy.published = thread.published;
  the_engine.copies[copy.id] = thread.block;
  ++thread.launch->copies;
  the_engine.schedule.at(the_engine.schedule.now() + the_engine.schedule.copy_delay(), StepEvent::Kind::copy, copy.id);
  thread.block->copies.push_back(std::make_unique<BulkCopy>(std::move(copy)));
}

void issue_load(Thread& thread, void* shared_destination, const CopyBox& box, void* address, const char* what) {
  const Mbarrier& barrier = checked_barrier(thread, address);
  if (!barrier.fenced)
    engine().fault(fmt::format("{} on an mbarrier without mbarrier_init_fence() after its initialisation", what));
  engine().note_load(thread, box);
  BulkCopy copy;
  copy.shared = static_cast<std::byte*>(shared_destination);
  copy.box = box;
  copy.barrier = address;
  issue(thread, std::move(copy));
}

void issue_store(Thread& thread, const void* shared_source, const CopyBox& box) {
  BulkCopy copy;
  copy.shared = const_cast<std::byte*>(static_cast<const std::byte*>(shared_source));
  copy.box = box;
  copy.group = thread.open_group;
  issue(thread, std::move(copy));
}

}  // namespace

// ---- mbarriers ------------------------------------------------------------------------------------------------------

void mbarrier_init(void* address, int arrivals) {
  Thread& thread = enter("mbarrier_init");
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
  Thread& thread = enter("mbarrier_init_fence");
  for (Mbarrier& barrier : thread.block->mbarriers) barrier.fenced |= barrier.initialiser == thread.uid;
}

void mbarrier_arrive_expect(void* address, int bytes) {
  Thread& thread = enter("mbarrier_arrive_expect");
  Mbarrier& barrier = checked_barrier(thread, address);
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
  Thread& thread = enter("mbarrier_test");
  const Mbarrier& barrier = checked_barrier(thread, address);
  if ((barrier.phase & 1) == parity) return false;
  acquire_clocks(thread, barrier.completed_known, barrier.completed_published);
  return true;
}

TensorMap encode(const TensorMapDesc& desc) {
  const EncodedTensorMap encoded{EncodedTensorMap::kMagic, desc};
  TensorMap map{};
  std::memcpy(map.words, &encoded, sizeof(encoded));
  return map;
}

// ---- copies ---------------------------------------------------------------------------------------------------------

void bulk_load(void* shared_destination, const void* source, int bytes, void* address) {
  Thread& thread = enter("bulk_load");
  check_copy(thread, "bulk_load", shared_destination, source, bytes, true);
  issue_load(thread, shared_destination, run_of(const_cast<void*>(source), bytes), address, "bulk_load");
}

void bulk_store(void* peer_destination, const void* shared_source, int bytes) {
  Thread& thread = enter("bulk_store");
  check_copy(thread, "bulk_store", shared_source, peer_destination, bytes, false);
  issue_store(thread, shared_source, run_of(peer_destination, bytes));
}

void tensor_load(void* shared_destination, const TensorMap& map, GridIndex matrix, int row, int column, void* address) {
  Thread& thread = enter("tensor_load");
  const CopyBox box = box_of(thread, "tensor_load", map, matrix, row, column, shared_destination, true);
  issue_load(thread, shared_destination, box, address, "tensor_load");
}

void tensor_store(const TensorMap& map, int row, int column, const void* shared_source) {
  Thread& thread = enter("tensor_store");
  if (row < 0 || column < 0)
    engine().fault(fmt::format("tensor_store: the box begins at ({}, {}): a store's may not be negative", row, column));
  issue_store(thread, shared_source, box_of(thread, "tensor_store", map, {}, row, column, shared_source, false));
}

void bulk_commit() { ++enter("bulk_commit").open_group; }

void bulk_wait_read(int pending) {
  Thread& thread = enter("bulk_wait_read");
  for (const auto& copy : thread.block->copies) {
    if (copy->issuer == &thread && !copy->barrier && copy->group < thread.open_group - pending && !copy->captured)
      capture_source(*copy);
  }
}

void bulk_wait_all() {
  Thread& thread = enter("bulk_wait_all");
  for (std::size_t i = 0; i < thread.block->copies.size();) {
    BulkCopy& copy = *thread.block->copies[i];
    if (copy.issuer != &thread || copy.barrier || copy.group >= thread.open_group) {
      ++i;
      continue;
    }
    if (!copy.captured) capture_source(copy);
    finish_copy(copy);
    remove_copy(*thread.block, copy.id);
  }
  if (thread.open_group > 0) own_copies_done(thread, engine().schedule.now());
}

void proxy_fence() {
  Thread& thread = enter("proxy_fence");
  proxy_fenced(thread, engine().schedule.now());
}

// ---- the engine's side ----------------------------------------------------------------------------------------------

/// Called when the schedule reaches the copy's next step.
void Engine::advance_copy(std::uint32_t id) {
  const auto found = copies.find(id);
  if (found == copies.end()) return;  // a wait has executed it already, or its launch has been removed
  Block& block = *found->second;
  BulkCopy& copy =
      **std::find_if(block.copies.begin(), block.copies.end(), [id](const auto& c) { return c->id == id; });
  if (!copy.captured) {
    capture_source(copy);
    schedule.at(schedule.now() + schedule.copy_delay(), StepEvent::Kind::copy, id);
    return;
  }
  Launch& launch = *block.launch;
  finish_copy(copy);
  remove_copy(block, id);
  if (launch.live_blocks == 0 && launch.copies == 0) finish_launch(launch);
}

/// All threads of the block have exited: its shared memory may be given to another block.
void Engine::check_block_end(Block& block) {
  for (const auto& copy : block.copies) {
    if (copy->barrier || !copy->captured) {
      fault(*block.launch, fmt::format("{}: exited with a bulk {} of {} bytes outstanding that still {} shared memory",
                                       where(*copy->issuer), copy->barrier ? "load" : "store", copy->box.bytes(),
                                       copy->barrier ? "writes" : "reads"));
      return;
    }
  }
  for (const Warpgroup& group : block.warpgroups) {
    if (!group.ops.empty()) {
      fault(*block.launch, fmt::format("{}: exited without waiting for its last wgmma", where(*group.first)));
      return;
    }
  }
  for (const Mbarrier& barrier : block.mbarriers) {
    if (barrier.bytes != 0) {
      fault(*block.launch,
            fmt::format("{}: exited while the mbarrier at byte {} of its shared memory still waits for {} bytes",
                        where(*block.first), static_cast<std::byte*>(barrier.address) - block.shared, barrier.bytes));
      return;
    }
  }
}

void Engine::drop_copies(Launch& launch) {
  for (Block& block : launch.blocks) {
    for (const auto& copy : block.copies) copies.erase(copy->id);
    block.copies.clear();
    for (const Warpgroup& group : block.warpgroups) {
      for (const MatrixOp& op : group.ops) matrix_ops.erase(op.id);
    }
  }
  launch.copies = 0;
}

}  // namespace farwarp::emu
