// The rounds of a bench. Contenders are timed in turn, so that none finds the caches as its own last call left them.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "farwarp/harness/case.h"
#include "farwarp/harness/timing.h"

namespace farwarp::harness {

/// One way of doing the work. `step` enqueues one call on the set of buffers in use.
struct Contender {
  std::string name;
  Work step;
  bool ours = true;
  bool is_graph = false;  ///< `step` launches the set's graph, which must have run before it is launched again
  bool part = false;      ///< Measurement::part
};

/// Each sample uses the next set of inputs and outputs. `use(set)` selects the set. `prepare(ours)` poisons its output
/// (ours or the baseline's) and is not timed. All members are collective. Times are in microseconds, of the slowest
/// rank.
class Contest {
 public:
  Contest(World& world, Stream stream, DeviceTimer& timer, int samples, int sets, std::function<void(int)> use,
          std::function<Status(bool ours)> prepare)
      : world_(world),
        stream_(stream),
        timer_(timer),
        samples_(samples),
        sets_(sets),
        use_(std::move(use)),
        prepare_(std::move(prepare)) {}

  /// Cold samples of each contender in turn, after two warm-up rounds. Afterwards the last sample's set is in use.
  Result<std::vector<Measurement>> in_turn(const std::vector<Contender>& contenders);
  /// Captures one graph for each set. The median of cold samples.
  Result<double> from_graphs(const Contender& contender);
  /// Per call in a train of up to 20 calls, warm. The median of 5 trains.
  Result<double> in_train(const Contender& contender);
  /// Captures one graph of `step` for each set.
  Result<std::vector<std::unique_ptr<Graph>>> capture(const Work& step);

 private:
  void use_for(int sample) { use_(sample % sets_); }
  Status sample(bool ours, const Work& work, bool cold, std::vector<double>& samples);

  World& world_;
  Stream stream_;
  DeviceTimer& timer_;
  int samples_;
  int sets_;
  std::function<void(int)> use_;
  std::function<Status(bool ours)> prepare_;
};

}  // namespace farwarp::harness
