// Failures: what kernels reported, the abort from the host, and recover(). world/README.md explains the order of its
// steps.
#include <fmt/format.h>

#include <algorithm>

#include "farwarp/world/host/world_state.h"

namespace farwarp {
namespace {

/// Waits for all streams within one deadline.
Status drain(Device& device, const std::vector<Stream>& streams, std::chrono::nanoseconds timeout) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  for (std::size_t i = 0; i < streams.size(); ++i) {
    const auto left =
        std::max(std::chrono::nanoseconds(0), std::chrono::nanoseconds(deadline - std::chrono::steady_clock::now()));
    Status drained = device.synchronize(streams[i], static_cast<std::uint64_t>(left.count()));
    if (!drained.ok())
      return {drained.code(),
              fmt::format("stream {} of {} cannot drain: {}", i + 1, streams.size(), drained.message())};
  }
  return {};
}

}  // namespace

Status World::status() const {
  if (Status usable = check_usable(); !usable.ok()) return usable;
  const State& state = *state_;
  if (state.lost.load(std::memory_order_acquire)) return state.lost_status;
  if (state.ledger->clean()) return {};
  const Status failure =
      state.ledger->first_failure([&](std::uint32_t slot, std::uint32_t site) { return state.names(slot, site); });
  if (failure.code() != StatusCode::kDeadline) return failure;
  const std::string late = state.device->late_host_threads();
  if (late.empty()) return failure;
  return {failure.code(), fmt::format("{}; these host threads did not wait in the library: {} (base/host_activity.h)",
                                      failure.message(), late)};
}

std::vector<WaitRecord> World::ledger() const {
  if (!state_) return {};
  const State& state = *state_;
  return state.ledger->records([&](std::uint32_t slot, std::uint32_t site) { return state.names(slot, site); });
}

void World::abort() {
  if (!state_) return;
  State& state = *state_;
  state.ledger->note_abort(rank());
  // A failure here is ignored: the peers' own deadlines end their waits.
  for (int peer = 0; peer < size(); ++peer) (void)state.raise_abort(peer);
  (void)state.synchronize();
}

Status World::State::raise_abort(int peer) {
  auto* const peers = reinterpret_cast<WorldControl*>(heap->base(peer));
  const std::uint32_t raised_by = static_cast<std::uint32_t>(view.rank) + 1;
  return device->copy_in(&peers->abort, &raised_by, sizeof(raised_by), *stream);
}

/// A call in flight ends by itself: with its peers, or at most 5/32 of the deadline after it (Wait::depth). Kernels
/// enqueued after an aborted call return at once. So the second wait is for kernels that are late for another reason.
Status World::State::drain() {
  const std::uint64_t longest_call = timeout_ns() + timeout_ns() / 4;
  const Status drained = device->synchronize_all(longest_call);
  if (drained.ok()) return drained;
  (void)raise_abort(view.rank);
  return device->synchronize_all(longest_call);
}

Status World::recover(const std::vector<Stream>& streams) {
  if (Status usable = check_usable(); !usable.ok()) return usable;
  State& state = *state_;
  if (state.lost.load(std::memory_order_acquire)) return state.lost_status;

  // A rank that is missing after the time of its own drain and a host deadline counts as dead.
  const auto lost_unless_ok = [&](const Status& status) {
    if (status.ok() || status.code() == StatusCode::kMismatch) return status;
    return state.lose(fmt::format("recover: {}", status.message()));
  };
  const Status drained = drain(*state.device, streams, state.host_timeout);
  if (Status same = lost_unless_ok(state.collectives.check_same_call("recover", state.host_timeout)); !same.ok())
    return same;
  if (Status all = lost_unless_ok(state.collectives.all_ok(drained)); !all.ok()) return all;

  // From here on no kernel of any rank runs, so no kernel raises the abort again or advances an epoch.
  auto highest = state.agree_highest_epoch();
  if (!highest.ok()) return lost_unless_ok(highest.status());
  const std::uint32_t epoch = fresh_epoch(*highest);
  state.highest_epoch = epoch;
  state.ledger->clear();
  // No rank launches a kernel before all have reset their state.
  const Status reset = lost_unless_ok(state.collectives.all_ok(state.reset_control(epoch)));
  if (reset.ok()) ++state.recoveries;
  return reset;
}

std::uint32_t World::recoveries() const { return state_ ? state_->recoveries : 0; }

/// Clears abort and ledger claims, makes every open operator idle at `epoch`, and refills buffers that an aborted call
/// may have left half read.
Status World::State::reset_control(std::uint32_t epoch) {
  const std::uint32_t zero = 0;
  if (Status cleared = device->copy_in(&control()->abort, &zero, sizeof(zero), *stream); !cleared.ok()) return cleared;
  if (Status cleared = device->copy_in(&control()->ledger_claims, &zero, sizeof(zero), *stream); !cleared.ok())
    return cleared;
  for (const auto& [buffer, fill] : refilled) {
    if (Status filled = device->fill(buffer.local, fill, buffer.bytes, *stream); !filled.ok()) return filled;
  }
  for (int slot = 0; slot < kMaxOperators; ++slot) {
    if (!operators[slot]) continue;
    if (Status written = write_cells(slot, epoch); !written.ok()) return written;
  }
  return synchronize();
}

}  // namespace farwarp
