#include "farwarp/results/comparison.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "farwarp/base/temporary_folder_test.h"
#include "farwarp/results/results_test_records.h"

namespace farwarp::results {
namespace {

constexpr const char* kFirst = "benchmarks[0]";
constexpr const char* kSecond = "benchmarks[1]";

class ComparisonTest : public testing::Test {
 protected:
  ComparisonTest() : store_(open_new((folder_ / "results.db").string())) {}

  Side side(const std::vector<std::int64_t>& ids) {
    const auto made = side_of_runs(store_, "runs", ids);
    EXPECT_TRUE(made.ok()) << made.status().to_string();
    return *made;
  }
  Comparison comparison(std::int64_t a, std::int64_t b) {
    const auto made = compare(side({a}), side({b}));
    EXPECT_TRUE(made.ok()) << made.status().to_string();
    return *made;
  }

  TemporaryFolder folder_;
  Store store_;
};

TEST_F(ComparisonTest, JudgesEachSeries) {
  CaseRecord first = a_case(kFirst, 10);
  first.series.push_back({.name = "split", .us = std::vector<double>(8, 30)});
  first.series.push_back(a_baseline("NCCL", 40));
  CaseRecord other = first;
  other.series[0].us.assign(8, 12.5);
  other.series[1].us.assign(8, 20);
  other.series[2].us.assign(8, 80);
  keep(store_, a_run("aaaa"), {first, a_case(kSecond, 5)});
  keep(store_, a_run("bbbb"), {other, a_case(kSecond, 5, "bbbb")});
  const Comparison made = comparison(1, 2);
  ASSERT_EQ(made.cases.size(), 2u);
  ASSERT_EQ(made.cases[0].series.size(), 3u);
  EXPECT_EQ(made.cases[0].series[0].judgement.verdict, Verdict::kSlower);
  EXPECT_EQ(made.cases[0].series[1].judgement.verdict, Verdict::kFaster);
  EXPECT_EQ(made.cases[0].series[2].judgement.verdict, Verdict::kSlower);
  EXPECT_FALSE(made.cases[0].series[2].ours);
  EXPECT_EQ(made.count(Verdict::kSlower), 1) << "a baseline decides nothing";
  EXPECT_EQ(made.count(Verdict::kSame), 1);
  EXPECT_NEAR(made.ratio, 1.118034, 1e-6) << "of the operators' own results: 1.25 and 1";
  const std::string text = to_text(made);
  EXPECT_NE(text.find("SLOWER     1.250      10.00 [10.00, 10.00] 8               12.50 [12.50, 12.50] 8"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("all-reduce benchmarks[0]: NCCL (baseline: decides nothing)"), std::string::npos) << text;
  EXPECT_NE(text.find("geometric mean of B/A: 1.118\n1 FASTER, 1 SLOWER, 1 SAME, 0 UNDECIDED"), std::string::npos)
      << text;
  const auto root = nlohmann::json::parse(to_json(made));
  EXPECT_EQ(root["counts"]["SLOWER"], 1);
  EXPECT_EQ(root["cases"][0]["series"][0]["us"]["verdict"], "SLOWER");
  EXPECT_TRUE(root["cases"][0]["series"][0]["cycles"].is_null());
  EXPECT_EQ(root["cases"][0]["series"][0]["us"]["b"]["median"], 12.5);
  EXPECT_EQ(root["times_have_meaning"], true);
}

/// B takes longer, because its clock was lower: that says nothing about the program.
TEST_F(ComparisonTest, CyclesConfirm) {
  CaseRecord first = a_case(kFirst, 10), second = a_case(kFirst, 12.5), third = a_case(kFirst, 12.5);
  first.series[0].cycles.assign(8, 20'000);
  second.series[0].cycles.assign(8, 20'000);
  third.series[0].cycles.assign(8, 25'000);
  keep(store_, a_run(), {first});
  keep(store_, a_run(), {second});
  keep(store_, a_run(), {third});
  keep(store_, a_run(), {a_case(kFirst, 12.5)});
  const SeriesComparison lower_clock = comparison(1, 2).cases[0].series[0];
  EXPECT_TRUE(lower_clock.has_cycles);
  EXPECT_EQ(lower_clock.judgement.verdict, Verdict::kUndecided);
  EXPECT_EQ(lower_clock.judgement.reason, "SLOWER in time, SAME in cycles: the clocks differed");
  EXPECT_EQ(comparison(1, 3).cases[0].series[0].judgement.verdict, Verdict::kSlower);
  EXPECT_EQ(nlohmann::json::parse(to_json(comparison(1, 3)))["cases"][0]["series"][0]["cycles"]["ratio"], 1.25);
  EXPECT_FALSE(comparison(1, 4).cases[0].series[0].has_cycles) << "of one side alone";
  EXPECT_EQ(comparison(1, 4).cases[0].series[0].judgement.verdict, Verdict::kSlower);
  EXPECT_TRUE(side({3, 4}).cases[0].record.series[0].cycles.empty());
  EXPECT_EQ(side({2, 3}).cases[0].record.series[0].cycles.size(), 16u);
}

TEST_F(ComparisonTest, PoolsRunsOfOneSide) {
  keep(store_, a_run(), {a_case(kFirst, 10)});
  keep(store_, a_run(), {a_case(kFirst, 20), a_case(kSecond, 5)});
  const Side pooled = side({1, 2});
  ASSERT_EQ(pooled.cases.size(), 2u);
  EXPECT_EQ(pooled.cases[0].record.series[0].us.size(), 16u);
  EXPECT_EQ(pooled.cases[1].record.series[0].us.size(), 8u);
  EXPECT_EQ(pooled.runs.size(), 2u);
}

TEST_F(ComparisonTest, ALabelIsTheNewestRunOfEachCase) {
  RunRecord run = a_run();
  run.label = "main";
  keep(store_, run, {a_case(kFirst, 10), a_case(kSecond, 30)});
  keep(store_, run, {a_case(kFirst, 20)});
  keep(store_, a_run(), {a_case(kFirst, 40)});
  const auto labelled = newest_side(store_, "main", "main");
  ASSERT_TRUE(labelled.ok());
  ASSERT_EQ(labelled->cases.size(), 2u);
  EXPECT_EQ(labelled->cases[0].record.series[0].us, std::vector<double>(8, 20));
  EXPECT_EQ(labelled->cases[1].record.series[0].us, std::vector<double>(8, 30));
  EXPECT_EQ(newest_side(store_, "all", "")->cases[0].record.series[0].us, std::vector<double>(8, 40));
  EXPECT_EQ(newest_side(store_, "x", "x").status().message(), "no run has this label; allowed: runs 1..3, main");
}

TEST_F(ComparisonTest, NamesWhatOneSideLacks) {
  CaseRecord with_split = a_case(kFirst, 10);
  with_split.series.push_back({.name = "split", .us = std::vector<double>(8, 30)});
  keep(store_, a_run(), {with_split, a_case(kSecond, 5)});
  keep(store_, a_run(), {a_case(kFirst, 10), a_case("benchmarks[2]", 5)});
  const Comparison made = comparison(1, 2);
  EXPECT_EQ(made.only_a, (std::vector<std::string>{"all-reduce benchmarks[0]: split", "all-reduce benchmarks[1]"}));
  EXPECT_EQ(made.only_b, (std::vector<std::string>{"all-reduce benchmarks[2]"}));
}

TEST_F(ComparisonTest, DoesNotCompareWrongResults) {
  CaseRecord wrong = a_case(kFirst, 1);
  wrong.verified = false;
  wrong.detail = "rank 0: wrong";
  keep(store_, a_run(), {a_case(kFirst, 10)});
  keep(store_, a_run(), {wrong});
  const Comparison made = comparison(1, 2);
  EXPECT_EQ(made.failed(), 1);
  EXPECT_EQ(made.count(Verdict::kFaster), 0);
  EXPECT_NE(to_text(made).find("FAILED    all-reduce benchmarks[0]: B: rank 0: wrong"), std::string::npos);
}

TEST_F(ComparisonTest, ComparesOnlyTheSameWork) {
  keep(store_, a_run("aaaa", 2), {a_case(kFirst, 10)});
  keep(store_, a_run("aaaa", 4), {a_case(kFirst, 10)});
  CaseRecord other_seed = a_case(kFirst, 10);
  other_seed.seed = 8;
  keep(store_, a_run("aaaa", 2), {other_seed});
  RunRecord emulated = a_run("aaaa", 2);
  emulated.target = "emu_sm90";
  keep(store_, emulated, {a_case(kFirst, 10)});
  for (const std::int64_t id : {2, 3, 4}) {
    EXPECT_EQ(compare(side({1}), side({id})).status().message(),
              "A and B have no case in common; allowed: results of the same shapes, seeds, machine and ranks");
  }
  const Comparison of_emulator = comparison(4, 4);
  EXPECT_TRUE(of_emulator.emulated());
  EXPECT_NE(to_text(of_emulator).find("times of the emulator: they say nothing about any machine\n"),
            std::string::npos);
}

TEST_F(ComparisonTest, RefusesRunsThatDoNotBelongTogether) {
  EXPECT_EQ(side_of_runs(store_, "1", {1}).status().message(),
            "there is no run 1; allowed: none, the database is empty");
  keep(store_, a_run("aaaa"), {a_case(kFirst, 10)});
  keep(store_, a_run("bbbb"), {a_case(kFirst, 10)});
  EXPECT_EQ(side_of_runs(store_, "3", {3}).status().message(), "there is no run 3; allowed: runs 1..2");
  EXPECT_EQ(side_of_runs(store_, "1,2", {1, 2}).status().message(),
            "run 1 is of 2 x NVIDIA H200, commit aaaa, and run 2 of 2 x NVIDIA H200, commit bbbb; allowed: runs of one "
            "machine and commit");
}

}  // namespace
}  // namespace farwarp::results
