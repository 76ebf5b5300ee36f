// The wait primitives: this file and words.dev.h are the only code that may spin. Every wait ends: when its condition
// holds, when the abort is raised, or with a ledger record when the call's deadline has passed. Waits with BlockWaits,
// at mbarriers that other warps of the block end, just expire.
#pragma once

#include "farwarp/world/device/call.dev.h"

namespace farwarp::FARWARP_TARGET {

/// What the ledger says of a wait that expires.
struct Wait {
  std::uint32_t site;
  std::int32_t peer;
  /// 0 for a wait on something that a peer sends before it waits for anybody. If the peer must itself wait before it
  /// sends, one more than the depth of the peer's wait. Each level adds 1/32 of the deadline, so the wait on the
  /// missing rank expires first, and the ledger records that one.
  std::uint32_t depth = 0;
};

inline constexpr std::uint32_t kCopyWaitDepth = 4;  ///< greater than the depth of any wait on a peer

/// [thread] The end of a wait, in a trace. `cell`: what signal_cell() stores to, where an arrow ends, also if it was
/// there at the first look; null if the wait is for something else.
FARWARP_DEVICE void trace_wait(TraceStart start, const Call& call, const void* cell, std::uint32_t tag, Wait wait) {
  if constexpr (kTraced) {
    if (cell == nullptr && !trace_waited(start)) return;
    trace_missed(start);
    trace_end(start, {.where = reinterpret_cast<std::uint64_t>(cell),
                      .tag = tag,
                      .site = static_cast<std::uint16_t>(wait.site),
                      .slot = static_cast<std::uint8_t>(call.slot),
                      .work = TraceWork::kWait,
                      .peer = static_cast<std::int8_t>(wait.peer)});
  }
}

/// How a wait that expires is recorded: by a called function, or by inlined code. Inlined is for kernels whose warps
/// change their register counts: see give_up_inlined().
enum class Failure { called, inlined };

/// [thread] False if the wait must end: the abort was raised, or the deadline has passed and this thread has raised it.
template <Failure failure = Failure::called>
FARWARP_DEVICE bool may_wait_on(Call& call, Wait wait, std::uint64_t expected, std::uint64_t seen) {
  const std::uint32_t raised_by = load<Order::relaxed>(abort_cell(call));
  if (raised_by != 0) {
    record_abort(call, raised_by);
    return false;
  }
  if (nanoseconds() < call.deadline_ns + wait.depth * call.grace_ns) return true;
  if constexpr (failure == Failure::called) {
    give_up(call, StatusCode::kDeadline, wait.site, wait.peer, expected, seen);
  } else {
    give_up_inlined(call, StatusCode::kDeadline, wait.site, wait.peer, expected, seen);
  }
  return false;
}

/// [thread] Waits until the upper half of `cell` is `tag`, and acquires what its writer released; `value` gets the
/// lower half.
template <Failure failure = Failure::called>
FARWARP_DEVICE bool wait_tagged(Call& call, Global<SystemCell<std::uint64_t>> cell, std::uint32_t tag,
                                std::uint32_t& value, Wait wait) {
  TraceStart start;
  const void* const addresses[] = {cell.raw, abort_cell(call).raw};
  const std::uint64_t deadline = call.deadline_ns + wait.depth * call.grace_ns;
  for (std::uint32_t tries = 0; call.live; ++tries) {
    const std::uint64_t seen = load<Order::relaxed>(cell);
    if (static_cast<std::uint32_t>(seen >> 32) == tag) {
      acquire(cell);
      value = static_cast<std::uint32_t>(seen);
      trace_wait(start, call, cell.raw, tag, wait);
      return true;
    }
    trace_missed(start);
    if (park(addresses, 2, deadline, tries)) [[unlikely]]
      may_wait_on<failure>(call, wait, tag, seen >> 32);
  }
  trace_wait(start, call, cell.raw, tag, wait);
  return false;
}

/// [thread] Waits until a counter that only grows, modulo 2^32, has reached `target`. Acquires, at `scope`, what the
/// threads that counted have released. `poll`: relaxed loads, then a fence; or each poll is an acquire load, which does
/// not wait for the thread's own stores.
template <Scope scope, Failure failure = Failure::called, Order poll = Order::relaxed>
FARWARP_DEVICE bool wait_count(Call& call, Global<std::uint32_t> counter, std::uint32_t target, Wait wait) {
  TraceStart start;
  const void* const addresses[] = {counter.raw, abort_cell(call).raw};
  const std::uint64_t deadline = call.deadline_ns + wait.depth * call.grace_ns;
  for (std::uint32_t tries = 0; call.live; ++tries) {
    const std::uint32_t seen = load<poll, scope>(counter);
    if (static_cast<std::int32_t>(seen - target) >= 0) {
      if constexpr (poll == Order::relaxed) fence<Order::acquire, scope>();
      trace_wait(start, call, nullptr, target, wait);
      return true;
    }
    trace_missed(start);
    if (park(addresses, 2, deadline, tries)) [[unlikely]]
      may_wait_on<failure>(call, wait, target, seen);
  }
  trace_wait(start, call, nullptr, target, wait);
  return false;
}

/// [thread] Waits until every packet of `from` whose bit is set in `wanted` carries the call's epoch; `data` gets their
/// contents. All missing packets are loaded before any is tested, so that their latencies overlap: an all-reduce of 8
/// KB takes 2.3 us on 8 H200s, and 5.4 us if one peer is polled after the other. Needs no fence: packets carry their
/// data. With wait.peer < 0 the ledger names packet i's peer as i / packets_per_peer, counted from -1 - wait.peer on.
template <int packets_per_peer, Failure failure = Failure::called, int count>
FARWARP_DEVICE bool wait_packets(Call& call, const Global<Packet> (&from)[count], std::uint32_t wanted,
                                 std::uint64_t (&data)[count], Wait wait) {
  TraceStart start;
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
    if (missing == 0) {
      if (trace_waited(start) && trace_chosen()) trace_wait(start, call, nullptr, call.epoch, wait);
      return true;
    }
    trace_missed(start);
    if (park(addresses, watched, deadline, tries)) [[unlikely]] {
      Wait described = wait;
      if (wait.peer < 0) described.peer = -1 - wait.peer + lowest_bit(missing) / packets_per_peer;
      if (!may_wait_on<failure>(call, described, call.epoch, seen))
        trace_wait(start, call, nullptr, call.epoch, described);
    }
  }
  return false;
}

/// [thread] wait_packets() for more packets than registers hold: bit i of `wanted` stands for the packet at from(i),
/// and take(i, data) is called once it has arrived. `together` packets are loaded before any of them is tested. What
/// has arrived is not loaded again, so a late packet delays no other.
template <int together, class From, class Take>
FARWARP_DEVICE bool wait_each_packet(Call& call, std::uint64_t wanted, const From& from, const Take& take, Wait wait) {
  TraceStart start;
  const std::uint64_t deadline = call.deadline_ns + wait.depth * call.grace_ns;
  std::uint64_t missing = wanted;
  for (std::uint32_t tries = 0; call.live; ++tries) {
    std::uint64_t seen = 0;
    const void* addresses[3] = {abort_cell(call).raw, nullptr, nullptr};
#pragma unroll 1
    for (int first = 0; first < 64 && missing >> first != 0; first += together) {
      Packet packets[together] = {};
#pragma unroll
      for (int i = 0; i < together; ++i) {
        if (missing >> (first + i) & 1) packets[i] = load_packet(from(first + i));
      }
#pragma unroll
      for (int i = 0; i < together; ++i) {
        if (!(missing >> (first + i) & 1)) continue;
        if (packet_has_tag(packets[i], call.epoch)) {
          take(first + i, packet_data(packets[i]));
          missing &= ~(std::uint64_t{1} << (first + i));
        } else {
          const std::uint64_t half = packets[i].lo >> 32;
          seen = half != call.epoch ? half : packets[i].hi >> 32;
          addresses[1] = &from(first + i).raw->lo;  // all must arrive, so it does not matter which one is watched
          addresses[2] = &from(first + i).raw->hi;
        }
      }
    }
    if (missing == 0) {
      if (trace_waited(start) && trace_chosen()) trace_wait(start, call, nullptr, call.epoch, wait);
      return true;
    }
    trace_missed(start);
    if (park(addresses, 3, deadline, tries)) [[unlikely]] {
      if (!may_wait_on(call, wait, call.epoch, seen)) trace_wait(start, call, nullptr, call.epoch, wait);
    }
  }
  return false;
}

// How wait_leading() polls. Cells that peers write: relaxed loads, then one acquire. Cells of device scope, which
// blocks of this launch write: each poll is an acquire load. A separate acquire would add a round trip before the data
// can be read; the invalidation of L1 by each poll costs a loader warp nothing, since it keeps nothing there.
FARWARP_DEVICE std::uint64_t poll_cell(Global<SystemCell<std::uint64_t>> cell) { return load<Order::relaxed>(cell); }
FARWARP_DEVICE std::uint64_t poll_cell(Global<std::uint64_t> cell) { return load<Order::acquire, Scope::device>(cell); }
FARWARP_DEVICE void acquire_polled(Global<SystemCell<std::uint64_t>> cell) { acquire(cell); }
FARWARP_DEVICE void acquire_polled(Global<std::uint64_t>) {}
FARWARP_DEVICE const void* signalled(Global<SystemCell<std::uint64_t>> cell) { return cell.raw; }
FARWARP_DEVICE const void* signalled(Global<std::uint64_t>) { return nullptr; }

/// [warp] Each of the first `lanes` lanes has a cell. Waits until the cells of lanes 0 .. needed-1 have `tag` in their
/// upper half. Returns how many consecutive lanes from lane 0 have it by then; those lanes have acquired what the
/// cells' writers released. Returns less than `needed`, on all lanes, if the call is over.
template <Failure failure = Failure::called, class Cell>
FARWARP_DEVICE int wait_leading(Call& call, Global<Cell> cell, int lanes, int needed, std::uint32_t tag, Wait wait) {
  TraceStart start;
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
      if (lane < needed) trace_wait(start, call, signalled(cell), tag, wait);
      return leading;
    }
    if (arrived || lane >= needed) continue;
    const void* const addresses[] = {cell.raw, abort_cell(call).raw};
    trace_missed(start);
    if (park(addresses, 2, deadline, tries)) [[unlikely]]
      may_wait_on<failure>(call, wait, tag, seen >> 32);
  }
}

/// [thread] Waits for the phase of an mbarrier: for copies into shared memory, or for the threads that read them. It
/// may depend on a wait on a peer, in this warp or in another one of the block, so it outlasts all of those. Hence a
/// missing peer is recorded as a wait on that peer, and the copies of an aborted call have time to arrive in shared
/// memory.
FARWARP_DEVICE bool wait_mbarrier(Call& call, Shared<Mbarrier> barrier, std::uint32_t parity, std::uint32_t site) {
  TraceStart start;
  const void* const addresses[] = {barrier.raw};
  std::uint64_t until = call.deadline_ns + kCopyWaitDepth * call.grace_ns;
  bool looked = false;
  for (std::uint32_t tries = 0; !mbarrier_test(barrier, parity); ++tries) {
    if (kInnerWaitsTraced) trace_missed(start);
    if (!park(addresses, 1, until, tries)) continue;
    const std::uint64_t now = nanoseconds();
    if (!looked) {
      looked = true;
      until = until > now + call.grace_ns ? until : now + call.grace_ns;
    }
    if (now <= until) continue;
    const std::uint32_t raised_by = load<Order::relaxed>(abort_cell(call));
    if (raised_by != 0) {
      record_abort(call, raised_by);
    } else if (call.live) {
      give_up_inlined(call, StatusCode::kDeadline, site, -1, parity, kNothingSeen);
    }
    trace_wait(start, call, nullptr, parity, {site, -1});
    return false;
  }
  if (trace_waited(start) && trace_chosen()) trace_wait(start, call, nullptr, parity, {site, -1});
  return true;
}

/// The state of a thread's waits for its block's own mbarriers (copies, boxes, the published call). For threads that
/// have no Call, because reading the operator's cells would take them one microsecond, and several while copies load
/// memory. Such a wait expires only if something is broken. It is then noted here. report_expired() writes it to the
/// ledger after the thread's loops: inside them, its code would delay a cold launch.
struct BlockWaits {
  std::uint64_t until = 0;  ///< the deadline; 0 until a wait has polled long enough to need it
  bool expired = false;
};

/// [thread] The state after a look at the clock. A called function: a loop over a ring has many waits.
FARWARP_COLD BlockWaits look_at_clock(BlockWaits waits, const WorldView& view) {
  const std::uint64_t now = nanoseconds();
  if (waits.until == 0) {
    const std::uint64_t budget = load(member(control_of(view), &WorldControl::deadline_ns));
    waits.until = now + budget + (kCopyWaitDepth + 1) * (budget / 32);
  }
  waits.expired = now > waits.until;
  return waits;
}

FARWARP_DEVICE void trace_block_wait(TraceStart start, std::uint32_t parity) {
  if constexpr (kTraced) trace_end(start, {.tag = parity, .work = TraceWork::kWait});
}

/// [thread] True if the phase has completed, also after an earlier wait expired. Else it waits, and returns false when
/// the deadline has passed: at once if an earlier wait expired. The deadline is later than that of any wait on a peer,
/// because the phase may depend on one.
FARWARP_DEVICE bool wait_mbarrier(BlockWaits& waits, const WorldView& view, Shared<Mbarrier> barrier,
                                  std::uint32_t parity) {
  TraceStart start;
  const void* const addresses[] = {barrier.raw};
  for (std::uint32_t tries = 0; !mbarrier_test(barrier, parity); ++tries) {
    if (kInnerWaitsTraced) trace_missed(start);
    if (!park(addresses, 1, waits.until, tries)) continue;
    waits = look_at_clock(waits, view);
    if (waits.expired) {
      trace_block_wait(start, parity);
      return false;
    }
  }
  if (trace_waited(start) && trace_chosen()) trace_block_wait(start, parity);
  return true;
}

/// [thread] Records an expired wait in the ledger, unless the World has been aborted. The record has epoch 0, because
/// the operator's cells may be changing.
FARWARP_DEVICE void report_expired(const BlockWaits& waits, const WorldView& view, std::uint32_t slot,
                                   std::uint32_t site) {
  if (!waits.expired) return;
  const std::uint64_t budget = load(member(control_of(view), &WorldControl::deadline_ns));
  Call call{view, slot, 0, waits.until - budget, waits.until, 0, true};
  if (load<Order::relaxed>(abort_cell(call)) == 0)
    give_up_inlined(call, StatusCode::kDeadline, site, -1, 0, kNothingSeen);
}

// ---- ready --------------------------------------------------------------------------------------------------------
//
// By its ready cells a rank permits peers to write its memory. A call of epoch e begins when the call before it is over
// on this rank, so nothing here still reads what peers wrote for e - 1. Each rank then stores epoch e to its ready cell
// at every peer. A sender waits for the peer's epoch e before it overwrites that peer's memory.

/// [kMaxRanks] of them, indexed by the rank that announces, at one offset of every heap.
using ReadyCell = SystemCell<std::uint64_t>;

/// [warp] Stores this rank's ready cells at all peers. One warp of the kernel calls it, at any time after it has joined
/// the call. The release pairs with wait_ready().
FARWARP_DEVICE void announce_ready(const Call& call, std::int64_t cells) {
  const int peer = lane_index();
  if (peer >= call.view.size || peer == call.view.rank) return;
  signal_cell<Order::release>(peer_address<ReadyCell>(call.view, peer, cells) + call.view.rank, tagged(call.epoch, 0));
}

/// [thread] Waits until `peer` has announced this call. Only if the peer cannot finish the call without what this rank
/// sends: otherwise the peer might overwrite the cell with its next epoch before this wait has seen it.
template <Failure failure = Failure::called>
FARWARP_DEVICE bool wait_ready(Call& call, std::int64_t cells, int peer, std::uint32_t site) {
  if (peer == call.view.rank) return call.live;
  std::uint32_t value = 0;
  return wait_tagged<failure>(call, own_address<ReadyCell>(call.view, cells) + peer, call.epoch, value, {site, peer});
}

}  // namespace farwarp::FARWARP_TARGET
