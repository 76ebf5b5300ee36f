// Call: what one kernel knows of its operator's call: the epoch, the deadline, and whether the World has been aborted.
// A kernel gives up through it, so that no rank hangs. begin_call() or join_call() makes it; end_call() or leave_call()
// ends it. Below it: signals, which publish a call's data to peers.
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
  std::uint64_t deadline_ns;  // absolute, the same for every wait of the launch; fleet sets it for each token
  std::uint64_t grace_ns;     // see Wait::depth
  bool live;                  // false: this thread knows of the abort: it skips work, but still arrives at barriers
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

/// [thread] Records an abort in the ledger, where the host sees it, and in `call`. `raised_by` is 1 + the rank that
/// raised it.
FARWARP_DEVICE void record_abort(Call& call, std::uint32_t raised_by) {
  call.live = false;
  store<Order::relaxed>(Peer<SystemCell<std::uint32_t>>(&call.view.ledger->aborted_by), raised_by);
}

/// [thread] The body of give_up().
FARWARP_DEVICE void write_failure(const WorldView& view, std::uint32_t slot, std::uint32_t epoch,
                                  std::uint64_t waited_ns, StatusCode kind, std::uint32_t site, std::int32_t peer,
                                  std::uint64_t expected, std::uint64_t seen) {
  Ledger* ledger = view.ledger;
  // The counter is in device memory: read-modify-writes on host memory need not be atomic over PCIe.
  const std::uint32_t claim =
      fetch_add<Order::relaxed, Scope::device>(member(control_of(view), &WorldControl::ledger_claims), 1u);
  if (claim < kLedgerRecords) {
    const Global<LedgerRecord> record(&ledger->records[claim]);
    // recomputed(): AMD's compiler would keep these constants in registers from the kernel's begin on.
    store(member(record, &LedgerRecord::kind), static_cast<std::uint32_t>(recomputed(static_cast<int>(kind))));
    store(member(record, &LedgerRecord::rank), static_cast<std::uint32_t>(view.rank));
    store(member(record, &LedgerRecord::operator_), slot);
    store(member(record, &LedgerRecord::site), static_cast<std::uint32_t>(recomputed(static_cast<int>(site))));
    store(member(record, &LedgerRecord::peer), recomputed(peer));
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

/// Not inlined: inlined at every wait it was half of the MoE all-to-all's code, and a cold launch has to fetch all of
/// it.
FARWARP_COLD void record_failure(const WorldView& view, std::uint32_t slot, std::uint32_t epoch,
                                 std::uint64_t waited_ns, StatusCode kind, std::uint32_t site, std::int32_t peer,
                                 std::uint64_t expected, std::uint64_t seen) {
  write_failure(view, slot, epoch, waited_ns, kind, site, peer, expected, seen);
}

/// [thread] Records in the ledger why this rank gives up, and raises the abort on every rank. The ledger keeps the
/// first kLedgerRecords records. Callers check the abort first: a wait that an abort ended gets no record.
FARWARP_DEVICE void give_up(Call& call, StatusCode kind, std::uint32_t site, std::int32_t peer, std::uint64_t expected,
                            std::uint64_t seen) {
  record_failure(call.view, call.slot, call.epoch, nanoseconds() - call.started_ns, kind, site, peer, expected, seen);
  record_abort(call, static_cast<std::uint32_t>(call.view.rank) + 1);
}

/// [thread] give_up() inlined, for kernels whose warps change their register counts (setmaxnreg): ptxas ignores the
/// change in a kernel that calls a function.
FARWARP_DEVICE void give_up_inlined(Call& call, StatusCode kind, std::uint32_t site, std::int32_t peer,
                                    std::uint64_t expected, std::uint64_t seen) {
  write_failure(call.view, call.slot, call.epoch, nanoseconds() - call.started_ns, kind, site, peer, expected, seen);
  record_abort(call, static_cast<std::uint32_t>(call.view.rank) + 1);
}

/// [thread] Reads the operator's cells. `found_phase` is the phase that they expect next.
FARWARP_DEVICE Call read_call(const WorldView& view, std::uint32_t slot, std::uint32_t& found_phase) {
  Call call{view, slot, 0, nanoseconds(), 0, 0, true};
  const Global<OperatorCells> cells = cells_of(call);
  // Weak loads suffice: the previous kernel of this stream wrote these words.
  call.epoch = load(member(cells, &OperatorCells::epoch));
  found_phase = load(member(cells, &OperatorCells::phase));
  const std::uint64_t budget = load(member(control_of(view), &WorldControl::deadline_ns));
  call.deadline_ns = call.started_ns + budget;
  call.grace_ns = budget / 32;
  // Each thread that sees the abort reports it to the host: other threads may have loaded the cell before it was
  // raised.
  if (const std::uint32_t raised_by = load<Order::relaxed>(abort_cell(call)); raised_by != 0)
    record_abort(call, raised_by);
  return call;
}

/// [thread] Marks the operator busy; false if another of its kernels has not left its call. One that has may still run:
/// moe-a2a's leave it early. Pairs with the release in leave_call().
FARWARP_DEVICE bool mark_busy(const Call& call) {
  return exchange<Order::acq_rel, Scope::device>(member(cells_of(call), &OperatorCells::busy), 1u) == 0;
}

/// [block] Joins and claims the call as its phase `phase`. If the World is aborted, or the call is out of order, `live`
/// is false on every thread of the block; the kernel must then return at once, without end_call().
FARWARP_DEVICE Call begin_call(const WorldView& view, std::uint32_t slot, std::uint32_t phase) {
  std::uint32_t found_phase = 0;
  Call call = read_call(view, slot, found_phase);
  if (call.live && block_index() == 0 && thread_index() == 0 && (!mark_busy(call) || found_phase != phase))
    give_up(call, StatusCode::kMisuse, kSiteBegin, -1, phase, found_phase);
  call.live = !block_any(found_phase != phase || !call.live);
  return call;
}

/// [block] begin_call() for an operator of one phase, without the claim, which costs block 0 one microsecond. One
/// thread of block 0 calls claim_call() while the block works, before the block leaves the call. This detects most
/// misuse, not all: the blocks of two kernels that run at the same time are counted together.
FARWARP_DEVICE Call join_call(const WorldView& view, std::uint32_t slot) {
  std::uint32_t found_phase = 0;
  Call call = read_call(view, slot, found_phase);
  call.live = !block_any(!call.live);
  return call;
}

/// [block] The same for an operator of several phases; also false if `phase` is not the next one, which is misuse.
FARWARP_DEVICE Call join_call(const WorldView& view, std::uint32_t slot, std::uint32_t phase) {
  std::uint32_t found_phase = 0;
  Call call = read_call(view, slot, found_phase);
  if (call.live && found_phase != phase && block_index() == 0 && thread_index() == 0)
    give_up(call, StatusCode::kMisuse, kSiteBegin, -1, phase, found_phase);
  call.live = !block_any(found_phase != phase || !call.live);
  return call;
}

/// [thread] Marks the operator busy. If another of its kernels has not left its call, gives up this one: what it has
/// written is then invalid.
FARWARP_DEVICE void claim_call(Call& call) {
  if (!mark_busy(call)) give_up_inlined(call, StatusCode::kMisuse, kSiteBegin, -1, 0, 0);
}

/// Skips epoch 0 when epochs wrap: zeroed memory would look like packets of that call. The next one is then 4, so that
/// buffers that the epoch's lowest one or two bits choose keep alternating.
constexpr std::uint32_t next_epoch(std::uint32_t epoch) { return epoch + 1 == 0 ? 4 : epoch + 1; }

/// [thread] Leaves the call for the whole block. One thread calls it, after all threads of the block that read the
/// operator's cells have done so. The last block of the kernel sets the phase to `next_phase`; if that is 0, the call
/// is over and the epoch advances. A block that sees the abort after begin_call() must leave, too. A block whose
/// begin_call() saw it must not: the cells are undefined until recover().
FARWARP_DEVICE void leave_call(const Call& call, std::uint32_t next_phase) {
  const Global<OperatorCells> cells = cells_of(call);
  const auto left = fetch_add<Order::acq_rel, Scope::device>(member(cells, &OperatorCells::blocks_gone), 1u);
  if (left + 1 != static_cast<std::uint32_t>(num_blocks())) return;
  store(member(cells, &OperatorCells::blocks_gone), 0u);
  store(member(cells, &OperatorCells::phase), next_phase);
  if (next_phase == 0) store(member(cells, &OperatorCells::epoch), next_epoch(call.epoch));
  store<Order::release, Scope::device>(member(cells, &OperatorCells::busy), 0u);
}

/// [block] Leaves the call once all threads of the block are done.
FARWARP_DEVICE void end_call(const Call& call, std::uint32_t next_phase) {
  block_sync();
  if (thread_index() == 0) leave_call(call, next_phase);
}

// ---- signals --------------------------------------------------------------------------------------------------------

constexpr std::uint64_t tagged(std::uint32_t tag, std::uint32_t value) {
  return static_cast<std::uint64_t>(tag) << 32 | value;
}

/// [thread] Stores `value` to a cell at a peer, which a wait there awaits. A trace has it as the begin of an arrow.
template <Order order>
FARWARP_DEVICE void signal_cell(Peer<SystemCell<std::uint64_t>> cell, std::uint64_t value) {
  const TraceStart start = trace_start();
  store<order>(cell, value);
  if constexpr (kTraced)
    trace_end(start, {.where = reinterpret_cast<std::uint64_t>(cell.raw),
                      .tag = static_cast<std::uint32_t>(value >> 32),
                      .work = TraceWork::kPut});
}

/// [block] Publishes everything the block has written so far, then writes `value_of(i)` to `cell_of(i)` for i in 0 ..
/// count-1. Pairs with wait_tagged(). Every warp drains its stores; the barrier orders them before the threads that
/// signal; the system-scope release of these makes them visible (contract.md, "signal after a block's writes").
template <class CellOf, class ValueOf>
FARWARP_DEVICE void signal_after_block(int count, const CellOf& cell_of, const ValueOf& value_of) {
  drain_stores();
  block_sync();
  for (int i = thread_index(); i < count; i += num_threads()) signal_cell<Order::release>(cell_of(i), value_of(i));
}

/// [warp] Publishes everything the warp has written so far, then calls `store_flags` on its first lane, which makes
/// relaxed stores to cells: the one fence before them makes all of them releases. Pairs with wait_tagged().
template <class StoreFlags>
FARWARP_DEVICE void signal_after_warp(const StoreFlags& store_flags) {
  drain_stores();
  warp_sync();
  if (lane_index() != 0) return;
  fence<Order::release, Scope::system>();
  store_flags();
}

}  // namespace farwarp::FARWARP_TARGET
