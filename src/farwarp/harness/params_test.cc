#include "farwarp/harness/params.h"

#include <gtest/gtest.h>

namespace farwarp::harness {
namespace {

const std::vector<ParamInfo> kInfos = {
    {"hidden", "64", "8..128"}, {"mode", "auto", "auto|packet"}, {"graph", "0", "0|1"}};
enum class Mode { kAuto, kPacket };
constexpr Choice<Mode> kModes[] = {{"auto", Mode::kAuto}, {"packet", Mode::kPacket}};

TEST(Params, ReadsValuesAndDefaults) {
  const Params params = {{"hidden", "72"}, {"graph", "true"}};
  ParamReader reader(params, kInfos);
  EXPECT_EQ(reader.integer("hidden", 8, 128), 72);
  EXPECT_EQ(reader.choice("mode", kModes), Mode::kAuto);
  EXPECT_TRUE(reader.flag("graph"));
  EXPECT_TRUE(reader.status().ok());
}

TEST(Params, ErrorsNameParameterValueAndRange) {
  for (const char* value : {"", "7", "129", "8x", "1e2", "99999999999999999999", "-8", " 8", "0x10"}) {
    const Params params = {{"hidden", value}};
    ParamReader reader(params, kInfos);
    reader.integer("hidden", 8, 128);
    ASSERT_FALSE(reader.status().ok()) << value;
    EXPECT_EQ(reader.status().message(),
              "parameter hidden is '" + std::string(value) + "': allowed is an integer in 8..128");
  }
  const Params params = {{"mode", "fast"}};
  ParamReader reader(params, kInfos);
  reader.choice("mode", kModes);
  EXPECT_EQ(reader.status().message(), "parameter mode is 'fast': allowed is auto|packet");
}

TEST(Params, UnknownNamesAreErrors) {
  const Params params = {{"hiden", "64"}};
  ParamReader reader(params, kInfos);
  EXPECT_EQ(reader.status().message(), "parameter 'hiden' (value '64') is unknown: allowed are hidden, mode, graph");
}

TEST(Params, SettingsSplitAtCommasAndLaterOnesWin) {
  Params params;
  ASSERT_TRUE(add_settings("a=1,b=two", params).ok());
  ASSERT_TRUE(add_settings("a=3,c=", params).ok());
  EXPECT_EQ(params, (Params{{"a", "3"}, {"b", "two"}, {"c", ""}}));
  for (const char* wrong : {"", "a", "=1", "a=1,,b=2", "a=1,b"})
    EXPECT_FALSE(add_settings(wrong, params).ok()) << wrong;
}

TEST(Params, FaultsAreParsedWithRanges) {
  EXPECT_EQ(parse_fault("drop_put:3", 8)->amount, 3);
  const auto delay = parse_fault("delay:7:250", 8);
  ASSERT_TRUE(delay.ok());
  EXPECT_EQ(delay->kind, Fault::Kind::kDelay);
  EXPECT_EQ(delay->rank, 7);
  EXPECT_EQ(delay->amount, 250);
  EXPECT_EQ(parse_fault("kill:0", 8)->kind, Fault::Kind::kKill);
  EXPECT_EQ(parse_fault("mismatch:1", 2)->kind, Fault::Kind::kMismatch);
  for (const char* wrong : {"", "kill", "kill:8", "kill:-1", "kill:1:2", "delay:1", "delay:1:-5", "delay:1:0",
                            "drop_put:0", "drop_put", "fire:1", "delay:1:99999999999"}) {
    EXPECT_FALSE(parse_fault(wrong, 8).ok()) << wrong;
  }
}

TEST(Params, FaultsThatAnOperatorDoesNotInjectAreRefused) {
  OperatorInfo op;
  op.name = "some-op";
  EXPECT_TRUE(check_fault(op, {}).ok());
  EXPECT_EQ(check_fault(op, *parse_fault("kill:0", 8)).message(), "--fault is 'kill:0': some-op injects no fault");
  op.faults = {Fault::Kind::kDropPut, Fault::Kind::kDelay};
  EXPECT_TRUE(check_fault(op, {}).ok());
  for (const char* given : {"drop_put:3", "delay:7:250"}) {
    EXPECT_TRUE(check_fault(op, *parse_fault(given, 8)).ok()) << given;
  }
  for (const std::string given : {"kill:0", "mismatch:5"}) {
    const Status status = check_fault(op, *parse_fault(given, 8));
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(status.message(), "--fault is '" + given + "': allowed with some-op is drop_put:N, delay:RANK:MS");
  }
}

TEST(Params, ShownInTheOrderOfTheOperator) {
  EXPECT_EQ(to_string({{"mode", "packet"}, {"hidden", "64"}, {"graph", "1"}}, kInfos), "hidden=64 mode=packet graph=1");
}

}  // namespace
}  // namespace farwarp::harness
