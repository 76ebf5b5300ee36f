#include "farwarp/world/host/bootstrap.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <latch>
#include <thread>

#include "farwarp/base/host_activity.h"
#include "farwarp/world/host/bootstrap_detail.h"

namespace farwarp {
namespace detail {

std::string_view name_of(CollectiveKind kind) {
  switch (kind) {
    case CollectiveKind::kAllgather: return "allgather";
    case CollectiveKind::kAllgatherFds: return "allgather_fds";
  }
  return "an unknown collective";
}

Status check_same_collective(const std::vector<CollectiveKind>& kinds) {
  for (std::size_t rank = 1; rank < kinds.size(); ++rank) {
    if (kinds[rank] == kinds[0]) continue;
    return {StatusCode::kMismatch,
            fmt::format("rank {} called {} where rank 0 called {}: ranks must make the same calls in the same order",
                        rank, name_of(kinds[rank]), name_of(kinds[0]))};
  }
  return {};
}

std::string name_ranks(const std::vector<int>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if (i > 0) text += i + 1 == ranks.size() ? " and " : ", ";
    text += std::to_string(ranks[i]);
  }
  return text;
}

Status ranks_did_not_come(const std::vector<int>& missing, std::string_view where, std::chrono::milliseconds timeout) {
  return {StatusCode::kDeadline,
          fmt::format("{} did not come to {} within {} ms", name_ranks(missing), where, timeout.count())};
}

std::chrono::steady_clock::time_point deadline_after(std::chrono::milliseconds timeout) {
  constexpr std::chrono::milliseconds kLongest = std::chrono::hours(24 * 365);
  return std::chrono::steady_clock::now() + std::clamp(timeout, std::chrono::milliseconds(0), kLongest);
}

}  // namespace detail

Status Bootstrap::barrier(std::chrono::milliseconds timeout) {
  // The word distinguishes a barrier from any other all-gather, so that all ranks detect a rank in the wrong
  // collective.
  static constexpr char kWord[] = "farwarp barrier";
  std::vector<std::byte> word(sizeof(kWord));
  std::memcpy(word.data(), kWord, sizeof(kWord));
  auto all = allgather(word, timeout);
  if (!all.ok()) return all.status();
  for (int other = 0; other < size(); ++other) {
    if ((*all)[other] == word) continue;
    return {StatusCode::kMismatch,
            fmt::format("rank {} was in a barrier, rank {} in another collective: ranks must make the same calls "
                        "in the same order",
                        rank(), other)};
  }
  return {};
}

Status run_ranks(int size, const std::function<Status(std::shared_ptr<Bootstrap>)>& body) {
  std::vector<std::shared_ptr<Bootstrap>> bootstraps = make_thread_bootstraps(size);
  std::vector<Status> outcomes(bootstraps.size());
  // No rank starts before all threads are registered. The emulator runs while all registered threads are blocked, so it
  // could otherwise run before a thread that the operating system has not started yet.
  std::latch all_registered(static_cast<std::ptrdiff_t>(bootstraps.size()));
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < bootstraps.size(); ++rank) {
    threads.emplace_back([&, rank] {
      HostThreadScope registered(fmt::format("rank {}", rank));
      all_registered.arrive_and_wait();
      outcomes[rank] = body(std::move(bootstraps[rank]));
    });
  }
  {
    HostBlockedScope blocked;
    for (std::thread& thread : threads) thread.join();
  }
  // When a rank fails and returns, the others report kPeerLost. The cause is more useful, so it is returned first.
  const auto is_cause = [](const Status& status) { return !status.ok() && status.code() != StatusCode::kPeerLost; };
  const auto is_failure = [](const Status& status) { return !status.ok(); };
  auto first = std::find_if(outcomes.begin(), outcomes.end(), is_cause);
  if (first == outcomes.end()) first = std::find_if(outcomes.begin(), outcomes.end(), is_failure);
  return first == outcomes.end() ? Status{} : *first;
}

}  // namespace farwarp
