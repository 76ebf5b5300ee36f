#include "farwarp/results/leaderboard.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "farwarp/base/temporary_folder_test.h"
#include "farwarp/results/results_test_records.h"

namespace farwarp::results {
namespace {

constexpr const char* kFirst = "benchmarks[0]";
constexpr const char* kSecond = "benchmarks[1]";

class LeaderboardTest : public testing::Test {
 protected:
  LeaderboardTest() : store_(open_new((folder_ / "results.db").string())) {
    suite_.name = "mine";
    for (int i = 0; i < 2; ++i) {
      suite_.entries.push_back({"all-reduce", harness::SuiteGroup::kBenchmarks, i, {}, 1, {}});
      suite_.entries.push_back({"all-reduce", harness::SuiteGroup::kTests, i, {}, 1, {}});
    }
  }

  Board only_board() {
    const auto boards = leaderboard(store_, suite_, "");
    EXPECT_TRUE(boards.ok()) << boards.status().to_string();
    EXPECT_EQ(boards->size(), 1u);
    return boards->front();
  }

  TemporaryFolder folder_;
  Store store_;
  harness::Suite suite_;
};

const Place& place_of(const Board& board, const std::string& entry) {
  for (const Place& place : board.places) {
    if (place.entry == entry) return place;
  }
  ADD_FAILURE() << "no entry " << entry;
  return board.places.front();
}

std::string refusal_of(const Place& place, std::size_t slot) { return place.times[slot].refused; }

TEST_F(LeaderboardTest, RanksByTheGeometricMeanOfMedians) {
  CaseRecord first = a_case(kFirst, 4), second = a_case(kSecond, 9);
  first.series[0].us = {4, 4, 4, 400, 4};
  first.series.push_back(a_baseline("NCCL 2", 5));
  second.series.push_back(a_baseline("NCCL 2", 5));
  keep(store_, a_run("aaaa"), {first, second});
  keep(store_, a_run("bbbb"), {a_case(kFirst, 3, "bbbb"), a_case(kSecond, 3, "bbbb")});
  const Board board = only_board();
  ASSERT_EQ(board.places.size(), 3u);
  EXPECT_EQ(board.places[0].entry, "farwarp bbbb");
  EXPECT_EQ(board.places[1].entry, "NCCL 2");
  EXPECT_EQ(board.places[2].entry, "farwarp aaaa");
  EXPECT_DOUBLE_EQ(board.places[2].geometric_mean_us, 6) << "the median is 4, whatever the late sample is";
}

TEST_F(LeaderboardTest, IncompleteEntriesSayWhatTheyLack) {
  CaseRecord first = a_case(kFirst, 4);
  first.series.push_back(a_baseline("NCCL 2", 3));
  keep(store_, a_run(), {first, a_case(kSecond, 9)});
  const Board board = only_board();
  const Place& place = place_of(board, "NCCL 2");
  EXPECT_EQ(&place, &board.places.back());
  EXPECT_FALSE(place.ranked());
  EXPECT_EQ(place.lacking(), 1);
  const std::string text = to_text({board}, "mine");
  EXPECT_NE(text.find("not ranked\n      NCCL 2\n        lacks 1 of 2: all-reduce benchmarks[1]\n"), std::string::npos)
      << text;
}

TEST_F(LeaderboardTest, RefusesTimesBelowTheFloor) {
  CaseRecord cheat = a_case(kFirst, 1.9);
  cheat.series.push_back(a_baseline("NCCL 2", 0.0));
  CaseRecord no_floor = a_case(kSecond, 0);
  no_floor.floor_us = 0;
  keep(store_, a_run(), {cheat, no_floor});
  const Board board = only_board();
  const Place& place = place_of(board, "farwarp aaaa");
  EXPECT_FALSE(place.ranked());
  EXPECT_EQ(refusal_of(place, 0), "1.90 us is below the floor of 2.00 us: links");
  EXPECT_EQ(refusal_of(place, 1), "it has no time greater than 0") << "a time of 0 would win every geometric mean";
  EXPECT_EQ(place_of(board, "NCCL 2").refused(), 1);
  EXPECT_NE(to_text({board}, "mine")
                .find("refused: all-reduce benchmarks[0], run 1: 1.90 us is below the floor of 2.00 us: links"),
            std::string::npos);
  EXPECT_EQ(to_text({board}, "mine").find("\n1 "), std::string::npos) << "nothing is in the first place";
}

/// The newest run counts, also if it is slower, wrong, or failed before it was timed.
TEST_F(LeaderboardTest, RefusesWhatIsNotVerified) {
  keep(store_, a_run(), {a_case(kFirst, 3), a_case(kSecond, 3)});
  EXPECT_TRUE(only_board().places[0].ranked());
  CaseRecord wrong = a_case(kFirst, 2.5), failed = a_case(kSecond, 0);
  wrong.verified = failed.verified = false;
  wrong.detail = "rank 1: wrong";
  failed.series[0].us.clear();
  keep(store_, a_run(), {wrong, failed});
  const Board board = only_board();
  ASSERT_EQ(board.places.size(), 1u);
  EXPECT_FALSE(board.places[0].ranked());
  EXPECT_EQ(refusal_of(board.places[0], 0), "its outputs are not verified: rank 1: wrong");
  EXPECT_EQ(board.places[0].refused(), 2);
  keep(store_, a_run(), {a_case(kFirst, 8), a_case(kSecond, 8)});
  EXPECT_DOUBLE_EQ(only_board().places[0].geometric_mean_us, 8);
}

TEST_F(LeaderboardTest, ComparesOneMachineNumberOfRanksAndSettings) {
  const std::vector<CaseRecord> cases = {a_case(kFirst, 3), a_case(kSecond, 3)};
  keep(store_, a_run("aaaa", 2), cases);
  keep(store_, a_run("aaaa", 4), cases);
  RunRecord other = a_run("aaaa", 2);
  other.machine = "NVIDIA H100";
  keep(store_, other, cases);
  RunRecord emulated = a_run("aaaa", 2);
  emulated.target = "emu_sm90";
  emulated.machine = "emulated sm90";
  keep(store_, emulated, cases);
  std::vector<CaseRecord> with_settings = cases;
  for (CaseRecord& made : with_settings) made.settings = "dtype=fp16";
  keep(store_, a_run("aaaa", 2), with_settings);
  const auto boards = leaderboard(store_, suite_, "");
  ASSERT_TRUE(boards.ok());
  ASSERT_EQ(boards->size(), 5u);
  for (const Board& board : *boards) EXPECT_EQ(board.places.size(), 1u);
  EXPECT_TRUE(boards->back().emulated) << "the emulator's board is the last";
  const std::string text = to_text(*boards, "mine");
  EXPECT_NE(text.find("mine: 2 benchmarks, 2 x NVIDIA H200, dtype=fp16\n"), std::string::npos) << text;
  EXPECT_NE(text.find("2 x emulated sm90\ntimes of the emulator: they say nothing about any machine\n"),
            std::string::npos)
      << text;
}

/// A suite may change: times of other shapes do not count beside present ones.
TEST_F(LeaderboardTest, RefusesOtherParametersThanTheNewest) {
  keep(store_, a_run("aaaa"), {a_case(kFirst, 3), a_case(kSecond, 3)});
  CaseRecord larger = a_case(kFirst, 5, "bbbb");
  larger.params = R"({"elements":"1000000"})";
  keep(store_, a_run("bbbb"), {larger, a_case(kSecond, 3, "bbbb")});
  const Board board = only_board();
  EXPECT_TRUE(place_of(board, "farwarp bbbb").ranked());
  EXPECT_EQ(refusal_of(place_of(board, "farwarp aaaa"), 0), "its parameters are not those of the newest run");
}

TEST_F(LeaderboardTest, TakesTheFastestOfSeveralBaselines) {
  CaseRecord first = a_case(kFirst, 4), second = a_case(kSecond, 9);
  first.series.push_back(a_baseline("NCCL", 5));
  first.series.push_back(a_baseline("NCCL, graph", 4));
  first.series.push_back(a_baseline("cheat", 0.5));
  second.series.push_back(a_baseline("NCCL", 9));
  keep(store_, a_run(), {first, second});
  const Board board = only_board();
  EXPECT_DOUBLE_EQ(place_of(board, kFastestBaseline).geometric_mean_us, 6) << "what is below the floor is not taken";
}

TEST_F(LeaderboardTest, WritesJson) {
  CaseRecord first = a_case(kFirst, 4);
  first.series.push_back(a_baseline("NCCL 2", 1));
  keep(store_, a_run(), {first, a_case(kSecond, 9)});
  const auto root = nlohmann::json::parse(to_json({only_board()}, "mine"));
  EXPECT_EQ(root["suite"], "mine");
  const auto& board = root["boards"][0];
  EXPECT_EQ(board["machine"], "NVIDIA H200");
  EXPECT_EQ(board["times_have_meaning"], true);
  EXPECT_EQ(board["places"][0]["entry"], "farwarp aaaa");
  EXPECT_DOUBLE_EQ(board["places"][0]["geometric_mean_us"], 6);
  EXPECT_EQ(board["places"][0]["times"][1]["label"], kSecond);
  EXPECT_EQ(board["places"][0]["times"][1]["median_us"], 9);
  EXPECT_TRUE(board["places"][1]["geometric_mean_us"].is_null());
  EXPECT_TRUE(board["places"][1]["times"][1]["median_us"].is_null());
  EXPECT_EQ(board["places"][1]["times"][0]["refused"], "1.00 us is below the floor of 2.00 us: links");
}

TEST_F(LeaderboardTest, RefusesASuiteWithoutBenchmarks) {
  EXPECT_EQ(leaderboard(store_, suite_, "gemm").status().message(), "suite mine has no benchmarks of gemm");
  EXPECT_TRUE(leaderboard(store_, suite_, "all-reduce")->empty());
}

}  // namespace
}  // namespace farwarp::results
