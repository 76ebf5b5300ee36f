// The judge of submissions: honest ones pass, and each known cheat is refused with the right reason.
#include <cstdio>
#include <nlohmann/json.hpp>

#include "program_test_fixture.h"

namespace {

/// A submission to lesson-05 of two ranks that cheats in one way; the reason is in the output of check.
struct Cheat {
  const char* name;
  const char* reason;
};

std::ostream& operator<<(std::ostream& stream, const Cheat& cheat) { return stream << cheat.name; }

class SubmitTest : public ProgramTest {
 protected:
  Output submit(const std::string& cheat, const std::string& arguments) {
    setenv("CHEAT", cheat.c_str(), 1);
    Output output = run("submit " + arguments);
    unsetenv("CHEAT");
    return output;
  }
  Output check(const std::string& cheat) {
    return submit(cheat, std::string("check ") + FARWARP_CHEATS + " --op lesson-05 --ranks 2 --time-limit-s 5");
  }
};

class CheatTest : public SubmitTest, public testing::WithParamInterface<Cheat> {};

TEST_P(CheatTest, IsRefusedWithTheRightReason) {
  const Output output = check(GetParam().name);
  EXPECT_TRUE(output.code == 1 || output.code == 4) << output.code << output.err;
  EXPECT_NE(output.out.find("FAIL"), std::string::npos) << output.out << output.err;
  EXPECT_NE(output.out.find(GetParam().reason), std::string::npos) << output.out << output.err;
}

constexpr const char* kUnwritten = "call 0: out[0] is -nan, expected";
constexpr const char* kForbidden = "was ended by the kernel: a submission may not start processes";

INSTANTIATE_TEST_SUITE_P(
    OfOneRank, CheatTest,
    testing::Values(Cheat{"late_thread", kUnwritten}, Cheat{"cached", "call 1: out["},
                    Cheat{"batched", "call 1: out[0] is -nan"}, Cheat{"lazy", kUnwritten}, Cheat{"nothing", kUnwritten},
                    Cheat{"not_a_number", "call 0: out[0] is nan"}, Cheat{"judge_read", kUnwritten},
                    Cheat{"freed_memory", "call 1: out["}, Cheat{"drifts", "call 4: out[500] is "},
                    Cheat{"input_changed", "call 0: input in was changed: byte 399"}, Cheat{"garbage", kUnwritten},
                    Cheat{"out_of_bounds", "4000 bytes after the beginning of out, which has 4000"},
                    Cheat{"result_forged", "wrote to the judge's socket"},
                    Cheat{"crash", "call 0: the submission crashed: Segmentation fault"},
                    Cheat{"hang", "call 0: the submission did not return within 5 s"},
                    Cheat{"exit_0", "call 0: the submission ended its process with exit status 0"},
                    Cheat{"fork", kForbidden}, Cheat{"program", kForbidden}, Cheat{"signal_judge", kForbidden},
                    Cheat{"limit_of_judge", kForbidden}),
    [](const auto& info) { return info.param.name; });

INSTANTIATE_TEST_SUITE_P(
    OfSeveralRanks, CheatTest,
    testing::Values(Cheat{"rank_skips", kForbidden}, Cheat{"work_before_start", "call 1: out[0] is -nan"},
                    Cheat{"one_rank_refuses", "rank 1: misuse: call 0: the submission's run() returned 7"},
                    Cheat{"peer_heap", "call 1: out["}, Cheat{"early_messages", "call 1: out["},
                    Cheat{"other_heap", "rank 0: call 0: out[0] is nan"}),
    [](const auto& info) { return info.param.name; });

TEST_F(SubmitTest, WhatAnEarlierRunLeftIsOfNoUse) {
  setenv("LEFT_BEHIND", (folder_ / "left").c_str(), 1);
  EXPECT_EQ(check("left_behind").code, 0);
  const Output second = check("left_behind");
  unsetenv("LEFT_BEHIND");
  EXPECT_EQ(second.code, 1);
  EXPECT_NE(second.out.find("call 0: out["), std::string::npos) << second.out;
}

/// A clock that stands still in the submission's process does not make its 20 ms shorter.
TEST_F(SubmitTest, TheClockIsTheJudges) {
  const std::string json = (folder_ / "times.json").string();
  const Output output = submit(
      "patched_clock", std::string("bench ") + FARWARP_CHEATS +
                           " --op lesson-05 --ranks 2 --target emu_sm90 --samples 3 --no-results --json " + json);
  EXPECT_EQ(output.code, 0) << output.out << output.err;
  const auto results = nlohmann::json::parse(text_of(json));
  EXPECT_GE(results.at("cases").at(0).at("time_us").at("median").get<double>(), 20'000);
}

/// The number of samples does not depend on how long the first calls take.
TEST_F(SubmitTest, ASlowWarmUpSavesNoCalls) {
  const std::string json = (folder_ / "times.json").string();
  const Output output =
      submit("slow_warm_up", std::string("bench ") + FARWARP_CHEATS +
                                 " --op lesson-05 --ranks 2 --target emu_sm90 --samples 9 --no-results --json " + json);
  EXPECT_EQ(output.code, 0) << output.out << output.err;
  const auto results = nlohmann::json::parse(text_of(json));
  EXPECT_EQ(results.at("cases").at(0).at("time_us").at("n").get<int>(), 9);
}

/// A case that crashes costs that case.
TEST_F(SubmitTest, OtherCasesGoOn) {
  std::ofstream(folder_ / "two.json") << R"({"name": "two", "ranks": 2, "ops": {
    "lesson-05": {"tests": [{"elements": 16, "seed": 1}, {"elements": 8, "seed": 2}]}}})";
  const Output output =
      submit("crash_at_16", std::string("check ") + FARWARP_CHEATS + " --suite " + (folder_ / "two.json").string());
  EXPECT_EQ(output.code, 1);
  EXPECT_NE(output.out.find("1 passed, 1 failed"), std::string::npos) << output.out;
}

/// What would wake a stopped process, or open its memory to others, fails; the results are right nevertheless.
TEST_F(SubmitTest, TheKernelRefusesWhatItMust) { EXPECT_EQ(check("forbidden").code, 0) << check("forbidden").out; }

/// Its output cannot be taken for the judge's.
TEST_F(SubmitTest, WhatItPrintsIsMarkedAndBounded) {
  const Output output = check("prints");
  EXPECT_EQ(output.code, 0) << output.out;
  EXPECT_NE(output.err.find("[submission, rank 0] ?[2J1 passed, 0 failed?\n"), std::string::npos)
      << output.err.substr(0, 400);
  EXPECT_EQ((output.out + output.err).find('\x1b'), std::string::npos);
  EXPECT_LT(output.err.size(), 200'000u);
}

TEST_F(SubmitTest, NumbersOfFewBitsAreRefused) {
  setenv("PLAIN", "few_bits", 1);
  const Output output =
      run(std::string("submit check ") + FARWARP_PLAIN + " --op all-reduce --ranks 8 --set elements=20000,dtype=bf16");
  unsetenv("PLAIN");
  EXPECT_EQ(output.code, 1) << output.out << output.err;
  EXPECT_NE(output.out.find("times what roundings make"), std::string::npos) << output.out;
}

TEST_F(SubmitTest, BadInputIsNamed) {
  const std::string file = FARWARP_CHEATS, python = (folder_ / "kernel.py").string();
  const std::string strange = (folder_ / "a\n\x1b[31mb.so").string();
  std::filesystem::copy_file(file, strange);
  std::ofstream(python) << "def custom_kernel(data):\n    return data[0]\n";
  const struct {
    std::string arguments, message;
    int code;
  } cases[] = {
      {"check none.so --op lesson-05",
       "file is 'none.so': cannot be read: No such file or directory; allowed is a shared object, or a Python file "
       "(.py)",
       2},
      {"check " + python + " --op gemm-rs --ranks 2",
       "a Python file (custom_kernel) needs a GPU; allowed on the emulator", 3},
      {"check " + file, "give an operator, --suite NAME or a suite file", 2},
      {"check " + file + " --op qwen3", "operator is 'qwen3': allowed for a submission is ", 2},
      {"check " + file + " --op gemm-rs --set burst=2", "parameter burst is '2': allowed for a submission is 1", 2},
      {"check " + file + " --op lesson-05 --time-limit-s 0", "--time-limit-s is '0': allowed is an integer in 1..3600",
       2},
      {"bench " + file + " --op lesson-05", "bench needs real devices", 3},
      {"check " + folder_.string() + " --op lesson-05", "is a folder; allowed: a regular file; allowed is a shared", 2},
      {"bench '" + strange + "' --op lesson-05 --target emu_sm90", "without --label the name would be 'a?\?[31mb'", 2},
      {"rank 17", "socket is '17': it is none", 2},
      {"new " + folder_.string(), "it exists; allowed is a new one", 2},
  };
  for (const auto& bad : cases) {
    const Output output = run("submit " + bad.arguments);
    EXPECT_EQ(output.code, bad.code) << bad.arguments << output.err;
    EXPECT_NE(output.err.find(bad.message), std::string::npos) << bad.arguments << "\n" << output.err;
  }
}

TEST_F(SubmitTest, AnObjectOfAnotherKindIsRefused) {
  const Output old = check("old_version");
  EXPECT_NE(old.out.find("farwarp_submission_abi_version() is 0: allowed is 1"), std::string::npos) << old.out;
  std::ofstream(folder_ / "text.so") << "no object";
  const Output text = run("submit check " + (folder_ / "text.so").string() + " --op lesson-05 --ranks 2");
  EXPECT_EQ(text.code, 2);
  EXPECT_NE(text.out.find("cannot be loaded"), std::string::npos) << text.out << text.err;
  const Output refused = check("unknown");
  EXPECT_NE(refused.out.find("the submission refuses the case (5): no cheat is called unknown"), std::string::npos)
      << refused.out;
}

TEST_F(SubmitTest, HonestOnesPass) {
  EXPECT_EQ(check("honest").code, 0);
  const Output lesson =
      run(std::string("submit check ") + FARWARP_LESSON_05 + " --op lesson-05 --ranks 2 --set elements=1003");
  EXPECT_EQ(lesson.code, 0) << lesson.out << lesson.err;
}

/// Plain loops for every operator that takes submissions.
class PlainTest : public SubmitTest, public testing::WithParamInterface<const char*> {};

TEST_P(PlainTest, Passes) {
  const Output output = run(std::string("submit check ") + FARWARP_PLAIN + " --ranks 2 --calls 4 --op " + GetParam());
  EXPECT_EQ(output.code, 0) << output.out << output.err;
}

INSTANTIATE_TEST_SUITE_P(OfEachOperator, PlainTest,
                         testing::Values("all-reduce", "gemm --set m=64,n=72,k=40,has_bias=1",
                                         "ag-gemm --set m=64,n=64,k=64", "gemm-rs --set m=64,n=64,k=64",
                                         "gemm-ar --set m=64,n=64,k=64", "moe-a2a", "attention", "flash-decode"));

/// Every operator that takes submissions is in the list above.
TEST_F(SubmitTest, NoOperatorIsForgotten) {
  const Output output = run(std::string("submit check ") + FARWARP_PLAIN + " --op qwen3");
  EXPECT_NE(output.err.find("allowed for a submission is ag-gemm, all-reduce, attention, flash-decode, gemm, gemm-ar, "
                            "gemm-rs, lesson-05, moe-a2a"),
            std::string::npos)
      << output.err;
}

/// Rows of moe-a2a that never reach their experts.
TEST_F(SubmitTest, ExpertsOfOtherRanksCannotBeGuessed) {
  setenv("PLAIN", "alone", 1);
  const Output output = run(std::string("submit check ") + FARWARP_PLAIN + " --op moe-a2a --ranks 2");
  unsetenv("PLAIN");
  EXPECT_EQ(output.code, 1) << output.out << output.err;
  EXPECT_NE(output.out.find(": y["), std::string::npos) << output.out;
}

/// The commands of docs/submissions.md from `farwarp submit new` on, one after the other in one folder.
TEST_F(SubmitTest, TheWalkOfTheDocumentsIsAsWritten) {
  const std::string document = text_of(FARWARP_SUBMISSIONS_MD);
  const std::size_t first = document.find("\nfarwarp submit new"), end = document.find("```", first);
  ASSERT_NE(end, std::string::npos);
  const std::string program = FARWARP_PROGRAM, script = (folder_ / "walk.sh").string();
  std::ofstream(script) << "set -e\ncd " << folder_.string() << "\nexport XDG_DATA_HOME=" << folder_.string()
                        << " PATH=" << program.substr(0, program.rfind('/')) << ":$PATH\n"
                        << document.substr(first, end - first);
  const int status = std::system(("sh " + script + " >" + (folder_ / "walk").string() + " 2>&1").c_str());
  const std::string output = text_of(folder_ / "walk");
  EXPECT_EQ(status, 0) << output;
  EXPECT_NE(output.find("they say nothing about any machine"), std::string::npos) << output;
  EXPECT_NE(output.find("1     submission mine"), std::string::npos) << output;
}

}  // namespace
