#include "farwarp/harness/contest.h"

#include <algorithm>

namespace farwarp::harness {
namespace {

constexpr int kWarmUps = 2;
constexpr int kTrain = 20;  // most calls of a train
constexpr int kTrains = 5;

}  // namespace

Status Contest::sample(bool ours, const Work& work, bool cold, std::vector<double>& samples) {
  const auto us = timer_.sample([&] { return prepare_(ours); }, work, cold);
  if (us.ok()) samples.push_back(*us);
  return us.status();
}

Result<std::vector<Measurement>> Contest::in_turn(const std::vector<Contender>& contenders) {
  std::vector<std::vector<double>> samples(contenders.size()), mhz(contenders.size());
  for (int i = -kWarmUps; i < samples_; ++i) {
    use_for(std::max(i, 0));
    for (std::size_t c = 0; c < contenders.size(); ++c) {
      std::vector<double> ignored;
      if (Status status = sample(contenders[c].ours, contenders[c].step, true, i < 0 ? ignored : samples[c]);
          !status.ok())
        return status;
      if (i >= 0) mhz[c].push_back(timer_.clock_mhz());
    }
  }
  use_for(0);
  if (const Status status = timer_.trace([&] { return prepare_(contenders[0].ours); }, contenders[0].step);
      !status.ok())
    return status;
  use_for(samples_ - 1);  // callers compare what the last sample left
  std::vector<Measurement> measurements;
  for (std::size_t c = 0; c < contenders.size(); ++c) {
    auto slowest = timer_.slowest(samples[c], mhz[c]);
    if (!slowest.ok()) return slowest.status();
    Measurement measurement;
    measurement.name = contenders[c].name;
    measurement.ours = contenders[c].ours;
    measurement.part = contenders[c].part;
    measurement.time_us = summarise(std::move(slowest->us));
    const bool known = std::all_of(slowest->mhz.begin(), slowest->mhz.end(), [](double clock) { return clock > 0; });
    if (known) measurement.time_us.mhz = std::move(slowest->mhz);
    measurements.push_back(std::move(measurement));
  }
  return measurements;
}

Result<std::vector<std::unique_ptr<Graph>>> Contest::capture(const Work& step) {
  std::vector<std::unique_ptr<Graph>> graphs;
  for (int set = 0; set < sets_; ++set) {
    use_for(set);
    auto graph = farwarp::capture(world_.device(), stream_, step);
    if (!graph.ok()) return graph.status();
    graphs.push_back(std::move(*graph));
  }
  return graphs;
}

Result<double> Contest::from_graphs(const Contender& contender) {
  const auto graphs = capture(contender.step);
  if (!graphs.ok()) return graphs.status();
  std::vector<double> samples;
  for (int i = 0; i < samples_; ++i) {
    use_for(i);
    const auto replay = [&] {
      return world_.device().launch(*(*graphs)[static_cast<std::size_t>(i % sets_)], stream_);
    };
    if (Status status = sample(contender.ours, replay, true, samples); !status.ok()) return status;
  }
  auto slowest = timer_.slowest(samples);
  if (!slowest.ok()) return slowest.status();
  return summarise(std::move(*slowest)).median;
}

Result<double> Contest::in_train(const Contender& contender) {
  const int calls = contender.is_graph ? std::min(kTrain, sets_) : kTrain;
  std::vector<double> samples;
  const auto train = [&] {
    Status status;
    for (int i = 0; i < calls && status.ok(); ++i) {
      use_for(i);
      status = contender.step();
    }
    return status;
  };
  for (int i = 0; i < kTrains; ++i) {
    use_for(0);  // what `prepare_` poisons must be a set that the train writes
    if (Status status = sample(contender.ours, train, false, samples); !status.ok()) return status;
  }
  auto slowest = timer_.slowest(samples);
  if (!slowest.ok()) return slowest.status();
  return summarise(std::move(*slowest)).median / calls;
}

}  // namespace farwarp::harness
