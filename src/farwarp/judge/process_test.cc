// Processes of ranks: stopped ones stay so, their output is shown safely.
#include "farwarp/judge/process.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <thread>

#include "farwarp/judge/frames.h"

namespace farwarp::judge {
namespace {

constexpr const char* kCounting = "i=0; while :; do i=$((i+1)); echo $i; sleep 0.001; done";

std::string shown(Process& process) {
  testing::internal::CaptureStderr();
  process.show_output();
  return testing::internal::GetCapturedStderr();
}

void wait_ms(int ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); }

TEST(Process, DoesNothingWhileItIsStopped) {
  auto process = Process::start({"sh", "-c", kCounting, "sh"}, "");
  ASSERT_TRUE(process.ok()) << process.status().to_string();
  while (shown(*process).empty()) wait_ms(1);
  ASSERT_TRUE(process->stop().ok());
  EXPECT_TRUE(process->stop().ok());  // again
  shown(*process);
  wait_ms(30);
  EXPECT_EQ(shown(*process), "");
  EXPECT_TRUE(process->resume().ok());
  for (int i = 0; i < 1000 && shown(*process).empty(); ++i) wait_ms(1);
  EXPECT_TRUE(process->stop().ok());
}

TEST(Process, SaysThatItRanMeanwhile) {
  auto process = Process::start({"sleep", "100"}, "");
  ASSERT_TRUE(process.ok());
  ASSERT_TRUE(process->stop().ok());
  ::kill(process->pid(), SIGCONT);
  wait_ms(20);
  EXPECT_EQ(process->resume().code(), StatusCode::kMisuse);
}

TEST(Process, SaysHowItEnded) {
  auto process = Process::start({"sh", "-c", "kill -SEGV $$"}, "");
  ASSERT_TRUE(process.ok());
  EXPECT_EQ(process->how_it_ended(std::chrono::seconds(5)), "crashed: Segmentation fault");
  EXPECT_EQ(process->stop().code(), StatusCode::kPeerLost);
}

TEST(Process, ShowsWhatWasWrittenLastAndMarksIt) {
  testing::internal::CaptureStderr();
  {
    auto process = Process::start({"sh", "-c", "seq 20000; printf 'no\\033 newline'; kill -SEGV $$"}, "[rank 1] ");
    ASSERT_TRUE(process.ok());
    while (process->how_it_ended(std::chrono::milliseconds(1)).empty()) process->show_output();
  }
  const std::string output = testing::internal::GetCapturedStderr();
  EXPECT_TRUE(output.starts_with("[rank 1] 1\n[rank 1] 2\n"));
  EXPECT_NE(output.find("are shown, and the last lines:\n[rank 1] 19992\n"), std::string::npos)
      << output.substr(output.size() - 400);
  EXPECT_TRUE(output.ends_with("[rank 1] no? newline\n"));
  EXPECT_LT(output.size(), 68'000u);
}

TEST(Process, AProgramThatIsMissingIsNamed) {
  EXPECT_NE(Process::start({"no-such-program"}, "").status().message().find("no-such-program"), std::string::npos);
}

TEST(Frames, AnswersAreCheckedByType) {
  const auto read = [](const std::string& text) {
    const auto* begin = reinterpret_cast<const std::byte*>(text.data());
    return read_answer({begin, begin + text.size()});
  };
  EXPECT_EQ(read(R"({"us": 1.5})")->us, 1.5);
  EXPECT_EQ(read(R"({"error": "e", "code": 5})")->status.code(), StatusCode::kMisuse);
  EXPECT_EQ(read(R"({"error": "e", "code": 77})")->status.code(), StatusCode::kMisuse);
  for (const char* text : {"", "5", "{}", R"({"us": "x"})", R"({"us": -1})", R"({"error": 5, "code": 5})",
                           R"({"error": "e", "code": "x"})", R"({"error": "e"})", R"({"us": 1e999})"})
    EXPECT_FALSE(read(text)) << text;
}

}  // namespace
}  // namespace farwarp::judge
