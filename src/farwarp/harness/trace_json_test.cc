// A rank's trace as events.
#include "farwarp/harness/trace_json.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "farwarp/base/sizes.h"

namespace farwarp::harness {
namespace {

using json = nlohmann::json;

constexpr std::uint64_t kHeap = 0x10000000, kHeapBytes = 0x1000000;  // heap r begins at (r + 1) * kHeap

TraceEvent event(double begin, double length, int warp, TraceRecord record) { return {begin, length, 1, warp, record}; }

/// Two ranks; rank 1 counts from 5,000 ns earlier. Rank 0 puts tag 9 to cell 64 of rank 1 at 1,500, where two warps
/// wait.
RankTrace rank(int number) {
  RankTrace trace;
  trace.rank = number;
  trace.device = "GPU";
  trace.origin = number == 1 ? 6'000 : 1'000;
  trace.place_of = [](std::uint64_t address) {
    for (int heap = 0; heap < 2; ++heap) {
      const std::uint64_t first = kHeap * size(heap + 1);
      if (address >= first && address < first + kHeapBytes) return HeapPlace{heap, address - first};
    }
    return HeapPlace{};
  };
  trace.site_name = [](int slot, int site) { return "op " + std::to_string(slot) + ": site " + std::to_string(site); };
  trace.step_name = [](int slot, std::uint64_t step) {
    return "op " + std::to_string(slot) + ": step " + std::to_string(step);
  };
  TracedLaunch launch{"kernel", {{7, 1'000, 4'000}, {8, 1'000, 4'000}}, {}, 3};
  const std::uint64_t cell = 2 * kHeap + 64;
  if (number == 0) {
    launch.events.push_back(event(1'200, 300, 2, {.where = 5, .work = TraceWork::kSend}));
    launch.events.push_back(event(1'500, 10, 2, {.where = cell, .tag = 9, .work = TraceWork::kPut}));
  } else {
    for (TracedBlock& block : launch.blocks) block.begin += 5'000, block.end += 5'000;
    TraceRecord wait{.where = cell, .tag = 9, .site = 4, .slot = 6, .work = TraceWork::kWait, .peer = 0};
    launch.events.push_back(event(6'000, 2'500, 0, wait));
    wait.lane = 3;
    launch.events.push_back(event(6'000, 2'400, 0, wait));
  }
  trace.trace.launches.push_back(launch);
  return trace;
}

json file_of(const std::vector<int>& ranks) {
  std::vector<std::string> all;
  for (const int number : ranks) {
    const auto events = events_of(rank(number));
    all.insert(all.end(), events.begin(), events.end());
  }
  return json::parse(trace_file(all, "a \"test\""));
}

std::vector<json> of(const json& file, const char* phase, const char* name = nullptr) {
  std::vector<json> found;
  for (const json& each : file["traceEvents"]) {
    if (each["ph"] == phase && (name == nullptr || each["name"] == name)) found.push_back(each);
  }
  return found;
}

TEST(TraceJson, HasProcessesThreadsAndSpansOnOneClock) {
  const json file = file_of({0, 1});
  EXPECT_EQ(file["otherData"]["description"], "a \"test\"");
  const auto processes = of(file, "M", "process_name");
  ASSERT_EQ(processes.size(), 2u);
  EXPECT_EQ(processes[1]["args"]["name"], "rank 1: GPU");
  const auto launches = of(file, "X", "kernel");
  ASSERT_EQ(launches.size(), 2u);
  for (const json& launch : launches) {
    EXPECT_DOUBLE_EQ(launch["ts"], 0.0);
    EXPECT_DOUBLE_EQ(launch["dur"], 3.0);
    EXPECT_EQ(launch["args"]["blocks"], 2);
    EXPECT_EQ(launch["args"]["dropped_records"], 3);
  }
  const auto sends = of(file, "X", "send");
  ASSERT_EQ(sends.size(), 1u);
  EXPECT_DOUBLE_EQ(sends[0]["ts"], 0.2);
  EXPECT_DOUBLE_EQ(sends[0]["dur"], 0.3);
  EXPECT_EQ(sends[0]["args"]["number"], 5);
  std::map<std::int64_t, std::string> threads;
  for (const json& each : of(file, "M", "thread_name")) {
    if (each["pid"] == 0) threads[each["tid"]] = each["args"]["name"];
  }
  EXPECT_EQ(threads[0], "launches");
  EXPECT_EQ(threads[sends[0]["tid"]], "block 1 on 8, warp 2: put, send");
}

TEST(TraceJson, AnArrowGoesFromAPutToTheFirstWaitThatSawIt) {
  const json file = file_of({0, 1});
  const auto starts = of(file, "s"), ends = of(file, "f");
  ASSERT_EQ(starts.size(), 1u);
  ASSERT_EQ(ends.size(), 1u);
  EXPECT_EQ(starts[0]["id"], ends[0]["id"]);
  EXPECT_EQ(starts[0]["cat"], ends[0]["cat"]);
  EXPECT_EQ(starts[0]["name"], ends[0]["name"]);
  EXPECT_EQ(starts[0]["pid"], 0);
  EXPECT_DOUBLE_EQ(starts[0]["ts"], 0.5);
  EXPECT_EQ(ends[0]["pid"], 1);
  EXPECT_EQ(ends[0]["bp"], "e");
  EXPECT_DOUBLE_EQ(ends[0]["ts"], 2.4);
  const auto waits = of(file, "X", "wait: op 6: site 4 of rank 0");
  ASSERT_EQ(waits.size(), 2u);
  EXPECT_NE(waits[0]["tid"], waits[1]["tid"]) << "lanes that wait at the same time";
  EXPECT_EQ(ends[0]["tid"], waits[1]["tid"]);
  EXPECT_EQ(of(file, "X", "put to rank 1").size(), 1u);
}

TEST(TraceJson, ARankMayPutACellAtItself) {
  RankTrace trace = rank(1);
  trace.trace.launches[0].events.push_back(
      event(6'100, 10, 2, {.where = 2 * kHeap + 64, .tag = 9, .work = TraceWork::kPut}));
  const json file = json::parse(trace_file(events_of(trace), ""));
  const auto starts = of(file, "s"), ends = of(file, "f");
  ASSERT_EQ(starts.size(), 1u);
  ASSERT_EQ(ends.size(), 1u);
  EXPECT_EQ(starts[0]["id"], ends[0]["id"]);
}

TEST(TraceJson, AWaitForSomethingElseThanACellEndsNoArrow) {
  RankTrace trace = rank(1);
  for (TraceEvent& wait : trace.trace.launches[0].events) wait.record.where = 0;
  const json file = json::parse(trace_file(events_of(trace), ""));
  EXPECT_EQ(of(file, "f").size(), 0u);
  const auto waits = of(file, "X", "wait: op 6: site 4 of rank 0");
  ASSERT_EQ(waits.size(), 2u);
  EXPECT_FALSE(waits[0]["args"].contains("offset"));
}

TEST(TraceJson, AStepOfADecoderHasItsName) {
  RankTrace trace = rank(0);
  trace.trace.launches[0].events = {event(1'200, 300, 2, {.where = 5, .slot = 6, .work = TraceWork::kTask})};
  const auto tasks = of(json::parse(trace_file(events_of(trace), "")), "X", "task: op 6: step 5");
  ASSERT_EQ(tasks.size(), 1u);
  EXPECT_EQ(tasks[0]["cat"], "task");
  EXPECT_EQ(tasks[0]["args"]["number"], 5);
}

TEST(TraceJson, OnTheEmulatorAStepIsAMicrosecond) {
  RankTrace trace = rank(0);
  trace.emulated = true;
  const auto events = events_of(trace);
  const auto sends = of(json::parse(trace_file(events, "")), "X", "send");
  ASSERT_EQ(sends.size(), 1u);
  EXPECT_DOUBLE_EQ(sends[0]["ts"], 200.0);
  EXPECT_DOUBLE_EQ(sends[0]["dur"], 300.0);
}

TEST(TraceJson, TheFirstTimeIsOfABlock) {
  EXPECT_DOUBLE_EQ(first_time(rank(0).trace), 1'000);
  EXPECT_DOUBLE_EQ(first_time(rank(1).trace), 6'000);
  EXPECT_TRUE(std::isinf(first_time(DeviceTrace{})));
}

}  // namespace
}  // namespace farwarp::harness
