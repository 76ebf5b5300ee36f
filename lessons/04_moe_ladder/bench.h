// How a rung is timed: cold and enqueued in advance, from graphs, and in a train of calls; its outputs are verified after each.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "farwarp/harness/case.h"
#include "farwarp/harness/timing.h"

namespace farwarp::lessons::ladder {

class Timer {
 public:
  /// What is timed: a call for each of some sets of inputs, taken in turn.
  struct Calls {
    std::function<Status(std::size_t set)> prepare;
    std::function<Status(std::size_t set)> enqueue;
    std::function<Status()> verify;  ///< the outputs of all sets
  };

  /// Collective.
  static Result<Timer> create(World& world, Stream stream, int samples, std::size_t sets);
  Status close() { return timer_.close(); }
  /// Collective.
  Status measure(const Calls& calls, harness::Measurement& measurement);

 private:
  Timer(World& world, Stream stream, int samples, std::size_t sets, harness::DeviceTimer timer)
      : world_(&world), stream_(stream), samples_(samples), sets_(sets), timer_(std::move(timer)) {}

  using Enqueue = std::function<Status(std::size_t set)>;
  Status time_cold(const Calls& calls, const Enqueue& enqueue, harness::Timing& timing);
  Status time_graphs(const Calls& calls, double& median);
  Status time_train(const Enqueue& enqueue, double& per_call);
  Status summarise(const std::vector<double>& mine, harness::Timing& timing);

  World* world_;
  Stream stream_;
  int samples_;
  std::size_t sets_;
  harness::DeviceTimer timer_;
};

}  // namespace farwarp::lessons::ladder
