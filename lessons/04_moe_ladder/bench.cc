#include "bench.h"

#include <algorithm>
#include <utility>

namespace farwarp::lessons::ladder {
namespace {

constexpr int kWarmUps = 2;
constexpr std::size_t kTrain = 20;  // calls of a train, at most
constexpr int kTrains = 5;

}  // namespace

Result<Timer> Timer::create(World& world, Stream stream, int samples, std::size_t sets) {
  auto timer = harness::DeviceTimer::create(world, stream);
  if (!timer.ok()) return timer.status();
  return Timer(world, stream, samples, sets, std::move(*timer));
}

Status Timer::measure(const Calls& calls, harness::Measurement& measurement) {
  Status status = time_cold(calls, calls.enqueue, measurement.time_us);
  if (status.ok()) status = calls.verify();
  if (status.ok()) status = time_graphs(calls, measurement.graph_us);
  if (status.ok()) status = calls.verify();
  if (status.ok()) status = time_train(calls.enqueue, measurement.back_to_back_us);
  if (status.ok()) status = calls.verify();
  return status;
}

Status Timer::time_cold(const Calls& calls, const Enqueue& enqueue, harness::Timing& timing) {
  std::vector<double> mine;
  for (int i = -kWarmUps; i < samples_; ++i) {
    const std::size_t set = static_cast<std::size_t>(std::max(i, 0)) % sets_;
    const auto us = timer_.sample([&] { return calls.prepare(set); }, [&] { return enqueue(set); }, true);
    if (!us.ok()) return us.status();
    if (i >= 0) mine.push_back(*us);
  }
  return summarise(mine, timing);
}

Status Timer::time_graphs(const Calls& calls, double& median) {
  std::vector<std::unique_ptr<Graph>> graphs;
  for (std::size_t set = 0; set < sets_; ++set) {
    Status status = world_->device().begin_capture(stream_);
    if (status.ok()) status = calls.enqueue(set);
    if (!status.ok()) return status;
    auto graph = world_->device().end_capture(stream_);
    if (!graph.ok()) return graph.status();
    graphs.push_back(std::move(*graph));
  }
  harness::Timing timing;
  Status status = time_cold(
      calls, [&](std::size_t set) { return world_->device().launch(*graphs[set], stream_); }, timing);
  median = timing.median;
  return status;
}

Status Timer::time_train(const Enqueue& enqueue, double& per_call) {
  const std::size_t calls = std::min(kTrain, sets_);
  const auto train = [&] {
    Status status;
    for (std::size_t set = 0; set < calls && status.ok(); ++set) status = enqueue(set);
    return status;
  };
  std::vector<double> mine;
  for (int i = 0; i < kTrains; ++i) {
    const auto us = timer_.sample([] { return Status{}; }, train, false);
    if (!us.ok()) return us.status();
    mine.push_back(*us);
  }
  harness::Timing timing;
  Status status = summarise(mine, timing);
  per_call = timing.median / static_cast<double>(calls);
  return status;
}

Status Timer::summarise(const std::vector<double>& mine, harness::Timing& timing) {
  const auto slowest = timer_.slowest(mine);
  if (slowest.ok()) timing = harness::summarise(*slowest);
  return slowest.status();
}

}  // namespace farwarp::lessons::ladder
