#include "farwarp/ops/moe_a2a/case/floor.h"

#include <gtest/gtest.h>

namespace farwarp::moe {
namespace {

Ceilings machine() {
  Ceilings ceilings;
  ceilings.source = "test";
  ceilings.link_all_store_gb_s = 100;
  ceilings.link_all_bulk_gb_s = 200;  // the higher rate counts
  ceilings.hbm_copy_gb_s = 4000;
  ceilings.packet_us = 1;
  return ceilings;
}

MoeAllToAllDesc desc() {
  MoeAllToAllDesc desc;
  desc.num_experts = 4;  // two on each of two ranks
  desc.experts_per_token = 2;
  desc.hidden = 1000;  // a row is 2 KB
  desc.max_tokens = 4;
  return desc;
}

TEST(Floor, ARowCrossesOnceForEachOtherRank) {
  // Rank 0: one token to both experts of rank 1, one to an expert of each rank. Rank 1: its one token stays; one entry
  // is skipped.
  const std::vector<Routing> routings = {{2, {2, 3, 0, 2}, {1, 1, 1, 1}}, {1, {3, -1}, {1, 1}}};
  const harness::Floor floor = floor_of(desc(), routings, machine());
  // Two rows in one direction, and two sums back in the other: 4 KB at 200 KB/us, and two latencies.
  EXPECT_DOUBLE_EQ(floor.us, 4.0 / 200 + 2);
  EXPECT_NE(floor.bound_by.find("link"), std::string::npos) << floor.bound_by;
}

TEST(Floor, TheBusiestRankDecides) {
  std::vector<Routing> routings = {{4, {}, {}}, {0, {}, {}}};
  for (int token = 0; token < 4; ++token) routings[0].experts.insert(routings[0].experts.end(), {2, 3});
  EXPECT_DOUBLE_EQ(floor_of(desc(), routings, machine()).us, 8.0 / 200 + 2);
}

TEST(Floor, RowsAndSumsShareADirection) {
  // Each rank sends four rows and returns four sums.
  std::vector<Routing> routings = {{4, {}, {}}, {4, {}, {}}};
  for (int token = 0; token < 4; ++token) {
    routings[0].experts.insert(routings[0].experts.end(), {2, 3});
    routings[1].experts.insert(routings[1].experts.end(), {0, 1});
  }
  EXPECT_DOUBLE_EQ(floor_of(desc(), routings, machine()).us, 16.0 / 200 + 2);
  MoeAllToAllDesc fp8 = desc();
  fp8.fp8_dispatch = true;  // 1000 bytes and a scale for each 128 of them
  EXPECT_DOUBLE_EQ(floor_of(fp8, routings, machine()).us, (8.0 + 4 * (1 + 4.0 / 128)) / 200 + 2);
}

TEST(Floor, WhatStaysIsBoundByMemory) {
  const std::vector<Routing> routings = {{1, {0, 1}, {1, 1}}, {1, {2, 3}, {1, 1}}};
  const harness::Floor floor = floor_of(desc(), routings, machine());
  EXPECT_NE(floor.bound_by.find("memory"), std::string::npos) << floor.bound_by;
  EXPECT_GT(floor.us, 2);
}

TEST(Floor, IsUnknownWithoutCeilings) {
  const std::vector<Routing> routings = {{1, {0, 1}, {1, 1}}, {1, {2, 3}, {1, 1}}};
  EXPECT_EQ(floor_of(desc(), routings, Ceilings()).us, 0);
}

}  // namespace
}  // namespace farwarp::moe
