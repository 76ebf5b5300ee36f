// farwarp suites, and suites on other ranks than their own, as their user runs them.
#include <nlohmann/json.hpp>
#include <utility>

#include "program_test_fixture.h"

namespace {

class SuitesCommand : public ProgramTest {};

TEST_F(SuitesCommand, SuitesAreListed) {
  const Output all = run("suites"), one = run("suites amd2025"), machine = run("suites serving --json -");
  EXPECT_EQ(all.code, 0) << all.err;
  for (const char* name : {"amd2025", "decode", "moe", "numa", "prefill", "serving", "tp"})
    EXPECT_NE(all.out.find(std::string("\n") + name), std::string::npos) << name;
  EXPECT_NE(one.out.find("gemm-rs benchmarks[0] ranks=8 m=64 n=7168 k=18432 has_bias=0 dtype=bf16 seed=1234 "
                         "speed_of_light_us=6.46\n"),
            std::string::npos)
      << one.out;
  const auto suite = nlohmann::json::parse(machine.out).at("suites").at(0);
  EXPECT_EQ(suite.at("ranks"), (nlohmann::json{2, 4, 8}));
  EXPECT_EQ(suite.at("cases").size(), suite.at("benchmarks"));
  for (const auto& entry : suite.at("cases"))
    EXPECT_NE(entry.at("source").get<std::string>().find("config.json"), std::string::npos);
}

TEST_F(SuitesCommand, ASuiteRunsOnOtherRanksAsAWholeOrAsShares) {
  const std::string file = (folder_ / "four.json").string();
  std::ofstream(file) << R"({"name": "four", "ranks": 4, "ops": {"moe-a2a": {"tests": [
      {"num_experts": 8, "experts_per_token": 2, "hidden_dim": 64, "max_num_tokens": 3, "seed": 3}]}}})";
  for (const auto& [problem, sizes] :
       {std::pair("whole", "num_experts=8 experts_per_token=2 hidden_dim=64 max_num_tokens=6"),
        {"share", "num_experts=4 experts_per_token=2 hidden_dim=64 max_num_tokens=3"}}) {
    const std::string json = (folder_ / "out.json").string();
    const Output output =
        run("check --target emu_sm90 --ranks 2 --problem " + std::string(problem) + " --json " + json + " " + file);
    EXPECT_EQ(output.code, 0) << output.err;
    EXPECT_NE(output.out.find("tests[0] " + std::string(problem) + " of 4 ranks: " + sizes), std::string::npos)
        << output.out;
    const auto entry = nlohmann::json::parse(text_of(json)).at("cases").at(0);
    EXPECT_EQ(entry.at("problem"), problem);
    EXPECT_EQ(entry.at("suite_ranks"), 4);
    EXPECT_EQ(entry.at("ranks"), 2);
  }
}

TEST_F(SuitesCommand, WhatIsExportedCanBeChecked) {
  const std::string folder = (folder_ / "export").string();
  const Output written = run("suites all_reduce --export-flashinfer all-reduce -o " + folder);
  EXPECT_EQ(written.code, 0) << written.err;
  EXPECT_NE(written.out.find("definitions/all_reduce/farwarp_all_reduce_bf16.json"), std::string::npos) << written.out;
  const Output checked = run("check --target emu_sm90 --set elements=1000 --suite " + folder);
  EXPECT_EQ(checked.code, 0) << checked.err << checked.out;
  EXPECT_NE(checked.out.find("8 passed, 0 failed"), std::string::npos) << checked.out;
}

TEST_F(SuitesCommand, ABenchStatesTheFloorsOfDataSheetsAndTheSuitesSpeedOfLight) {
  const std::string file = (folder_ / "two.json").string(), json = (folder_ / "out.json").string();
  std::ofstream(file) << R"({"name": "two", "ranks": 2, "ops": {"gemm-rs": {"benchmarks": [
      {"m": 64, "n": 128, "k": 128, "seed": 3, "speed_of_light_us_mi300x": 6.5}]}}})";
  const Output output = run("bench --target emu_sm90 --samples 1 --no-baselines --json " + json + " " + file);
  EXPECT_EQ(output.code, 0) << output.err;
  EXPECT_NE(output.out.find("floors by data sheets (a model, without latencies), us: MI300X "), std::string::npos)
      << output.out;
  EXPECT_NE(output.out.find("speed of light by the suite, of 2 ranks: 6.50 us"), std::string::npos) << output.out;
  const auto floors = nlohmann::json::parse(text_of(json)).at("cases").at(0).at("model_floors");
  for (const char* machine : {"MI300X", "MI350X", "H100", "B200"}) {
    EXPECT_GT(floors.at(machine).at("floor_us"), 0) << machine;
    EXPECT_NE(floors.at(machine).at("floor_bound_by").get<std::string>().find("; model: "), std::string::npos);
  }
}

}  // namespace
