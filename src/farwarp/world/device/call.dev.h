// A call: one kernel's time inside an operator, from begin_call() to end_call(). It knows the epoch, the deadline, and
// whether the World has been aborted; it is how a kernel gives up without hanging anybody. And signals: how a call's data
// is published to peers.
#pragma once

#include "farwarp/base/status.h"
#include "farwarp/substrate/device.h"
#include "farwarp/world/view.h"

namespace farwarp::FARWARP_TARGET {

struct Call {
  const WorldView& view;
  std::uint32_t slot;  // of the operator, in WorldControl::operators
  std::uint32_t epoch;
  std::uint64_t started_ns;
  std::uint64_t deadline_ns;  // absolute: the same budget for every wait of the launch
  std::uint64_t grace_ns;     // see Wait::depth
  bool live;                  // false: this thread knows that the World was aborted and skips work, never arrivals
};

/// The address of a member, without an access.
template <class Struct, class Member>
FARWARP_DEVICE Global<Member> member(Global<Struct> object, Member Struct::*pointer) {
  return Global<Member>(&(object.raw->*pointer));
}

/// `rank`'s heap at `offset`, as this rank addresses it.
template <class T>
FARWARP_DEVICE Peer<T> peer_address(const WorldView& view, int rank, std::int64_t offset) {
  return Peer<T>(reinterpret_cast<T*>(view.heap[rank] + offset));
}

/// My own heap at `offset`.
template <class T>
FARWARP_DEVICE Global<T> own_address(const WorldView& view, std::int64_t offset) {
  return Global<T>(reinterpret_cast<T*>(view.heap[view.rank] + offset));
}

FARWARP_DEVICE Global<WorldControl> control_of(const WorldView& view) { return own_address<WorldControl>(view, 0); }

FARWARP_DEVICE Global<OperatorCells> cells_of(const Call& call) {
  return Global<OperatorCells>(&control_of(call.view).raw->operators[call.slot]);
}

FARWARP_DEVICE Global<SystemCell<std::uint32_t>> abort_cell(const Call& call) {
  return member(control_of(call.view), &WorldControl::abort);
}

/// [thread] Tells the host, and this thread's later work, that some rank raised the abort.
FARWARP_DEVICE void note_abort(Call& call, std::uint32_t raised_by) {
  call.live = false;
  store<Order::relaxed>(Peer<SystemCell<std::uint32_t>>(&call.view.ledger->aborted_by), raised_by);
}

/// [thread] give_up()'s work.
FARWARP_DEVICE void write_failure(const WorldView& view, std::uint32_t slot, std::uint32_t epoch,
                                  std::uint64_t waited_ns, StatusCode kind, std::uint32_t site, std::int32_t peer,
                                  std::uint64_t expected, std::uint64_t seen) {
  Ledger* ledger = view.ledger;
  // The counter lies in device memory: read-modify-writes on host memory need not be atomic over PCIe.
  const std::uint32_t claim =
      fetch_add<Order::relaxed, Scope::device>(member(control_of(view), &WorldControl::ledger_claims), 1u);
  if (claim < kLedgerRecords) {
    const Global<LedgerRecord> record(&ledger->records[claim]);
    store(member(record, &LedgerRecord::kind), static_cast<std::uint32_t>(kind));
    store(member(record, &LedgerRecord::rank), static_cast<std::uint32_t>(view.rank));
    store(member(record, &LedgerRecord::operator_), slot);
    store(member(record, &LedgerRecord::site), site);
    store(member(record, &LedgerRecord::peer), peer);
    store(member(record, &LedgerRecord::block), static_cast<std::uint32_t>(block_index()));
    store(member(record, &LedgerRecord::epoch), epoch);
    store(member(record, &LedgerRecord::expected), expected);
    store(member(record, &LedgerRecord::seen), seen);
    store(member(record, &LedgerRecord::waited_ns), waited_ns);
    store<Order::release, Scope::system>(member(record, &LedgerRecord::complete), 1u);
  }
  store<Order::release>(Peer<SystemCell<std::uint32_t>>(&ledger->count), claim + 1);
  for (int rank = 0; rank < view.size; ++rank) {
    const Peer<WorldControl> control = peer_address<WorldControl>(view, rank, 0);
    store<Order::release>(Peer<SystemCell<std::uint32_t>>(&control.raw->abort),
                          static_cast<std::uint32_t>(view.rank) + 1);
  }
}

/// Out of line: inlined at every wait it was half of the code of the MoE all-to-all, which a cold launch has to fetch.
FARWARP_COLD void record_failure(const WorldView& view, std::uint32_t slot, std::uint32_t epoch,
                                 std::uint64_t waited_ns, StatusCode kind, std::uint32_t site, std::int32_t peer,
                                 std::uint64_t expected, std::uint64_t seen) {
  write_failure(view, slot, epoch, waited_ns, kind, site, peer, expected, seen);
}

/// [thread] Writes why this rank cannot go on into the ledger and raises the abort on every rank. The first reasons are
/// kept; what follows from an abort is not a reason of its own, so callers look at the abort first.
FARWARP_DEVICE void give_up(Call& call, StatusCode kind, std::uint32_t site, std::int32_t peer, std::uint64_t expected,
                            std::uint64_t seen) {
  record_failure(call.view, call.slot, call.epoch, nanoseconds() - call.started_ns, kind, site, peer, expected, seen);
  note_abort(call, static_cast<std::uint32_t>(call.view.rank) + 1);
}

/// [thread] The same without a call: where warps have given registers away, ptxas takes back the change for the sake of one.
FARWARP_DEVICE void give_up_in_place(Call& call, StatusCode kind, std::uint32_t site, std::int32_t peer,
                                     std::uint64_t expected, std::uint64_t seen) {
  write_failure(call.view, call.slot, call.epoch, nanoseconds() - call.started_ns, kind, site, peer, expected, seen);
  note_abort(call, static_cast<std::uint32_t>(call.view.rank) + 1);
}

/// [thread] A call's cells; `found_phase` is the half that comes next.
FARWARP_DEVICE Call read_call(const WorldView& view, std::uint32_t slot, std::uint32_t& found_phase) {
  Call call{view, slot, 0, nanoseconds(), 0, 0, true};
  const Global<OperatorCells> cells = cells_of(call);
  // Weak loads: the words were written by the previous kernel of this stream.
  call.epoch = load(member(cells, &OperatorCells::epoch));
  found_phase = load(member(cells, &OperatorCells::phase));
  const std::uint64_t budget = load(member(control_of(view), &WorldControl::deadline_ns));
  call.deadline_ns = call.started_ns + budget;
  call.grace_ns = budget / 32;
  // Whoever sees the abort tells the host, not one thread for all: others may have loaded the cell before it was raised.
  if (const std::uint32_t raised_by = load<Order::relaxed>(abort_cell(call)); raised_by != 0)
    note_abort(call, raised_by);
  return call;
}

/// [thread] Takes the operator; false if another kernel of it still runs.
FARWARP_DEVICE bool take_operator(const Call& call) {
  return exchange<Order::acq_rel, Scope::device>(member(cells_of(call), &OperatorCells::busy), 1u) == 0;
}

/// [block] Enters the operator as the half number `phase` of a call. If the World is aborted, or the call is out of order,
/// `live` is false on every thread of the block and the kernel returns at once, without end_call().
FARWARP_DEVICE Call begin_call(const WorldView& view, std::uint32_t slot, std::uint32_t phase) {
  std::uint32_t found_phase = 0;
  Call call = read_call(view, slot, found_phase);
  if (call.live && block_index() == 0 && thread_index() == 0 && (!take_operator(call) || found_phase != phase))
    give_up(call, StatusCode::kMisuse, kSiteBegin, -1, phase, found_phase);
  call.live = !block_any(found_phase != phase || !call.live);
  return call;
}

/// [block] The same for an operator of one half whose kernel does not wait for the operator to be taken, which costs block 0 a
/// microsecond: one thread of block 0 calls claim_call() beside the block's work, before it leaves. That finds most misuse, not all:
/// blocks of two kernels that run at once are counted together.
FARWARP_DEVICE Call join_call(const WorldView& view, std::uint32_t slot) {
  std::uint32_t found_phase = 0;
  Call call = read_call(view, slot, found_phase);
  call.live = !block_any(!call.live);
  return call;
}

/// [thread] Takes the operator; where another kernel of it still runs, the call is given up: what it wrote counts for nothing.
FARWARP_DEVICE void claim_call(Call& call) {
  if (!take_operator(call)) give_up_in_place(call, StatusCode::kMisuse, kSiteBegin, -1, 0, 0);
}

/// Epoch 0 is left out when epochs wrap: fresh memory is zeroed, and would pass for packets of that call. 4 keeps the turn of two
/// copies, and of four.
constexpr std::uint32_t next_epoch(std::uint32_t epoch) { return epoch + 1 == 0 ? 4 : epoch + 1; }

/// [thread] One thread leaves the operator for its block, at any time after all of the block that read its cells have done so. The last block
/// of the kernel advances the phase; after phase `last` the epoch advances. An aborted block leaves like any other: the cells are
/// left as a completed kernel leaves them.
FARWARP_DEVICE void leave_call(const Call& call, std::uint32_t next_phase) {
  const Global<OperatorCells> cells = cells_of(call);
  const auto arrived = fetch_add<Order::acq_rel, Scope::device>(member(cells, &OperatorCells::blocks_inside), 1u);
  if (arrived + 1 != static_cast<std::uint32_t>(num_blocks())) return;
  store(member(cells, &OperatorCells::blocks_inside), 0u);
  store(member(cells, &OperatorCells::phase), next_phase);
  if (next_phase == 0) store(member(cells, &OperatorCells::epoch), next_epoch(call.epoch));
  store<Order::release, Scope::device>(member(cells, &OperatorCells::busy), 0u);
}

/// [block] Leaves the operator once all threads of the block are done.
FARWARP_DEVICE void end_call(const Call& call, std::uint32_t next_phase) {
  block_sync();
  if (thread_index() == 0) leave_call(call, next_phase);
}

// ---- signals --------------------------------------------------------------------------------------------------------

constexpr std::uint64_t tagged(std::uint32_t tag, std::uint32_t value) {
  return static_cast<std::uint64_t>(tag) << 32 | value;
}

/// [block] Publishes everything the block has written so far, then writes `value_of(i)` to `cell_of(i)` for i in 0 .. count-1.
/// Pairs with wait_tagged(). Every warp drains its stores, the barrier makes them the writers', and their system-scope
/// release makes them visible (contract.md, "signal after a block's writes").
template <class CellOf, class ValueOf>
FARWARP_DEVICE void signal_after_block(int count, const CellOf& cell_of, const ValueOf& value_of) {
  drain_stores();
  block_sync();
  for (int i = thread_index(); i < count; i += num_threads()) store<Order::release>(cell_of(i), value_of(i));
}

/// [warp] Publishes everything the warp has written so far, then calls `store_flags` on its first lane, which makes relaxed
/// stores to cells: one fence makes releases of them all. Pairs with wait_tagged().
template <class StoreFlags>
FARWARP_DEVICE void signal_after_warp(const StoreFlags& store_flags) {
  drain_stores();
  warp_sync();
  if (lane_index() != 0) return;
  fence<Order::release, Scope::system>();
  store_flags();
}

}  // namespace farwarp::FARWARP_TARGET
