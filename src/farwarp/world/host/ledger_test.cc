#include <gtest/gtest.h>

#include "farwarp/world/host/world.h"

namespace farwarp {
namespace {

using namespace std::chrono_literals;

TEST(WaitRecord, SaysWhoWaitedWhereForWhom) {
  WaitRecord record{StatusCode::kDeadline, 2, "moe_a2a", "dispatch header", 5, 7, 7, 6, 10'000'000'123ns};
  EXPECT_EQ(record.to_string(),
            "rank 2 waited 10.0 s in moe_a2a at 'dispatch header' for rank 5: expected 7, saw 6 (epoch 7)");
  record.waited = 12'300us;
  record.peer = -1;
  EXPECT_EQ(record.to_string(), "rank 2 waited 12.3 ms in moe_a2a at 'dispatch header': expected 7, saw 6 (epoch 7)");
}

TEST(WaitRecord, SaysWhatAKernelFoundWrong) {
  const WaitRecord record{StatusCode::kMismatch, 2, "moe_a2a", "configuration", 1, 4, 10, 11, 5us};
  EXPECT_EQ(record.to_string(), "rank 2 in moe_a2a at 'configuration' from rank 1: expected 10, saw 11 (epoch 4)");
}

}  // namespace
}  // namespace farwarp
