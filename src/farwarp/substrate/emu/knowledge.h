// Happens-before: which writes a thread knows, and how synchronisation spreads this knowledge.
//
// Every thread has two clocks. `seen` has the writes ordered before its next access. `published` is a subset of it:
//   sm90    the writes that the async proxy may read on behalf of the thread. A proxy fence publishes all that the
//           thread has seen.
//   gfx942  the writes that the thread's releases publish beyond the block. A drain or a release by a thread publishes
//           its own stores. A barrier passes on only the stores that each wave had drained, because s_barrier does not
//           wait for vmcnt.
// The same synchronisation spreads both clocks, so both personalities use the same struct.
#pragma once

#include "farwarp/substrate/emu/entities.h"

namespace farwarp::emu {

/// True if `view` of `thread` covers a write with this stamp.
bool covers(const Thread& thread, const View& view, Stamp stamp);
inline bool knows(const Thread& thread, Stamp stamp) {
  return stamp.time() <= thread.launch->quiet || covers(thread, thread.seen, stamp);
}

/// True if `writer` runs on the XCD of `thread`: chiplet scope includes both.
bool same_chiplet(const Thread& thread, Uid writer);

/// Records a store of this thread at `now`. `leaves_block`: threads of other blocks can reach the memory.
void note_store(Thread& thread, Time now, bool leaves_block);
/// gfx942: records that this thread has drained its stores. sm90: does nothing, because releases are cumulative.
void drained(Thread& thread, Time now);
/// sm90: the async proxy may now read all writes that the thread has seen.
void proxy_fenced(Thread& thread, Time now);
/// The thread has waited for its bulk stores: their writes up to now count as its own.
void own_copies_done(Thread& thread, Time now);

/// The knowledge that a release of this scope by the thread passes on.
SnapshotRef snapshot(Thread& thread, Scope scope, Time now);
/// The knowledge of both releases, for a release sequence that another release continues.
SnapshotRef combine(const SnapshotRef& earlier, const SnapshotRef& later);
/// Adds the knowledge of `released` to the thread, whose acquire of `scope` has read a value that `released` guards.
void acquire(Thread& thread, const Snapshot& released, Scope scope);
void acquire_clocks(Thread& thread, const ClockRef& known, const ClockRef& published);

/// A barrier of all threads of the block, or of all lanes of the warp.
void barrier_met(Block& block, Time now);
void barrier_met(Warp& warp, Time now);
/// sm90: a barrier of some whole warps of the block.
void barrier_met(const Block& block, const std::vector<Warp*>& warps, Time now);

}  // namespace farwarp::emu
