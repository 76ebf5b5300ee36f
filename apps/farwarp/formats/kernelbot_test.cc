// KernelBot's tasks: the three of the challenge, and what is refused.
#include "formats_test.h"

namespace farwarp::cli {
namespace {

constexpr const char* kAllToAll = R"(lang: "py"
multi_gpu: true
files:
  - {"name": "a.py", "source": "@SUBMISSION@"}
description: |
  text
tests:
  - {"num_experts": 16, "experts_per_token": 2, "hidden_dim": 512, "max_num_tokens": 4, "seed": 7, "world_size": 8}
benchmarks:
  - {"num_experts": 32, "experts_per_token": 4, "hidden_dim": 1024, "max_num_tokens": 64, "seed": 8, "world_size": 8}
ranking_by: "geom"
)";
constexpr const char* kProduct = R"(tests:
  - {"world_size": 4, "m": 64, "n": 512, "k": 256, "has_bias": True, "seed": 3}
benchmarks:
  - world_size: 4
    m: 128
    n: 1024
    k: 512
    has_bias: false
    seed: 5
)";

TEST_F(Formats, TheThreeTasksAreRead) {
  const auto moe = load_any_suite(write("all2all/task.yml", kAllToAll), "");
  ASSERT_TRUE(moe.ok()) << moe.status().message();
  ASSERT_EQ(moe->suite.entries.size(), 2u);
  const SuiteEntry& test = moe->suite.entries[0];
  EXPECT_EQ(test.op, "moe-a2a");
  EXPECT_EQ(test.group, harness::SuiteGroup::kTests);
  EXPECT_EQ(
      test.params,
      (Params{{"num_experts", "16"}, {"experts_per_token", "2"}, {"hidden_dim", "512"}, {"max_num_tokens", "4"}}));
  EXPECT_EQ(test.seed, 7u);
  EXPECT_EQ(test.ranks, 8);
  for (const char* op : {"ag-gemm", "gemm-rs"}) {
    write(std::string(op) + "/task.yml", kProduct);
    const auto product = load_any_suite((folder_ / op).string(), "");  // the folder
    ASSERT_TRUE(product.ok()) << product.status().message();
    ASSERT_EQ(product->suite.entries.size(), 2u);
    const SuiteEntry& benchmark = product->suite.entries[1];
    EXPECT_EQ(benchmark.op, op);
    EXPECT_EQ(benchmark.params, (Params{{"m", "128"}, {"n", "1024"}, {"k", "512"}, {"has_bias", "0"}}));
    EXPECT_EQ(product->suite.entries[0].params.at("has_bias"), "1");
    EXPECT_EQ(benchmark.seed, 5u);
    EXPECT_EQ(product->suite.ranks, 4);
  }
}

TEST_F(Formats, ATaskInAnotherFolderNeedsAnOperator) {
  const std::string path = write("mine/task.yml", kProduct);
  EXPECT_EQ(
      error_of(path),
      "F/mine/task.yml: the task's folder is 'mine': allowed is all2all, ag-gemm or gemm-rs, or an operator named "
      "before --suite");
  const auto named = load_any_suite(path, "gemm-ar");
  ASSERT_TRUE(named.ok()) << named.status().message();
  EXPECT_EQ(named->suite.entries[0].op, "gemm-ar");
}

TEST_F(Formats, WhatATaskMayNotHaveIsNamed) {
  const auto error = [&](const std::string& text) { return error_of(write("gemm-rs/task.yml", text)); };
  const std::string at = "F/gemm-rs/task.yml: ";
  EXPECT_EQ(error("tests:\n  - {m: 64, n: 512, k: 256, world_size: 8}\n"), at + "tests[0]: seed is missing");
  EXPECT_EQ(error("tests:\n  - {m: 64, n: 512, k: 256, seed: 1}\n"),
            at + "tests[0]: world_size is missing: allowed are tasks of several ranks, which state it");
  EXPECT_EQ(error("tests:\n  - {m: 64, n: 512, k: 256, seed: 1, world_size: 9}\n"),
            at + "tests[0]: world_size is '9': allowed is an integer in 1..8");
  EXPECT_NE(error("tests:\n  - {size: 64, seed: 1, world_size: 8}\n").find("parameter 'size' (value '64') is unknown"),
            std::string::npos);
  EXPECT_EQ(error("tests: 5\n"), at + "tests: allowed is a list of up to 10000 cases");
  EXPECT_EQ(error("lang: py\n"), at + "it has no case: allowed are tests and benchmarks");
  EXPECT_EQ(error("- 1\n"), at + "it is no map");
  EXPECT_NE(error("tests: [\n").find("not valid YAML at line"), std::string::npos);
  EXPECT_NE(error(std::string(100'000, '[')).find("not valid YAML"), std::string::npos);
}

TEST_F(Formats, MutatedTasksAreReadOrRefusedInOneLine) {
  int refused = 0;
  for (std::uint64_t round = 0; round < 1000; ++round) {
    const Status status = parse_task(mutated(kAllToAll, round), "all2all/task.yml", "").status();
    refused += status.ok() ? 0 : 1;
    EXPECT_EQ(status.message().find_first_of("\r\n"), std::string::npos) << status.message();
  }
  EXPECT_GT(refused, 500);
}

}  // namespace
}  // namespace farwarp::cli
