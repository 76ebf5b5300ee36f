#include "farwarp/fleet/graph.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "farwarp/fleet/slot_cursor.h"

namespace farwarp::fleet {
namespace {

TEST(Layout, EveryElementHasItsPlace) {
  for (const MatrixUnit unit : {MatrixUnit::kWgmma, MatrixUnit::kMfma}) {
    for (const int workers : {1, 3, 8}) {
      for (const MatrixShape shape : {MatrixShape{7, 1}, MatrixShape{2, 3}, MatrixShape{5, 2 * kMaxPassSlices + 1},
                                      MatrixShape{13, 5, 2, 2}, MatrixShape{23, 3, 4, 4}}) {
        std::set<std::int64_t> seen;
        const int rows = shape.tiles * kTileRows, columns = shape.slices * kSliceDepth;
        for (int row = 0; row < rows; ++row) {
          for (int column = 0; column < columns; ++column) {
            const std::int64_t at = element_offset(shape, unit, workers, row, column);
            ASSERT_TRUE(at >= 0 && at < shape.bytes() && at % 2 == 0);
            if (column % 2 == 0) {
              seen.insert(at);
            } else {
              ASSERT_EQ(at, element_offset(shape, unit, workers, row, column - 1) + 2);
            }
          }
        }
        EXPECT_EQ(seen.size(), static_cast<std::size_t>(rows) * static_cast<std::size_t>(columns) / 2);
      }
    }
  }
}

/// A worker's tiles: 3 for each of the first three workers, 2 for the others.
TEST(Layout, PairsOfTilesLieSideBySide) {
  constexpr int kWorkers = 5;
  const MatrixShape shape{13, 7, 4, 4};
  EXPECT_EQ(shape.groups(0), 0);
  EXPECT_EQ(shape.groups(4), 1);
  EXPECT_EQ(shape.groups(5), 2);
  EXPECT_EQ((MatrixShape{13, 7, 4}.groups(5)), 1) << "no groups";
  for (int worker = 0; worker < kWorkers; ++worker) {
    const MatrixShape::Pair first = shape.pair_of(kWorkers, worker, 0), second = shape.pair_of(kWorkers, worker, 1);
    EXPECT_EQ(first.tiles, 2);
    EXPECT_EQ(first.first, 2 * worker);
    EXPECT_EQ(first.step, 10);
    EXPECT_EQ(second.tiles, worker < 3 ? 1 : 0);
    EXPECT_EQ(shape.pair_of(kWorkers, worker, 2).tiles, 0);
    for (int pass = 0; pass < shape.passes(); ++pass) {
      for (int slice = 0; slice < shape.slices_of(pass); ++slice) {
        const int of_tile = pass * shape.pass_slices() + slice;
        EXPECT_EQ(shape.slice_at(kWorkers, worker, pass, 1, slice), 2 * worker + 10 * of_tile + 1);
        if (worker < 3) {
          EXPECT_EQ(shape.slice_at(kWorkers, worker, pass, 2, slice), 70 + worker + 3 * of_tile);
        }
      }
    }
  }
}

/// The loading thread's places are those of slice_at(), by which weights are packed, in the order in which a worker
/// reads them.
TEST(Layout, SlotsAreCopiesOfSlicesInTheirOrder) {
  constexpr std::int64_t kWeights = 12345 * 128;
  int slots = 0;
  for (const int workers : {1, 2, 3, 7, 16, 132}) {
    for (const int tiles : {1, 2, 3, 6, 7, 8, 13, 33, 132, 133, 300}) {
      for (const int slices : {1, 2, 3, 4, 5, 15, 16, 20, 21, 40, 41, 48}) {
        for (const int most_slices : {1, 2, 3, 10, kMaxPassSlices}) {
          const MatrixShape shape{tiles, slices, most_slices};
          for (int worker = 0; worker < workers; ++worker) {
            Task task{};
            task.matrix = shape;
            task.weights = kWeights;
            task.count = share_of(tiles, workers, worker).count;
            SlotCursor cursor(task, workers, worker);
            for (int pass = 0; pass < shape.passes(); ++pass) {
              for (int tile = 0; tile < task.count; ++tile) {
                for (int slice = 0; slice < shape.slices_of(pass); slice += kSlotSlices, cursor.advance()) {
                  ASSERT_TRUE(cursor.exists());
                  const auto at = [&](int which) {
                    return kWeights + shape.slice_at(workers, worker, pass, tile, which) * kSliceBytes;
                  };
                  const bool whole = slice + 1 < shape.slices_of(pass);
                  ASSERT_EQ(cursor.offset(), at(slice))
                      << tiles << " x " << slices << ", " << most_slices << " in a pass, worker " << worker << " of "
                      << workers << ": pass " << pass << ", tile " << tile << ", slice " << slice;
                  ASSERT_EQ(cursor.bytes(), whole ? kSlotBytes : kSliceBytes);
                  if (whole) {
                    ASSERT_EQ(at(slice + 1), at(slice) + kSliceBytes) << "a slot is one copy";
                  }
                  ++slots;
                }
              }
            }
            ASSERT_FALSE(cursor.exists());
          }
        }
      }
    }
  }
  EXPECT_GT(slots, 100000);
}

TEST(Layout, SharesCoverAllTiles) {
  for (const int workers : {1, 2, 7, 132}) {
    for (const int total : {1, 5, 132, 263, 1000}) {
      int next = 0;
      for (int worker = 0; worker < workers; ++worker) {
        const Share share = share_of(total, workers, worker);
        EXPECT_EQ(share.first, next);
        for (int i = 0; i < share.count; ++i) EXPECT_EQ(owner_of(total, workers, share.first + i), worker);
        next += share.count;
      }
      EXPECT_EQ(next, total);
    }
  }
}

/// One layer: a -> b -> a, twice.
Graph two_steps() {
  Graph graph;
  graph.buffers = {{"a"}, {"b"}};
  graph.first_inputs = {0};
  graph.steps.push_back({.name = "first", .reads = {{0, true}}, .writes = {1}});
  graph.steps.push_back({.name = "second", .reads = {{1, true}}, .writes = {0}});
  return graph;
}

TEST(Graph, StepsThatReadAllThatWasWrittenMayUseTwoBuffers) { EXPECT_TRUE(two_steps().check().ok()); }

TEST(Graph, WhatNoStepWritesIsNamed) {
  Graph graph = two_steps();
  graph.first_inputs.clear();
  EXPECT_EQ(graph.check().message(), "step first reads a, which no step before it writes");
  graph.first_inputs = {0};
  graph.steps[0].reads.push_back({1, true});
  EXPECT_EQ(graph.check().message(), "step first reads b, which no step before it writes") << "a cycle";
}

TEST(Graph, WhatNoStepReadsIsNamed) {
  Graph graph = two_steps();
  graph.buffers.push_back({"c"});
  graph.steps[1].writes.push_back(2);
  EXPECT_EQ(graph.check().message(), "step second writes c, which no step reads");
}

TEST(Graph, ABufferThatIsWrittenTooEarlyIsNamed) {
  Graph graph = two_steps();
  // A task of `first` waits for a part of a only, so other tasks of `second` may still read b.
  graph.steps[0].reads[0].whole = false;
  graph.steps[1].reads[0].whole = false;
  EXPECT_EQ(graph.check().message(),
            "step first writes b again, while step second may still read what step first has written");
}

TEST(Graph, AStepThatWritesWhatItsTasksReadIsNamed) {
  Graph graph = two_steps();
  graph.steps[0].writes.push_back(0);
  EXPECT_EQ(graph.check().message(), "step first writes a, which its own tasks read");
  graph = two_steps();
  graph.steps[1] = {.name = "second", .reads = {{1, false}}, .writes = {1}};
  EXPECT_EQ(graph.check().message(), "step second writes b, which its own tasks read") << "each task a part";
}

/// Readers tell packets by their tags alone.
TEST(Graph, PacketsThatAreWrittenTwiceWithOneTagAreNamed) {
  Graph graph;
  for (const char* name : {"a", "b", "c", "d"}) graph.add_buffer(name, Storage::kPackets, 64);
  graph.first_inputs = {0};
  graph.steps = {{.name = "first", .reads = {{0, true}}, .writes = {1}},
                 {.name = "second", .reads = {{1, true}}, .writes = {2}},
                 {.name = "third", .reads = {{2, true}}, .writes = {1}},
                 {.name = "fourth", .reads = {{1, true}}, .writes = {0}}};
  EXPECT_EQ(graph.check().message(),
            "step third writes b again with the tag of step first: a reader could take packets of either; allowed is "
            "another buffer");
  EXPECT_TRUE(graph.with_plain_buffers().check().ok()) << "plain vectors have no tags";
  graph.steps[2].writes = {3};
  graph.steps[3].reads = {{3, true}};
  EXPECT_TRUE(graph.check().ok()) << graph.check().message();
}

/// The residual: whoever writes a part reads it.
TEST(Graph, OwnMemoryThatStepsShareInDifferentWaysIsNamed) {
  Graph graph = two_steps();
  const int own = graph.add_buffer("own", Storage::kOwn);
  graph.first_inputs.push_back(own);
  for (Step& step : graph.steps) {
    step.matrix = {16, 0};
    step.reads.push_back({own, false});
    step.writes.push_back(own);
  }
  EXPECT_TRUE(graph.check().ok()) << graph.check().message();
  graph.steps[1].matrix.tiles = 8;
  EXPECT_EQ(graph.check().message(),
            "steps first and second use own, but share their work in different ways: a worker would read what another "
            "one has written");
  graph.steps[1].matrix.tiles = 0;
  graph.steps[1].units = 16;
  EXPECT_FALSE(graph.check().ok()) << "tiles are shared in another way than units";
}

/// A packet has one tag.
TEST(Graph, AVectorThatTwoLayersReadIsNamed) {
  Graph graph = two_steps();
  graph.steps.push_back({.name = "third", .layer = 1, .reads = {{1, true}, {0, true}}, .writes = {0}});
  graph.steps[1].writes.clear();
  EXPECT_FALSE(graph.check().ok());
}

/// Its packets have the tag of its own layer.
TEST(Graph, AStepWhoseReaderIsOfAnotherLayerIsNamed) {
  Graph graph = two_steps();
  graph.steps[1].layer = 1;
  EXPECT_EQ(graph.check().message(),
            "step first writes b for another layer, that of step second; allowed for a product that is added to the "
            "hidden vector");
  graph.steps[0].matrix = {16, 1};
  graph.steps[0].epilogue = Epilogue::kHidden;
  EXPECT_TRUE(graph.check().ok()) << graph.check().message();
}

/// Whoever finishes a tile sends its sums whatever the epilogue is, and adds all ranks' to the residual.
TEST(Graph, SumsOfRanksThatAreNotAddedToTheHiddenVectorAreNamed) {
  Graph graph = two_steps();
  const int sums = graph.add_buffer("sums", Storage::kRankPackets, 64);
  graph.steps[0].matrix = {16, 1};
  graph.steps[0].rank_sums = sums;
  for (const Epilogue epilogue : {Epilogue::kNone, Epilogue::kStore, Epilogue::kGated, Epilogue::kModel}) {
    graph.steps[0].epilogue = epilogue;
    EXPECT_EQ(graph.check().message(),
              "step first sends partial sums to sums; allowed for a product that is added to the hidden vector");
  }
  graph.steps[0].epilogue = Epilogue::kHidden;
  graph.steps[0].matrix.slices = 0;
  EXPECT_FALSE(graph.check().ok()) << "it begins the hidden vector";
}

/// What kernels for so many columns have built in.
TEST(Graph, WhatColumnsDoNotHaveIsNamed) {
  const auto graph_of = [](Storage storage, MatrixShape matrix) {
    Graph graph;
    graph.buffers = {{"vector", storage}, {"done", Storage::kCopies}};
    graph.steps.push_back({.name = "multiply", .matrix = matrix, .reads = {}, .writes = {0}});
    graph.steps.push_back({.name = "finish", .units = 3, .reads = {{0, true}}, .writes = {1}});
    return graph;
  };
  const auto message = [&](Storage storage, MatrixShape matrix, int columns, bool bulk_copy) {
    return std::string(graph_of(storage, matrix).check_launch(columns, bulk_copy).message());
  };
  EXPECT_EQ(message(Storage::kPackets, {16, 3}, 8, true), "");
  EXPECT_EQ(message(Storage::kPackets, {16, 3, 10}, 8, false), "");
  EXPECT_EQ(message(Storage::kRankPackets, {16, 3, 4, kGroupTiles}, 16, true), "");
  EXPECT_EQ(message(Storage::kPlain, {16, 3, 2, kGroupTiles}, 64, true), "");
  EXPECT_EQ(message(Storage::kPlain, {16, 3}, 8, true),
            "buffer vector has vectors as plain memory; allowed with 8 columns: packets");
  EXPECT_EQ(message(Storage::kPackets, {16, 3, 4, kGroupTiles}, 16, true),
            "buffer vector has vectors as packets; allowed with 16 columns: plain memory");
  EXPECT_EQ(message(Storage::kPlain, {16, 3, 4}, 16, true),
            "step multiply has group_tiles of 0; allowed with 16 columns: 4");
  EXPECT_EQ(message(Storage::kPackets, {16, 3, 20, kGroupTiles}, 2, true),
            "step multiply has group_tiles of 4; allowed with 2 columns: 0");
  EXPECT_EQ(message(Storage::kPackets, {16, 3}, 8, false),
            "step multiply has most_slices of 20; allowed with 8 columns: 1 to 10");
  EXPECT_EQ(message(Storage::kPackets, {16, 3, 0}, 8, true),
            "step multiply has most_slices of 0; allowed with 8 columns: 1 to 20");
}

/// The graph dispatcher launches it with one block.
TEST(Graph, ALastStepThatNeedsAllWorkersIsNamed) {
  Graph graph = two_steps();
  EXPECT_EQ(graph.check_launch(1, true).message(),
            "step second is the last one and writes a; allowed are copies, because only one worker may run it");
  graph.buffers[0].storage = Storage::kCopies;
  EXPECT_TRUE(graph.check_launch(1, true).ok());
  graph.steps[1].matrix = {16, 1};
  EXPECT_EQ(graph.check_launch(1, true).message(),
            "step second is the last one and has weights; allowed for a step that all workers run");
}

TEST(Graph, TasksHaveTheTagsOfTheirReaders) {
  Graph graph = two_steps();  // b is read in the next layer, a in the next token's first
  graph.steps[1].layer = 1;
  const auto lists = plan_static(graph, 1);
  ASSERT_TRUE(lists.ok());
  EXPECT_EQ(graph.tags_of_token(), 2);
  EXPECT_EQ(lists->tasks[0].out_later, 1);
  EXPECT_EQ(lists->tasks[1].out_later, 1);
}

TEST(Graph, UnitsAreDealtOutInTurn) {
  Graph graph = two_steps();
  graph.steps[0].units = 7;
  const auto lists = plan_static(graph, 3);
  ASSERT_TRUE(lists.ok());
  for (int worker = 0; worker < 3; ++worker) {
    const Task& task = lists->tasks[static_cast<std::size_t>(2 * worker)];
    EXPECT_EQ(task.first, worker);
    EXPECT_EQ(task.count, worker == 0 ? 3 : 2);
  }
}

/// Only what no peer writes becomes plain, and it has its own place.
TEST(Graph, PlainBuffersArePlacedApartFromPackets) {
  Graph graph;
  const int vector = graph.add_buffer("vector", Storage::kPackets, 10),
            sums = graph.add_buffer("sums", Storage::kRankPackets, 3);
  EXPECT_EQ(graph.buffers[static_cast<std::size_t>(sums)].offset, 256);
  EXPECT_EQ(graph.packet_bytes, 384);
  EXPECT_EQ(graph.plain_bytes, 0);
  const Graph plain = graph.with_plain_buffers();
  EXPECT_EQ(plain.buffers[static_cast<std::size_t>(vector)].storage, Storage::kPlain);
  EXPECT_EQ(plain.buffers[static_cast<std::size_t>(sums)].offset, 0);
  EXPECT_EQ(plain.packet_bytes, 128);
  EXPECT_EQ(plain.plain_bytes, 128);
}

TEST(Graph, AMatrixOfSeveralPassesNeedsEnoughWorkers) {
  Graph graph = two_steps();
  graph.steps[0].matrix = {16, kMaxPassSlices + 1};
  EXPECT_TRUE(plan_static(graph, 4).ok());
  const auto lists = plan_static(graph, 3);
  ASSERT_FALSE(lists.ok());
  EXPECT_EQ(lists.status().message(),
            "step first has 16 tiles of 21 slices for 3 workers; allowed: 4 for each worker, if a tile has more than "
            "20 slices");
}

TEST(Graph, IsPrintedAsTextAndAsAPicture) {
  Graph graph = two_steps();
  graph.steps[0].matrix = {16, 2};
  graph.steps[1].units = 3;
  EXPECT_EQ(graph.to_string(4),
            "first        16 tiles, 4 for a worker at most, 0.3 MB           reads a, writes b\n"
            "second       3 units, 1 for a worker at most                    reads b, writes a\n");
  graph.steps[1].reads[0].whole = false;
  EXPECT_EQ(graph.to_dot(4),
            "digraph token {\n  node [shape=box]\n"
            "  s0 [label=\"first\\n16 tiles, 4 for a worker at most, 0.3 MB\"]\n"
            "  s1 [label=\"second\\n3 units, 1 for a worker at most\"]\n"
            "  s1 -> s0 [label=\"a\", constraint=false]\n"
            "  s0 -> s1 [label=\"b\", style=dashed]\n}\n");
}

}  // namespace
}  // namespace farwarp::fleet
