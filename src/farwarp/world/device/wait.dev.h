// The wait primitives: the only code that may spin. Every wait ends: with what it waited for, with the abort, or with a
// ledger record when the call's deadline has passed.
#pragma once

#include "farwarp/world/device/call.dev.h"

namespace farwarp::FARWARP_TARGET {

/// What a wait is for, in the ledger's terms.
struct Wait {
  std::uint32_t site;
  std::int32_t peer;
  /// How many waits of peers this one may stand behind. Each level gets a little longer (1/32 of the deadline), so that the
  /// wait on the rank that is really missing expires first and is the one on record.
  std::uint32_t depth = 0;
};

inline constexpr std::uint32_t kDeepestWait = 4;  ///< more than any wait on a peer stands behind others

/// How a wait that expires is recorded: by a function of its own, or in place, for kernels whose warps give registers away (a call
/// makes ptxas ignore that).
enum class Failure { called, in_place };

/// [thread] False if the wait must end: the abort was raised, or the deadline has passed and this thread has raised it.
template <Failure failure = Failure::called>
FARWARP_DEVICE bool may_wait_on(Call& call, Wait wait, std::uint64_t expected, std::uint64_t seen) {
  const std::uint32_t raised_by = load<Order::relaxed>(abort_cell(call));
  if (raised_by != 0) {
    note_abort(call, raised_by);
    return false;
  }
  if (nanoseconds() < call.deadline_ns + wait.depth * call.grace_ns) return true;
  if constexpr (failure == Failure::called) {
    give_up(call, StatusCode::kDeadline, wait.site, wait.peer, expected, seen);
  } else {
    give_up_in_place(call, StatusCode::kDeadline, wait.site, wait.peer, expected, seen);
  }
  return false;
}

/// [thread] Waits until the upper half of `cell` is `tag`, and acquires what its writer released; `value` gets the lower half.
template <Failure failure = Failure::called>
FARWARP_DEVICE bool wait_tagged(Call& call, Global<SystemCell<std::uint64_t>> cell, std::uint32_t tag,
                                std::uint32_t& value, Wait wait) {
  const void* const addresses[] = {cell.raw, abort_cell(call).raw};
  const std::uint64_t deadline = call.deadline_ns + wait.depth * call.grace_ns;
  for (std::uint32_t tries = 0; call.live; ++tries) {
    const std::uint64_t seen = load<Order::relaxed>(cell);
    if (static_cast<std::uint32_t>(seen >> 32) == tag) {
      acquire(cell);
      value = static_cast<std::uint32_t>(seen);
      return true;
    }
    if (park(addresses, 2, deadline, tries)) [[unlikely]]
      may_wait_on<failure>(call, wait, tag, seen >> 32);
  }
  return false;
}

/// [thread] Waits until every packet of `from` whose bit is set in `wanted` carries the call's epoch; `data` gets their
/// contents. All missing packets are loaded before any is tested, so that their latencies overlap (an all-reduce of 8 KB
/// takes 2.3 us this way on 8 H200s, 5.4 us when peer after peer is polled). Needs no fence: packets carry their data.
/// With wait.peer < 0 the ledger names packet i's peer as i / packets_per_peer.
template <int packets_per_peer, Failure failure = Failure::called, int count>
FARWARP_DEVICE bool wait_packets(Call& call, const Global<Packet> (&from)[count], std::uint32_t wanted,
                                 std::uint64_t (&data)[count], Wait wait) {
  const std::uint64_t deadline = call.deadline_ns + wait.depth * call.grace_ns;
  std::uint32_t missing = wanted;
  for (std::uint32_t tries = 0; call.live; ++tries) {
    Packet packets[count] = {};
#pragma unroll
    for (int i = 0; i < count; ++i) {
      if (missing >> i & 1) packets[i] = load_packet(from[i]);
    }
    std::uint64_t seen = 0;
    const void* addresses[2 * count + 1] = {abort_cell(call).raw};
    int watched = 1;
#pragma unroll
    for (int i = 0; i < count; ++i) {
      if (!(missing >> i & 1)) continue;
      if (packet_has_tag(packets[i], call.epoch)) {
        data[i] = packet_data(packets[i]);
        missing &= ~(1u << i);
      } else {
        const std::uint64_t first = packets[i].lo >> 32;
        seen = first != call.epoch ? first : packets[i].hi >> 32;  // the half that is missing
        addresses[watched++] = &from[i].raw->lo;                   // either half may be the one that is missing
        addresses[watched++] = &from[i].raw->hi;
      }
    }
    if (missing == 0) return true;
    if (park(addresses, watched, deadline, tries)) [[unlikely]] {
      Wait described = wait;
      if (wait.peer < 0) described.peer = lowest_bit(missing) / packets_per_peer;
      may_wait_on<failure>(call, described, call.epoch, seen);
    }
  }
  return false;
}

// Cells that wait_leading() polls: peers' are loaded relaxed and acquired once; those that blocks of this launch write, of device scope,
// are acquired by every poll. The second round trip would be on the way of what they tell of, and a loader's warp has nothing in L1.
FARWARP_DEVICE std::uint64_t poll_cell(Global<SystemCell<std::uint64_t>> cell) { return load<Order::relaxed>(cell); }
FARWARP_DEVICE std::uint64_t poll_cell(Global<std::uint64_t> cell) { return load<Order::acquire, Scope::device>(cell); }
FARWARP_DEVICE void acquire_polled(Global<SystemCell<std::uint64_t>> cell) { acquire(cell); }
FARWARP_DEVICE void acquire_polled(Global<std::uint64_t>) {}

/// [warp] Each of the first `lanes` lanes has a cell. Waits until the first `needed` of them have the tag in their upper half, and
/// returns how many in a row have it by then, lane 0's first; the lanes of those have acquired what the cells' writers released. Less
/// than `needed` if the call is over, on all lanes.
template <Failure failure = Failure::called, class Cell>
FARWARP_DEVICE int wait_leading(Call& call, Global<Cell> cell, int lanes, int needed, std::uint32_t tag, Wait wait) {
  const int lane = lane_index();
  const std::uint64_t deadline = call.deadline_ns + wait.depth * call.grace_ns;
  bool arrived = lane >= lanes;
  for (std::uint32_t tries = 0;; ++tries) {
    std::uint64_t seen = 0;
    if (!arrived) {
      seen = poll_cell(cell);
      arrived = static_cast<std::uint32_t>(seen >> 32) == tag;
    }
    const std::uint64_t missing = ballot(!arrived);
    const int leading = missing == 0 ? lanes : lowest_bit(missing);
    call.live = ballot(!call.live) == 0;
    if (leading >= needed || !call.live) {
      if (lane < leading) acquire_polled(cell);
      return leading;
    }
    if (arrived || lane >= needed) continue;
    const void* const addresses[] = {cell.raw, abort_cell(call).raw};
    if (park(addresses, 2, deadline, tries)) [[unlikely]]
      may_wait_on<failure>(call, wait, tag, seen >> 32);
  }
}

/// [thread] Waits for the phase of an mbarrier: for copies into shared memory, or for those who read them. Not a wait on a peer, but
/// it may stand behind one, here or in another warp of the block. So it outlasts them all, and then some: what a peer lacks goes on
/// record as that, and an aborted call's own copies, whose bytes are about to land in shared memory, get the time to.
FARWARP_DEVICE bool wait_mbarrier(Call& call, Shared<Mbarrier> barrier, std::uint32_t parity, std::uint32_t site) {
  const void* const addresses[] = {barrier.raw};
  std::uint64_t until = call.deadline_ns + kDeepestWait * call.grace_ns;
  bool looked = false;
  for (std::uint32_t tries = 0; !mbarrier_test(barrier, parity); ++tries) {
    if (!park(addresses, 1, until, tries)) continue;
    const std::uint64_t now = nanoseconds();
    if (!looked) {
      looked = true;
      until = until > now + call.grace_ns ? until : now + call.grace_ns;
    }
    if (now <= until) continue;
    const std::uint32_t raised_by = load<Order::relaxed>(abort_cell(call));
    if (raised_by != 0) {
      note_abort(call, raised_by);
    } else if (call.live) {
      give_up_in_place(call, StatusCode::kDeadline, site, -1, parity, kNothingSeen);
    }
    return false;
  }
  return true;
}

/// A thread's waits for its block's own copies, where it has not read its call, or need not for them: reading the call's cells takes a
/// microsecond, and several while those copies flood memory. Such a wait ends, unless something is broken. One that does not makes a note
/// here, which report() brings to the ledger behind the loops: between their instructions its code would be what a cold launch
/// waits for.
struct OwnWaits {
  std::uint64_t until = 0;  ///< the deadline, from the first wait that gets long
  bool expired = false;
};

/// [thread] False if the deadline has passed, now or before: this one outlasts the waits for peers behind which the copies may stand.
FARWARP_DEVICE bool wait_mbarrier(OwnWaits& waits, const WorldView& view, Shared<Mbarrier> barrier,
                                  std::uint32_t parity) {
  const void* const addresses[] = {barrier.raw};
  for (std::uint32_t tries = 0; !mbarrier_test(barrier, parity); ++tries) {
    if (!park(addresses, 1, waits.until, tries)) continue;
    const std::uint64_t now = nanoseconds();
    if (waits.until == 0) {
      const std::uint64_t budget = load(member(control_of(view), &WorldControl::deadline_ns));
      waits.until = now + budget + (kDeepestWait + 1) * (budget / 32);
    }
    waits.expired = now > waits.until;
    if (waits.expired) return false;
  }
  return true;
}

/// [thread] Puts an expired wait on record, unless the World has been aborted. Of epoch 0: the call's cells may be changing.
FARWARP_DEVICE void report(const OwnWaits& waits, const WorldView& view, std::uint32_t slot, std::uint32_t site) {
  if (!waits.expired) return;
  const std::uint64_t budget = load(member(control_of(view), &WorldControl::deadline_ns));
  Call call{view, slot, 0, waits.until - budget, waits.until, 0, true};
  if (load<Order::relaxed>(abort_cell(call)) == 0)
    give_up_in_place(call, StatusCode::kDeadline, site, -1, 0, kNothingSeen);
}

// ---- ready --------------------------------------------------------------------------------------------------------
//
// An entry permits peers to write this rank's memory. A call of epoch e begins when the one before it is over on this rank, so nobody
// here still reads what peers wrote for e - 1. Each rank tells the others so. A sender waits for the peer's entry(e) before it
// overwrites that peer's memory.

/// The rank's entry at each other: [kMaxRanks] cells at one offset of every heap.
using ReadyCell = SystemCell<std::uint64_t>;

/// [warp] One warp of the kernel tells all peers, at any time after it has joined the call.
FARWARP_DEVICE void announce_ready(const Call& call, std::int64_t cells) {
  const int peer = lane_index();
  if (peer >= call.view.size || peer == call.view.rank) return;
  store<Order::release>(peer_address<ReadyCell>(call.view, peer, cells) + call.view.rank, tagged(call.epoch, 0));
}

/// [thread] Waits until `peer` has entered this call. For those alone without whose sending the peer cannot finish it: otherwise its
/// next entry might take the place of this one.
template <Failure failure = Failure::called>
FARWARP_DEVICE bool wait_ready(Call& call, std::int64_t cells, int peer, std::uint32_t site) {
  if (peer == call.view.rank) return call.live;
  std::uint32_t value = 0;
  return wait_tagged<failure>(call, own_address<ReadyCell>(call.view, cells) + peer, call.epoch, value, {site, peer});
}

}  // namespace farwarp::FARWARP_TARGET
