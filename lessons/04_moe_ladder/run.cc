#include "run.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <utility>

#include "farwarp/machine/ceilings.h"
#include "farwarp/ops/moe_a2a/case/floor.h"

namespace farwarp::lessons::ladder {
namespace {

using harness::DeviceBuffer;
using harness::Fault;

/// The largest number of equal parts of a row of `vectors` vectors, at most `most`.
int equal_segments(int vectors, int most) {
  int segments = std::clamp(most, 1, vectors);
  while (vectors % segments != 0) --segments;
  return segments;
}

/// Segments of a row, so that every warp of the grid has something to send and to sum, and every lane at least 16
/// bytes. The same on all rungs.
int choose_segments(const MoeAllToAllDesc& desc, const MachineShape& machine, int blocks) {
  const int warps = blocks * (kThreads / machine.traits.warp_size);
  const int vectors = desc.hidden / 8;
  return equal_segments(vectors, std::min(warps / desc.max_tokens, vectors / machine.traits.warp_size));
}

std::vector<std::string> kernel_names(int rung) {
  std::vector<std::string> names;
  if (rung < kEpochs) names.emplace_back("lesson_04_reset");
  for (const char* part : {"dispatch", "expert", "combine"})
    if (rung < kFused) names.push_back(fmt::format("lesson_04_{}_{}", part, rung));
  if (rung >= kFused) names.push_back(fmt::format("lesson_04_fused_{}", rung));
  return names;
}

}  // namespace

RankRun::RankRun(const Config& config, std::shared_ptr<Bootstrap> bootstrap, const harness::RunOptions& options,
                 int sets)
    : harness::RankRun(std::move(bootstrap), options, harness::Comparison(DType::kBf16, 1, config.desc.hidden)),
      config_(config),
      sets_(static_cast<std::size_t>(sets)) {
  config_.inputs.seed = options.seed;
  config_.inputs.expert = MoeExpert::kRankScale;
}

// -- opening and closing

Status RankRun::open() {
  const auto& desc = config_.desc;
  const auto device = Device::open(options_.target, rank_);
  if (!device.ok()) return device.status();
  const MachineShape& machine = (*device)->shape();
  blocks_ = config_.max_sms == 0 ? machine.multiprocessors : std::min(config_.max_sms, machine.multiprocessors);
  const int segments = config_.segments == 0 ? choose_segments(desc, machine, blocks_)
                                             : equal_segments(desc.hidden / 8, config_.segments);
  shape_ = {ranks_, desc.num_experts, desc.experts_per_token, desc.hidden, desc.max_tokens, segments};
  std::int64_t most_bytes = 0;
  for (int rung = config_.first_rung; rung <= config_.last_rung; ++rung)
    most_bytes = std::max(most_bytes, layout_of(shape_, rung).total);
  if (Status status = open_world(most_bytes); !status.ok()) return status;
  auto barrier = DeviceBarrier::create(*world_);
  if (!barrier.ok()) return barrier.status();
  barrier_.emplace(std::move(*barrier));
  experts_ = moe::make_experts(desc, ranks_, config_.inputs, 0);
  const auto tokens = static_cast<std::size_t>(desc.max_tokens);
  const std::size_t entries = tokens * static_cast<std::size_t>(desc.experts_per_token);
  for (CallSet& set : sets_) {
    for (auto [buffer, bytes] : {std::pair{&set.x, tokens * hidden() * 2}, std::pair{&set.experts, entries * 4},
                                 std::pair{&set.weights, entries * 4}, std::pair{&set.out, tokens * hidden() * 2}}) {
      auto created = DeviceBuffer::create(world_->device(), bytes);
      if (!created.ok()) return created.status();
      *buffer = std::move(*created);
    }
  }
  return {};
}

Status RankRun::open_rung(int rung) {
  rung_ = rung;
  const bool mismatch = options_.fault.kind == Fault::Kind::kMismatch && options_.fault.rank == rank_;
  const std::uint64_t parts[] = {static_cast<std::uint64_t>(rung),
                                 static_cast<std::uint64_t>(shape_.num_experts),
                                 static_cast<std::uint64_t>(shape_.k),
                                 static_cast<std::uint64_t>(shape_.hidden),
                                 static_cast<std::uint64_t>(shape_.max_tokens),
                                 static_cast<std::uint64_t>(shape_.segments)};
  std::uint64_t configuration = mismatch ? 1 : 0;
  for (const std::uint64_t part : parts) configuration = configuration * 0x9e3779b97f4a7c15u + part;
  const Layout layout = layout_of(shape_, rung);
  const std::vector<std::string> kernels = kernel_names(rung);
  auto opened = OpenedOperator::open(*world_, {.name = "lesson-04",
                                               .site_names = kSiteNames,
                                               .configuration = configuration,
                                               .kernels = kernels,
                                               .buffers = {{layout.total}}});
  if (!opened.ok()) return opened.status();
  opened_ = std::move(*opened);
  kernels_ = kernels.size();
  args_ = {};
  args_.view = world_->view();
  args_.slot = opened_.slot();
  args_.shape = shape_;
  args_.layout = layout;
  args_.workspace = static_cast<std::int64_t>(opened_.buffer(0).offset);
  if (options_.fault.kind == Fault::Kind::kDropPut) {
    args_.drop_put = static_cast<std::uint32_t>(options_.fault.amount);
  }
  return {};
}

// -- a call

Status RankRun::prepare(CallSet& set, int call) {
  const auto& desc = config_.desc;
  set.call = call;
  set.routings = moe::make_routings(desc, ranks_, config_.inputs, call);
  const moe::Routing& routing = set.routings[static_cast<std::size_t>(rank_)];
  std::vector<std::uint16_t> x(static_cast<std::size_t>(routing.tokens) * hidden());
  for (int token = 0; token < routing.tokens; ++token) {
    moe::fill_row(desc, ranks_, config_.inputs, call, rank_, token,
                  std::span(x).subspan(static_cast<std::size_t>(token) * hidden(), hidden()));
  }
  Status status = set.x.upload(x.data(), x.size() * 2, *stream_);
  if (status.ok()) status = set.experts.upload(routing.experts.data(), routing.experts.size() * 4, *stream_);
  if (status.ok()) status = set.weights.upload(routing.weights.data(), routing.weights.size() * 4, *stream_);
  return status;
}

/// Enqueues everything that a call of this rung needs; all of it is timed.
Status RankRun::enqueue(const CallSet& set) {
  Args args = args_;
  args.tokens = set.routings[static_cast<std::size_t>(rank_)].tokens;
  args.x = set.x.get();
  args.topk = set.experts.as<std::int32_t>();
  args.weights = set.weights.as<float>();
  args.out = set.out.get();
  const LaunchConfig config{blocks_, kThreads, kSharedBytes};
  Status status;
  for (std::size_t i = 0; i < kernels_ && status.ok(); ++i) {
    status = launch(world_->device(), opened_.kernel(i), config, args, *stream_);
    const bool was_reset = rung_ < kEpochs && i == 0;
    if (status.ok() && was_reset) status = barrier_->enqueue(*stream_);
  }
  return status;
}

Status RankRun::wait_for_sets() { return wait(patience(static_cast<int>(5 * sets_.size()))); }

// -- the check

harness::CheckOutcome RankRun::check() {
  Status status = agree(open());
  for (int rung = config_.first_rung; rung <= config_.last_rung && status.ok(); ++rung) {
    status = agree(open_rung(rung));
    if (status.ok()) status = agree(check_rung());
    if (status.ok()) status = opened_.close();
  }
  if (status.ok()) status = barrier_->close();
  return outcome(status);
}

/// Enqueues as many calls at a time as there are sets, so that calls follow each other without waiting for the host.
Status RankRun::check_rung() {
  Status status;
  const int sets = static_cast<int>(sets_.size());
  for (int call = 0; call < options_.calls && status.ok(); call += sets) {
    status = check_calls(call, std::min(sets, options_.calls - call));
    if (options_.calls > sets) passed_[0].clear(), passed_[1].clear();
  }
  return status;
}

Status RankRun::check_calls(int first, int count) {
  Status status;
  std::vector<std::unique_ptr<Graph>> graphs;
  const std::span<CallSet> sets(sets_.data(), static_cast<std::size_t>(count));
  for (CallSet& set : sets) {
    if (status.ok()) status = prepare(set, first + static_cast<int>(&set - sets.data()));
    if (!config_.graph || !status.ok()) continue;
    auto graph = capture(world_->device(), *stream_, [&] { return enqueue(set); });
    if (!graph.ok()) return graph.status();
    graphs.push_back(std::move(*graph));
  }
  if (status.ok() && first == 0)
    status = harness::apply_fault(options_.fault, rank_, *bootstrap_, world_->device(), *stream_);
  for (int round = 0; round < (config_.graph ? 2 : 1); ++round) {
    for (const CallSet& set : sets) {
      if (status.ok()) status = set.out.poison(*stream_);
    }
    for (std::size_t i = 0; i < sets.size() && status.ok(); ++i) {
      status = config_.graph ? world_->device().launch(*graphs[i], *stream_) : enqueue(sets[i]);
    }
    if (status.ok()) status = wait_for_sets();
    for (const CallSet& set : sets) {
      if (status.ok()) status = verify(set);
    }
  }
  return status;
}

/// Compares the first output of a call with the oracle. Later outputs of the same call, on this rung or one that rounds
/// at the same places, must be equal to that output to the bit.
Status RankRun::verify(const CallSet& set) {
  std::vector<std::uint16_t> out(set.out.bytes() / 2);
  if (Status status = set.out.download(out.data(), set.out.bytes(), *stream_); !status.ok()) return status;
  std::vector<std::uint16_t>& passed = passed_[rung_ >= kRankDedup ? 1 : 0][set.call];
  if (passed.empty()) {
    if (Status status = compare(set, out); !status.ok()) return status;
    passed = std::move(out);
  } else if (out != passed && findings_.difference.empty()) {
    findings_.difference = fmt::format("rung {}, call {}: the output differs from one that was right", rung_, set.call);
  }
  return {};
}

Status RankRun::compare(const CallSet& set, const std::vector<std::uint16_t>& out) {
  const auto& desc = config_.desc;
  const moe::Routing& routing = set.routings[static_cast<std::size_t>(rank_)];
  const auto k = static_cast<std::size_t>(desc.experts_per_token);
  std::vector<std::uint16_t> x(hidden());
  std::vector<harness::ExpectedElement> expected(hidden());
  findings_.comparison.begin_call(set.call);
  for (int token = 0; token < routing.tokens; ++token) {
    const std::size_t row = static_cast<std::size_t>(token) * hidden(), entry = static_cast<std::size_t>(token) * k;
    moe::fill_row(desc, ranks_, config_.inputs, set.call, rank_, token, x);
    const std::vector<float> seen = moe::row_values(desc, Fp8Format::kOcp, x);
    moe::expected_row(desc, ranks_, std::span(routing.experts).subspan(entry, k),
                      std::span(routing.weights).subspan(entry, k), seen, experts_, expected,
                      rung_ >= kRankDedup ? moe::Returned::kOwnersSum : moe::Returned::kEachOutput);
    findings_.comparison.add(token, 0, std::span(out).subspan(row, hidden()), expected);
  }
  for (std::size_t i = static_cast<std::size_t>(routing.tokens) * hidden(); i < out.size(); ++i) {
    if (out[i] == harness::kPoison16 || !findings_.difference.empty()) continue;
    findings_.difference = fmt::format("rung {}, call {}: row {} of the output was written, beyond {} tokens", rung_,
                                       set.call, i / hidden(), routing.tokens);
  }
  return {};
}

harness::CheckOutcome RankRun::outcome(const Status& status) const {
  harness::CheckOutcome outcome = harness::RankRun::outcome(status);
  if (!outcome.pass) outcome.detail = fmt::format("rung {}, {}", rung_, outcome.detail);
  return outcome;
}

// -- the bench

harness::BenchOutcome RankRun::bench(const harness::BenchOptions& options) {
  harness::BenchOutcome result;
  result.no_baseline = "the rungs are each other's";
  Status status = agree(open());
  std::optional<harness::DeviceTimer> timer;
  if (status.ok()) {
    auto created = harness::DeviceTimer::create(*world_, *stream_);
    status = created.status();
    if (created.ok()) timer.emplace(std::move(*created));
  }
  for (std::size_t i = 0; i < sets_.size() && status.ok(); ++i) status = prepare(sets_[i], static_cast<int>(i));
  status = agree(status);
  for (int rung = config_.first_rung; rung <= config_.last_rung && status.ok(); ++rung) {
    harness::Contest contest(
        *world_, *stream_, *timer, options.samples, static_cast<int>(sets_.size()),
        [this](int set) { set_ = &sets_[static_cast<std::size_t>(set)]; },
        [this](bool) { return set_->out.poison(*stream_); });
    harness::Measurement measurement;
    status = agree(open_rung(rung));
    if (status.ok()) status = agree(measure_rung(contest, measurement));
    if (status.ok()) status = opened_.close();
    result.measurements.push_back(std::move(measurement));
  }
  if (status.ok()) result.floor = floor_of_case();
  result.plan = fmt::format("{} blocks of {} threads, a row in {} segments", blocks_, kThreads, shape_.segments);
  if (status.ok()) status = timer->close();
  if (status.ok()) status = barrier_->close();
  result.check = outcome(status);
  return result;
}

/// The outputs are verified after each way of timing.
Status RankRun::measure_rung(harness::Contest& contest, harness::Measurement& measurement) {
  const harness::Contender rung{.name = kRungNames[rung_], .step = [this] { return enqueue(*set_); }};
  auto cold = contest.in_turn({rung});
  if (!cold.ok()) return cold.status();
  measurement = std::move(cold->front());
  if (Status status = verify_all(); !status.ok()) return status;
  const auto graph_us = contest.from_graphs(rung);
  if (!graph_us.ok()) return graph_us.status();
  measurement.graph_us = *graph_us;
  if (Status status = verify_all(); !status.ok()) return status;
  const auto train_us = contest.in_train(rung);
  if (!train_us.ok()) return train_us.status();
  measurement.back_to_back_us = *train_us;
  return verify_all();
}

Status RankRun::verify_all() {
  Status status;
  for (const CallSet& set : sets_) {
    if (status.ok()) status = verify(set);
  }
  return status;
}

/// The floor of rungs from kRankDedup on: each token crosses once to every other rank that owns one of its experts, and
/// one row returns.
harness::Floor RankRun::floor_of_case() {
  return moe::floor_of(config_.desc, sets_[0].routings, ceilings_of(world_->device().model(), ranks_));
}

}  // namespace farwarp::lessons::ladder
