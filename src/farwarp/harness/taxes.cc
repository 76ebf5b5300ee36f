#include "farwarp/harness/taxes.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "farwarp/harness/delay_args.h"

namespace farwarp::harness {
namespace {

constexpr int kAddedLaunches = 16;  // empty kernels between two stages, for the slope
// Precedes an exchange that is timed with delayed ranks, on each rank, so that both variants have the same kernels.
constexpr double kBaseDelayUs = 5;

class TaxRun {
 public:
  TaxRun(World& world, Stream stream, DeviceTimer& timer, const Staged& baseline, const Work& fused,
         const TaxOptions& options)
      : world_(world), stream_(stream), timer_(timer), baseline_(baseline), fused_(fused), options_(options) {}

  Result<Taxes> run();

 private:
  /// Timed in turn with all others of a phase.
  struct Experiment {
    Work prepare, work;
    std::vector<double> mine = {};
  };
  struct OfStage {
    int left = 0, warm = 0, flushed = 0;  // experiments
    int together = 0, skewed = 0;         // experiments of the second phase
    std::vector<double> arrivals = {};    // by rank, after the first one's
    bool before_exchange = false;         // another exchange follows
  };

  Status open();
  Status plant();
  Status capture_all();
  Status add_unordered();
  int add(Work prepare, Work work);
  Work stage_alone(std::size_t i);
  Work before(std::size_t i, Work then = {});
  Status add_first_phase();
  Status add_second_phase();
  Status take(std::size_t first);
  Result<std::vector<double>> medians_of_ranks(int experiment);
  Result<double> slowest_median(int experiment);
  Result<double> stage_us(const OfStage& stage, int experiment);
  Result<Taxes> evaluate();
  Status evaluate_stages(Taxes& taxes);

  Status delay(double us);
  Status empty_kernels(int count);
  Status launch_graph(const std::unique_ptr<Graph>& graph) { return world_.device().launch(*graph, stream_); }
  std::size_t count() const { return baseline_.stages.size(); }

  World& world_;
  Stream stream_;
  DeviceTimer& timer_;
  Staged baseline_;
  Work fused_;
  TaxOptions options_;
  Kernel delay_;
  DeviceBuffer word_;
  std::vector<std::unique_ptr<Graph>> stages_;
  std::unique_ptr<Graph> chain_, padded_, exchanges_, own_;
  std::vector<std::unique_ptr<Graph>> unordered_;  // of others, in an order and its reverse; destroyed before them
  std::string no_order_;
  std::size_t next_ = 0;  // the stage that is to run next
  std::vector<Experiment> experiments_;
  int empty_ = 0, whole_ = 0, with_launches_ = 0, eager_ = 0, ours_ = 0;
  std::vector<int> without_order_;
  std::vector<OfStage> of_stage_;
};

Status TaxRun::open() {
  auto kernel = world_.device().kernel("harness_delay");
  if (!kernel.ok()) return kernel.status();
  delay_ = *kernel;
  auto word = DeviceBuffer::create(world_.device(), sizeof(std::uint64_t));
  if (!word.ok()) return word.status();
  word_ = std::move(*word);
  return {};
}

Status TaxRun::delay(double us) {
  const DelayArgs args{Global(static_cast<const std::uint64_t*>(word_.get())), static_cast<std::uint64_t>(1e3 * us)};
  return launch(world_.device(), delay_, {1, kDelayThreads, 0}, args, stream_);
}

Status TaxRun::empty_kernels(int count) {
  Status status;
  for (int i = 0; i < count && status.ok(); ++i) status = delay(0);
  return status;
}

/// The planted tax is the end of the stage before the last exchange.
Status TaxRun::plant() {
  const PlantedTax& planted = options_.planted;
  if (planted.kind == PlantedTax::Kind::kNone) return {};
  std::size_t last = count();
  for (std::size_t i = 1; i < count(); ++i) {
    if (baseline_.stages[i].exchange) last = i;
  }
  if (last == count()) return invalid_argument("a tax cannot be planted: no stage precedes an exchange");
  Work& before = baseline_.stages[last - 1].enqueue;
  before = [this, planted, enqueue = before]() -> Status {
    if (Status status = enqueue(); !status.ok()) return status;
    switch (planted.kind) {
      case PlantedTax::Kind::kSleep: return world_.rank() + 1 == world_.size() ? delay(planted.sleep_us) : Status();
      case PlantedTax::Kind::kFlush: return timer_.flush_l2();
      case PlantedTax::Kind::kLaunches: return empty_kernels(planted.launches);
      case PlantedTax::Kind::kNone: break;
    }
    return {};
  };
  return {};
}

Status TaxRun::capture_all() {
  const auto captured = [this](std::unique_ptr<Graph>& graph, const Work& work) {
    auto made = capture(world_.device(), stream_, work);
    if (made.ok()) graph = std::move(*made);
    return made.status();
  };
  const auto all_stages = [this](int added) {
    Status status = count() == 1 ? empty_kernels(added) : Status();
    for (std::size_t i = 0; i < count(); ++i) {
      if (status.ok() && i > 0) status = empty_kernels(added);
      if (status.ok()) status = baseline_.stages[i].enqueue();
    }
    return status;
  };
  Status status = captured(own_, fused_);
  stages_.resize(count());
  for (std::size_t i = 0; i < count() && status.ok(); ++i) status = captured(stages_[i], baseline_.stages[i].enqueue);
  if (status.ok()) status = captured(chain_, [&] { return all_stages(0); });
  if (status.ok()) status = captured(padded_, [&] { return all_stages(kAddedLaunches); });
  return status;
}

int TaxRun::add(Work prepare, Work work) {
  experiments_.push_back({std::move(prepare), std::move(work)});
  return static_cast<int>(experiments_.size()) - 1;
}

Work TaxRun::stage_alone(std::size_t i) {
  return [this, i] {
    next_ = (i + 1) % count();
    return launch_graph(stages_[i]);
  };
}

/// Ends the call that an earlier experiment has begun, flushes the L2, and runs the stages before `i`, then `then`.
Work TaxRun::before(std::size_t i, Work then) {
  return [this, i, then = std::move(then)] {
    Status status;
    for (; next_ != 0 && status.ok(); next_ = (next_ + 1) % count()) status = launch_graph(stages_[next_]);
    if (status.ok()) status = timer_.flush_l2();
    for (; next_ != i && status.ok(); ++next_) status = launch_graph(stages_[next_]);
    return status.ok() && then ? then() : status;
  };
}

/// Both orders, because what is launched first takes the multiprocessors first.
Status TaxRun::add_unordered() {
  if (count() < 2 || baseline_.in_order) {
    no_order_ = count() < 2 ? "there is one stage" : "its stages run in order only";
    return {};
  }
  // Exchanges stay in order among themselves: a library's may use the same memory of its group.
  std::vector<Graph*> graphs;
  for (std::size_t i = 0; i < count(); ++i) {
    if (!baseline_.stages[i].exchange) graphs.push_back(stages_[i].get());
  }
  auto exchanges = capture(world_.device(), stream_, [this] {
    Status status;
    for (const Stage& stage : baseline_.stages) {
      if (status.ok() && stage.exchange) status = stage.enqueue();
    }
    return status;
  });
  if (!exchanges.ok()) return exchanges.status();
  exchanges_ = std::move(*exchanges);
  if (graphs.size() < count()) graphs.push_back(exchanges_.get());
  for (int reversed = 0; reversed < 2; ++reversed) {
    auto graph = world_.device().unordered(graphs);
    if (!graph.ok()) {
      no_order_ = graph.status().message();
      return graph.status().code() == StatusCode::kUnavailable ? Status() : graph.status();
    }
    unordered_.push_back(std::move(*graph));
    std::reverse(graphs.begin(), graphs.end());
  }
  for (std::size_t i = 0; i < unordered_.size(); ++i)
    without_order_.push_back(add(before(0), [this, i] { return launch_graph(unordered_[i]); }));
  return {};
}

Status TaxRun::add_first_phase() {
  const auto whole = [this](const std::unique_ptr<Graph>& graph) {
    return [this, &graph] { return launch_graph(graph); };
  };
  empty_ = add(before(0), [this] { return empty_kernels(1); });
  whole_ = add(before(0), whole(chain_));
  with_launches_ = add(before(0), whole(padded_));
  ours_ = add(before(0), whole(own_));
  eager_ = add(before(0), [this] {
    Status status;
    for (const auto& stage : stages_) {
      if (status.ok()) status = launch_graph(stage);
    }
    return status;
  });
  of_stage_.resize(count());
  for (std::size_t i = 0; i < count(); ++i) {
    OfStage& stage = of_stage_[i];
    stage.before_exchange = std::any_of(baseline_.stages.begin() + static_cast<std::ptrdiff_t>(i) + 1,
                                        baseline_.stages.end(), [](const Stage& later) { return later.exchange; });
    stage.left = add(before(i), stage_alone(i));
    stage.warm = baseline_.stages[i].reads.empty()
                     ? stage.left
                     : add(before(i,
                                  [this, i] {
                                    Status status;
                                    for (const DeviceSpan& span : baseline_.stages[i].reads) {
                                      if (status.ok()) status = timer_.touch(span.memory, span.bytes);
                                    }
                                    return status;
                                  }),
                           stage_alone(i));
    stage.flushed = i == 0 ? stage.left : add(before(i, [this] { return timer_.flush_l2(); }), stage_alone(i));
  }
  return add_unordered();
}

/// Exchanges whose ranks arrive together, and as the stages before them let them arrive.
Status TaxRun::add_second_phase() {
  std::vector<double> arrivals(static_cast<std::size_t>(world_.size()));
  for (std::size_t i = 0; i < count(); ++i) {
    OfStage& stage = of_stage_[i];
    const double first = *std::min_element(arrivals.begin(), arrivals.end());
    for (double& arrival : arrivals) arrival -= first;
    stage.arrivals = arrivals;
    if (baseline_.stages[i].exchange && i > 0) {
      const double late_us = arrivals[static_cast<std::size_t>(world_.rank())];
      const auto delayed = [this, i](double us) {
        return [this, i, us] {
          const Status status = delay(us);
          return status.ok() ? stage_alone(i)() : status;
        };
      };
      stage.together = add(before(i), delayed(kBaseDelayUs));
      stage.skewed = add(before(i), delayed(kBaseDelayUs + late_us));
    }
    const auto medians = medians_of_ranks(stage.left);
    if (!medians.ok()) return medians.status();
    // Ranks leave an exchange as their own clocks say; an offset from before it is gone, because they have met.
    if (baseline_.stages[i].exchange) std::fill(arrivals.begin(), arrivals.end(), 0);
    for (std::size_t rank = 0; rank < arrivals.size(); ++rank) arrivals[rank] += (*medians)[rank];
  }
  return {};
}

Status TaxRun::take(std::size_t first) {
  for (int sample = -1; sample < options_.samples; ++sample) {
    for (std::size_t e = first; e < experiments_.size(); ++e) {
      const auto us = timer_.sample(experiments_[e].prepare, experiments_[e].work, false);
      if (!us.ok()) return us.status();
      if (sample >= 0) experiments_[e].mine.push_back(*us);
    }
  }
  return {};
}

Result<std::vector<double>> TaxRun::medians_of_ranks(int experiment) {
  return timer_.of_all_ranks(summarise(experiments_[static_cast<std::size_t>(experiment)].mine).median);
}

Result<double> TaxRun::slowest_median(int experiment) {
  auto slowest = timer_.slowest(experiments_[static_cast<std::size_t>(experiment)].mine);
  if (!slowest.ok()) return slowest.status();
  return summarise(std::move(*slowest)).median;
}

/// Before an exchange the fastest rank's time: what the others need beyond it is waiting, which the exchange measures.
Result<double> TaxRun::stage_us(const OfStage& stage, int experiment) {
  if (!stage.before_exchange) return slowest_median(experiment);
  const auto medians = medians_of_ranks(experiment);
  if (!medians.ok()) return medians.status();
  return *std::min_element(medians->begin(), medians->end());
}

Status TaxRun::evaluate_stages(Taxes& taxes) {
  for (std::size_t i = 0; i < count(); ++i) {
    const OfStage& stage = of_stage_[i];
    StageTimes times{.name = baseline_.stages[i].name, .exchange = baseline_.stages[i].exchange};
    const auto launches = stages_[i]->launches();
    const auto left = stage_us(stage, stage.left), warm = stage_us(stage, stage.warm),
               flushed = stage_us(stage, stage.flushed);
    for (const Status& status : {launches.status(), left.status(), warm.status(), flushed.status()}) {
      if (!status.ok()) return status;
    }
    times.launches = *launches;
    times.us = *left;
    times.warm_us = *warm;
    times.flushed_us = *flushed;
    if (stage.skewed != 0) {
      const auto together = slowest_median(stage.together), skewed = slowest_median(stage.skewed);
      if (!together.ok()) return together.status();
      if (!skewed.ok()) return skewed.status();
      times.skew_us = *std::max_element(stage.arrivals.begin(), stage.arrivals.end());
      times.waiting_us = *skewed - *together;
    }
    taxes.stages.push_back(times);
  }
  return {};
}

Result<Taxes> TaxRun::evaluate() {
  Taxes taxes;
  taxes.baseline_name = baseline_.name;
  double with_launches_us = 0;
  for (const auto& [experiment, us] :
       {std::pair{empty_, &taxes.start_us}, std::pair{whole_, &taxes.baseline_us}, std::pair{eager_, &taxes.eager_us},
        std::pair{with_launches_, &with_launches_us}, std::pair{ours_, &taxes.fused_us}}) {
    const auto median = slowest_median(experiment);
    if (!median.ok()) return median.status();
    *us = *median;
  }
  const auto launches = chain_->launches(), fused_launches = own_->launches();
  if (!launches.ok()) return launches.status();
  if (!fused_launches.ok()) return fused_launches.status();
  taxes.launches = *launches;
  taxes.fused_launches = *fused_launches;
  if (Status status = evaluate_stages(taxes); !status.ok()) return status;
  const double places = static_cast<double>(std::max<std::size_t>(count() - 1, 1));
  taxes.us_per_launch = (with_launches_us - taxes.baseline_us) / (places * kAddedLaunches);
  taxes.launch_us = taxes.us_per_launch * (static_cast<double>(taxes.launches) - 1);
  taxes.no_order = no_order_;
  if (!without_order_.empty()) {
    double fastest = taxes.baseline_us;
    for (const int experiment : without_order_) {
      const auto median = slowest_median(experiment);
      if (!median.ok()) return median.status();
      fastest = std::min(fastest, *median);
    }
    taxes.order_us = taxes.baseline_us - fastest;
  }
  double alone = 0;
  for (const StageTimes& stage : taxes.stages) {
    alone += stage.warm_us - taxes.start_us - taxes.us_per_launch * (static_cast<double>(stage.launches) - 1);
    taxes.ranks_us += stage.waiting_us;
    taxes.locality_us += stage.us - stage.warm_us;
  }
  taxes.work_us = alone - taxes.order_us;
  taxes.rest_us = taxes.baseline_us - (taxes.start_us + taxes.work_us + taxes.launch_us + taxes.ranks_us +
                                       taxes.order_us + taxes.locality_us);
  return taxes;
}

Result<Taxes> TaxRun::run() {
  Status status = open();
  if (status.ok()) status = plant();
  if (status.ok()) status = capture_all();
  if (status.ok()) status = add_first_phase();
  if (status.ok()) status = take(0);
  const std::size_t first_of_second = experiments_.size();
  if (status.ok()) status = add_second_phase();
  if (status.ok()) status = take(first_of_second);
  if (!status.ok()) return status;
  auto taxes = evaluate();
  // Without order, stages have read what was not complete.
  if (const auto again = timer_.sample(
          before(0), [this] { return launch_graph(chain_); }, false);
      !again.ok())
    return again.status();
  return taxes;
}

}  // namespace

Result<Taxes> measure_taxes(World& world, Stream stream, DeviceTimer& timer, const Staged& baseline, const Work& fused,
                            const TaxOptions& options) {
  if (baseline.stages.empty()) return internal_error("a baseline without stages has no taxes");
  return TaxRun(world, stream, timer, baseline, fused, options).run();
}

}  // namespace farwarp::harness
