// Plans of ag-gemm for the challenge's shapes, and the orders in which pieces are sent and tiles are computed.
#include "farwarp/ops/parallel_gemm/ag_gemm/plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "farwarp/base/machine_shape_test.h"
#include "farwarp/ops/parallel_gemm/ag_gemm/args.h"

namespace farwarp {
namespace {

using ag_gemm::make_piece_order;
using ag_gemm::Pieces;
using ag_gemm::RowOrder;

AllGatherGemmPlan plan(int m, int n, int k, const MachineShape& shape = kH200, int ranks = 8) {
  ParallelGemmDesc desc;
  desc.m = m, desc.n = n, desc.k = k;
  const auto result = plan_ag_gemm(desc, shape, ranks);
  EXPECT_TRUE(result.ok()) << result.status().to_string();
  return result.value();
}

TEST(AgGemmOrder, EveryPieceLeavesOnce) {
  for (const Pieces pieces :
       {Pieces{32, 256, 4, 8}, Pieces{8, 256, 1, 28}, Pieces{32, 1024, 33, 5}, Pieces{1, 256, 1, 1}}) {
    for (const int band : {1, 4, 8}) {
      for (const int splits : {1, 2, 7}) {
        std::set<std::pair<int, int>> seen;
        const auto order = make_piece_order(pieces, band, splits);
        for (int position = 0; position < order.positions; ++position) {
          const auto piece = order.at(position);
          ASSERT_GE(piece.row, 0);
          ASSERT_GE(piece.depth, 0);
          if (piece.row >= pieces.row_count || piece.depth >= pieces.depth_count) continue;
          EXPECT_TRUE(seen.emplace(piece.row, piece.depth).second) << "twice";
        }
        EXPECT_EQ(static_cast<int>(seen.size()), pieces.count()) << band << " " << splits;
      }
    }
  }
}

TEST(AgGemmOrder, SplitsAreFedInTurn) {
  const Pieces pieces{32, 256, 1, 8};
  const auto order = make_piece_order(pieces, 1, 2);
  EXPECT_EQ(order.at(0).depth, 0);
  EXPECT_EQ(order.at(1).depth, 4);
  EXPECT_EQ(order.at(2).depth, 1);
}

TEST(AgGemmOrder, EveryRowOfTilesOnceAndOwnOnesFirst) {
  for (int rank = 0; rank < 8; ++rank) {
    const RowOrder whole{rank, 8, 4, 0, 32};
    std::set<int> seen;
    for (int position = 0; position < whole.count; ++position) {
      seen.insert(whole.at(position));
      EXPECT_EQ(whole.at(position) / 4 == rank, position < 4);
    }
    EXPECT_EQ(*seen.rbegin(), 31);
    EXPECT_EQ(seen.size(), 32u);
    EXPECT_EQ(whole.at(4), (rank + 1) % 8 * 4);  // then the first of each peer
  }
  const RowOrder shared{3, 8, 0, 5, 7};
  EXPECT_EQ(shared.at(0), 5);
  EXPECT_EQ(shared.at(2), 0);
  const RowOrder alone{0, 1, 3, 0, 3};
  EXPECT_EQ(alone.at(2), 2);
}

TEST(AgGemmPlan, OfTheChallenge) {
  for (const MachineShape& shape : {kH200, kMi300x}) {
    for (const auto& [m, n, k] :
         {std::tuple{64, 18432, 7168}, std::tuple{512, 12288, 4096}, std::tuple{2048, 2880, 2880},
          std::tuple{4096, 4096, 4096}, std::tuple{8192, 14336, 4096}, std::tuple{8192, 29568, 8192}}) {
      const AllGatherGemmPlan of = plan(m, n, k, shape);
      EXPECT_LE(of.comm_blocks + of.blocks, shape.multiprocessors);
      EXPECT_GE(of.comm_blocks, 1);
      EXPECT_GE(of.row_pieces * of.piece_rows, m / 8);
      EXPECT_GE(of.depth_pieces * of.piece_depth, k);
      EXPECT_EQ(of.piece_depth % of.depth, 0) << "a step of K lies in one piece";
      EXPECT_EQ(of.own_read_directly, !of.swap_ab && m / 8 % of.rows == 0);
      EXPECT_GE(of.heap_bytes, std::int64_t{2} * m * k);
    }
  }
}

TEST(AgGemmPlan, CommBlocksFillClusters) {
  const AllGatherGemmPlan few = plan(64, 18432, 7168);
  EXPECT_EQ(few.cluster, 4);
  EXPECT_EQ(few.comm_blocks % few.cluster, 0);
  ParallelGemmDesc desc;
  desc.m = 64, desc.n = 1024, desc.k = 512, desc.comm_blocks = 3;
  const auto odd = plan_ag_gemm(desc, kH200, 8);  // then K is not split
  ASSERT_TRUE(odd.ok());
  EXPECT_EQ(odd->comm_blocks, 3);
  EXPECT_EQ(odd->cluster, 1);
}

TEST(AgGemmPlan, AllRowsLeaveAlongKWhereTilesRunAtOnce) {
  const AllGatherGemmPlan at_once = plan(2048, 2880, 2880), in_rounds = plan(8192, 14336, 4096);
  EXPECT_EQ(at_once.piece_group, at_once.row_pieces);
  EXPECT_EQ(in_rounds.piece_group, 2 * in_rounds.rows / in_rounds.piece_rows);  // 124 blocks, 7 columns, 8 ranks
  EXPECT_EQ(at_once.comm_blocks, 16);
  EXPECT_EQ(in_rounds.comm_blocks, 8);
  EXPECT_EQ(in_rounds.sending_warps, 4);
}

TEST(AgGemmPlan, WordsForFewRowsAndWhereLinksBoundOnHopper) {
  EXPECT_TRUE(plan(64, 18432, 7168).words);
  EXPECT_FALSE(plan(512, 12288, 4096).words) << "loading bounds";
  EXPECT_TRUE(plan(2048, 2880, 2880).words);
  EXPECT_EQ(plan(2048, 2880, 2880).columns, 64) << "all tiles run at once";
  EXPECT_EQ(plan(2048, 2880, 2880).splits, 1);
  EXPECT_EQ(plan(4096, 4096, 4096).columns, 192) << "tiles of 64 columns would take rounds";
  EXPECT_TRUE(plan(4096, 4096, 4096).words);
  EXPECT_FALSE(plan(4096, 65536, 4096).words) << "multiplying bounds";
  EXPECT_FALSE(plan(4096, 29440, 4096).words) << "tiles run in rounds";
  EXPECT_TRUE(plan(4096, 4096, 5120).words);
  EXPECT_FALSE(plan(4096, 4096, 5128).words) << "more than 40 MiB";
  EXPECT_EQ(plan(4096, 4096, 4096).comm_blocks, 16);
  EXPECT_FALSE(plan(64, 18432, 7168, kMi300x).words);
  EXPECT_FALSE(plan(64, 18432, 7168, kH200, 1).words) << "nothing crosses";
  const AllGatherGemmPlan words = plan(4096, 4096, 4096);
  EXPECT_EQ(words.inbox_bytes, ag_gemm::kInboxes * std::int64_t{4096} * 4096 * 2);
  EXPECT_EQ(words.heap_bytes, words.workspace_heap_bytes + words.inbox_bytes);
  EXPECT_EQ(words.threads, ag_gemm::words_threads(words.columns));
  EXPECT_EQ(words.kernel.find("ag_gemm_words_bf16_"), 0u);
  EXPECT_NE(words.to_string().find("as words"), std::string::npos);
}

TEST(AgGemmPlan, TheExchangeCanBeAskedFor) {
  ParallelGemmDesc desc;
  desc.m = 64, desc.n = 18432, desc.k = 7168, desc.exchange = ParallelGemmExchange::kBoxes;
  const auto boxes = plan_ag_gemm(desc, kH200, 8);
  ASSERT_TRUE(boxes.ok());
  EXPECT_FALSE(boxes->words);
  EXPECT_EQ(boxes->inbox_bytes, 0);
  EXPECT_NE(boxes->to_string().find("as boxes"), std::string::npos);
  EXPECT_NE(plan_ag_gemm(desc, kMi300x, 8).status().message().find("exchange is boxes"), std::string::npos);
  desc.m = 8192, desc.exchange = ParallelGemmExchange::kWords;
  const auto words = plan_ag_gemm(desc, kH200, 8);
  ASSERT_TRUE(words.ok());
  EXPECT_TRUE(words->words);
  EXPECT_LE(words->columns, 192);
  desc.m = 1 << 17;
  EXPECT_NE(plan_ag_gemm(desc, kH200, 8).status().message().find("exchange is words"), std::string::npos);
  desc.m = 512, desc.tile_columns = 256;
  EXPECT_NE(plan_ag_gemm(desc, kH200, 8).status().message().find("tile_columns is 256"), std::string::npos);
  desc.exchange = ParallelGemmExchange::kAuto;
  const auto wide = plan_ag_gemm(desc, kH200, 8);
  ASSERT_TRUE(wide.ok());
  EXPECT_FALSE(wide->words) << "no kernel";
}

TEST(AgGemmPlan, IdleMultiprocessorsSendFewRows) {
  const AllGatherGemmPlan few = plan(64, 18432, 7168);
  EXPECT_LE(few.comm_blocks + few.blocks, 120) << "as many as clusters of 4 surely fill";
  EXPECT_EQ(few.comm_blocks, 12) << "a piece for each warp";
  EXPECT_EQ(plan(64, 4608, 7168, kH200, 2).comm_blocks, 16) << "more rows of its own";
  for (int max_sms = 2; max_sms <= 20; ++max_sms) {
    ParallelGemmDesc desc;
    desc.m = 64, desc.n = 18432, desc.k = 7168, desc.max_sms = max_sms;
    const auto of = plan_ag_gemm(desc, kH200, 8);
    ASSERT_TRUE(of.ok());
    EXPECT_LE(of->comm_blocks + of->blocks, max_sms);
    EXPECT_GE(of->blocks, 1);
    EXPECT_GE(of->comm_blocks, 1);
  }
}

TEST(AgGemmPlan, OneRankSendsNothing) {
  const AllGatherGemmPlan alone = plan(100, 64, 64, kH200, 1);
  EXPECT_EQ(alone.comm_blocks, 0);
  EXPECT_TRUE(alone.own_read_directly);
}

TEST(AgGemmPlan, RefusesInWords) {
  ParallelGemmDesc desc;
  desc.m = 64, desc.n = 128, desc.k = 64, desc.max_sms = 1;
  EXPECT_NE(plan_ag_gemm(desc, kH200, 8).status().message().find("max_sms is 1"), std::string::npos);
  desc.max_sms = 4, desc.comm_blocks = 4;
  EXPECT_NE(plan_ag_gemm(desc, kH200, 8).status().message().find("comm_blocks is 4"), std::string::npos);
  desc.max_sms = 0, desc.comm_blocks = 3, desc.splits = 2, desc.k = 512;
  EXPECT_NE(plan_ag_gemm(desc, kH200, 8).status().message().find("comm_blocks is 3"), std::string::npos);
  desc.comm_blocks = 0, desc.splits = 3;
  EXPECT_NE(plan_ag_gemm(desc, kH200, 8).status().message().find("splits is 3"), std::string::npos);
  desc.splits = 0, desc.k = 60;
  EXPECT_NE(plan_ag_gemm(desc, kH200, 8).status().message().find("ParallelGemmDesc.k is 60"), std::string::npos);
}

// Two ranks with boxes: comm blocks such that tiles need few rounds, at most one for each piece.
TEST(AllGatherGemmTwoRanks, ChooseCommBlocksAndTilesTogether) {
  const auto plan_of = [](const ParallelGemmDesc& desc) {
    const auto plan = plan_ag_gemm(desc, kH200, 2);
    EXPECT_TRUE(plan.ok()) << plan.status().message();
    return plan.ok() ? *plan : AllGatherGemmPlan{};
  };
  const AllGatherGemmPlan large = plan_of({.m = 8192, .n = 14336, .k = 4096});
  EXPECT_EQ(large.comm_blocks, 4);
  EXPECT_EQ(large.blocks, 128) << "14 rounds of 1792 tiles; with 8 comm blocks 15";
  const AllGatherGemmPlan wide = plan_of({.m = 512, .n = 12288, .k = 4096});
  EXPECT_EQ(wide.comm_blocks, 4);
  EXPECT_EQ(wide.columns, 192);
  EXPECT_GT(plan_of({.m = 2048, .n = 2880, .k = 2880}).comm_blocks, 8) << "the link bounds";
  EXPECT_FALSE(plan_of({.m = 2048, .n = 2880, .k = 2880}).words);
  EXPECT_EQ(plan_of({.m = 128, .n = 16640, .k = 256, .splits = 2}).comm_blocks, 2) << "two pieces";
}

}  // namespace
}  // namespace farwarp
