#include <gtest/gtest.h>

#include "farwarp/world/host/world.h"

namespace farwarp {
namespace {

using namespace std::chrono_literals;

TEST(WaitRecord, SaysWhoWaitedWhereForWhom) {
  WaitRecord record{StatusCode::kDeadline, 2, "moe_a2a", "dispatch header", 5, 7, 7, 5, 10'000'000'123ns};
  EXPECT_EQ(record.to_string(),
            "rank 2 waited 10.0 s in moe_a2a at 'dispatch header' for rank 5: expected 7, saw 5 (epoch 7)");
  record.waited = 12'300us;
  record.peer = -1;
  EXPECT_EQ(record.to_string(), "rank 2 waited 12.3 ms in moe_a2a at 'dispatch header': expected 7, saw 5 (epoch 7)");
}

TEST(WaitRecord, ValuesThatStandForNothingAreNotPrinted) {
  const WaitRecord words{StatusCode::kDeadline, 1, "gemm-rs", "partial sums", 0, 2, 0, kNothingSeen, 500ms};
  EXPECT_EQ(words.to_string(),
            "rank 1 waited 500.0 ms in gemm-rs at 'partial sums' for rank 0: nothing arrived (epoch 2)");
  const WaitRecord copy{StatusCode::kDeadline, 1, "gemm-rs", "copy", -1, 0, 1, kNothingSeen, 500ms};
  EXPECT_EQ(copy.to_string(), "rank 1 waited 500.0 ms in gemm-rs at 'copy': nothing arrived");
}

TEST(WaitRecord, SaysWhatAKernelFoundWrong) {
  const auto said = [](StatusCode kind, const char* site, std::uint64_t expected, std::uint64_t seen) {
    return WaitRecord{kind, 2, "moe_a2a", site, -1, 4, expected, seen, 5us}.to_string();
  };
  EXPECT_EQ(said(StatusCode::kBadInput, "expert index", 7, 8),
            "rank 2 in moe_a2a at 'expert index': found 8, allowed is at most 7 (epoch 4)");
  EXPECT_EQ(said(StatusCode::kBadInput, "token count", 7, static_cast<std::uint64_t>(std::int64_t{-5})),
            "rank 2 in moe_a2a at 'token count': found -5, which is too small (epoch 4)");
  EXPECT_EQ(
      said(StatusCode::kBadInput, "key_starts", 30, 12),
      "rank 2 in moe_a2a at 'key_starts': found 12, which is too small (epoch 4)");  // less than the start before it
  EXPECT_EQ(said(StatusCode::kBadInput, "logits", kNothingSeen, 3ull << 32 | 17),
            "rank 2 in moe_a2a at 'logits': column 3 has no numbers at position 17 (epoch 4)");
  EXPECT_EQ(said(StatusCode::kCapacity, "receive capacity", 8, 19),
            "rank 2 in moe_a2a at 'receive capacity': there is room for 8, needed are 19 (epoch 4)");
  EXPECT_EQ(said(StatusCode::kMisuse, "the beginning of a call", 0, 0),
            "rank 2 in moe_a2a at 'the beginning of a call': another kernel of the operator still runs (epoch 4)");
  EXPECT_EQ(said(StatusCode::kMisuse, "the beginning of a call", 3, 1),
            "rank 2 in moe_a2a at 'the beginning of a call': this is part 4 of a call, and part 2 is next (epoch 4)");
  const WaitRecord record{StatusCode::kMismatch, 2, "moe_a2a", "configuration", 1, 4, 10, 11, 5us};
  EXPECT_EQ(record.to_string(), "rank 2 in moe_a2a at 'configuration' from rank 1: expected 10, saw 11 (epoch 4)");
}

}  // namespace
}  // namespace farwarp
