// The async proxy of sm90: bulk and tensor copies. A copy reads its source and writes its destination at two moments
// that the schedule chooses, at the latest when a thread waits for them.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "farwarp/substrate/emu/async_proxy.h"
#include "farwarp/substrate/emu/engine.h"
#include "farwarp/substrate/emu/knowledge.h"
#include "farwarp/substrate/emu/machine.h"
#include "farwarp/substrate/emu/tensor_map.h"

namespace farwarp::emu {
namespace {

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
    Mbarrier& barrier = *find_mbarrier(block, copy.barrier);
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
  const Mbarrier& barrier = checked_mbarrier(thread, address);
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

TensorMap encode(const TensorMapDesc& desc) {
  const EncodedTensorMap encoded{EncodedTensorMap::kMagic, desc};
  TensorMap map{};
  std::memcpy(map.words, &encoded, sizeof(encoded));
  return map;
}

// ---- copies ---------------------------------------------------------------------------------------------------------

void bulk_load(void* shared_destination, const void* source, int bytes, void* address) {
  Thread& thread = enter_async_proxy("bulk_load");
  check_copy(thread, "bulk_load", shared_destination, source, bytes, true);
  issue_load(thread, shared_destination, run_of(const_cast<void*>(source), bytes), address, "bulk_load");
}

void bulk_store(void* peer_destination, const void* shared_source, int bytes) {
  Thread& thread = enter_async_proxy("bulk_store");
  check_copy(thread, "bulk_store", shared_source, peer_destination, bytes, false);
  issue_store(thread, shared_source, run_of(peer_destination, bytes));
}

void tensor_load(void* shared_destination, const TensorMap& map, GridIndex matrix, int row, int column, void* address) {
  Thread& thread = enter_async_proxy("tensor_load");
  const CopyBox box = box_of(thread, "tensor_load", map, matrix, row, column, shared_destination, true);
  issue_load(thread, shared_destination, box, address, "tensor_load");
}

void tensor_store(const TensorMap& map, int row, int column, const void* shared_source) {
  Thread& thread = enter_async_proxy("tensor_store");
  if (row < 0 || column < 0)
    engine().fault(fmt::format("tensor_store: the box begins at ({}, {}): a store's may not be negative", row, column));
  issue_store(thread, shared_source, box_of(thread, "tensor_store", map, {}, row, column, shared_source, false));
}

void bulk_commit() { ++enter_async_proxy("bulk_commit").open_group; }

void bulk_wait_read(int pending) {
  Thread& thread = enter_async_proxy("bulk_wait_read");
  for (const auto& copy : thread.block->copies) {
    if (copy->issuer == &thread && !copy->barrier && copy->group < thread.open_group - pending && !copy->captured)
      capture_source(*copy);
  }
}

void bulk_wait_all(int pending) {
  Thread& thread = enter_async_proxy("bulk_wait_all");
  for (std::size_t i = 0; i < thread.block->copies.size();) {
    BulkCopy& copy = *thread.block->copies[i];
    if (copy.issuer != &thread || copy.barrier || copy.group >= thread.open_group - pending) {
      ++i;
      continue;
    }
    if (!copy.captured) capture_source(copy);
    finish_copy(copy);
    remove_copy(*thread.block, copy.id);
  }
  if (thread.open_group > pending) own_copies_done(thread, engine().schedule.now());
}

void proxy_fence() {
  Thread& thread = enter_async_proxy("proxy_fence");
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
  end_trace(block);
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
