// The bench of the all-reduce, its baseline and its floor.
#include <fmt/format.h>

#include <algorithm>

#include "farwarp/harness/floors.h"
#include "farwarp/harness/submission.h"
#include "farwarp/ops/all_reduce/case/run.h"
#include "farwarp/world/view.h"

namespace farwarp::all_reduce {

harness::BenchOutcome RankRun::bench(const harness::BenchOptions& bench_options) {
  Status status = open();
  if (harness::submission() != nullptr) {
    if (status.ok()) status = all_calls();
  } else {
    if (status.ok()) status = fill(1);  // uniform numbers
    if (status.ok()) status = measure(bench_options);
  }
  if (status.ok())
    harness::set_floors(outcome_, world_->device().model(), ranks_,
                        [this](const Ceilings& ceilings) { return floor(ceilings); });
  if (op_) outcome_.plan = op_->plan().to_string();
  bench_graphs_.clear();
  nccl_.reset();
  outcome_.check = outcome(close(status));
  return std::move(outcome_);
}

Status RankRun::measure(const harness::BenchOptions& bench_options) {
  outcome_.no_baseline = ranks_ == 1               ? "one rank has nothing to exchange"
                         : bench_options.baselines ? ""
                                                   : "not asked for";
  if (outcome_.no_baseline.empty()) {
    if (Status status = open_nccl(); !status.ok()) return status;
  }
  auto timer = harness::DeviceTimer::create(*world_, *stream_);
  if (!timer.ok()) return timer.status();
  harness::Contest contest(
      *world_, *stream_, *timer, bench_options.samples, 1, [](int) {},
      [this](bool ours) {
        return !ours ? nccl_out_.poison(*stream_) : config_.in_place ? Status() : out_.poison(*stream_);
      });
  const harness::Contender ours{.name = "all-reduce", .step = [this] { return enqueue(); }};
  std::vector<harness::Contender> contenders = {ours};
  const auto add_graph = [&](const std::string& name, const harness::Work& step, bool is_ours) {
    auto graphs = contest.capture(step);
    if (!graphs.ok()) return graphs.status();
    const std::size_t index = bench_graphs_.size();
    bench_graphs_.push_back(std::move(graphs->front()));
    contenders.push_back({.name = name + ", graph",
                          .step = [this, index] { return world_->device().launch(*bench_graphs_[index], *stream_); },
                          .ours = is_ours});
    return Status();
  };
  Status status = add_graph("all-reduce", ours.step, true);
  if (status.ok() && nccl_) {
    const harness::Work step = [this] { return enqueue_nccl(); };
    const std::string name = nccl_->library().describe();
    contenders.push_back({.name = name, .step = step, .ours = false});
    status = add_graph(name, step, false);
  }
  if (!status.ok()) return status;
  auto measured = contest.in_turn(contenders);
  if (!measured.ok()) return measured.status();
  const auto train_us = contest.in_train(ours);
  if (!train_us.ok()) return train_us.status();
  measured->front().graph_us = (*measured)[1].time_us.median;
  measured->front().back_to_back_us = *train_us;
  if (nccl_) {
    const auto nccl_us = contest.in_train(contenders[2]);
    if (!nccl_us.ok()) return nccl_us.status();
    (*measured)[2].back_to_back_us = *nccl_us;
  }
  outcome_.measurements = std::move(*measured);
  if (config_.in_place) {  // the timed calls have reduced the tensor many times
    status = fill(1);
    if (status.ok()) status = enqueue();
    if (status.ok()) status = wait(patience());
    if (status.ok()) status = verify();
  } else {
    status = verify();
    if (status.ok() && nccl_) status = verify_nccl();
  }
  return status.ok() ? timer->close() : status;
}

/// Without NCCL the bench says so and goes on.
Status RankRun::open_nccl() {
  auto out = harness::DeviceBuffer::create(world_->device(), out_.bytes());
  if (out.ok()) nccl_out_ = std::move(*out);
  auto group = NcclGroup::create(*world_, out.status());
  if (!out.ok()) return out.status();
  if (!group.ok()) {
    outcome_.no_baseline = group.status().message();
    return {};
  }
  nccl_.emplace(std::move(*group));
  return agree(nccl_->connect(*stream_, [this] { return enqueue_nccl(); }));
}

Status RankRun::enqueue_nccl() {
  const nccl::Library& library = nccl_->library();
  return world_->device().while_current([&] {
    return library.call(library.all_reduce, static_cast<const void*>(in_.get()), nccl_out_.get(),
                        static_cast<std::size_t>(elements_), nccl::data_type(config_.desc.dtype), nccl::Reduction::kSum,
                        nccl_->communicator(), static_cast<nccl::StreamHandle>(stream_->handle));
  });
}

Status RankRun::verify_nccl() {
  std::vector<std::byte> got(tensor_bytes());
  if (Status status = nccl_out_.download(got.data(), got.size(), *stream_); !status.ok()) return status;
  compare_in_any_order(got, "NCCL's");
  return {};
}

/// What the form of this call sends over the links, and its flights.
harness::Floor RankRun::floor(const Ceilings& ceilings) {
  if (ceilings.link_all_store_gb_s == 0 || ranks_ == 1) return {};
  const bool two_shot = launch_of(op_->plan(), elements_).two_shot;
  const double kilobytes =
      1e-3 * static_cast<double>(elements_ * element_bytes()) * (ranks_ - 1) * (two_shot ? 2.0 / ranks_ : 1.0);
  const double us = kilobytes / ceilings.link_all_store_gb_s;
  return {us + (two_shot ? 2 * ceilings.flag_us : ceilings.packet_us),
          fmt::format("link ({:.1f} KB at {:.0f} GB/s) and {}; {}", kilobytes, ceilings.link_all_store_gb_s,
                      two_shot ? "two flags" : "one latency", ceilings.source)};
}

}  // namespace farwarp::all_reduce
