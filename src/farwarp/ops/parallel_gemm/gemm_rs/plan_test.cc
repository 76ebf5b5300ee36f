// The plan of gemm-rs: owners, bands, the order of tiles, and which errors bad descriptors get.
#include "farwarp/ops/parallel_gemm/gemm_rs/plan.h"

#include <gtest/gtest.h>

#include <set>
#include <utility>
#include <vector>

#include "farwarp/base/machine_shape_test.h"
#include "farwarp/ops/parallel_gemm/gemm_reduce/args.h"

namespace farwarp {
namespace {

constexpr int kRows[] = {1, 2, 8, 24, 64, 72, 100, 128, 256, 384, 512};  // of an owner

std::vector<int> order_of(const gemm_reduce::RowOrder& order) {
  std::vector<int> rows;
  for (int i = 0; i < order.count; ++i) rows.push_back(order.at(i));
  return rows;
}

TEST(GemmReduceScatterOrder, EveryRowOfTilesComesOnce) {
  for (const int tile : {64, 128, 256}) {
    for (const int owned : kRows) {
      for (int ranks = 1; ranks <= 8; ++ranks) {
        for (int rank = 0; rank < ranks; ++rank) {
          const int count = (owned * ranks + tile - 1) / tile;
          const auto rows = order_of(gemm_reduce::make_row_order(tile, count, owned * ranks, rank, ranks));
          ASSERT_EQ(rows.size(), static_cast<std::size_t>(count));
          const std::set<int> seen(rows.begin(), rows.end());
          ASSERT_EQ(seen.size(), rows.size()) << tile << " " << owned << " " << rank << " of " << ranks;
          ASSERT_EQ(*seen.begin(), 0);
          ASSERT_EQ(*seen.rbegin(), count - 1);
        }
      }
    }
  }
}

TEST(GemmReduceScatterOrder, OwnersTakeTurnsAndTheOwnRankComesLast) {
  EXPECT_EQ(order_of(gemm_reduce::make_row_order(128, 8, 1024, 1, 4)), (std::vector<int>{4, 6, 0, 2, 5, 7, 1, 3}));
  // 100 rows each: the first row of rank 2 lies in row 1 of the tiles.
  EXPECT_EQ(order_of(gemm_reduce::make_row_order(128, 4, 400, 1, 4)), (std::vector<int>{1, 2, 3, 0}));
  EXPECT_EQ(order_of(gemm_reduce::in_order(3)), (std::vector<int>{0, 1, 2}));
}

// Each element of an owner's rows is in exactly one band, and each band has a flag of its own.
TEST(GemmReduceScatterBands, CoverEveryRowOfEveryOwner) {
  for (const int height : {16, 32, 64, 256}) {
    for (const int owned : kRows) {
      for (int ranks = 1; ranks <= 8; ++ranks) {
        const gemm_reduce::Bands bands = gemm_reduce::make_bands(height, 64, owned * ranks, 360, ranks);
        ASSERT_EQ(bands.column_count, 6);
        std::vector<std::set<int>> flagged(ranks);
        for (int row = 0; row < bands.m; row += height) {
          const gemm_reduce::OwnerRange owners = bands.owners_of(row);
          for (int owner = 0; owner < ranks; ++owner) {
            const bool meets = owner * owned < row + height && (owner + 1) * owned > row;
            ASSERT_EQ(meets, owner >= owners.first && owner <= owners.last) << height << " " << owned << " " << row;
            if (!meets) continue;
            const int band = row / height - bands.first_of(owner);
            ASSERT_GE(band, 0);
            ASSERT_LT(band, bands.row_count);
            ASSERT_TRUE(flagged[owner].insert(band).second);
          }
        }
        for (int row = 0; row < bands.m; ++row) {
          const int owner = row / owned;
          ASSERT_TRUE(flagged[owner].count(row / height - bands.first_of(owner)));
        }
      }
    }
  }
}

TEST(GemmReduceScatterBands, FlagsDoNotOverlap) {
  const gemm_reduce::Bands bands = gemm_reduce::make_bands(64, 128, 800, 360, 8);
  std::set<std::int64_t> flags;
  for (int source = 0; source < 8; ++source) {
    for (int row = 0; row < bands.row_count; ++row) {
      for (int column = 0; column < bands.column_count; ++column) flags.insert(bands.flag_index(source, row, column));
    }
  }
  EXPECT_EQ(static_cast<int>(flags.size()), 8 * bands.row_count * bands.column_count);
  EXPECT_EQ(*flags.rbegin(), static_cast<std::int64_t>(flags.size()) - 1);
}

// With any group, the chunks cover an owner's rows by all columns of bands exactly once.
TEST(GemmReduceScatterChunks, CoverEveryOwner) {
  for (const int owned : kRows) {
    for (const int group : {1, 8, 32, 256}) {
      gemm_reduce::Bands bands = gemm_reduce::make_bands(64, 128, owned * 4, 360, 4);
      bands.chunk_group = group;
      std::set<std::pair<int, int>> chunks;
      for (int chunk = 0; chunk < gemm_reduce::chunks_of(bands); ++chunk) {
        const auto [row, column] = gemm_reduce::chunk_at(bands, chunk);
        ASSERT_TRUE(row % gemm_reduce::kChunkRows == 0 && row >= 0 && row < owned) << owned << " " << group;
        ASSERT_TRUE(column >= 0 && column < bands.column_count);
        ASSERT_TRUE(chunks.insert({row, column}).second) << owned << " " << group << " " << chunk;
      }
    }
  }
}

// On Hopper with straight tiles a source computes groups of about 16 rows of tiles (a multiple of the ranks), owners in
// turn. So with 8 ranks an owner gets two of its rows of tiles, column by column, and then the next two. Two ranks
// whose tiles all run at once compute the peer's rows, then their own.
void expect_chunks_follow_tiles(int rows_of_rank, int ranks, int source, int owner) {
  const auto plan = plan_gemm_reduce_scatter(
      {.m = rows_of_rank * ranks, .n = 4096, .k = 4096 * ranks, .exchange = ParallelGemmExchange::kBoxes}, kH200,
      ranks);
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  const gemm_reduce::Bands& bands = plan->bands;
  const gemm_reduce::RowOrder order = plan->row_order(source);
  ASSERT_EQ(order.ranks, plan->own_last() ? 0 : ranks);
  EXPECT_EQ(plan->own_last(), ranks == 2 && rows_of_rank == 512);
  std::vector<std::pair<int, int>> arrived, awaited;  // rows of tiles of the owner, by columns of tiles
  const tile::TileGrid grid = plan->grid();
  for (int number = 0; number < grid.works(); ++number) {
    const tile::TileIndex at = tile::work_at(grid, number).at;
    const int row = order.at(at.row) * plan->rows - owner * bands.owned;
    if (row >= 0 && row < bands.owned) arrived.push_back({row / plan->rows, at.column});
  }
  for (int chunk = 0; chunk < gemm_reduce::chunks_of(bands); ++chunk) {
    const auto [row, column] = gemm_reduce::chunk_at(bands, chunk);
    const std::pair<int, int> tile{row / plan->rows, column};
    if (awaited.empty() || awaited.back() != tile) awaited.push_back(tile);
  }
  EXPECT_EQ(awaited, arrived) << ranks << " ranks, from rank " << source << " to rank " << owner;
}

TEST(GemmReduceScatterChunks, FollowTheTilesAsTheyArrive) {
  for (int ranks = 2; ranks <= 8; ++ranks) {
    for (int source = 0; source < ranks; ++source) {
      for (int owner = 0; owner < ranks; ++owner) {
        for (const int rows : {512, 1024}) expect_chunks_follow_tiles(rows, ranks, source, owner);
      }
    }
  }
}

TEST(GemmReduceScatterPlan, CoversEveryShapeOfTheChallengeAndOddOnes) {
  for (const MachineShape& shape : {kH200, kMi300x}) {
    for (const int m : {8, 64, 192, 576, 2048, 4096, 8192}) {
      for (const int n : {8, 40, 360, 2880, 4096, 8192}) {
        for (const int k : {64, 192, 2880, 14336, 29568}) {
          const auto plan = plan_gemm_reduce_scatter({.m = m, .n = n, .k = k}, shape, 8);
          ASSERT_TRUE(plan.ok()) << m << " " << n << " " << k << ": " << plan.status().message();
          const gemm_reduce::Workspace& at = plan->workspace;
          if (plan->word_inbox.rows != 0) {
            EXPECT_GE(plan->heap_bytes() - at.total, std::int64_t{2} * m * n * 2);
          } else {
            EXPECT_GE(at.flags - at.inbox, std::int64_t{m} * n * 2);
            EXPECT_GE(at.ready_cells - at.flags,
                      8 * (plan->bands.flag_index(7, plan->bands.row_count - 1, plan->bands.column_count - 1) + 1));
          }
          EXPECT_GE(at.total - at.partials, plan->workspace_bytes);
          EXPECT_EQ(plan->row_order(3).count, plan->tile_row_count);
          if (plan->swap_ab) {
            EXPECT_EQ(plan->row_order(3).at(0), 0);
          }
        }
      }
    }
  }
}

// Every vector of two consecutive calls has a place of its own within the inbox.
TEST(GemmReduceScatterWords, DoNotOverlap) {
  const gemm_reduce::WordInbox inbox{.at = 256, .sources = 3, .rows = 5, .vectors = 10, .chunk_group = 1};
  std::set<std::int64_t> places;
  for (const std::uint32_t epoch : {6u, 7u}) {
    for (int source = 0; source < 3; ++source) {
      for (int row = 0; row < 5; ++row) {
        for (int vector = 0; vector < 10; ++vector) {
          const std::int64_t place = inbox.place(epoch, source, row, vector);
          ASSERT_EQ(place, inbox.place(epoch + 2, source, row, vector));
          ASSERT_EQ(place, inbox.place(epoch, source, 0, vector) + row * inbox.row_bytes());
          ASSERT_EQ(place % 16, 0);
          ASSERT_TRUE(places.insert(place).second);
        }
      }
    }
  }
  EXPECT_EQ(*places.begin(), inbox.at);
  EXPECT_EQ(*places.rbegin(), inbox.at + inbox.bytes() - 16);
}

// With any group, the chunks cover all vectors of an owner exactly once: one lane reads and clears each.
TEST(GemmReduceScatterWords, ChunksCoverEveryOwner) {
  for (const int owned : kRows) {
    for (const int vectors : {1, 8, 45}) {
      for (const int group : {1, 16, 512}) {
        const gemm_reduce::WordInbox inbox{0, 4, owned, vectors, group};
        std::set<std::pair<int, int>> seen;
        for (int chunk = 0; chunk < gemm_reduce::chunks_of(inbox); ++chunk) {
          const auto [row, column] = gemm_reduce::chunk_at(inbox, chunk);
          for (int i = 0; i < gemm_reduce::kWordChunkRows; ++i) {
            for (int j = 0; j < gemm_reduce::kWordChunkVectors; ++j) {
              if (row + i >= owned || column + j >= vectors) continue;
              ASSERT_TRUE(seen.insert({row + i, column + j}).second) << owned << " " << vectors << " " << group;
            }
          }
        }
        ASSERT_EQ(seen.size(), static_cast<std::size_t>(owned) * vectors);
      }
    }
  }
}

TEST(GemmReduceScatterWords, AreForHopperAndNotForTheLargest) {
  const auto rows_of = [](int m, int n, const MachineShape& shape, ParallelGemmExchange exchange) {
    const auto plan = plan_gemm_reduce_scatter({.m = m, .n = n, .k = 18432, .exchange = exchange}, shape, 8);
    EXPECT_TRUE(plan.ok()) << plan.status().message();
    return plan->word_inbox.rows;
  };
  using enum ParallelGemmExchange;
  EXPECT_EQ(rows_of(64, 7168, kH200, kAuto), 8);
  EXPECT_EQ(rows_of(8, 7168, kH200, kAuto), 1);
  EXPECT_EQ(rows_of(512, 4096, kH200, kAuto), 64);
  EXPECT_EQ(rows_of(2048, 6144, kH200, kAuto), 256);
  EXPECT_EQ(rows_of(2048, 6152, kH200, kAuto), 0) << "more than kMaxOwnedAsWords";
  EXPECT_EQ(rows_of(8192, 2568, kH200, kWords), 1024);
  EXPECT_EQ(rows_of(64, 7168, kH200, kBoxes), 0);
  EXPECT_EQ(rows_of(512, 4096, kH200, kBoxes), 0);
  EXPECT_EQ(rows_of(64, 7168, kMi300x, kAuto), 0) << "CDNA goes by boxes and flags";
}

// Splits add up in a cluster if rows are few and sent as words, else through memory.
TEST(GemmReduceScatterWords, SplitsOfFewRowsMeetInClusters) {
  const auto few = plan_gemm_reduce_scatter({.m = 64, .n = 7168, .k = 18432}, kH200, 8);
  ASSERT_TRUE(few.ok());
  EXPECT_EQ(few->kernel, "gemm_rs_words_bf16_swap_ab_64");
  EXPECT_EQ(few->cluster, 2);
  EXPECT_EQ(few->blocks, 112);
  EXPECT_EQ(few->workspace_bytes, 0);
  const auto boxes = plan_gemm_reduce_scatter(
      {.m = 64, .n = 8200, .k = 18432, .splits = 2, .exchange = ParallelGemmExchange::kBoxes}, kH200, 8);
  ASSERT_TRUE(boxes.ok());
  EXPECT_EQ(boxes->kernel, "gemm_rs_bf16_swap_ab_64");
  EXPECT_EQ(boxes->cluster, 1);
  EXPECT_GT(boxes->workspace_bytes, 0);
  const auto many = plan_gemm_reduce_scatter({.m = 72, .n = 512, .k = 18432, .splits = 2}, kH200, 8);
  ASSERT_TRUE(many.ok());
  EXPECT_TRUE(many->kernel.starts_with("gemm_rs_words_bf16_")) << many->kernel;
  EXPECT_EQ(many->cluster, 1);
  EXPECT_GT(many->workspace_bytes, 0);
  // 132 blocks would be 33 clusters of 4. The machine runs 30 at once, and these would wait for the others without end.
  const auto too_many = plan_gemm_reduce_scatter({.m = 64, .n = 4224, .k = 18432, .splits = 4}, kH200, 8);
  EXPECT_NE(too_many.status().message().find("all tiles' blocks are at most 120"), std::string::npos)
      << too_many.status().message();
}

TEST(GemmReduceScatterFetch, IsForTwoRanksOfHopper) {
  using enum ParallelGemmExchange;
  const auto plan_of = [](const ParallelGemmDesc& desc, int ranks, const MachineShape& shape = kH200) {
    return plan_gemm_reduce_scatter(desc, shape, ranks);
  };
  const auto plan = plan_of({.m = 4096, .n = 4096, .k = 4096}, 2);
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  EXPECT_EQ(plan->kernel, "gemm_rs_fetch_bf16_256");
  EXPECT_TRUE(plan->fetched);
  EXPECT_EQ(plan->workspace.flags, std::int64_t{2048} * 4096 * 2) << "the parts of the peer's rows";
  EXPECT_NE(plan->to_string().find("exchange boxes that owners fetch in bands of 64 x 256"), std::string::npos)
      << plan->to_string();
  EXPECT_EQ(order_of(plan->row_order(0))[0], 16) << "the peer's rows first";
  EXPECT_EQ(order_of(plan->row_order(0))[16], 0);
  EXPECT_EQ(order_of(plan->row_order(1))[0], 0);
  for (const ParallelGemmDesc& other :
       {ParallelGemmDesc{.m = 4096, .n = 4096, .k = 4096, .exchange = kBoxes},
        ParallelGemmDesc{.m = 4096, .n = 4096, .k = 4096, .exchange = kWords},
        ParallelGemmDesc{.m = 4224, .n = 4096, .k = 4096}, ParallelGemmDesc{.m = 512, .n = 4096, .k = 4096}}) {
    const auto others = plan_of(other, 2);
    ASSERT_TRUE(others.ok()) << others.status().message();
    EXPECT_FALSE(others->fetched) << others->to_string();
  }
  EXPECT_FALSE(plan_of({.m = 8192, .n = 4096, .k = 4096}, 4)->fetched);
  EXPECT_FALSE(plan_of({.m = 4096, .n = 4096, .k = 4096}, 2, kMi300x)->fetched);
  EXPECT_TRUE(plan_of({.m = 512, .n = 4096, .k = 4096, .exchange = kFetch}, 2)->fetched);
  const char* const allowed =
      "ParallelGemmDesc.exchange is fetch; allowed: auto, boxes or words, except for 2 ranks, m a multiple of 256 and "
      "splits 0 or 1";
  EXPECT_EQ(plan_of({.m = 512, .n = 4096, .k = 4096, .exchange = kFetch}, 4).status().message(), allowed);
  EXPECT_EQ(plan_of({.m = 384, .n = 4096, .k = 4096, .exchange = kFetch}, 2).status().message(), allowed);
  EXPECT_EQ(plan_of({.m = 512, .n = 128, .k = 4096, .splits = 2, .exchange = kFetch}, 2).status().message(), allowed);
  EXPECT_EQ(plan_of({.m = 512, .n = 4096, .k = 4096, .exchange = kFetch}, 2, kMi300x).status().message(),
            "ParallelGemmDesc.exchange is fetch; allowed: auto here");
}

TEST(GemmReduceScatterPlan, SaysInWords) {
  const auto plan = plan_gemm_reduce_scatter({.m = 8192, .n = 4096, .k = 14336}, kH200, 8);
  ASSERT_TRUE(plan.ok());
  EXPECT_NE(plan->to_string().find("gemm_rs_bf16_"), std::string::npos) << plan->to_string();
  EXPECT_NE(plan->to_string().find("exchange boxes in bands of 64 x "), std::string::npos) << plan->to_string();
  EXPECT_NE(plan->to_string().find("owners alternate"), std::string::npos) << plan->to_string();
  const auto words = plan_gemm_reduce_scatter({.m = 2048, .n = 2880, .k = 2880}, kH200, 8);
  ASSERT_TRUE(words.ok());
  EXPECT_NE(words->to_string().find("exchange words, owners alternate"), std::string::npos) << words->to_string();
}

TEST(GemmReduceScatterPlan, NamesWhatItRefuses) {
  const auto error = [](const ParallelGemmDesc& desc, const MachineShape& shape, int ranks) {
    const auto plan = plan_gemm_reduce_scatter(desc, shape, ranks);
    return plan.ok() ? std::string() : plan.status().message();
  };
  EXPECT_EQ(error({.m = 63, .n = 64, .k = 64}, kH200, 8),
            "ParallelGemmDesc.m is 63; allowed: a multiple of 8 up to 16777216");
  EXPECT_EQ(error({.m = 64, .n = 64, .k = 24}, kH200, 2),
            "ParallelGemmDesc.k is 24; allowed: a multiple of 16 up to 16777216");
  EXPECT_NE(
      error({.m = 640, .n = 64, .k = 64, .tile_columns = 48}, kH200, 8).find("ParallelGemmDesc.tile_columns is 48"),
      std::string::npos);
  EXPECT_EQ(error({.m = 1 << 22, .n = 1 << 20, .k = 64}, kH200, 8),
            "ParallelGemmDesc.m is 4194304; allowed: at most 1048576 with n = 1048576");
  EXPECT_EQ(error({.m = 8, .n = 64, .k = 1 << 24}, kMi300x, 2),
            "ParallelGemmDesc.k is 16777216; allowed: at most 8388608 with 2 ranks here");
  EXPECT_EQ(error({.m = 8, .n = 64, .k = 64, .exchange = ParallelGemmExchange::kWords}, kMi300x, 2),
            "ParallelGemmDesc.exchange is words; allowed: auto here");
  EXPECT_EQ(error({.m = 8, .n = 64, .k = 64, .exchange = ParallelGemmExchange::kBoxes}, kMi300x, 2),
            "ParallelGemmDesc.exchange is boxes; allowed: auto here");
}

}  // namespace
}  // namespace farwarp
