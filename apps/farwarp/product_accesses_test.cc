#include "product_accesses.h"

#include <gtest/gtest.h>

#include <set>
#include <utility>
#include <vector>

namespace farwarp::cli {
namespace {

ProductShape shape_of(int sequences, int xcds, int workers) {
  ProductShape shape;
  shape.sequences = sequences;
  shape.rows = 1000;
  shape.columns = 600;
  shape.xcds = xcds;
  shape.workers_per_xcd = workers;
  return shape;
}

std::vector<TileAccess> all_accesses(const ProductAccesses& plan, std::int64_t worker) {
  std::vector<TileAccess> accesses(plan.accesses(worker));
  plan.read(worker, 0, accesses);
  return accesses;
}

/// Bytes of weights that are read, and bytes of results that are written.
std::pair<std::int64_t, std::int64_t> bytes_of(const ProductAccesses& plan, std::uint32_t row_tiles) {
  std::int64_t weights = 0, results = 0;
  for (std::int64_t worker = 0; worker < plan.workgroups(); ++worker) {
    for (const TileAccess& access : all_accesses(plan, worker)) {
      if (access.write) results += access.bytes;
      if (!access.write && access.object < row_tiles) weights += access.bytes;
    }
  }
  return {weights, results};
}

TEST(ProductAccesses, EachTileOfTheResultIsWrittenOnce) {
  for (const Traversal traversal : kTraversals) {
    for (const int sequences : {1, 16, 40, 64}) {
      for (const int xcds : {1, 2, 8}) {
        for (const int window : {0, 1, 3}) {
          ProductShape shape = shape_of(sequences, xcds, 5);
          shape.window = window;
          const ProductAccesses plan(shape, traversal);
          std::set<std::pair<std::uint32_t, std::uint32_t>> written;
          std::int64_t bytes = 0;
          for (std::int64_t worker = 0; worker < plan.workgroups(); ++worker) {
            for (const TileAccess& access : all_accesses(plan, worker)) {
              if (!access.write) continue;
              bytes += access.bytes;
              EXPECT_TRUE(written.insert({access.object, access.tile}).second)
                  << name_of(traversal) << " " << sequences;
            }
          }
          EXPECT_EQ(bytes, std::int64_t{1000} * sequences * 2) << name_of(traversal) << " " << sequences << " " << xcds;
        }
      }
    }
  }
}

TEST(ProductAccesses, WholeTilesReadEachWeightOnceAndOthersForEachTileOfSequences) {
  const std::int64_t weights = std::int64_t{1000} * 600 * 2;
  const ProductShape shape = shape_of(64, 8, 5);
  EXPECT_EQ(bytes_of(ProductAccesses(shape, Traversal::kWhole), 63).first, weights);
  for (const Traversal traversal : {Traversal::kMWindow, Traversal::kNFirst, Traversal::kMSplit})
    EXPECT_EQ(bytes_of(ProductAccesses(shape, traversal), 16).first, 4 * weights) << name_of(traversal);
}

TEST(ProductAccesses, WholeTilesReadActivationsOnceForEachWorker) {
  const ProductAccesses plan(shape_of(40, 2, 3), Traversal::kWhole);
  for (std::int64_t worker = 0; worker < plan.workgroups(); ++worker) {
    std::int64_t activations = 0;
    for (const TileAccess& access : all_accesses(plan, worker)) {
      if (!access.write && access.object >= 63) activations += access.bytes;
    }
    EXPECT_EQ(activations, 40 * 600 * 2);
  }
}

TEST(ProductAccesses, AWindowIsReadByNeighbours) {
  ProductShape shape = shape_of(64, 8, 4);
  const ProductAccesses plan(shape, Traversal::kMWindow);
  for (std::int64_t xcd = 0; xcd < 8; ++xcd) {
    for (int worker = 1; worker < 4; ++worker)
      EXPECT_EQ(all_accesses(plan, xcd)[1].object, all_accesses(plan, xcd + 8 * worker)[1].object);
  }
}

TEST(ProductAccesses, APartIsAsInTheWhole) {
  const ProductAccesses plan(shape_of(40, 2, 3), Traversal::kMWindow);
  const std::vector<TileAccess> whole = all_accesses(plan, 1);
  std::vector<TileAccess> part(7);
  plan.read(1, 5, part);
  for (std::size_t i = 0; i < part.size(); ++i) {
    EXPECT_EQ(part[i].object, whole[5 + i].object);
    EXPECT_EQ(part[i].tile, whole[5 + i].tile);
    EXPECT_EQ(part[i].bytes, whole[5 + i].bytes);
  }
}

TEST(ProductAccesses, BadShapesAreNamed) {
  ProductShape shape = shape_of(1, 1, 1);
  EXPECT_TRUE(check(shape).ok());
  shape.xcds = 65;
  EXPECT_EQ(check(shape).message(), "xcds is 65: allowed is 1..64");
}

}  // namespace
}  // namespace farwarp::cli
