// Ranks as threads of one process: a generation barrier that carries data.
#include <fmt/format.h>

#include <condition_variable>
#include <mutex>
#include <optional>

#include "farwarp/base/host_activity.h"
#include "farwarp/world/host/bootstrap.h"
#include "farwarp/world/host/bootstrap_detail.h"
#include "farwarp/world/host/unique_fd.h"

namespace farwarp {
namespace {

using detail::CollectiveKind;

struct Contribution {
  CollectiveKind kind;
  std::vector<std::byte> bytes;
  UniqueFd fd;
};
using Round = std::vector<Contribution>;  // in rank order

class ThreadGroup {
 public:
  explicit ThreadGroup(int size) : seats_(size) {}

  int size() const { return static_cast<int>(seats_.size()); }

  /// Waits for all ranks and returns every rank's contribution. A failure is final: later calls of any rank return it
  /// at once.
  Result<std::shared_ptr<const Round>> exchange(int rank, Contribution mine, std::chrono::milliseconds timeout) {
    std::unique_lock lock(mutex_);
    if (broken_) return *broken_;
    Seat& seat = seats_[rank];
    if (seat.contribution)
      return Status{StatusCode::kMisuse, fmt::format("rank {} is in two collectives at once", rank)};
    seat.contribution = std::move(mine);
    if (++arrived_ == size()) {
      complete_round();
      return std::move(seat.result);
    }
    // Constructed and destroyed under the lock, because the thread that completes the round may call wake() on it.
    HostBlockedScope blocked;
    seat.blocked = &blocked;
    changed_.wait_until(lock, detail::deadline_after(timeout), [&] { return seat.result || broken_; });
    seat.blocked = nullptr;
    if (seat.result) return std::move(seat.result);
    if (!broken_) break_group(detail::ranks_did_not_come(missing_ranks(), "a collective call", timeout));
    return *broken_;
  }

  void leave(int rank) {
    std::lock_guard lock(mutex_);
    if (!broken_) break_group({StatusCode::kPeerLost, fmt::format("rank {} left the group", rank)});
  }

 private:
  struct Seat {
    std::optional<Contribution> contribution;  // of the round in progress
    std::shared_ptr<const Round> result;       // of the round that ended, until its rank has taken it
    HostBlockedScope* blocked = nullptr;
  };

  void complete_round() {
    auto round = std::make_shared<Round>();
    for (Seat& seat : seats_) round->push_back(std::move(*seat.contribution));
    for (Seat& seat : seats_) {
      seat.contribution.reset();
      seat.result = round;
    }
    arrived_ = 0;
    wake_all();
  }

  void break_group(Status status) {
    broken_ = std::move(status);
    wake_all();
  }

  void wake_all() {
    for (Seat& seat : seats_) {
      if (seat.blocked) seat.blocked->wake();
    }
    changed_.notify_all();
  }

  std::vector<int> missing_ranks() const {
    std::vector<int> missing;
    for (int rank = 0; rank < size(); ++rank) {
      if (!seats_[rank].contribution) missing.push_back(rank);
    }
    return missing;
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Seat> seats_;
  int arrived_ = 0;
  std::optional<Status> broken_;
};

/// The emulator waits for a rank's thread from its first collective call until the thread ends.
void register_this_thread(int rank) { thread_local const HostThreadScope registered(fmt::format("rank {}", rank)); }

class ThreadBootstrap : public Bootstrap {
 public:
  ThreadBootstrap(std::shared_ptr<ThreadGroup> group, int rank) : group_(std::move(group)), rank_(rank) {}
  ~ThreadBootstrap() override { group_->leave(rank_); }

  int rank() const override { return rank_; }
  int size() const override { return group_->size(); }
  bool same_process() const override { return true; }

  Result<std::vector<std::vector<std::byte>>> allgather(const std::vector<std::byte>& mine,
                                                        std::chrono::milliseconds timeout) override {
    auto round = exchange({CollectiveKind::kAllgather, mine, UniqueFd()}, timeout);
    if (!round.ok()) return round.status();
    std::vector<std::vector<std::byte>> all;
    for (const Contribution& contribution : **round) all.push_back(contribution.bytes);
    return all;
  }

  Result<std::vector<int>> allgather_fds(int mine, std::chrono::milliseconds timeout) override {
    // The round holds a duplicate, so that the sender may close its own descriptor as soon as this call returns.
    auto round = exchange({CollectiveKind::kAllgatherFds, {}, duplicate(mine)}, timeout);
    if (!round.ok()) return round.status();
    std::vector<int> all;
    for (const Contribution& contribution : **round) all.push_back(duplicate(contribution.fd.get()).release());
    return all;
  }

 private:
  Result<std::shared_ptr<const Round>> exchange(Contribution mine, std::chrono::milliseconds timeout) {
    register_this_thread(rank_);
    auto round = group_->exchange(rank_, std::move(mine), timeout);
    if (!round.ok()) return round;
    std::vector<CollectiveKind> kinds;
    for (const Contribution& contribution : **round) kinds.push_back(contribution.kind);
    if (Status same = detail::check_same_collective(kinds); !same.ok()) return same;
    return round;
  }

  std::shared_ptr<ThreadGroup> group_;
  int rank_;
};

}  // namespace

std::vector<std::shared_ptr<Bootstrap>> make_thread_bootstraps(int size) {
  auto group = std::make_shared<ThreadGroup>(size);
  std::vector<std::shared_ptr<Bootstrap>> bootstraps;
  for (int rank = 0; rank < size; ++rank) bootstraps.push_back(std::make_shared<ThreadBootstrap>(group, rank));
  return bootstraps;
}

}  // namespace farwarp
