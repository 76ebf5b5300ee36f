// A check by a group of processes, of which one is stopped.
#include <gtest/gtest.h>

#include "farwarp/harness/runner.h"
#include "farwarp/world/host/fork_ranks.h"
#include "farwarp/world/host/stopped_rank.h"

namespace farwarp::harness {
namespace {

using namespace std::chrono_literals;

constexpr int kRanks = 3;

/// Rank 1 stops before the others call true_on_all() (`asks`), or before they exchange outcomes.
class StoppingCase : public Case {
 public:
  StoppingCase(StoppedRank& stopped, bool asks) : stopped_(&stopped), asks_(asks) {}
  std::string describe() const override { return "stopping"; }
  CheckOutcome check(std::shared_ptr<Bootstrap> bootstrap, const RunOptions&) override {
    std::this_thread::sleep_for(bootstrap->rank() == 0 ? 1500ms : 0ms);  // verifies for longer than the deadline
    auto agreed = true_on_all(*bootstrap, true);
    if (bootstrap->rank() == 1) stopped_->stop();
    stopped_->wait_until_stopped();
    if (agreed.ok() && asks_) agreed = true_on_all(*bootstrap, true);
    return judge("here", agreed.status(), {true, "", 0, 0}, "");
  }

 private:
  StoppedRank* stopped_;
  bool asks_;
};

TEST(RunnerOfProcesses, ARankThatIsAliveIsWaitedForAndAStoppedOneIsNamed) {
  for (const bool asks : {true, false}) {
    StoppedRank stopped;
    const std::string rendezvous = fresh_rendezvous();
    const std::vector<int> statuses = fork_ranks(kRanks, [&](int rank) {
      auto group = make_process_bootstrap(rank, kRanks, rendezvous, 20s);
      ASSERT_TRUE(group.ok()) << group.status().to_string();
      OperatorInfo op;
      op.name = "stopping";
      op.make = [&](const Params&) -> Result<std::unique_ptr<Case>> {
        return std::unique_ptr<Case>(new StoppingCase(stopped, asks));
      };
      CaseRequest request;
      request.op = &op;
      request.options.ranks = kRanks;
      request.options.deadline = 300ms;
      const CaseResult result = run_case(request, *group, [](int) {});
      EXPECT_FALSE(result.outcome.pass);
      EXPECT_TRUE(result.group_lost);
      EXPECT_EQ(exit_code(result), 4);
      EXPECT_NE(result.outcome.detail.find("rank 1 did not come"), std::string::npos) << result.outcome.detail;
      EXPECT_LT(result.seconds, 1.5 + 2.0);
      stopped.leave(kRanks - 1, SIGKILL);
    });
    for (int rank = 0; rank < kRanks; ++rank) EXPECT_EQ(statuses[rank], rank == 1 ? SIGKILL : 0) << "rank " << rank;
  }
}

}  // namespace
}  // namespace farwarp::harness
