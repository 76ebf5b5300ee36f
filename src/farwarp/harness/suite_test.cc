#include "farwarp/harness/suite.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <sstream>

#include "farwarp/harness/mutated_text_test.h"
#include "farwarp/harness/params.h"

namespace farwarp::harness {
namespace {

// An operator for the tests, so that entries are checked by one.
const std::vector<ParamInfo> kInfos = {{"hidden", "8", ""}, {"dtype", "fp16", ""}, {"fast", "0", ""}};
class NoCase : public Case {
 public:
  std::string describe() const override { return "none"; }
  CheckOutcome check(std::shared_ptr<Bootstrap>, const RunOptions&) override { return {}; }
};
const bool kRegistered = [] {
  register_operator({"test-op", "", kInfos, [](const Params& params) -> Result<std::unique_ptr<Case>> {
                       ParamReader reader(params, kInfos);
                       reader.integer("hidden", 1, 64);
                       reader.flag("fast");
                       if (!reader.status().ok()) return reader.status();
                       return std::unique_ptr<Case>(new NoCase);
                     }});
  return true;
}();

std::string suite_with(const std::string& entries) {
  return R"({"name": "t", "ranks": 8, "ops": {"test-op": {"dtype": "fp16", "tests": [)" + entries + "]}}}";
}

std::string error_of(const std::string& text) {
  const auto suite = parse_suite(text, "t.json");
  if (suite.ok()) return "";
  EXPECT_EQ(suite.status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(suite.status().message().find('\n'), std::string::npos);
  return suite.status().message();
}

TEST(Suite, ReadsEntries) {
  ASSERT_TRUE(kRegistered);
  const auto suite =
      parse_suite(suite_with(R"({"hidden": 16, "fast": true, "seed": 9}, )"
                             R"({"hidden": 32, "fast": false, "seed": 9, "speed_of_light_us_mi300x": 6.5})"),
                  "t");
  ASSERT_TRUE(suite.ok()) << suite.status().message();
  ASSERT_EQ(suite->entries.size(), 2u);
  EXPECT_EQ(suite->entries[0].params, (Params{{"dtype", "fp16"}, {"hidden", "16"}, {"fast", "1"}}));
  EXPECT_EQ(suite->entries[0].seed, 9u);
  EXPECT_EQ(suite->entries[1].index, 1);
  EXPECT_EQ(suite->entries[1].speed_of_light_us, 6.5);
}

TEST(Suite, AnEntryHasRanksAndASourceOfItsOwn) {
  const std::string text = R"({"name": "t", "ranks": 8, "source": "where", "sources": {"M": "config of M"},
    "ops": {"test-op": {"tests": [{"hidden": 16, "seed": 1},
                                  {"hidden": 8, "seed": 1, "ranks": 2, "source": "M", "about": "decode"}]}}})";
  const auto suite = parse_suite(text, "t");
  ASSERT_TRUE(suite.ok()) << suite.status().message();
  EXPECT_EQ(suite->source, "where");
  EXPECT_EQ(suite->entries[0].ranks, 8);
  EXPECT_FALSE(suite->entries[0].states_ranks);
  EXPECT_EQ(suite->entries[0].source, "where");
  EXPECT_EQ(suite->entries[1].ranks, 2);
  EXPECT_TRUE(suite->entries[1].states_ranks);
  EXPECT_EQ(suite->entries[1].source, "config of M");
  EXPECT_EQ(suite->entries[1].about, "M, decode");
  EXPECT_EQ(suite->entries[1].params, (Params{{"hidden", "8"}}));
  EXPECT_EQ(error_of(suite_with(R"({"hidden": 4, "seed": 1, "ranks": 9})")),
            "t.json: op \"test-op\": tests[0]: ranks is 9: allowed is an integer in 1..8");
  EXPECT_EQ(error_of(suite_with(R"({"hidden": 4, "seed": 1, "source": "M"})")),
            "t.json: op \"test-op\": tests[0]: source is \"M\": allowed is a name in the suite's sources");
  EXPECT_EQ(error_of(suite_with(R"({"hidden": 4, "seed": 1, "about": 4})")),
            "t.json: op \"test-op\": tests[0]: about is 4: allowed is a string");
}

TEST(Suite, ErrorsAreOneLineThatNamesThePlaceAndWhatIsAllowed) {
  EXPECT_EQ(error_of(suite_with(R"({"hidden": 65, "seed": 1})")),
            "t.json: op \"test-op\": tests[0]: parameter hidden is '65': allowed is an integer in 1..64");
  EXPECT_EQ(error_of(suite_with(R"({"hidden": -4, "seed": 1})")),
            "t.json: op \"test-op\": tests[0]: hidden is -4: allowed is an integer in 0..2147483647");
  EXPECT_EQ(error_of(suite_with(R"({"hidden": 1e300, "seed": 1})")),
            "t.json: op \"test-op\": tests[0]: hidden is 1e+300: allowed is an integer in 0..2147483647");
  EXPECT_EQ(error_of(suite_with(R"({"hidden": 4, "seed": 1}, {"hidden": 4, "seed": 1})")),
            "t.json: op \"test-op\": tests[1]: the entry is {\"hidden\":4,\"seed\":1}: allowed is an entry that is not "
            "there already");
  EXPECT_EQ(
      error_of(suite_with(R"({"hidden": 4, "seed": 1}, {"hiden": 4, "seed": 1})")),
      "t.json: op \"test-op\": tests[1]: unknown key \"hiden\" is 4: allowed is the keys of the op's first entry");
  EXPECT_EQ(error_of(suite_with(R"({"hidden": 4})")), "t.json: op \"test-op\": tests[0]: seed is missing");
  EXPECT_EQ(error_of(suite_with(R"({"hidden": 4, "seed": 99999999999999999999})")),
            "t.json: op \"test-op\": tests[0]: seed is 1e+20: allowed is an integer in 0..9223372036854775807");
  EXPECT_EQ(error_of(R"({"name": "t", "ranks": 8, "ranks": 4, "ops": {"a": {}}})"),
            "t.json: key \"ranks\" is given twice in one object");
  EXPECT_EQ(error_of(R"({"name": "t", "ranks": 9, "ops": {"a": {}}})"),
            "t.json: ranks is 9: allowed is an integer in 1..8");
  EXPECT_EQ(error_of(R"({"name": "t",
  "ranks": )"),
            "t.json: not valid JSON at line 2 (byte 25 of 25)");
}

TEST(Suite, WhatNestsTooDeepIsAnError) {
  const auto nested = [](const std::string& open, const std::string& close, int levels) {
    std::string text;
    for (int i = 0; i < levels; ++i) text += open;
    text += "1";
    for (int i = 0; i < levels; ++i) text += close;
    return text;
  };
  for (const int levels : {20, 300'000}) {
    for (const std::string& value : {nested("[", "]", levels), nested("{\"a\":", "}", levels)}) {
      EXPECT_EQ(error_of(value), "t.json: nested deeper than 16 levels");
      EXPECT_EQ(error_of(suite_with("{\"seed\": 1, \"hidden\": " + value + "}")),
                "t.json: nested deeper than 16 levels");
    }
  }
}

TEST(Suite, ErrorsAreOneLineWhateverTheFileHolds) {
  for (const char* text :
       {R"({"na\nme": 1})", R"({"name": "t", "ranks": 8, "ops": {"a\nb": 1}})",
        R"({"name": "t", "ranks": 8, "ops": {"a": {"tests": [{"seed": 1, "m\nn": -1}]}}})",
        R"({"name": "t", "ranks": 8, "ops": {"a": {"tests": [{"seed": 1, "speed_of_light_us_\n": -1}]}}})",
        R"({"name": "t", "ranks": 8, "ops": {"a": {"tolerance_of_the_challenge": {"rt\rol": 1}}}})"}) {
    const std::string error = error_of(text);
    EXPECT_NE(error, "") << text;
    EXPECT_EQ(error.find_first_of("\n\r"), std::string::npos) << error;
  }
  const std::string flood = error_of(R"({"name": "t", "ranks": 8, "ops": {"a": {"tests": [{"seed": 1, ")" +
                                     std::string(100'000, 'x') + R"(": -1}]}}})");
  EXPECT_LT(flood.size(), 1100u);
}

TEST(Suite, WrongTypesAreErrors) {
  for (const char* text :
       {"", "[]", "null", "7", "\"x\"", "{}", R"({"name": 1, "ranks": 8, "ops": {"a": {}}})",
        R"({"name": "a", "ranks": "8", "ops": {"a": {}}})", R"({"name": "a", "ranks": 8, "ops": []})",
        R"({"name": "a", "ranks": 8, "ops": {}})", R"({"name": "a", "ranks": 8, "ops": {"a": 1}})",
        R"({"name": "a", "ranks": 8, "ops": {"a": {"tests": {}}}})",
        R"({"name": "a", "ranks": 8, "ops": {"a": {"tests": [1]}}})",
        R"({"name": "a", "ranks": 8, "ops": {"a": {"tests": [{"seed": 1, "m": null}]}}})",
        R"({"name": "a", "ranks": 8, "ops": {"a": {"tests": [{"seed": 1, "m": [1]}]}}})",
        R"({"name": "a", "ranks": 8, "ops": {"a": {"tolerance_of_the_challenge": {"rtol": -1}}}})",
        R"({"name": "a", "ranks": 8, "colour": 1, "ops": {"a": {}}})", "{\"name\": \"\xff\"}"}) {
    EXPECT_NE(error_of(text), "") << text;
  }
}

std::string amd2025() {
  std::ifstream file(FARWARP_SOURCE_SUITES "/amd2025.json");
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

TEST(Suite, TheChallengeIsComplete) {
  const auto suite = load_suite(FARWARP_SOURCE_SUITES "/amd2025.json");
  ASSERT_TRUE(suite.ok()) << suite.status().message();
  EXPECT_EQ(suite->ranks, 8);
  std::map<std::pair<std::string, SuiteGroup>, int> counts;
  for (const SuiteEntry& entry : suite->entries) ++counts[{entry.op, entry.group}];
  EXPECT_EQ((counts[{"moe-a2a", SuiteGroup::kTests}]), 9);
  EXPECT_EQ((counts[{"moe-a2a", SuiteGroup::kBenchmarks}]), 5);
  EXPECT_EQ((counts[{"gemm-rs", SuiteGroup::kTests}]), 11);
  EXPECT_EQ((counts[{"ag-gemm", SuiteGroup::kBenchmarks}]), 6);
}

TEST(Suite, AllBuiltInSuitesSayWhereTheirShapesAreFrom) {
  const std::vector<std::string> names = suite_names();
  for (const char* name : {"amd2025", "decode", "moe", "numa", "prefill", "serving", "tp"})
    EXPECT_NE(std::find(names.begin(), names.end(), name), names.end()) << name;
  for (const std::string& name : names) {
    const auto suite = load_suite(name);
    ASSERT_TRUE(suite.ok()) << suite.status().message();
    for (const SuiteEntry& entry : suite->entries) EXPECT_NE(entry.source, "") << name << " " << entry.op;
  }
}

TEST(Suite, NamesAreLookedUp) {
  EXPECT_TRUE(load_suite("amd2025").ok());
  EXPECT_FALSE(load_suite("no-such-suite").ok());
  EXPECT_FALSE(load_suite("/no/such/file.json").ok());
  EXPECT_FALSE(load_suite("/tmp/").ok());
}

// Cuts, repeats, overwrites and inserts bytes in the real suite. Every result must be a suite or an error of one line.
TEST(Suite, RandomMutationsNeverCrash) {
  const std::string original = amd2025();
  ASSERT_FALSE(original.empty());
  int refused = 0;
  for (std::uint64_t round = 0; round < 1000; ++round) {
    refused += error_of(mutated(original, round)).empty() ? 0 : 1;
  }
  EXPECT_GT(refused, 500);
  const std::string deep(100'000, '[');
  EXPECT_NE(error_of(deep), "");
}

}  // namespace
}  // namespace farwarp::harness
