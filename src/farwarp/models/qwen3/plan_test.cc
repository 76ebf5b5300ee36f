#include "farwarp/models/qwen3/plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <utility>

namespace farwarp {
namespace {

MachineShape h200() {
  return {.target = TargetKind::kCuda, .traits = traits_of(TargetKind::kCuda), .multiprocessors = 132};
}

TEST(Qwen3Plan, EveryModelHasOne) {
  for (const char* name : {"nano", "tiny", "tiny64", "nano4", "nano8", "qwen3-0.6b", "qwen3-1.7b", "qwen3-4b",
                           "qwen3-8b", "qwen3-14b", "qwen3-32b"}) {
    const auto config = qwen3_config(name);
    ASSERT_TRUE(config.ok()) << config.status().to_string();
    for (const int sequences : {1, 3, 8, 9, 32, 64}) {
      const auto plan = plan_qwen3(*config, {.sequences = sequences}, h200());
      ASSERT_TRUE(plan.ok()) << name << ": " << plan.status().to_string();
      EXPECT_TRUE(fleet::plan_static(plan->graph, plan->workers).ok()) << name;
      EXPECT_LE(plan->shared_bytes, h200().traits.shared_bytes);
    }
  }
  EXPECT_EQ(qwen3_config("qwen3-7b").status().message(),
            "model is qwen3-7b; allowed: nano, tiny, tiny64, nano4, nano8, qwen3-0.6b, qwen3-1.7b, qwen3-4b, qwen3-8b, "
            "qwen3-14b, "
            "qwen3-32b");
}

TEST(Qwen3Plan, ATokenOfTheEightBillionReadsItsWeightsOnce) {
  const auto plan = plan_qwen3(*qwen3_config("qwen3-8b"), {}, h200());
  ASSERT_TRUE(plan.ok());
  EXPECT_NEAR(static_cast<double>(plan->bytes_of_token(0)), 15.14e9, 0.01e9);
  EXPECT_EQ(plan->workers, 132);
}

TEST(Qwen3Plan, WhatIsNotAllowedIsNamed) {
  Qwen3Config config = *qwen3_config("tiny");
  config.hidden = 300;
  EXPECT_EQ(plan_qwen3(config, {}, h200()).status().message(),
            "Qwen3Config.hidden is 300; allowed: a multiple of 256 up to 5120");
  config = *qwen3_config("tiny");
  config.head_dim = 96;
  EXPECT_EQ(plan_qwen3(config, {}, h200()).status().message(), "Qwen3Config.head_dim is 96; allowed: 64, 128");
  EXPECT_EQ(plan_qwen3(*qwen3_config("tiny"), {.sequences = 65}, h200()).status().message(),
            "Qwen3Limits.sequences is 65; allowed: 1 to 64");
}

MachineShape mi300x() {
  return {.target = TargetKind::kHip, .traits = traits_of(TargetKind::kHip), .multiprocessors = 304};
}

TEST(Qwen3Plan, MoreThanEightSequencesStream) {
  const Qwen3Config config = *qwen3_config("qwen3-8b");
  for (const auto& [sequences, columns] : {std::pair{4, 4}, {9, 16}, {16, 16}, {17, 32}, {33, 64}, {64, 64}}) {
    const auto plan = plan_qwen3(config, {.sequences = sequences}, h200());
    ASSERT_TRUE(plan.ok()) << plan.status().to_string();
    EXPECT_EQ(plan->columns, columns) << sequences;
    EXPECT_EQ(plan->streams, sequences > 8) << sequences;
    // Threads that compute; of packets those that finish tiles, and one warp that loads; of streams two warps that
    // load.
    EXPECT_EQ(plan->threads, 256 + (sequences > 8 ? 2 * 32 : 4 * 16 + 32)) << sequences;
    // What a worker multiplies while the vector streams by once.
    for (const fleet::Step& step : plan->graph.steps) {
      if (step.matrix.slices == 0) continue;
      EXPECT_EQ(step.matrix.group_tiles, columns == 4 ? 0 : fleet::kGroupTiles) << step.name;
      EXPECT_EQ(step.matrix.most_slices, columns == 4 ? 20 : columns == 16 ? 4 : 2) << step.name;
    }
  }
  const auto gate_up = [&](int sequences) {
    const auto plan = plan_qwen3(config, {.sequences = sequences}, h200());
    const auto step = std::find_if(plan->graph.steps.begin(), plan->graph.steps.end(),
                                   [](const fleet::Step& one) { return one.name == "gate up 0"; });
    return step == plan->graph.steps.end() ? fleet::MatrixShape{} : step->matrix;
  };
  const int most = fleet::share_of(2 * 12288 / 16, 132, 0).count;  // 12 tiles
  for (const int sequences : {16, 32, 64}) EXPECT_EQ(gate_up(sequences).groups(most), 3) << sequences;
  const auto amd = plan_qwen3(config, {.sequences = 32}, mi300x());
  ASSERT_TRUE(amd.ok()) << amd.status().to_string();
  EXPECT_TRUE(amd->gang);
  EXPECT_LE(amd->shared_bytes, mi300x().traits.shared_bytes);
}

/// They stream if a rank has at least 5 GB of matrices.
TEST(Qwen3Plan, FiveToEightSequencesOfALargeModelStream) {
  const auto columns = [](const char* model, int sequences, int ranks = 1, int most_top_k = 0) {
    const auto plan =
        plan_qwen3(*qwen3_config(model), {.sequences = sequences, .most_top_k = most_top_k}, h200(), ranks);
    EXPECT_TRUE(!plan.ok() || plan->streams == (plan->columns == 16)) << model;
    return plan.ok() ? plan->columns : -1;
  };
  for (const int sequences : {5, 8}) {
    for (const char* small : {"qwen3-0.6b", "qwen3-1.7b"}) EXPECT_EQ(columns(small, sequences), 8) << small;
    for (const char* large : {"qwen3-4b", "qwen3-8b", "qwen3-14b", "qwen3-32b"}) {
      EXPECT_EQ(columns(large, sequences), 16) << large;
      EXPECT_EQ(columns(large, sequences, 1, 20), 16) << large;
      EXPECT_EQ(columns(large, 4), 4) << large;
    }
    EXPECT_EQ(columns("qwen3-8b", sequences, 2), 16);  // 7.6 GB a rank
    EXPECT_EQ(columns("qwen3-8b", sequences, 4), 8);
    EXPECT_EQ(columns("qwen3-14b", sequences, 4), 16);
  }
}

/// A layer has 184.5 MB of matrices, the head 134 MB.
TEST(Qwen3Plan, TheLeastMatricesThatStreamAreFiveGigabytes) {
  Qwen3Config config{.hidden = 4096,
                     .layers = 26,
                     .query_heads = 32,
                     .kv_heads = 8,
                     .head_dim = 128,
                     .intermediate = 4096,
                     .vocabulary = 16384};
  const auto plan_of = [&] { return plan_qwen3(config, {.sequences = 8}, h200()); };
  const auto below = plan_of();
  config.layers = 27;
  const auto above = plan_of();
  ASSERT_TRUE(below.ok() && above.ok());
  EXPECT_LT(below->weight_bytes, 5'000'000'000);
  EXPECT_GT(above->weight_bytes, 5'000'000'000);
  EXPECT_FALSE(below->streams);
  EXPECT_TRUE(above->streams);
}

TEST(Qwen3Plan, EitherFormOfVectorsCanBeAskedFor) {
  const Qwen3Config large = *qwen3_config("qwen3-8b"), small = *qwen3_config("qwen3-0.6b");
  const auto packets = plan_qwen3(large, {.sequences = 8, .vectors = Qwen3Vectors::kPackets}, h200());
  const auto streamed = plan_qwen3(small, {.sequences = 3, .vectors = Qwen3Vectors::kStreamed}, h200());
  ASSERT_TRUE(packets.ok() && streamed.ok());
  EXPECT_FALSE(packets->streams);
  EXPECT_EQ(packets->columns, 8);
  EXPECT_TRUE(streamed->streams);
  EXPECT_EQ(streamed->columns, 16);
  EXPECT_EQ(plan_qwen3(large, {.sequences = 9, .vectors = Qwen3Vectors::kPackets}, h200()).status().message(),
            "Qwen3Limits.vectors is packets, for which 9 sequences of this model on 132 workers have no room; allowed: "
            "faster, streamed");
  EXPECT_EQ(plan_qwen3(large, {.sequences = 5, .vectors = Qwen3Vectors::kPackets}, mi300x()).status().message(),
            "Qwen3Limits.vectors is packets, for which 5 sequences of this model on 256 workers have no room; allowed: "
            "faster, streamed");
  EXPECT_EQ(plan_qwen3(large, {.sequences = 8, .vectors = static_cast<Qwen3Vectors>(3)}, h200()).status().message(),
            "Qwen3Limits.vectors is 3; allowed: 0 (faster), 1 (packets), 2 (streamed)");
}

/// In a pass of CDNA3 are 10 slices of eight columns: 8B's gate and up have 16, and a worker six tiles of it, of which
/// it cannot keep the sums.
TEST(Qwen3Plan, VectorsStreamWherePacketsHaveNoRoom) {
  const auto columns = [](const char* model, int sequences, int most_top_k = 0, int ranks = 1) {
    const auto plan =
        plan_qwen3(*qwen3_config(model), {.sequences = sequences, .most_top_k = most_top_k}, mi300x(), ranks);
    EXPECT_TRUE(plan.ok()) << model << ": " << plan.status().to_string();
    EXPECT_TRUE(!plan.ok() || (plan->streams == (plan->columns > 8) && plan->gang)) << model;
    return plan.ok() ? plan->columns : -1;
  };
  EXPECT_EQ(columns("qwen3-8b", 4), 4);
  EXPECT_EQ(columns("qwen3-8b", 5), 16);
  EXPECT_EQ(columns("qwen3-8b", 8), 16);
  EXPECT_EQ(columns("qwen3-8b", 8, 20), 16);
  EXPECT_EQ(columns("qwen3-8b", 9), 16);
  EXPECT_EQ(columns("qwen3-0.6b", 8), 8);
  EXPECT_EQ(columns("qwen3-4b", 8), 8);
  const auto few = plan_qwen3(*qwen3_config("qwen3-8b"), {.sequences = 1, .max_sms = 8}, h200());  // 32 tiles of down
  ASSERT_TRUE(few.ok()) << few.status().to_string();
  EXPECT_TRUE(few->streams);
  EXPECT_EQ(few->columns, 16);
}

/// Every number of sequences that a device has room for, with as many ranks as can share the model.
TEST(Qwen3Plan, EveryModelIsPlannedForEveryMachine) {
  for (const MachineShape& shape : {h200(), mi300x()}) {
    const int most = shape.traits.bulk_copy ? 64 : 32;
    for (const char* model : {"qwen3-0.6b", "qwen3-1.7b", "qwen3-4b", "qwen3-8b", "qwen3-14b", "qwen3-32b"}) {
      for (const int ranks : {1, 2, 4, 8}) {
        Qwen3Config config = *qwen3_config(model);
        config.layers = 2;                                       // all are alike
        if (config.intermediate % (256 * ranks) != 0) continue;  // refused by name: WhatRanksCannotShareIsNamed
        for (const int sequences : {1, 2, 3, 5, 8, 9, 17, 32, 33, 64}) {
          if (sequences > most) continue;
          for (const int most_top_k : {0, 64}) {
            const auto plan = plan_qwen3(config, {.sequences = sequences, .most_top_k = most_top_k}, shape, ranks);
            ASSERT_TRUE(plan.ok()) << model << ", " << ranks << " ranks, " << sequences << ": "
                                   << plan.status().to_string();
            EXPECT_GE(plan->columns, sequences);
            EXPECT_LE(plan->shared_bytes, shape.traits.shared_bytes);
          }
        }
      }
    }
  }
}

/// Each worker has a KV head of a sequence, and several if there are too many.
TEST(Qwen3Plan, SplitsAreAsManyAsWorkersShareASequence) {
  const auto splits = [](const char* model, int sequences, int ranks, int asked = 0) {
    const Qwen3Limits limits{.sequences = sequences, .positions = 4096, .splits = asked};
    const auto plan = plan_qwen3(*qwen3_config(model), limits, h200(), ranks);
    return plan.ok() ? plan->limits.splits : -1;
  };
  EXPECT_EQ(splits("qwen3-8b", 4, 1), 16);
  EXPECT_EQ(splits("qwen3-8b", 8, 1), 2);  // 132 workers, 8 heads each
  EXPECT_EQ(splits("qwen3-8b", 9, 1), 1);
  EXPECT_EQ(splits("qwen3-8b", 16, 2), 2);  // 4 heads
  EXPECT_EQ(splits("qwen3-8b", 16, 8), 8);
  EXPECT_EQ(splits("qwen3-8b", 64, 1), 1);
  EXPECT_EQ(splits("qwen3-8b", 64, 8), 2);
  EXPECT_EQ(splits("qwen3-8b", 9, 1, 5), 5);
  EXPECT_EQ(splits("qwen3-8b", 8, 1, 5), 5);
  EXPECT_EQ(splits("qwen3-8b", 8, 1, 17), -1);
}

/// Else the merge takes longer than what a split spares: half of the positions, of 512 bytes each, by half of the
/// workers.
TEST(Qwen3Plan, SequencesOfFewPositionsAreNotSplit) {
  const auto splits = [](int sequences, int positions, int ranks = 1) {
    const auto plan =
        plan_qwen3(*qwen3_config("qwen3-8b"), {.sequences = sequences, .positions = positions}, h200(), ranks);
    return plan.ok() ? plan->limits.splits : -1;
  };
  EXPECT_EQ(splits(8, 1020), 1);
  EXPECT_EQ(splits(8, 1024), 2);
  EXPECT_EQ(splits(4, 1), 16);  // packets
  EXPECT_EQ(splits(16, 766, 8), 1);
  EXPECT_EQ(splits(16, 768, 8), 8);
  EXPECT_EQ(splits(64, 1'000'000), 1);  // no worker to spare
}

TEST(Qwen3Plan, WhatStreamsDoNotHaveIsNamed) {
  const Qwen3Config config = *qwen3_config("qwen3-8b");
  EXPECT_EQ(plan_qwen3(config, {.sequences = 33}, mi300x()).status().message(),
            "Qwen3Limits.sequences is 33; allowed on this device, which has 63 KB of shared memory: 1 to 32");
}

TEST(Qwen3Plan, RanksShareHeadsRowsAndTokens) {
  const Qwen3Config config = *qwen3_config("qwen3-8b");
  const auto one = plan_qwen3(config, {}, h200()), eight = plan_qwen3(config, {}, h200(), 8);
  ASSERT_TRUE(one.ok() && eight.ok());
  EXPECT_EQ(eight->query_heads, 4);
  EXPECT_EQ(eight->kv_heads, 1);
  EXPECT_EQ(eight->intermediate, 1536);
  EXPECT_EQ(eight->head_rows, 18992);
  EXPECT_EQ(eight->cache_bytes, one->cache_bytes / 8);
  EXPECT_NEAR(static_cast<double>(eight->weight_bytes), static_cast<double>(one->weight_bytes) / 8, 1e6);
  EXPECT_EQ(eight->workers, one->workers);
}

TEST(Qwen3Plan, WhatRanksCannotShareIsNamed) {
  const auto message = [](const char* model, int ranks) {
    return plan_qwen3(*qwen3_config(model), {}, h200(), ranks).status().message();
  };
  EXPECT_EQ(message("nano", 2), "Qwen3Config.kv_heads is 1 for 2 ranks; allowed: a multiple of the ranks");
  EXPECT_EQ(message("tiny64", 2), "Qwen3Config.intermediate is 768 for 2 ranks; allowed: a multiple of 256 * ranks");
  EXPECT_EQ(message("nano4", 3), "Qwen3 is for 3 ranks; allowed: 1, 2, 4, 8");
  Qwen3Config config = *qwen3_config("nano4");
  config.query_heads = 4;
  EXPECT_EQ(plan_qwen3(config, {}, h200(), 2).status().message(),
            "Qwen3Config.query_heads is 4 for 2 ranks; allowed: so many that query_heads * head_dim (256) is a "
            "multiple of 256 * ranks");
}

/// The greedy graph with two steps more; its checks see what would be wrong with them.
TEST(Qwen3Plan, ADecoderThatSamplesHasTwoStepsMore) {
  for (const int sequences : {1, 9}) {
    const auto greedy = plan_qwen3(*qwen3_config("nano4"), {.sequences = sequences}, h200(), 4);
    const auto plan = plan_qwen3(*qwen3_config("nano4"), {.sequences = sequences, .most_top_k = 64}, h200(), 4);
    ASSERT_TRUE(greedy.ok() && plan.ok()) << plan.status().to_string();
    EXPECT_EQ(plan->graph.steps.size(), greedy->graph.steps.size() + 2);
    fleet::Graph graph = plan->graph;
    graph.steps.erase(graph.steps.end() - 2);  // choose
    EXPECT_EQ(graph.check().message(), "step next inputs reads chosen, which no step before it writes");
    graph = plan->graph;
    graph.steps.back().reads.clear();  // workers go on before a token is drawn
    EXPECT_FALSE(graph.check().ok());
  }
}

TEST(Qwen3Plan, APrefillHasProductsOfARanksShare) {
  const Qwen3Config config = *qwen3_config("qwen3-8b");
  const Qwen3Limits limits{.positions = 4000, .prefill_tokens = 2048};
  const auto one = plan_qwen3(config, limits, h200()), two = plan_qwen3(config, limits, h200(), 2);
  ASSERT_TRUE(one.ok() && two.ok());
  EXPECT_EQ(one->prefill.rows, 2048);
  ASSERT_EQ(one->prefill.products.size(), 3u);
  EXPECT_EQ(one->prefill.products[1].qkv.m, 512);
  EXPECT_EQ(one->prefill.products[2].down.m, 128);
  EXPECT_EQ(one->prefill.products[0].qkv.n, 6144);
  EXPECT_EQ(two->prefill.products[0].qkv.n, 3072);
  EXPECT_EQ(one->prefill.products[0].gate_up.n, 24576);
  EXPECT_EQ(two->prefill.products[0].down.k, 6144);
  EXPECT_EQ(over_ranks(two->prefill.products[0].down, 2).k, 12288);
  EXPECT_EQ(one->prefill.unpacked_elements, std::int64_t{24576} * 4096);
  EXPECT_EQ(one->prefill.key_rows, 4096);
  // Gate and up unpacked; x, its norm, a product, q, k, v, attended, gate and up, activated; keys and values.
  EXPECT_EQ(one->prefill.memory_bytes,
            2 * (24576LL * 4096 + 2048LL * (3 * 4096 + 6144 + 4096 + 3 * 12288) + 2 * 4096LL * 1024));
  EXPECT_GT(two->prefill.heap_bytes, one->prefill.heap_bytes);  // partial sums
  const auto none = plan_qwen3(config, {}, h200());
  ASSERT_TRUE(none.ok());
  EXPECT_EQ(none->prefill.memory_bytes + none->prefill.heap_bytes, 0);
}

TEST(Qwen3Plan, EveryModelCanBePrefilled) {
  for (const char* name : {"nano", "tiny", "tiny64", "nano4", "nano8", "qwen3-0.6b", "qwen3-1.7b", "qwen3-4b",
                           "qwen3-8b", "qwen3-14b", "qwen3-32b"}) {
    for (const TargetKind target : {TargetKind::kCuda, TargetKind::kHip}) {
      MachineShape shape = h200();
      shape.target = target;
      shape.traits = traits_of(target);
      const auto plan = plan_qwen3(*qwen3_config(name), {.prefill_tokens = 1000}, shape);
      EXPECT_TRUE(plan.ok()) << name << ": " << plan.status().to_string();
    }
  }
}

TEST(Qwen3Plan, PrefillTokensThatAreNotAllowedAreNamed) {
  for (const int tokens : {-1, 1, 15, 8193})
    EXPECT_EQ(plan_qwen3(*qwen3_config("nano"), {.prefill_tokens = tokens}, h200()).status().message(),
              "Qwen3Limits.prefill_tokens is " + std::to_string(tokens) + "; allowed: 0 (no prefill), 16 to 8192");
}

/// A rank whose tokens do not exist has a tile of zeros.
TEST(Qwen3Plan, SmallVocabulariesLeaveARankWithoutTokens) {
  Qwen3Config config = *qwen3_config("nano4");
  config.vocabulary = 41;
  const auto plan = plan_qwen3(config, {}, h200(), 4);
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->head_rows, 16);
  EXPECT_EQ(plan->workers, 1);
}

/// What ranks send each other of the partial sums has places of its own, all of which the buffer has.
TEST(Qwen3Plan, PartialSumsOfRanksHavePlacesOfTheirOwn) {
  constexpr int kTiles = 3;
  for (const int columns : {1, 2, 8, 16, 32, 64}) {
    for (const int ranks : {2, 4, 8}) {
      std::set<std::int64_t> places;
      std::int64_t count = 0;
      std::vector<int> owned(static_cast<std::size_t>(ranks));
      for (int column = 0; column < columns; ++column) {
        for (int tile = 0; tile < kTiles; ++tile) {
          for (int row = 0; row < fleet::kTileRows; row += 2, count += ranks) {
            for (int rank = 0; rank < ranks; ++rank)
              places.insert(fleet::rank_sums_at(columns, kTiles, rank, tile, column, row));
          }
          for (int row = 0; row < fleet::kTileRows && fleet::streams(columns); row += 4, ++count)
            places.insert(fleet::rank_hidden_at(columns, kTiles, ranks, tile, column, row));
        }
        ++owned[static_cast<std::size_t>(fleet::column_owner(columns, ranks, column))];
      }
      EXPECT_EQ(std::ssize(places), count) << columns << " columns, " << ranks << " ranks";
      EXPECT_EQ(*places.begin(), 0);
      EXPECT_EQ(*places.rbegin() + 1, fleet::rank_sums_packets(columns, kTiles, ranks));
      if (fleet::streams(columns)) {
        EXPECT_EQ(owned, std::vector<int>(static_cast<std::size_t>(ranks), columns / ranks));
      }
    }
  }
}

/// Sums of out and of down in one buffer: a rank sends those of down while a peer may still add those of out.
TEST(Qwen3Plan, OneBufferForAllPartialSumsIsRefused) {
  const auto plan = plan_qwen3(*qwen3_config("nano4"), {}, h200(), 4);
  ASSERT_TRUE(plan.ok());
  fleet::Graph graph = plan->graph;
  for (fleet::Step& step : graph.steps) {
    if (step.name.starts_with("down")) step.rank_sums = plan->graph.steps[4].rank_sums;
  }
  EXPECT_EQ(graph.check().message(),
            "step down 0 sends partial sums to sums of out, while a rank may still add those before");
}

/// The graph's checks see what would be wrong with a decoder's graph.
TEST(Qwen3Plan, BrokenGraphsAreNamed) {
  const auto plan = plan_qwen3(*qwen3_config("tiny"), {}, h200());
  ASSERT_TRUE(plan.ok());
  EXPECT_TRUE(plan->graph.check().ok());
  fleet::Graph graph = plan->graph;
  for (fleet::Step& step : graph.steps) {
    if (step.name == "down 1") step.writes = {1};  // nobody reads it, and the next layer has no new x
  }
  EXPECT_FALSE(graph.check().ok());
  graph = plan->graph;
  graph.steps.erase(graph.steps.begin() + 3);  // merge 0
  EXPECT_EQ(graph.check().message(), "step out 0 reads attended, which no step before it writes");
}

}  // namespace
}  // namespace farwarp
