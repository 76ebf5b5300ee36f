// The rounds of a bench: ways of doing one thing, timed in turn so that neither finds the machine as it left it.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "farwarp/harness/case.h"
#include "farwarp/harness/timing.h"

namespace farwarp::harness {

/// One way; `step` enqueues it for the set of buffers in use.
struct Contender {
  std::string name;
  Work step;
  bool ours = true;
  bool replays = false;  ///< a graph of each set, which must not be launched again before it has run
};

/// Every sample takes the next set of inputs and outputs: `use(set)` chooses it, `prepare(ours)` makes it ready (poisons the
/// output of ours, or of theirs) and is not timed. All members are collective.
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

  /// Cold samples of each in turn, after two rounds that do not count.
  Result<std::vector<Measurement>> in_turn(const std::vector<Contender>& contenders);
  /// Median of cold samples from captured graphs, one for each set.
  Result<double> from_graphs(const Contender& contender);
  /// Of one call among up to 20 behind each other, warm.
  Result<double> in_train(const Contender& contender);
  /// A graph of each set.
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
