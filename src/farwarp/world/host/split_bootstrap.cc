#include "farwarp/world/host/split_bootstrap.h"

#include <fmt/format.h>

#include <algorithm>
#include <random>

#include "farwarp/world/host/collectives.h"

namespace farwarp {
namespace {

using Bootstraps = std::vector<std::shared_ptr<Bootstrap>>;

/// How the members of a subgroup find each other. All use the one of the subgroup's lowest rank.
struct Meeting {
  std::uint64_t rendezvous = 0;      // between processes: a unique name
  Bootstraps* bootstraps = nullptr;  // between threads: the members' bootstraps; each takes its own
};

std::uint64_t random_word() {
  std::random_device random;
  return static_cast<std::uint64_t>(random()) << 32 | random();
}

}  // namespace

Result<std::shared_ptr<Bootstrap>> split_bootstrap(Bootstrap& parent, int colour, std::chrono::milliseconds timeout) {
  Collectives collectives(std::shared_ptr<Bootstrap>(std::shared_ptr<void>(), &parent), timeout);  // not owned
  auto colours = collectives.gather(colour);
  if (!colours.ok()) return colours.status();
  std::vector<int> members;
  for (int rank = 0; rank < parent.size(); ++rank) {
    if ((*colours)[rank] == colour) members.push_back(rank);
  }
  const auto place = std::find(members.begin(), members.end(), parent.rank()) - members.begin();

  Meeting mine{random_word(), nullptr};
  Bootstraps bootstraps;
  if (parent.same_process() && place == 0) {
    bootstraps = make_thread_bootstraps(static_cast<int>(members.size()));
    mine.bootstraps = &bootstraps;
  }
  auto meetings = collectives.gather(mine);
  if (!meetings.ok()) return meetings.status();
  const Meeting& meeting = (*meetings)[members.front()];
  std::shared_ptr<Bootstrap> group;
  if (parent.same_process()) {
    group = std::move((*meeting.bootstraps)[place]);
    // The lowest rank's vector lives until all have taken theirs.
    if (Status taken = collectives.all_ok({}); !taken.ok()) return taken;
  }
  if (colour < 0) return unavailable(fmt::format("rank {} has colour {} and joins no subgroup", parent.rank(), colour));
  if (group) return group;
  return make_process_bootstrap(static_cast<int>(place), static_cast<int>(members.size()),
                                fmt::format("split-{:016x}", meeting.rendezvous), timeout);
}

}  // namespace farwarp
