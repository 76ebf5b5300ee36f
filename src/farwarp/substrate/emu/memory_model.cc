// Loads, stores, read-modify-writes and fences. A granule keeps its newest and its previous value. What the reader
// knows (knowledge.h) decides which of them a load returns; for atomic stores also the time since the store.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "farwarp/substrate/emu/engine.h"
#include "farwarp/substrate/emu/knowledge.h"

namespace farwarp::emu {
namespace {

/// Bytes of the granule that an access touches.
struct Part {
  int shift;
  std::uint64_t mask;
  Part(const void* address, unsigned bytes)
      : shift(static_cast<int>(reinterpret_cast<std::uintptr_t>(address) & 7) * 8),
        mask(bytes == 8 ? ~std::uint64_t{0} : (std::uint64_t{1} << 8 * bytes) - 1) {}
  std::uint64_t extract(std::uint64_t granule) const { return granule >> shift & mask; }
};

std::uint64_t word_of(const void* address) { return reinterpret_cast<std::uintptr_t>(address) / 4; }
int words_of(Access access) { return access.bytes == 8 ? 2 : 1; }

bool acquires(Order order) { return order == Order::acquire || order == Order::acq_rel; }
bool releases(Order order) { return order == Order::release || order == Order::acq_rel; }

[[noreturn]] void bad_access(const void* address, unsigned bytes, Space space, const char* why) {
  static constexpr const char* kSpaces[] = {"Shared", "Shared of the cluster", "Global", "Peer"};
  engine().fault(fmt::format("{}: {} access of {} bytes at {} ({})", why, kSpaces[static_cast<int>(space)], bytes,
                             fmt::ptr(address), engine().arena.describe(address)));
}

void check_access(const Thread& thread, const void* address, unsigned bytes, Space space) {
  if (reinterpret_cast<std::uintptr_t>(address) % bytes != 0) bad_access(address, bytes, space, "misaligned");
  if (space == Space::cluster) return;  // place_in_cluster() has checked the address
  if (space == Space::shared) {
    const auto offset = static_cast<std::size_t>(static_cast<const std::byte*>(address) - thread.shared);
    if (offset + bytes > thread.launch->shape.shared_bytes || offset + bytes < bytes)
      bad_access(address, bytes, space, "out of bounds");
    return;
  }
  const Allocation* allocation = engine().arena.find(address, bytes);
  if (allocation == nullptr) bad_access(address, bytes, space, "out of bounds");
  if (space == Space::global && allocation->device != thread.launch->device->index) {
    bad_access(address, bytes, space, "a Global pointer into another device's memory");
  }
}

void check_parkable(const Thread& thread, const void* address) {
  const auto offset = static_cast<std::size_t>(static_cast<const std::byte*>(address) - thread.shared);
  if (offset < thread.launch->shape.shared_bytes || engine().arena.find(address, 1) != nullptr) return;
  engine().fault(fmt::format("park on {} ({})", fmt::ptr(address), engine().arena.describe(address)));
}

/// True if an atomic access or the newest write has chiplet scope, but is of another XCD than the other, and nothing
/// has ordered them: each XCD's L2 may then have a line of its own.
bool misses_chiplet(const Thread& thread, Access access, Stamp stamp) {
  if (!access.strong || !(access.scope <= Scope::chiplet || stamp.has(Stamp::kChiplet))) return false;
  return !knows(thread, stamp) && !same_chiplet(thread, stamp.uid());
}

/// True if a load returns the granule's newest value, false if it returns the previous one.
bool sees_newest(const Thread& thread, Access access, Granule granule, Stamp stamp) {
  if (stamp.time() <= thread.launch->quiet) return true;
  const Engine& the_engine = engine();
  if (misses_chiplet(thread, access, stamp)) return the_engine.schedule.sees_weak(thread.uid, granule, stamp.time());
  return the_engine.visible_at(thread, granule, stamp) <= the_engine.schedule.now();
}

/// The release that guards the value that a load of this word has returned; null if none.
SnapshotRef record_of(std::uint64_t word, Stamp granule, bool newest) {
  if (!granule.has(Stamp::kRecord)) return {};
  const auto it = engine().records.find(word);
  if (it == engine().records.end()) return {};
  const bool before = !newest && it->second.written == granule.time();
  return before ? it->second.previous : it->second.newest;
}

/// Records a write of `words` words at `now`, guarded by `released` (null: by no release). Returns kRecord if the
/// granule has records.
std::uint64_t replace_records(std::uint64_t word, int words, Stamp granule, const SnapshotRef& released, Time now) {
  if (!released && !granule.has(Stamp::kRecord)) return 0;
  auto& records = engine().records;
  if (!granule.has(Stamp::kRecord)) {  // old records may remain from memory that was freed
    records.erase(word & ~std::uint64_t{1});
    records.erase(word | 1);
  }
  for (int i = 0; i < words; ++i) {
    WordRecord& record = records[word + static_cast<std::uint64_t>(i)];
    record.previous = std::exchange(record.newest, released);
    record.written = now;
  }
  return Stamp::kRecord;
}

/// Acquires what the release of a loaded value passes on: now, or for a relaxed load at the next acquire fence.
void pair_with(Thread& thread, const SnapshotRef& released, Access access) {
  if (!released) return;
  if (acquires(access.order)) {
    acquire(thread, *released, access.scope);
  } else if ((released->writer != thread.uid || released->sequence) &&
             (thread.unfenced.empty() || !(thread.unfenced.back() == released))) {
    constexpr std::size_t kMaxUnfenced = 256;  // bounds the list of a thread that never executes a fence
    if (thread.unfenced.size() == kMaxUnfenced)
      thread.unfenced.erase(thread.unfenced.begin(), thread.unfenced.begin() + kMaxUnfenced / 2);
    thread.unfenced.push_back(released);
  }
}

/// The knowledge that a write of this order passes on; null if none.
SnapshotRef released_by(Thread& thread, Access access, Time now) {
  if (!access.strong) return {};
  if (releases(access.order)) return snapshot(thread, access.scope, now);
  return thread.release_fence;
}

void put(void* address, unsigned bytes, std::uint64_t value) {
  // Atomic stores of the host, because another process may read the memory (Engine::several_processes).
  switch (bytes) {
    case 1:
      __atomic_store_n(static_cast<std::uint8_t*>(address), static_cast<std::uint8_t>(value), __ATOMIC_RELEASE);
      break;
    case 2:
      __atomic_store_n(static_cast<std::uint16_t*>(address), static_cast<std::uint16_t>(value), __ATOMIC_RELEASE);
      break;
    case 4:
      __atomic_store_n(static_cast<std::uint32_t*>(address), static_cast<std::uint32_t>(value), __ATOMIC_RELEASE);
      break;
    default: __atomic_store_n(static_cast<std::uint64_t*>(address), value, __ATOMIC_RELEASE); break;
  }
}

template <class Word>
std::uint64_t atomic_modify(void* address, Modify operation, std::uint64_t operand, std::uint64_t expected) {
  auto* word = static_cast<Word*>(address);
  switch (operation) {
    case Modify::add: return __atomic_fetch_add(word, static_cast<Word>(operand), __ATOMIC_ACQ_REL);
    case Modify::exchange: return __atomic_exchange_n(word, static_cast<Word>(operand), __ATOMIC_ACQ_REL);
    case Modify::compare_exchange: break;
  }
  auto old = static_cast<Word>(expected);
  __atomic_compare_exchange_n(word, &old, static_cast<Word>(operand), false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
  return old;
}

std::uint64_t flags_of(Access access) {
  if (!access.strong) return 0;
  return Stamp::kStrong | (access.scope <= Scope::chiplet ? Stamp::kChiplet : 0);
}

/// Stamps the granule after a write. `before`: its value before the write.
void stamp_write(Thread& thread, Shadow& shadow, Granule granule, std::uint64_t before, std::uint64_t flags, Time now) {
  engine().note_progress();
  shadow.previous = before;
  const bool is_watched = shadow.stamp.has(Stamp::kWatched);
  shadow.stamp = Stamp(thread.uid, now, flags | shadow.stamp.flags(Stamp::kWatched));
  if (is_watched) engine().wake_watchers(granule);
}

}  // namespace

// ---- accesses -------------------------------------------------------------------------------------------------------

std::uint64_t read(const void* address, Access access) {
  Engine& the_engine = engine();
  the_engine.step();
  Thread& thread = the_engine.running();
  check_access(thread, address, access.bytes, access.space);
  const Granule granule = the_engine.arena.granule_of(address);
  const Shadow& shadow = the_engine.arena.shadow_at(granule);
  const bool newest = sees_newest(thread, access, granule, shadow.stamp);
  if (access.strong) pair_with(thread, record_of(word_of(address), shadow.stamp, newest), access);
  const Part part(address, access.bytes);
  const std::uint64_t now_there = __atomic_load_n(&the_engine.arena.word_at(granule), __ATOMIC_ACQUIRE);
  const bool ordered = access.strong ? !misses_chiplet(thread, access, shadow.stamp) : knows(thread, shadow.stamp);
  if (!ordered && !the_engine.several_processes &&
      part.extract(now_there) != part.extract(shadow.previous)) {  // another part of the granule may have been written
    the_engine.note_race(thread, Engine::Reading::load, address, access.bytes, shadow.stamp);
  }
  return part.extract(newest ? now_there : shadow.previous);
}

void write(void* address, std::uint64_t value, Access access) {
  Engine& the_engine = engine();
  the_engine.step();
  Thread& thread = the_engine.running();
  check_access(thread, address, access.bytes, access.space);
  const Time now = the_engine.schedule.now();
  const Granule granule = the_engine.arena.granule_of(address);
  Shadow& shadow = the_engine.arena.shadow_at(granule);
  const std::uint64_t before = the_engine.arena.word_at(granule);
  const SnapshotRef released = released_by(thread, access, now);
  const std::uint64_t record = replace_records(word_of(address), words_of(access), shadow.stamp, released, now);
  note_store(thread, now, access.space != Space::shared && access.space != Space::cluster);
  put(address, access.bytes, value);
  stamp_write(thread, shadow, granule, before, record | flags_of(access), now);
}

std::uint64_t modify(void* address, Modify operation, std::uint64_t operand, std::uint64_t expected, Access access) {
  Engine& the_engine = engine();
  the_engine.step();
  Thread& thread = the_engine.running();
  check_access(thread, address, access.bytes, access.space);
  const Time now = the_engine.schedule.now();
  const Granule granule = the_engine.arena.granule_of(address);
  Shadow& shadow = the_engine.arena.shadow_at(granule);
  const std::uint64_t before = the_engine.arena.word_at(granule);
  const SnapshotRef guarding = record_of(word_of(address), shadow.stamp, true);
  pair_with(thread, guarding, access);
  if (!the_engine.several_processes && misses_chiplet(thread, access, shadow.stamp)) {
    the_engine.note_race(thread, Engine::Reading::load, address, access.bytes, shadow.stamp);
    if (!sees_newest(thread, access, granule,
                     shadow.stamp))  // this XCD's line is the older one, and its write-back wins
      put(address, access.bytes, Part(address, access.bytes).extract(shadow.previous));
  }
  const std::uint64_t old = access.bytes == 8 ? atomic_modify<std::uint64_t>(address, operation, operand, expected)
                                              : atomic_modify<std::uint32_t>(address, operation, operand, expected);
  if (operation == Modify::compare_exchange && old != (expected & Part(address, access.bytes).mask)) return old;
  // The write continues the release sequence that it read from.
  const SnapshotRef own = released_by(thread, access, now);
  const SnapshotRef released = own ? combine(guarding, own) : guarding;
  const std::uint64_t record = replace_records(word_of(address), words_of(access), shadow.stamp, released, now);
  stamp_write(thread, shadow, granule, before, record | flags_of(access), now);
  return old;
}

void read16(const void* address, std::uint64_t (&value)[2], Access access) {
  Engine& the_engine = engine();
  check_access(the_engine.running(), address, 16, access.space);
  const unsigned first = the_engine.schedule.options().adversarial ? the_engine.schedule.random().below(2) : 0;
  for (unsigned i = 0; i < 2; ++i) {
    const unsigned half = first ^ i;
    value[half] = read(static_cast<const std::byte*>(address) + 8 * half, access);
  }
}

void write16(void* address, const std::uint64_t (&value)[2], Access access) {
  Engine& the_engine = engine();
  check_access(the_engine.running(), address, 16, access.space);
  const unsigned first = the_engine.schedule.options().adversarial ? the_engine.schedule.random().below(2) : 0;
  for (unsigned i = 0; i < 2; ++i) {
    const unsigned half = first ^ i;
    write(static_cast<std::byte*>(address) + 8 * half, value[half], access);
  }
}

void prefetch(const void* address) { check_access(engine().running(), address, 1, Space::global); }

void fence(Order order, Scope scope) {
  Engine& the_engine = engine();
  the_engine.step();
  Thread& thread = the_engine.running();
  if (acquires(order)) {
    for (const SnapshotRef& released : thread.unfenced) acquire(thread, *released, scope);
    thread.unfenced.clear();
  }
  if (releases(order)) thread.release_fence = snapshot(thread, scope, the_engine.schedule.now());
}

void drain_stores() {
  Engine& the_engine = engine();
  the_engine.step();
  drained(the_engine.running(), the_engine.schedule.now());
}

// ---- clocks and waiting ---------------------------------------------------------------------------------------------

std::uint64_t nanoseconds() {
  engine().step();
  return engine().schedule.nanoseconds();
}

std::uint64_t cycles() { return nanoseconds(); }

Time Engine::visible_at(const Thread& thread, Granule granule, Stamp stamp) const {
  if (several_processes || covers(thread, thread.seen, stamp)) return stamp.time();
  if (stamp.has(Stamp::kStrong) && !(stamp.has(Stamp::kChiplet) && !same_chiplet(thread, stamp.uid())))
    return stamp.time() + schedule.visibility_delay(thread.uid, granule, stamp.time());
  return schedule.sees_weak(thread.uid, granule, stamp.time()) ? stamp.time() : kForever;
}

void park(const void* const* addresses, int used, std::uint64_t deadline) {
  Engine& the_engine = engine();
  Schedule& schedule = the_engine.schedule;
  Thread& thread = the_engine.running();
  schedule.step();
  // Sleep only if the polls cannot have missed a write.
  Time look_again = thread.learned ? schedule.now() : kForever;
  for (int i = 0; i < used; ++i) {
    check_parkable(thread, addresses[i]);
    const Granule granule = the_engine.arena.granule_of(addresses[i]);
    const Stamp stamp = the_engine.arena.shadow_at(granule).stamp;
    const Time visible = the_engine.visible_at(thread, granule, stamp);
    if (stamp.time() > thread.poll_since || visible > thread.poll_since) look_again = std::min(look_again, visible);
  }
  if (look_again <= schedule.now() || schedule.nanoseconds() >= deadline) {
    the_engine.yield();
  } else {
    thread.deadline_ns = deadline;
    the_engine.expect_deadline(deadline);
    thread.watches.reserve(static_cast<std::size_t>(used));  // they are linked by address
    for (int i = 0; i < used; ++i) the_engine.watch(thread, the_engine.arena.granule_of(addresses[i]));
    if (look_again != kForever) schedule.at(look_again, StepEvent::Kind::wake, thread.uid, thread.park_number);
    the_engine.block(Wait::parked, __builtin_return_address(0));
  }
  thread.poll_since = schedule.now();
  thread.learned = false;
}

void Engine::watch(Thread& thread, Granule granule) {
  for (const Watch& watch : thread.watches) {
    if (watch.granule == granule) return;
  }
  Watch*& head = watched[granule];
  Watch& watch = thread.watches.emplace_back(Watch{&thread, granule, head, nullptr});
  if (head) head->previous = &watch;
  head = &watch;
  arena.shadow_at(granule).stamp.set(Stamp::kWatched);
}

void Engine::unwatch(Thread& thread) {
  for (Watch& watch : thread.watches) {
    if (watch.next) watch.next->previous = watch.previous;
    if (watch.previous) {
      watch.previous->next = watch.next;
    } else if (watch.next) {
      watched[watch.granule] = watch.next;
    } else {
      watched.erase(watch.granule);
      arena.shadow_at(watch.granule).stamp.clear(Stamp::kWatched);
    }
  }
  thread.watches.clear();
}

/// Called after a write. Wakes the granule's watchers that see the write, and schedules the wake-up of those that see
/// it later.
void Engine::wake_watchers(Granule granule) {
  const auto found = watched.find(granule);
  if (found == watched.end()) return;
  const Stamp stamp = arena.shadow_at(granule).stamp;
  for (Watch* watch = found->second; watch != nullptr;) {
    Thread& thread = *watch->thread;
    watch = watch->next;
    const Time visible = visible_at(thread, granule, stamp);
    if (visible <= schedule.now()) {
      wake(thread);
    } else if (visible != kForever) {
      schedule.at(visible, StepEvent::Kind::wake, thread.uid, thread.park_number);
    }
  }
}

// ---- the host's writes ----------------------------------------------------------------------------------------------

namespace {

/// Marks a host write as known to all threads.
void forget_writers(Engine& the_engine, void* destination, std::size_t bytes) {
  if (bytes == 0 || !the_engine.arena.contains(destination)) return;
  if (the_engine.watched.empty()) {
    the_engine.arena.forget_writers(destination, bytes);
    return;
  }
  const Granule first = the_engine.arena.granule_of(destination);
  const Granule last = the_engine.arena.granule_of(static_cast<std::byte*>(destination) + bytes - 1);
  for (Granule granule = first; granule <= last; ++granule) {
    Shadow& shadow = the_engine.arena.shadow_at(granule);
    if (shadow.stamp.flags(~std::uint64_t{0}) == 0) continue;
    const bool is_watched = shadow.stamp.has(Stamp::kWatched);
    shadow.stamp = {};
    if (!is_watched) continue;
    shadow.stamp.set(Stamp::kWatched);
    the_engine.wake_watchers(granule);
  }
}

}  // namespace

void Engine::host_write(void* destination, const void* source, std::size_t bytes) {
  if (bytes == 0) return;  // pointers may be null
  HostLock held(*this);
  std::memcpy(destination, source, bytes);
  forget_writers(*this, destination, bytes);
}

void Engine::host_fill(void* destination, std::uint8_t byte, std::size_t bytes) {
  if (bytes == 0) return;
  HostLock held(*this);
  std::memset(destination, byte, bytes);
  forget_writers(*this, destination, bytes);
}

}  // namespace farwarp::emu
