#include "farwarp/ops/moe_a2a/plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <vector>

#include "farwarp/ops/moe_a2a/args.h"
#include "farwarp/ops/moe_a2a/tensors.h"

namespace farwarp {
namespace {

MoeAllToAllDesc small() {
  MoeAllToAllDesc desc;
  desc.num_experts = 64;
  desc.experts_per_token = 6;
  desc.hidden = 2048;
  desc.max_tokens = 32;
  return desc;
}

MachineShape emulated() {
  MachineShape shape;
  shape.traits = traits_of(TargetKind::kEmuSm90);
  return shape;
}

TEST(Plan, EveryExpertLivesOnTheRankThatItsFormulaNames) {
  for (int ranks = 2; ranks <= 8; ++ranks) {
    for (int experts : {ranks, 13, 64, 257}) {
      if (experts < ranks) continue;
      EXPECT_EQ(moe_first_expert(0, ranks, experts), 0);
      EXPECT_EQ(moe_first_expert(ranks, ranks, experts), experts);
      for (int e = 0; e < experts; ++e) {
        const int rank = moe_rank_of(e, ranks, experts);
        EXPECT_GE(e, moe_first_expert(rank, ranks, experts));
        EXPECT_LT(e, moe_first_expert(rank + 1, ranks, experts));
        EXPECT_LE(moe_first_expert(rank + 1, ranks, experts) - moe_first_expert(rank, ranks, experts),
                  (experts + ranks - 1) / ranks);
      }
    }
  }
}

TEST(Plan, ModeFollowsTheBytesOutAndSaysWhy) {
  auto few = plan_moe_all_to_all(small(), emulated(), 8);
  ASSERT_TRUE(few.ok()) << few.status().to_string();
  EXPECT_EQ(few->mode, MoeMode::kWords);
  EXPECT_NE(few->why_mode.find("KiB out per rank"), std::string::npos);
  MoeAllToAllDesc large = small();
  large.max_tokens = 4096;
  EXPECT_EQ(plan_moe_all_to_all(large, emulated(), 8)->mode, MoeMode::kBulk);
  large.mode = MoeMode::kWords;
  EXPECT_EQ(plan_moe_all_to_all(large, emulated(), 8)->mode, MoeMode::kWords);
  MoeAllToAllDesc fp8 = small();
  fp8.max_tokens = 1500;  // as fp8 half as many bytes
  EXPECT_EQ(plan_moe_all_to_all(fp8, emulated(), 8)->mode, MoeMode::kBulk);
  fp8.fp8_dispatch = true;
  EXPECT_EQ(plan_moe_all_to_all(fp8, emulated(), 8)->mode, MoeMode::kWords);
}

TEST(Plan, LargeBatchesHaveSenders) {
  MachineShape shape = emulated();
  shape.multiprocessors = 132;
  MoeAllToAllDesc desc = small();
  desc.max_tokens = 4096;
  EXPECT_EQ(plan_moe_all_to_all(desc, shape, 8)->send_only_blocks, 33);
  desc.fp8_dispatch = true;
  EXPECT_EQ(plan_moe_all_to_all(desc, shape, 8)->send_only_blocks, 44);
  desc.send_only_blocks = 100;  // the others must receive
  EXPECT_EQ(plan_moe_all_to_all(desc, shape, 8)->send_only_blocks, 66);
  desc.send_only_blocks = -1;
  EXPECT_EQ(plan_moe_all_to_all(desc, shape, 8)->send_only_blocks, 0);
  EXPECT_EQ(plan_moe_all_to_all(small(), shape, 8)->send_only_blocks, 0);
}

TEST(Plan, RowsOnceMoveInPiecesWhereThereAreBulkCopies) {
  MachineShape shape = emulated();
  shape.multiprocessors = 20;
  MoeAllToAllDesc desc = small();
  desc.hidden = 7168;
  desc.max_tokens = 4096;
  const auto slot_bytes = [&] { return plan_moe_all_to_all(desc, shape, 8)->slot_bytes; };
  EXPECT_EQ(slot_bytes(), 0);
  desc.layout = MoeLayout::kRows;
  EXPECT_EQ(slot_bytes(), moe::kMaxSlotBytes);
  EXPECT_EQ(plan_moe_all_to_all(desc, shape, 8)->send_only_blocks, 8);
  EXPECT_EQ(plan_moe_all_to_all(desc, shape, 8)->returning_warps, 4);
  EXPECT_EQ(moe::ring_piece_bytes(desc.hidden, 1, moe::kMaxSlotBytes), desc.hidden);  // two pieces
  EXPECT_EQ(moe::ring_piece_bytes(8, 1, moe::kMaxSlotBytes), 16);
  EXPECT_EQ(moe::ring_piece_bytes(24, 2, moe::kMaxSlotBytes), 32);  // segments of one and of two vectors
  desc.max_tokens = 30'000;                                         // sums of bitmaps take more shared memory
  EXPECT_LT(slot_bytes(), moe::kMaxSlotBytes);
  EXPECT_EQ(slot_bytes() % 128, 0);
  EXPECT_LE(plan_moe_all_to_all(desc, shape, 8)->shared_bytes, shape.traits.shared_bytes);
  desc.max_tokens = 4096;
  desc.mode = MoeMode::kWords;
  EXPECT_EQ(slot_bytes(), 0);
  const MachineShape amd{TargetKind::kEmuGfx942, traits_of(TargetKind::kEmuGfx942), 8, 2};
  desc.mode = MoeMode::kBulk;
  EXPECT_EQ(plan_moe_all_to_all(desc, amd, 8)->slot_bytes, 0);
}

TEST(Plan, SomeWarpsSendLargeBatchesInTheFusedForm) {
  MoeAllToAllDesc desc = small();
  desc.max_tokens = 4096;
  const auto sending = [&](const MachineShape& shape) { return plan_moe_all_to_all(desc, shape, 8)->sending_warps; };
  MachineShape amd{TargetKind::kEmuGfx942, traits_of(TargetKind::kEmuGfx942), 8, 2};
  EXPECT_EQ(sending(emulated()), 3);
  EXPECT_EQ(sending(amd), 4);  // all of them, because there are no bulk copies
  desc.fp8_dispatch = true;
  EXPECT_EQ(sending(emulated()), 8);
  desc = small();
  EXPECT_EQ(sending(emulated()), 3);
}

TEST(Plan, WordsHaveASegmentForEachWarp) {
  MachineShape shape = emulated();
  shape.multiprocessors = 132;
  const auto segments = [&](int hidden, int tokens) {
    MoeAllToAllDesc desc = small();
    desc.hidden = hidden;
    desc.max_tokens = tokens;
    desc.mode = MoeMode::kWords;
    return plan_moe_all_to_all(desc, shape, 8)->segments;
  };
  EXPECT_EQ(segments(6144, 16), 24);  // one vector for each lane
  EXPECT_EQ(segments(65536, 16), 32);
  EXPECT_EQ(segments(2880, 128), 6);  // of 8 segments, the second round would use 13 lanes
  EXPECT_EQ(segments(7168, 256), 4);
  EXPECT_EQ(segments(7168, 352), 3);
  EXPECT_EQ(segments(7168, 4096), 1);
}

TEST(Plan, Fp8RowsHoldTheirScalesWhereCopiesAndWordsCanBeWritten) {
  MoeAllToAllDesc desc = small();
  desc.fp8_dispatch = true;
  for (const MoeMode mode : {MoeMode::kWords, MoeMode::kBulk}) {
    for (const int hidden : {8, 24, 128, 1160, 2880, 7168}) {
      desc.mode = mode;
      desc.hidden = hidden;
      const auto plan = plan_moe_all_to_all(desc, emulated(), 8);
      ASSERT_TRUE(plan.ok());
      EXPECT_EQ(plan->row_bytes % 16, 0);
      EXPECT_EQ(moe::fp8_scales_at(hidden) % 16, 0);
      const int scale = mode == MoeMode::kWords ? 8 : 4;
      EXPECT_GE(plan->row_bytes, moe::fp8_scales_at(hidden) + scale * moe::fp8_groups(hidden));
    }
  }
}

TEST(Plan, WorkspaceRegionsDoNotOverlap) {
  for (const MoeMode mode : {MoeMode::kWords, MoeMode::kBulk}) {
    MoeAllToAllDesc desc = small();
    desc.mode = mode;
    const auto plan = plan_moe_all_to_all(desc, emulated(), 8);
    ASSERT_TRUE(plan.ok());
    const MoeWorkspace& w = plan->workspace;
    const std::int64_t row = 2ll * 2048;
    const std::int64_t flags = mode == MoeMode::kBulk ? 2 * 8 * 32 * 8 : 0;
    std::vector<std::array<std::int64_t, 2>> parts = {{w.headers, 2 * 8 * plan->header_packets * 16},
                                                      {w.routes, 2 * 8 * 32 * 6 * 16},
                                                      {w.rows, 2 * 8 * 32 * row},
                                                      {w.row_flags, flags},
                                                      {w.returns, 2 * 8 * 32 * row},
                                                      {w.kept, moe::kKeptRowsAt + 8 * 32 * (1 + 6) * 8}};
    std::ranges::sort(parts);
    for (std::size_t i = 0; i < parts.size(); ++i)
      EXPECT_LE(parts[i][0] + parts[i][1], i + 1 < parts.size() ? parts[i + 1][0] : w.total) << i;
    const bool words = mode == MoeMode::kWords;
    EXPECT_EQ(w.rows >= w.words_begin, words);
    EXPECT_GE(w.returns, w.words_begin);
    EXPECT_EQ(plan->kept_bytes, moe::kKeptRowsAt + 8 * 32 * (1 + 6) * 8);
    EXPECT_LE(w.kept + plan->kept_bytes, w.words_begin);
  }
}

TEST(Plan, HeadersHoldTheBitmapsOfTokensAndTheCountsOfExperts) {
  MoeAllToAllDesc desc = small();
  EXPECT_EQ(plan_moe_all_to_all(desc, emulated(), 8)->header_packets, 1 + 4);
  desc.max_tokens = 4097;
  EXPECT_EQ(plan_moe_all_to_all(desc, emulated(), 8)->header_packets, 129 + 4);
}

TEST(Plan, SharedMemoryHoldsWhatRoutesThenWhatArrives) {
  const moe::SharedLayout layout = moe::shared_layout(64, 8, 6, 4097, 8, 8, true);
  EXPECT_GE(layout.indices, layout.histogram + 4 * 64);
  EXPECT_GE(layout.bases, layout.bitmaps + 4 * 8 * 129);
  EXPECT_GE(layout.totals, layout.bases + 4 * 8 * 8);
  EXPECT_GE(layout.barriers, layout.indices + 4 * moe::kBatch * 6);
  EXPECT_GE(layout.barriers, layout.totals + 4 * 8);
  EXPECT_GE(layout.staging, layout.barriers + 8 * 8);
  EXPECT_EQ(layout.total, layout.staging + 8 * moe::kStagingBytes);
}

TEST(Plan, TheReciprocalDividesExactly) {
  for (int ranks = 2; ranks <= 8; ++ranks) {
    for (int experts = ranks; experts <= moe::kMaxExperts; ++experts) {
      const std::uint64_t reciprocal = moe::moe_reciprocal(experts);
      for (int e = 0; e < experts; ++e) {
        ASSERT_EQ(static_cast<int>(static_cast<std::uint64_t>(e * ranks) * reciprocal >> 32),
                  moe_rank_of(e, ranks, experts))
            << e << " of " << experts << " on " << ranks;
      }
    }
  }
}

TEST(Plan, NamesTheFieldThatIsWrong) {
  const auto rejects = [](const char* field, auto change, int ranks = 8) {
    MoeAllToAllDesc desc = small();
    change(desc);
    const auto plan = plan_moe_all_to_all(desc, emulated(), ranks);
    ASSERT_FALSE(plan.ok()) << field;
    EXPECT_EQ(plan.status().code(), StatusCode::kInvalidArgument);
    EXPECT_NE(plan.status().message().find(field), std::string::npos) << plan.status().message();
    EXPECT_NE(plan.status().message().find("allowed"), std::string::npos);
  };
  rejects("num_experts", [](auto& d) { d.num_experts = 7; });
  rejects("num_experts", [](auto& d) { d.num_experts = 4097; });
  rejects("experts_per_token", [](auto& d) { d.experts_per_token = 0; });
  rejects("experts_per_token", [](auto& d) { d.experts_per_token = 33; });
  rejects("hidden", [](auto& d) { d.hidden = 2050; });
  rejects("hidden", [](auto& d) { d.hidden = 0; });
  rejects("max_tokens", [](auto& d) { d.max_tokens = 0; });
  rejects("max_tokens", [](auto& d) { d.max_tokens = 65536; });
  rejects("max_tokens", [](auto& d) { d.max_tokens = 65535, d.experts_per_token = 32; });
  rejects("max_tokens", [](auto& d) { d.max_tokens = 32768, d.experts_per_token = 32; });
  rejects("dtype", [](auto& d) { d.dtype = DType::kF32; });
  rejects("index_type", [](auto& d) { d.index_type = DType::kF16; });
  rejects("dtype is 99", [](auto& d) { d.dtype = static_cast<DType>(99); });
  rejects("index_type is 99", [](auto& d) { d.index_type = static_cast<DType>(99); });
  rejects("layout is 99", [](auto& d) { d.layout = static_cast<MoeLayout>(99); });
  rejects("mode is 99", [](auto& d) { d.mode = static_cast<MoeMode>(99); });
  rejects("row_alignment", [](auto& d) { d.row_alignment = 3; });
  rejects("recv_rows", [](auto& d) { d.recv_rows = -1; });
  rejects("max_sms", [](auto& d) { d.max_sms = -1; });
  rejects("send_only_blocks", [](auto& d) { d.send_only_blocks = -2; });
  rejects("fp8_dispatch", [](auto& d) { d.fp8_dispatch = true, d.dtype = DType::kF16; });
  rejects(
      "ranks", [](auto&) {}, 0);
  rejects(
      "ranks", [](auto&) {}, 9);
}

TEST(Plan, NoRouteOfTheMostEntriesLooksLikeNone) {
  MoeAllToAllDesc desc = small();
  desc.max_tokens = 32767;
  desc.experts_per_token = moe::kMaxTopK;
  desc.num_experts = moe::kMaxExperts;
  const auto plan = plan_moe_all_to_all(desc, emulated(), 1);
  ASSERT_TRUE(plan.ok()) << plan.status().to_string();
  const int largest_index = moe::kMaxEntries - 1, all_ones = (1 << moe::kRouteIndexBits) - 1;
  EXPECT_LT(largest_index, all_ones);
}

TEST(Plan, FitsTheSharedMemoryOfEveryTarget) {
  for (const TargetKind target : {TargetKind::kCuda, TargetKind::kHip}) {
    MachineShape shape = emulated();
    shape.traits = traits_of(target);
    MoeAllToAllDesc desc = small();
    desc.num_experts = moe::kMaxExperts;
    desc.experts_per_token = 8;
    desc.mode = MoeMode::kBulk;
    const auto plan = plan_moe_all_to_all(desc, shape, 8);
    ASSERT_TRUE(plan.ok()) << plan.status().to_string();
    EXPECT_LE(plan->shared_bytes, shape.traits.shared_bytes);
    desc.max_tokens = 32768;
    EXPECT_TRUE(plan_moe_all_to_all(desc, shape, 8).ok());
  }
}

TEST(Plan, ScalesByColumnsNeedTheMaskedLayout) {
  MoeAllToAllDesc desc = small();
  desc.scales = MoeScales::kColumns;
  desc.layout = MoeLayout::kMasked;
  const auto unquantised = plan_moe_all_to_all(desc, emulated(), 2);
  EXPECT_EQ(unquantised.status().code(), StatusCode::kInvalidArgument);
  EXPECT_NE(unquantised.status().message().find("MoeAllToAllDesc.scales is kColumns"), std::string::npos);
  desc.fp8_dispatch = true;
  EXPECT_TRUE(plan_moe_all_to_all(desc, emulated(), 2).ok());
  desc.layout = MoeLayout::kExpertMajor;
  EXPECT_FALSE(plan_moe_all_to_all(desc, emulated(), 2).ok());
  desc.scales = static_cast<MoeScales>(7);
  EXPECT_NE(plan_moe_all_to_all(desc, emulated(), 2).status().message().find("MoeAllToAllDesc.scales is 7"),
            std::string::npos);
}

TEST(Plan, WeightsAtCombineTakePacketsOfTheirOwn) {
  MoeAllToAllDesc desc = small();
  const auto without = plan_moe_all_to_all(desc, emulated(), 4);
  desc.weights_at_combine = true;
  const auto with = plan_moe_all_to_all(desc, emulated(), 4);
  ASSERT_TRUE(without.ok() && with.ok());
  const std::int64_t bytes = 2ll * 4 * desc.max_tokens * desc.experts_per_token * 16;
  EXPECT_EQ(without->workspace.combine_weights, 0);
  EXPECT_EQ(with->workspace.total - without->workspace.total, bytes);
  EXPECT_LE(with->workspace.combine_weights + bytes, with->workspace.words_begin);
  EXPECT_NE(with->configuration, without->configuration);  // ranks must agree
}

TEST(Plan, RowsMayHaveAnotherSizeThanSums) {
  MoeAllToAllDesc desc = small();
  desc.dispatch_hidden = 64;
  EXPECT_NE(plan_moe_all_to_all(desc, emulated(), 2).status().message().find("dispatch_hidden is 64"),
            std::string::npos);
  desc.layout = MoeLayout::kRows;
  desc.segments = 1024;
  const auto plan = plan_moe_all_to_all(desc, emulated(), 2);
  ASSERT_TRUE(plan.ok()) << plan.status().to_string();
  EXPECT_EQ(plan->dispatch_hidden, 64);
  EXPECT_EQ(plan->row_bytes, 128);
  EXPECT_EQ(plan->recv_rows, 2 * desc.max_tokens);
  EXPECT_LE(plan->segments, 64 / 8);  // no segment is empty
  for (auto change :
       {+[](MoeAllToAllDesc& d) {
          d.fp8_dispatch = true;
          d.dtype = DType::kBf16;
        },
        +[](MoeAllToAllDesc& d) { d.weights_at_combine = true; }, +[](MoeAllToAllDesc& d) { d.row_alignment = 8; }}) {
    MoeAllToAllDesc wrong = desc;
    change(wrong);
    EXPECT_NE(plan_moe_all_to_all(wrong, emulated(), 2).status().message().find("layout is kRows"), std::string::npos);
  }
}

/// Other layouts do not write them, so they may lie anywhere.
TEST(Tensors, ReceivedIndicesAndWeightsAreOfRowsAlone) {
  MoeAllToAllDesc desc = small();
  alignas(16) static char memory[64];
  moe::CallTensors tensors;
  tensors.tokens = {.x = memory + 16, .tokens = 1};
  tensors.received.topk_indices = memory;
  tensors.received.topk_weights = reinterpret_cast<float*>(memory);
  EXPECT_TRUE(moe::check_memory(*plan_moe_all_to_all(desc, emulated(), 8), 0, tensors).ok());
  desc.layout = MoeLayout::kRows;
  desc.dtype = DType::kBf16;
  const auto rows = plan_moe_all_to_all(desc, emulated(), 8);
  ASSERT_TRUE(rows.ok()) << rows.status().to_string();
  EXPECT_FALSE(moe::check_memory(*rows, 0, tensors).ok());
}

}  // namespace
}  // namespace farwarp
