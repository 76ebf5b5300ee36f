// Happens-before: what a thread knows, and how synchronisation spreads it.
//
// Every thread has two clocks. `seen`: the writes ordered before its next access. `published`, a subset:
//   sm90    what the async proxy may read on its behalf; a proxy fence publishes all that the thread has seen
//   gfx942  what its releases publish beyond the block; a drain, or a release of its own, publishes its own stores. A
//           barrier hands over only what each wave had drained, because s_barrier does not wait for vmcnt.
// Both are spread by the same synchronisation, which is why one struct serves both personalities.
#pragma once

#include "farwarp/substrate/emu/entities.h"

namespace farwarp::emu {

/// Is a write with this stamp covered by `view` of `thread`?
bool covers(const Thread& thread, const View& view, Stamp stamp);
inline bool knows(const Thread& thread, Stamp stamp) {
  return stamp.time() <= thread.launch->quiet || covers(thread, thread.seen, stamp);
}

/// A store of this thread at `now`. `leaves_block`: to memory that threads of other blocks can reach.
void note_store(Thread& thread, Time now, bool leaves_block);
/// gfx942: this thread's stores have arrived. sm90: nothing to do, its releases are cumulative.
void drained(Thread& thread, Time now);
/// sm90: all that the thread has seen may be read by the async proxy.
void proxy_fenced(Thread& thread, Time now);
/// The thread waited for its bulk stores: their writes up to now are its own.
void own_copies_done(Thread& thread, Time now);

/// What a release of this scope by the thread hands over.
SnapshotRef snapshot(Thread& thread, Scope scope, Time now);
/// A release sequence continued by another release: both.
SnapshotRef combine(const SnapshotRef& earlier, const SnapshotRef& later);
/// The thread's acquire of `scope` has read a value that `released` guards.
void acquire(Thread& thread, const Snapshot& released, Scope scope);
void acquire_clocks(Thread& thread, const ClockRef& known, const ClockRef& published);

/// A barrier of all threads of the block, or of all lanes of the warp.
void meet(Block& block, Time now);
void meet(Warp& warp, Time now);
/// sm90: a barrier of some whole warps of the block.
void meet(const Block& block, const std::vector<Warp*>& warps, Time now);

}  // namespace farwarp::emu
