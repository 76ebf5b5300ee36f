// farwarp cache as its user runs it.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "program_test_fixture.h"

namespace {

class CacheCommand : public ProgramTest {};

TEST_F(CacheCommand, BadUsageIsOneLineAndExitCodeTwo) {
  for (const char* arguments : {"cache",
                                "cache gemm",
                                "cache attention --machine mi200",
                                "cache attention --machine /no/such.json",
                                "cache attention --skew fast",
                                "cache attention --skew 2",
                                "cache attention --skew nan",
                                "cache attention --seed -1",
                                "cache attention --accesses 1",
                                "cache attention --granularity byte",
                                "cache attention --set heads=0",
                                "cache attention --set heads=65536,seq=67108864",
                                "cache attention --set heads=6,kv_heads=4",
                                "cache attention --set window=3",
                                "cache attention --set wat=1",
                                "cache attention --json ''",
                                "cache attention --sweep --set heads=8",
                                "cache attention --sweep --machine mi300x",
                                "cache qwen3 --sweep",
                                "cache qwen3 --set model=qwen4",
                                "cache qwen3 --set heads=8",
                                "cache qwen3 --machine mi300x --set workers=39",
                                "cache qwen3 --set batch=0"}) {
    const Output output = run(arguments);
    EXPECT_EQ(output.code, 2) << arguments;
    EXPECT_EQ(output.out, "") << arguments;
    EXPECT_EQ(std::count(output.err.begin(), output.err.end(), '\n'), 1) << arguments << "\n" << output.err;
    EXPECT_EQ(output.err.rfind("farwarp: ", 0), 0u) << output.err;
  }
}

TEST_F(CacheCommand, SimulatesAllMappings) {
  const std::string file = (folder_ / "results.json").string();
  const Output output = run("cache attention --set heads=16,seq=2048,causal=1,folded=1 --json " + file);
  EXPECT_EQ(output.code, 0) << output.err;
  EXPECT_NE(output.out.find("a plan takes: "), std::string::npos) << output.out;
  const auto root = nlohmann::json::parse(text_of(file));
  EXPECT_EQ(root.at("machine"), "mi300x");
  EXPECT_EQ(root.at("mappings").size(), 4u);
  for (const auto& [name, result] : root.at("mappings").items()) {
    EXPECT_EQ(result.at("granularity"), "line") << name;
    EXPECT_EQ(result.at("counted_workgroups"), 256) << name;
    EXPECT_GT(result.at("l2_hit_rate").get<double>(), 0.1) << name;
  }
}

/// Of 32 sequences: each weight is read by two workers beside each other, or by two that are far apart, or by one.
TEST_F(CacheCommand, SimulatesTheProductsOfAToken) {
  const Output output = run("cache qwen3 --machine mi350x --set model=qwen3-0.6b,batch=32 --json -");
  EXPECT_EQ(output.code, 0) << output.err;
  const auto root = nlohmann::json::parse(output.out);
  const auto hits = [&](const char* traversal) {
    return root.at("traversals").at(traversal).at("l2_hit_rate").get<double>();
  };
  EXPECT_GT(hits("m_window"), hits("n_first") + 0.1);
  EXPECT_GT(hits("n_first"), hits("m_split") + 0.1);
  EXPECT_LT(root.at("traversals").at("whole").at("l2_bytes"), root.at("traversals").at("m_window").at("l2_bytes"));
}

TEST_F(CacheCommand, JsonOnStdoutLeavesTheTableOnStderr) {
  const Output output = run("cache attention --machine h200 --set heads=4,seq=1024 --json -");
  EXPECT_EQ(output.code, 0) << output.err;
  EXPECT_EQ(nlohmann::json::parse(output.out).at("seq_k"), 1024);
  EXPECT_NE(output.err.find("head_first_swizzled"), std::string::npos);
}

TEST_F(CacheCommand, TakesAMachineFromAFile) {
  const std::string file = (folder_ / "machine.json").string();
  std::ofstream(file) << R"({"like": "mi300x", "name": "half", "xcds": 4})";
  const Output output = run("cache attention --machine " + file + " --set heads=4,seq=1024");
  EXPECT_EQ(output.code, 0) << output.err;
  EXPECT_EQ(output.out.rfind("half: batch 1, heads 4/4, ", 0), 0u) << output.out;
  std::ofstream(file) << R"({"like": "mi300x", "xcds": 0})";
  EXPECT_EQ(run("cache attention --machine " + file).err,
            "farwarp: " + file + ": xcds is 0: allowed is an integer in 1..64\n");
}

TEST_F(CacheCommand, AResultThatCannotBeWrittenIsBadUsageAsElsewhere) {
  const Output output = run("cache attention --set heads=4,seq=256 --json /proc/no/such.json");
  EXPECT_EQ(output.code, 2) << output.err;
  EXPECT_EQ(output.err.rfind("farwarp: --json is '/proc/no/such.json'", 0), 0u) << output.err;
}

}  // namespace
