// The program as its user runs it: exit codes, one clear line for each error, results in the right place.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "program_test_fixture.h"

namespace {

class CommandLine : public ProgramTest {};

const char* const kSmall =
    "--target emu_sm90 --ranks 2 --set num_experts=4,experts_per_token=2,hidden_dim=64,max_num_tokens=4";

TEST_F(CommandLine, BadUsageIsOneLineAndExitCodeTwo) {
  for (const char* arguments : {"",
                                "fly",
                                "check",
                                "check no-such-op",
                                "check moe-a2a --ranks 9",
                                "check moe-a2a --ranks 0",
                                "check moe-a2a --ranks two",
                                "check moe-a2a --seed -1",
                                "check moe-a2a --schedules 0",
                                "check moe-a2a --calls 1.5",
                                "check moe-a2a --deadline-ms 0",
                                "check moe-a2a --set hidden_dim",
                                "check moe-a2a --set hidden_dim=7",
                                "check moe-a2a --set hiden_dim=8",
                                "check moe-a2a --target tpu",
                                "check moe-a2a --fault fire:1",
                                "check moe-a2a --fault kill:8",
                                "check moe-a2a --wat",
                                "check --suite no-such-suite",
                                "check --suite amd2025 --which some",
                                "check --suite amd2025 --problem half",
                                "check moe-a2a --suite amd2025 --ranks 3",
                                "suites no-such-suite",
                                "suites --export-flashinfer gemm-rs",
                                "suites -o /tmp/x",
                                "suites --export-flashinfer attention -o /tmp/x",
                                "check no-such-op --suite amd2025",
                                "check /no/such.json",
                                "check moe-a2a --json /no/such/folder/x.json",
                                "check moe-a2a --ranks",
                                "check moe-a2a --json ''",
                                "check moe-a2a --json=''",
                                "check moe-a2a --json /tmp",
                                "check moe-a2a --ranks ''",
                                "check moe-a2a --fault ''",
                                "check moe-a2a --target ''",
                                "check '' --suite amd2025",
                                "check \"$(printf 'no\\nop')\"",
                                "check moe-a2a --set \"$(printf 'a\\nb=1')\"",
                                "bench moe-a2a --json ''",
                                "doctor --measure --ranks ''",
                                "tune ag-gemm --out ''",
                                "launch -n 9 -- true",
                                "launch -n 2",
                                "launch -n 2 --deadline-ms 0 -- true",
                                "launch -- true",
                                "list --wat",
                                "tune",
                                "tune moe-a2a --target emu_sm90",
                                "tune ag-gemm --target emu_sm90 --set splits=2",
                                "tune ag-gemm --wat",
                                "check ag-gemm --set path=fused",
                                "doctor --wat",
                                "doctor --ranks 2",
                                "doctor --target cuda",
                                "doctor --measure --ranks 0",
                                "doctor --measure --ranks 9 --target emu_sm90",
                                "doctor --measure --target tpu"}) {
    const Output output = run(arguments);
    EXPECT_EQ(output.code, 2) << arguments << "\n" << output.err;
    EXPECT_EQ(std::count(output.err.begin(), output.err.end(), '\n'), 1) << arguments << "\n" << output.err;
    EXPECT_EQ(output.out, "") << arguments;
  }
}

TEST_F(CommandLine, ErrorsNameParameterValueAndRange) {
  EXPECT_EQ(run("check moe-a2a --ranks 9").err, "farwarp: --ranks is '9': allowed is an integer in 1..8\n");
  EXPECT_EQ(run("check moe-a2a --set hidden_dim=7").err,
            "farwarp: parameter hidden_dim is '7': allowed is an integer in 8..1048576\n");
  EXPECT_EQ(run("check moe-a2a --target tpu").err,
            "farwarp: --target is 'tpu': allowed is auto|cuda|hip|emu_sm90|emu_gfx942\n");
}

// What a plan refuses, by the names of --set.
TEST_F(CommandLine, PlansNameParametersAsTheyWereSet) {
  for (const auto& [arguments, message] :
       {std::pair("check moe-a2a --ranks 4 --set num_experts=2,experts_per_token=1",
                  "parameter num_experts is 2; allowed: "),
        std::pair("check moe-a2a --ranks 2 --set max_num_tokens=60000,experts_per_token=32,num_experts=64",
                  "parameter max_num_tokens is 60000; allowed: "),
        std::pair("check attention --set heads=3,kv_heads=2", "parameter kv_heads is 2; allowed: a divisor of heads"),
        std::pair("check flash-decode --set query_heads=3", "parameter query_heads is 3; allowed: "),
        std::pair("check gemm-rs --ranks 2 --set k=24", "parameter k is 24; allowed: "),
        std::pair("check qwen3 --set launches=1000,tokens=2000", "parameter launches is '1000': allowed is so many")}) {
    const Output result = run(std::string(arguments) + " --target emu_sm90");
    EXPECT_NE(result.code, 0) << arguments;
    EXPECT_NE((result.out + result.err).find(message), std::string::npos) << arguments << "\n"
                                                                          << result.out << result.err;
  }
}

TEST_F(CommandLine, WhatCannotBeWrittenIsExitCodeThree) {
  for (const char* arguments :
       {"list", "list --kernels", "doctor", "--help", "--version", "check lesson-01 --ranks 2 --target emu_sm90",
        "check lesson-01 --ranks 2 --target emu_sm90 --json -"}) {
    const std::string command =
        std::string(FARWARP_PROGRAM) + " " + arguments + " >/dev/full 2>" + (folder_ / "err").string();
    const int status = std::system(command.c_str());
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 3) << arguments << " " << status;
    EXPECT_NE(text_of(folder_ / "err").find("farwarp: what was to be printed cannot be written"), std::string::npos)
        << arguments;
  }
  // Error messages that cannot be written are lost; the exit code is the same.
  for (const auto& [arguments, code] : {std::pair("launch -n 0 -- true", 2), std::pair("check nothing", 2)}) {
    const int status = std::system((std::string(FARWARP_PROGRAM) + " " + arguments + " 2>/dev/full").c_str());
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == code) << arguments << " " << status;
  }
  const Output json = run("check lesson-01 --ranks 2 --target emu_sm90 --json /dev/full");
  EXPECT_EQ(json.code, 3);
  EXPECT_EQ(json.err, "farwarp: cannot write /dev/full: No space left on device\n");
  // A pipe that nobody reads does not block it.
  const std::string pipe = (folder_ / "pipe").string();
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_EQ(run("check lesson-01 --json " + pipe).code, 2);
  EXPECT_EQ(run("check --suite " + pipe).code, 2);
  EXPECT_EQ(run("cache attention --json " + pipe).code, 2);
  EXPECT_EQ(run("cache attention --machine " + pipe).code, 2);
}

TEST_F(CommandLine, HelpVersionListDoctor) {
  for (const char* arguments :
       {"--help", "check --help", "tune --help", "--version", "list", "list --kernels", "doctor"}) {
    const Output output = run(arguments);
    EXPECT_EQ(output.code, 0) << arguments;
    EXPECT_NE(output.out, "") << arguments;
    EXPECT_EQ(output.err, "") << arguments;
  }
  EXPECT_NE(run("--version").out.find("emu_sm90 emu_gfx942"), std::string::npos);
  EXPECT_NE(run("list").out.find("moe-a2a"), std::string::npos);
  // Parameters of one target only are marked so: CDNA's plans have one tile for a shape, and one way across the links.
  for (const char* name : {"  exchange ", "  tile_rows ", "  tile_columns "}) {
    const std::string out = run("list").out;
    const auto at = out.find(name);
    ASSERT_NE(at, std::string::npos) << name;
    EXPECT_NE(out.substr(at, out.find('\n', at) - at).find("on Hopper also"), std::string::npos) << name;
  }
  EXPECT_NE(run("doctor").out.find("emu_gfx942  available"), std::string::npos);
}

TEST_F(CommandLine, DoctorMeasuresButKeepsNothingOfTheEmulator) {
  setenv("XDG_CACHE_HOME", (folder_ / "cache").c_str(), 1);
  for (const char* target : {"emu_sm90", "emu_gfx942"}) {
    const Output output = run(std::string("doctor --measure --ranks 3 --target ") + target);
    EXPECT_EQ(output.code, 0) << output.err;
    EXPECT_EQ(output.err, "");
    EXPECT_NE(output.out.find(", 3 ranks, emulated "), std::string::npos) << output.out;
    EXPECT_NE(output.out.find("virtual clock"), std::string::npos) << output.out;
  }
  EXPECT_FALSE(std::filesystem::exists(folder_ / "cache"));
  unsetenv("XDG_CACHE_HOME");
}

TEST_F(CommandLine, CheckPassesAndWritesJson) {
  const std::string file = (folder_ / "result.json").string();
  const Output output = run(std::string("check moe-a2a ") + kSmall + " --schedules 3 --json " + file);
  EXPECT_EQ(output.code, 0) << output.err;
  EXPECT_NE(output.out.find("1 passed, 0 failed\n"), std::string::npos);
  const auto root = nlohmann::json::parse(text_of(file));
  EXPECT_EQ(root["complete"], true);
  EXPECT_EQ(root["cases"][0]["pass"], true);
  EXPECT_EQ(root["cases"][0]["distinct_schedule_hashes"], 3);
  const Output piped = run(std::string("check moe-a2a ") + kSmall + " --json -");
  EXPECT_EQ(nlohmann::json::parse(piped.out)["cases"].size(), 1u);
}

TEST_F(CommandLine, BenchTimesVerifiesAndWritesJson) {
  const std::string file = (folder_ / "result.json").string();
  const Output output = run(std::string("bench moe-a2a ") + kSmall + " --samples 3 --json " + file);
  EXPECT_EQ(output.code, 0) << output.err;
  const auto root = nlohmann::json::parse(text_of(file));
  const auto& entry = root["cases"][0];
  EXPECT_EQ(entry["pass"], true);
  EXPECT_EQ(entry["time_us"]["n"], 3);
  EXPECT_GT(entry["time_us"]["min"], 0.0);
  EXPECT_LE(entry["time_us"]["min"], entry["time_us"]["median"]);
  EXPECT_GT(entry["back_to_back_us"], 0.0);
  EXPECT_GT(entry["graph_us"], 0.0);
  for (const char* part : {"fused", "split", "dispatch", "combine"}) EXPECT_TRUE(entry["measurements"].contains(part));
  EXPECT_NE(entry["no_baseline"].get<std::string>().find("NCCL"), std::string::npos);
  EXPECT_TRUE(entry["baselines"].empty());
}

TEST_F(CommandLine, BenchNeverFallsBackToTheEmulator) {
  setenv("CUDA_VISIBLE_DEVICES", "", 1);
  setenv("FARWARP_HIP_LIBRARY", "/no/such/library.so", 1);
  const Output output = run("bench moe-a2a");
  EXPECT_EQ(output.code, 3);
  EXPECT_NE(output.err.find("needs real devices"), std::string::npos) << output.err;
  unsetenv("CUDA_VISIBLE_DEVICES");
  unsetenv("FARWARP_HIP_LIBRARY");
  EXPECT_EQ(run(std::string("bench moe-a2a --samples 0 ") + kSmall).code, 2);
  EXPECT_EQ(run(std::string("bench lesson-01 --target emu_sm90 --ranks 2")).code, 3) << "it has no bench";
}

TEST_F(CommandLine, TuneNeedsRealDevices) {
  setenv("CUDA_VISIBLE_DEVICES", "", 1);
  setenv("FARWARP_HIP_LIBRARY", "/no/such/library.so", 1);
  setenv("XDG_CACHE_HOME", (folder_ / "cache").c_str(), 1);
  for (const char* target : {"auto", "emu_sm90", "emu_gfx942"}) {
    const Output output = run(std::string("tune ag-gemm --ranks 2 --target ") + target);
    EXPECT_EQ(output.code, 3) << output.err;
    EXPECT_NE(output.err.find("tune needs real devices"), std::string::npos) << output.err;
    EXPECT_EQ(std::count(output.err.begin(), output.err.end(), '\n'), 1) << output.err;
  }
  EXPECT_FALSE(std::filesystem::exists(folder_ / "cache"));
  for (const char* variable : {"CUDA_VISIBLE_DEVICES", "FARWARP_HIP_LIBRARY", "XDG_CACHE_HOME"}) unsetenv(variable);
}

TEST_F(CommandLine, PathsOfParallelProducts) {
  const std::string shape = " --ranks 2 --target emu_sm90 --set m=16,n=32,k=32,path=";
  for (const char* op : {"ag-gemm", "gemm-rs", "gemm-ar"}) {
    for (const char* path : {"own", "best"}) EXPECT_EQ(run(std::string("check ") + op + shape + path).code, 0) << op;
    const Output unfused = run(std::string("check ") + op + shape + "unfused");
    EXPECT_EQ(unfused.code, 3) << unfused.out;
    EXPECT_NE(unfused.out.find("NCCL runs on target cuda only; this is emu_sm90"), std::string::npos) << unfused.out;
  }
  EXPECT_EQ(run("check ag-gemm --target emu_sm90 --set path=fused").err,
            "farwarp: parameter path is 'fused': allowed is own|unfused|best\n");
  const Output bench = run("bench gemm-rs --samples 2" + shape + "best");
  EXPECT_EQ(bench.code, 0) << bench.out << bench.err;
  EXPECT_NE(bench.out.find("gemm-rs, dispatcher: own, graph"), std::string::npos) << bench.out;
  EXPECT_NE(bench.out.find("there is no table of plans for 2 x "), std::string::npos) << bench.out;
}

TEST_F(CommandLine, FaultsHaveExitCodesOfTheirOwn) {
  EXPECT_EQ(run(std::string("check moe-a2a --fault kill:1 ") + kSmall).code, 4);
  EXPECT_EQ(run(std::string("check moe-a2a --fault mismatch:1 ") + kSmall).code, 1);
  const Output dropped = run(std::string("check moe-a2a --fault drop_put:1 ") + kSmall + ",tokens=full");
  EXPECT_EQ(dropped.code, 4);
  EXPECT_NE(dropped.out.find("nothing arrived"), std::string::npos) << dropped.out;
  EXPECT_EQ(dropped.out.find("saw"), std::string::npos) << dropped.out;
}

TEST_F(CommandLine, FaultsThatAnOperatorDoesNotInjectAreBadUsage) {
  for (const char* fault : {"drop_put:1", "delay:1:50", "kill:1", "mismatch:1"}) {
    const Output output = run(std::string("check gemm --ranks 2 --target emu_sm90 --fault ") + fault);
    EXPECT_EQ(output.code, 2) << fault;
    EXPECT_EQ(output.err, std::string("farwarp: --fault is '") + fault + "': gemm injects no fault\n");
  }
  for (const std::string lesson : {"lesson-01", "lesson-02", "lesson-03", "lesson-05"}) {
    const std::string check = "check " + lesson + " --ranks 2 --deadline-ms 500 --target emu_sm90 --fault ";
    const Output output = run(check + "drop_put:1");
    EXPECT_EQ(output.code, 2) << lesson;
    EXPECT_EQ(output.err, "farwarp: --fault is 'drop_put:1': allowed with " + lesson +
                              " is delay:RANK:MS, kill:RANK, mismatch:RANK\n");
    EXPECT_EQ(run(check + "kill:1").code, 4) << lesson;
    EXPECT_EQ(run(check + "mismatch:1").code, 1) << lesson;
    EXPECT_EQ(run(check + "delay:1:100").code, 0) << lesson;
    const Output late = run(check + "delay:1:5000");
    EXPECT_EQ(late.code, 4) << lesson;
    EXPECT_NE(late.out.find("after recover() the next call was right"), std::string::npos) << late.out;
  }
}

TEST_F(CommandLine, AFaultThatNeverFiresFailsTheCheck) {
  const std::string products = " --ranks 2 --target emu_sm90 --set m=16,n=32,k=32";
  for (const std::string& check :
       {std::string("moe-a2a ") + kSmall, std::string("moe-a2a ") + kSmall + ",form=split,mode=bulk",
        "ag-gemm" + products, "gemm-rs" + products, "gemm-ar" + products,
        std::string("lesson-04 --ranks 2 --target emu_gfx942 --set rung=7"),
        std::string("ag-gemm --ranks 1 --target emu_sm90 --set m=16,n=32,k=32")}) {
    const Output output = run("check " + check + " --fault drop_put:99999");
    EXPECT_EQ(output.code, 1) << check << output.out;
    EXPECT_NE(output.out.find("--fault drop_put:99999 never fired"), std::string::npos) << check << output.out;
  }
  // A single rank has no other to disagree with.
  EXPECT_EQ(run("check lesson-01 --ranks 1 --target emu_sm90 --fault mismatch:0").code, 1);
}

TEST_F(CommandLine, ADelayedProcessIsMissedOnlyBeyondTheDeadline) {
  const auto delayed = [this](const std::string& settings) {
    return run("launch -n 2 -- " FARWARP_PROGRAM " check moe-a2a " + settings + " " + kSmall);
  };
  const Output late = delayed("--fault delay:1:1500 --deadline-ms 300");
  EXPECT_EQ(late.code, 4) << late.out;
  EXPECT_NE(late.out.find("rank 1"), std::string::npos) << late.out;
  EXPECT_EQ(delayed("--fault delay:1:100 --deadline-ms 5000").code, 0);
}

TEST_F(CommandLine, MissingTargetIsExitCodeThree) {
  // Hides any driver that this machine may have.
  setenv("CUDA_VISIBLE_DEVICES", "", 1);
  setenv("FARWARP_HIP_LIBRARY", "/no/such/library.so", 1);
  for (const char* target : {"cuda", "hip"}) {
    const Output output = run(std::string("check moe-a2a --target ") + target);
    EXPECT_EQ(output.code, 3) << output.err;
    EXPECT_EQ(std::count(output.err.begin(), output.err.end(), '\n'), 1) << output.err;
  }
  const Output measured = run("doctor --measure");
  EXPECT_EQ(measured.code, 3) << measured.err;
  EXPECT_EQ(std::count(measured.err.begin(), measured.err.end(), '\n'), 1) << measured.err;
  EXPECT_EQ(measured.out, "");
  const Output chosen =
      run("check moe-a2a --target auto --ranks 2 --set num_experts=4,experts_per_token=2,hidden_dim=64");
  EXPECT_EQ(chosen.code, 0) << chosen.err;
  EXPECT_EQ(chosen.err.rfind("target auto: emu_sm90", 0), 0u) << chosen.err;
}

TEST_F(CommandLine, TooManyEmulatedThreadsAreNoDeadline) {
  setenv("FARWARP_EMU_MULTIPROCESSORS", "304", 1);
  const Output output = run("check moe-a2a --target emu_sm90 --set num_experts=8,experts_per_token=2,hidden_dim=64");
  unsetenv("FARWARP_EMU_MULTIPROCESSORS");
  EXPECT_EQ(output.code, 3) << output.out;
  EXPECT_NE(output.out.find("more than 262144 GPU threads at once"), std::string::npos) << output.out;
  EXPECT_EQ(output.out.find("deadline"), std::string::npos) << output.out;
}

TEST_F(CommandLine, SuitesCountWhatIsNotInThisBuild) {
  const std::string file = (folder_ / "small.json").string();
  std::ofstream(file) << R"({"name": "small", "ranks": 2, "ops": {
      "moe-a2a": {"dtype": "bf16", "tests": [
        {"num_experts": 4, "experts_per_token": 2, "hidden_dim": 64, "max_num_tokens": 4, "seed": 3}]},
      "no-such-op": {"tests": [{"m": 4, "seed": 1}, {"m": 8, "seed": 1}]}}})";
  const Output output = run("check --target emu_gfx942 --suite " + file);
  EXPECT_EQ(output.code, 0) << output.err;
  EXPECT_NE(output.out.find("1 passed, 0 failed, 2 skipped (no-such-op 2: not in this build)\n"), std::string::npos)
      << output.out;
}

TEST_F(CommandLine, InterruptedIsExitCode130) {
  const std::string command = std::string("timeout -s INT 1 ") + FARWARP_PROGRAM +
                              " check moe-a2a --target emu_sm90 --calls 100000 " + " >" + (folder_ / "out").string() +
                              " 2>" + (folder_ / "err").string() + "; test $? = 130 -o $? = 124";
  EXPECT_EQ(std::system(command.c_str()), 0);
  EXPECT_NE(text_of(folder_ / "err").find("interrupted"), std::string::npos);
}

// At any time the file holds complete old or new results. After an interrupt it holds those of the finished cases.
TEST_F(CommandLine, AnInterruptedRunKeepsTheResultsThatItHas) {
  const std::filesystem::path suite = folder_ / "two.json", file = folder_ / "result.json";
  std::ofstream(suite) << R"({"name": "two", "ranks": 1, "ops": {"gemm": {"tests": [
      {"m": 16, "n": 16, "k": 16, "seed": 1}, {"m": 8192, "n": 8192, "k": 8192, "seed": 1}]}}})";
  const std::string old = R"({"old": true})";
  std::ofstream(file) << old;
  const std::string command = "exec " FARWARP_PROGRAM " check --target emu_sm90 --suite " + suite.string() +
                              " --json " + file.string() + " >/dev/null 2>&1";
  const pid_t pid = fork();
  ASSERT_GE(pid, 0);
  if (pid == 0) {
    execl("/bin/sh", "sh", "-c", command.c_str(), nullptr);
    _exit(127);
  }
  const auto start = std::chrono::steady_clock::now();
  std::string text = old;
  while (text == old && std::chrono::steady_clock::now() - start < std::chrono::minutes(2)) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    text = text_of(file);
    EXPECT_TRUE(nlohmann::json::accept(text)) << text;
  }
  kill(pid, SIGINT);
  int status = 0;
  ASSERT_EQ(waitpid(pid, &status, 0), pid);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 130) << status;
  const auto root = nlohmann::json::parse(text_of(file));
  EXPECT_EQ(root.value("complete", true), false);
  ASSERT_EQ(root["cases"].size(), 1u);
  EXPECT_EQ(root["cases"][0]["pass"], true);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_.path()), {}), 2)
      << "nothing is left beside the file";
}

TEST_F(CommandLine, LaunchedProcessesCheckTogether) {
  const Output output = run(std::string("launch -n 2 -- ") + FARWARP_PROGRAM + " check moe-a2a " + kSmall);
  EXPECT_EQ(output.code, 0) << output.out << output.err;
  EXPECT_NE(output.out.find("1 passed, 0 failed"), std::string::npos) << output.out;
}

}  // namespace
