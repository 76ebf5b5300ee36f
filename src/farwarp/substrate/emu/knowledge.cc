#include "farwarp/substrate/emu/knowledge.h"

#include <algorithm>
#include <bit>

#include "farwarp/substrate/emu/engine.h"

namespace farwarp::emu {
namespace {

bool sm90(const Thread& thread) { return thread.launch->device->sm90(); }
Uid warp_of(Uid uid) { return uid & ~Uid{63}; }

/// The time up to which all of the thread's own stores are published.
Time published_until(const Thread& thread, Time now) {
  return thread.first_unpublished ? thread.first_unpublished - 1 : now;
}

ClockRef flatten(const Thread& thread, const View& view, Time self) {
  std::vector<ClockEntry> entries{{block_key(thread.block->uid), view.block}};
  if (view.warp > view.block) entries.push_back({warp_key(thread.uid), view.warp});
  if (self > std::max(view.block, view.warp)) entries.push_back({thread_key(thread.uid), self});
  return with(view.base, std::move(entries));
}

/// True if all threads of `launch` know writes of `writer` at `time`, because the writer's launch finished on the same
/// device before this one started, or because the host had synchronised with it.
bool known_at_start(const Launch& launch, Uid writer, Time time) {
  const LaunchInfo* info = engine().launch_info(writer);
  if (info == nullptr || time < info->start) return true;  // the launch has ended; a later launch may have its number
  if (info->host_synchronised <= launch.enqueued) return true;
  return info->device == launch.device->index && info->finish <= launch.info->start;
}

template <class Each>
void for_each_lane(Warp& warp, Each each) {
  for (std::uint64_t left = warp.live; left != 0; left &= left - 1) each(warp.threads[std::countr_zero(left)]);
}

/// Joins the bases of several threads, most of which share one base.
class BaseUnion {
 public:
  void add(const ClockRef& base) {
    if (base == last_ || !base) return;
    last_ = base;
    all_ = join(all_, base);
  }
  ClockRef all_;

 private:
  ClockRef last_;
};

/// Adds entries for the threads of `warp` that have published stores later than `floor`.
void add_lane_entries(Warp& warp, Time floor, Time now, std::vector<ClockEntry>& entries) {
  for_each_lane(warp, [&](Thread& lane) {
    const Time until = published_until(lane, now);
    if (until > floor && lane.last_store > floor) entries.push_back({thread_key(lane.uid), until});
  });
}

}  // namespace

bool covers(const Thread& thread, const View& view, Stamp stamp) {
  const Time time = stamp.time();
  if (time <= thread.launch->quiet) return true;
  const Uid writer = stamp.uid();
  if (stamp.has(Stamp::kAsync))
    return time_of(view.base, async_key(writer)) >= time || known_at_start(*thread.launch, writer, time);
  if (writer == thread.uid && time <= view.self) return true;
  if (time <= view.warp && warp_of(writer) == warp_of(thread.uid)) return true;
  const Uid block = block_uid(writer);
  if (time <= view.block && block == thread.block->uid) return true;
  if (view.base && (time_of(view.base, block_key(block)) >= time || time_of(view.base, thread_key(writer)) >= time ||
                    time_of(view.base, warp_key(writer)) >= time)) {
    return true;
  }
  return known_at_start(*thread.launch, writer, time);
}

bool same_chiplet(const Thread& thread, Uid writer) {
  const LaunchInfo* info = engine().launch_info(writer);
  return info != nullptr && info->device == thread.launch->device->index && engine().xcc_of(writer) == thread.xcc;
}

void note_store(Thread& thread, Time now, bool leaves_block) {
  if (!sm90(thread) && !leaves_block) return;  // LDS stores do not count in vmcnt
  thread.last_store = now;
  if (thread.first_unpublished == 0) thread.first_unpublished = now;
}

void drained(Thread& thread, Time now) {
  if (sm90(thread)) return;
  // vmcnt counts for the wave, so the stores that other lanes made before the wave last met have arrived too.
  const Time met = thread.seen.warp;
  for_each_lane(*thread.warp, [met](Thread& lane) {
    if (lane.first_unpublished == 0 || lane.first_unpublished > met) return;
    lane.published.self = std::max(lane.published.self, met);
    lane.first_unpublished = lane.last_store > met ? met + 1 : 0;
  });
  thread.published.warp = met;
  thread.published.self = now;
  thread.first_unpublished = 0;
}

void proxy_fenced(Thread& thread, Time now) {
  thread.published = thread.seen;
  thread.published.self = now;
  thread.first_unpublished = 0;
}

void own_copies_done(Thread& thread, Time now) {
  const std::vector<ClockEntry> own{{async_key(thread.uid), now}};
  thread.seen.base = with(thread.seen.base, own);
  thread.published.base = with(thread.published.base, own);
}

SnapshotRef snapshot(Thread& thread, Scope scope, Time now) {
  auto* result = new Snapshot;
  result->writer = thread.uid;
  result->time = now;
  result->scope = scope;
  if (scope != Scope::block) drained(thread, now);  // gfx942: such a release first waits for vmcnt
  result->known = flatten(thread, thread.seen, now);
  const Time self = sm90(thread) ? thread.published.self : published_until(thread, now);
  result->published = flatten(thread, thread.published, self);
  return SnapshotRef(result);
}

SnapshotRef combine(const SnapshotRef& earlier, const SnapshotRef& later) {
  if (!earlier) return later;
  auto* result = new Snapshot(*later);
  result->references = 0;
  result->known = join(later->known, earlier->known);
  result->published = join(later->published, earlier->published);
  result->scope = std::max(earlier->scope, later->scope);
  result->sequence = true;
  return SnapshotRef(result);
}

void acquire_clocks(Thread& thread, const ClockRef& known, const ClockRef& published) {
  ClockRef seen = join(thread.seen.base, known);
  if (!(seen == thread.seen.base)) {
    thread.seen.base = std::move(seen);
    thread.learned = true;
  }
  thread.published.base = join(thread.published.base, published);
}

void acquire(Thread& thread, const Snapshot& released, Scope scope) {
  // Two sequences that end with the same writer's release, in two words, may have begun with different ones.
  if (!released.sequence) {
    if (released.writer == thread.uid) return;
    if (thread.last_acquired == released.time && thread.last_acquired_from == released.writer) return;
  }
  const bool same_block = block_uid(released.writer) == thread.block->uid;
  const Scope narrower = std::min(released.scope, scope);
  if (narrower == Scope::block && !same_block) return;
  if (narrower == Scope::chiplet && !same_chiplet(thread, released.writer)) return;
  const bool same_device = engine().launch_info(released.writer)->device == thread.launch->device->index;
  if (narrower == Scope::device && !same_device) return;
  // A proxy fence has effect only on its device. Before its copies read what a peer wrote, the acquiring thread must
  // execute one.
  const ClockRef for_copies = sm90(thread) && !same_device ? ClockRef{} : released.published;
  acquire_clocks(thread, sm90(thread) || same_block ? released.known : released.published, for_copies);
  thread.last_acquired = released.time;
  thread.last_acquired_from = released.writer;
}

void barrier_met(Block& block, Time now) {
  const bool is_sm90 = block.launch->device->sm90();
  BaseUnion seen;
  BaseUnion published;
  Time floor = now;
  Time fenced = 0;
  for (int i = 0; i < block.threads; ++i) {
    Thread& thread = block.first[i];
    seen.add(thread.seen.base);
    published.add(thread.published.base);
    floor = std::min(floor, published_until(thread, now));
    fenced = std::max(fenced, thread.published.block);
  }
  floor = std::max(floor, fenced);
  std::vector<ClockEntry> entries;
  for (Warp& warp : block.warps) {
    Time reach = now;
    for_each_lane(warp, [&](Thread& lane) {
      reach = std::min(reach, published_until(lane, now));
      if (lane.published.warp > floor) entries.push_back({warp_key(lane.uid), lane.published.warp});
    });
    if (reach > floor) {
      entries.push_back({warp_key(warp.threads->uid), reach});
    } else if (is_sm90) {
      add_lane_entries(warp, floor, now, entries);
    }
  }
  const auto own = [&block](Key key) {
    return kind_of(key) != EntryKind::async && block_uid(uid_of(key)) == block.uid;
  };
  const ClockRef seen_base = without(seen.all_, own);
  const ClockRef published_base = with(published.all_, std::move(entries));
  for (int i = 0; i < block.threads; ++i) {
    Thread& thread = block.first[i];
    thread.seen.base = seen_base;
    thread.seen.block = now;
    thread.published.base = published_base;
    thread.published.block = floor;
    thread.learned = true;
  }
}

void barrier_met(Warp& warp, Time now) {
  BaseUnion seen;
  BaseUnion published;
  Time floor = now;
  Time fenced = 0;
  Time block = 0;
  for_each_lane(warp, [&](Thread& lane) {
    seen.add(lane.seen.base);
    published.add(lane.published.base);
    floor = std::min(floor, published_until(lane, now));
    fenced = std::max(fenced, lane.published.warp);
    block = std::max(block, lane.published.block);
  });
  floor = std::max(floor, fenced);
  std::vector<ClockEntry> entries;
  if (floor < now && warp.block->launch->device->sm90()) add_lane_entries(warp, floor, now, entries);
  const ClockRef published_base = with(published.all_, std::move(entries));
  for_each_lane(warp, [&](Thread& lane) {
    lane.seen.base = seen.all_;
    lane.seen.warp = now;
    lane.published.base = published_base;
    lane.published.warp = floor;
    lane.published.block = block;
    lane.learned = true;
  });
}

void barrier_met(const Block& block, const std::vector<Warp*>& warps, Time now) {
  BaseUnion seen;
  BaseUnion published;
  std::vector<ClockEntry> seen_entries;
  std::vector<ClockEntry> published_entries;
  for (Warp* warp : warps) {
    Time reach = now;
    Time fenced = 0;
    for_each_lane(*warp, [&](Thread& lane) {
      seen.add(lane.seen.base);
      published.add(lane.published.base);
      reach = std::min(reach, published_until(lane, now));
      fenced = std::max(fenced, lane.published.warp);
      published_entries.push_back({block_key(block.uid), lane.published.block});
    });
    seen_entries.push_back({warp_key(warp->threads->uid), now});
    published_entries.push_back({warp_key(warp->threads->uid), std::max(reach, fenced)});
    add_lane_entries(*warp, reach, now, published_entries);
  }
  const ClockRef seen_base = with(seen.all_, std::move(seen_entries));
  const ClockRef published_base = with(published.all_, std::move(published_entries));
  for (Warp* warp : warps) {
    for_each_lane(*warp, [&](Thread& lane) {
      lane.seen.base = seen_base;
      lane.published.base = published_base;
      lane.learned = true;
    });
  }
}

// ---- what new launches know of old ones ----

/// The host has waited for the device. Launches that it enqueues from now on know all writes of the device.
void Engine::note_host_synchronised(Device& device) {
  for (const auto& info : device.unsynchronised) info->host_synchronised = schedule.now();
  device.unsynchronised.clear();
  host_known_ = join(host_known_, device.known);
}

/// If nothing runs or is queued, and the host has waited for everything, all threads know all writes from now on.
void Engine::note_quiet() {
  for (const auto& [key, device] : devices_) {
    if (!device->running.empty() || !device->unsynchronised.empty()) return;
    for (const auto& [id, queue] : device->streams) {
      if (!queue.items.empty()) return;
    }
  }
  quiet_ = schedule.now();
  host_known_ = {};
  for (const auto& [key, device] : devices_) device->known = {};
  records.clear();
}

/// The writes of other devices that a launch knows if it starts now: those that its device and the host have learnt of.
ClockRef Engine::known_to(const Launch& launch) {
  Device& device = *launch.device;
  Time since = launch.enqueued;
  for (const auto& [id, queue] : device.streams) {
    for (const WorkItem& item : queue.items) {
      if (item.launch) since = std::min(since, item.launch->enqueued);
    }
  }
  // Drop what known_at_start() says for all launches that have yet to start on the device.
  const auto known_anyway = [this, &device, since](Key key) {
    const LaunchInfo* info = launch_info(uid_of(key));
    return info == nullptr || info->host_synchronised <= since ||
           (info->device == device.index && info->finish != kForever);
  };
  device.known = without(device.known, known_anyway);
  return without(join(device.known, launch.host_known), known_anyway);
}

}  // namespace farwarp::emu
