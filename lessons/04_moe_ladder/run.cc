#include "run.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <utility>

#include "bench.h"
#include "farwarp/machine/ceilings.h"
#include "farwarp/ops/moe_a2a/case/floor.h"

namespace farwarp::lessons::ladder {
namespace {

using harness::DeviceBuffer;
using harness::Fault;

/// The largest number of equal parts of a row of `vectors` vectors, at most `most`.
int equal_pieces(int vectors, int most) {
  int segments = std::clamp(most, 1, vectors);
  while (vectors % segments != 0) --segments;
  return segments;
}

/// Segments of a row, so that every warp of the grid has something to send and to sum, and every lane at least 16 bytes. The same on all
/// rungs.
int choose_pieces(const MoeAllToAllDesc& desc, const MachineShape& machine, int blocks) {
  const int warps = blocks * (kThreads / machine.traits.warp_size);
  const int vectors = desc.hidden / 8;
  return equal_pieces(vectors, std::min(warps / desc.max_tokens, vectors / machine.traits.warp_size));
}

std::vector<std::string> kernel_names(int rung) {
  if (rung >= kFused) return {fmt::format("lesson_04_fused_{}", rung)};
  return {fmt::format("lesson_04_dispatch_{}", rung), fmt::format("lesson_04_expert_{}", rung),
          fmt::format("lesson_04_combine_{}", rung)};
}

}  // namespace

RankRun::RankRun(const Config& config, std::shared_ptr<Bootstrap> bootstrap, const harness::RunOptions& options,
                 int sets)
    : config_(config),
      bootstrap_(std::move(bootstrap)),
      options_(options),
      rank_(bootstrap_->rank()),
      ranks_(bootstrap_->size()),
      sets_(static_cast<std::size_t>(sets)),
      comparison_(DType::kBf16, 1, config.desc.hidden) {
  config_.inputs.seed = options.seed;
  config_.inputs.expert = MoeExpert::kRankScale;
}

RankRun::~RankRun() {
  sets_.clear();
  if (stream_) world_->device().destroy_stream(*stream_);
}

// -- opening and closing

Status RankRun::open() {
  const auto& desc = config_.desc;
  const auto device = Device::open(options_.target, rank_);
  if (!device.ok()) return device.status();
  const MachineShape& machine = (*device)->shape();
  blocks_ = config_.max_sms == 0 ? machine.multiprocessors : std::min(config_.max_sms, machine.multiprocessors);
  const int segments =
      config_.segments == 0 ? choose_pieces(desc, machine, blocks_) : equal_pieces(desc.hidden / 8, config_.segments);
  shape_ = {ranks_, desc.num_experts, desc.experts_per_token, desc.hidden, desc.max_tokens, segments};
  WorldOptions world_options;
  world_options.target = options_.target;
  world_options.deadline = options_.deadline;
  world_options.heap_bytes = std::size_t{1} << 20;
  for (int rung = config_.first_rung; rung <= config_.last_rung; ++rung) {
    const auto needed = static_cast<std::size_t>(layout_of(shape_, rung).total) + (std::size_t{1} << 20);
    world_options.heap_bytes = std::max(world_options.heap_bytes, needed);
  }
  auto world = World::create(bootstrap_, world_options);
  if (!world.ok()) return world.status();
  world_.emplace(std::move(*world));
  auto barrier = DeviceBarrier::create(*world_);
  if (!barrier.ok()) return barrier.status();
  barrier_.emplace(std::move(*barrier));
  const auto stream = world_->device().create_stream();
  if (!stream.ok()) return stream.status();
  stream_ = *stream;
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
  auto slot = world_->open_operator("lesson-04", {kSiteNames, kSiteNames + kSites}, configuration);
  if (!slot.ok()) return slot.status();
  slot_ = *slot;
  const Layout layout = layout_of(shape_, rung);
  auto workspace = world_->allocate(static_cast<std::size_t>(layout.total));
  if (!workspace.ok()) return workspace.status();
  workspace_ = *workspace;
  kernels_.clear();
  for (const std::string& name : kernel_names(rung)) {
    auto kernel = world_->device().kernel(name);
    if (!kernel.ok()) return kernel.status();
    kernels_.push_back(*kernel);
  }
  reset_.reset();
  if (rung < kEpochs) {
    auto kernel = world_->device().kernel("lesson_04_reset");
    if (!kernel.ok()) return kernel.status();
    reset_ = *kernel;
  }
  args_ = {};
  args_.view = world_->view();
  args_.slot = static_cast<std::uint32_t>(slot_);
  args_.shape = shape_;
  args_.layout = layout;
  args_.workspace = static_cast<std::int64_t>(workspace_.offset);
  if (options_.fault.kind == Fault::Kind::kDropPut) {
    args_.drop_put = static_cast<std::uint32_t>(options_.fault.amount);
  }
  return {};
}

Status RankRun::close_rung() {
  const Status closed = world_->close_operator(slot_);
  const Status freed = world_->free(workspace_);
  return closed.ok() ? freed : closed;
}

Status RankRun::agree(Status mine) {
  const auto all_ok = harness::true_on_all(*bootstrap_, mine.ok());
  if (!mine.ok()) return mine;
  if (!all_ok.ok()) return all_ok.status();
  return *all_ok ? Status() : Status{StatusCode::kAborted, "another rank failed"};
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
  if (reset_) {
    status = launch(world_->device(), *reset_, config, args, *stream_);
    if (status.ok()) status = barrier_->enqueue(*stream_);
  }
  for (const Kernel& kernel : kernels_) {
    if (status.ok()) status = launch(world_->device(), kernel, config, args, *stream_);
  }
  return status;
}

Status RankRun::wait() {
  std::chrono::nanoseconds patience =
      static_cast<int>(5 * sets_.size()) * options_.deadline + std::chrono::nanoseconds(std::chrono::seconds(10));
  if (options_.fault.kind == Fault::Kind::kDelay) patience += std::chrono::milliseconds(options_.fault.amount);
  const Status drained = world_->device().synchronize(*stream_, static_cast<std::uint64_t>(patience.count()));
  const Status status = world_->status();
  return status.ok() ? drained : status;
}

// -- the check

harness::CheckOutcome RankRun::check() {
  Status status = agree(open());
  for (int rung = config_.first_rung; rung <= config_.last_rung && status.ok(); ++rung) {
    status = agree(open_rung(rung));
    if (status.ok()) status = agree(check_rung());
    if (status.ok()) status = close_rung();
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
    status = world_->device().begin_capture(*stream_);
    if (status.ok()) status = enqueue(set);
    if (!status.ok()) continue;
    auto graph = world_->device().end_capture(*stream_);
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
    if (status.ok()) status = wait();
    for (const CallSet& set : sets) {
      if (status.ok()) status = verify(set);
    }
  }
  return status;
}

/// Compares the first output of a call with the oracle. Later outputs of the same call, on this rung or one that rounds at the same places,
/// must be equal to that output to the bit.
Status RankRun::verify(const CallSet& set) {
  std::vector<std::uint16_t> out(set.out.bytes() / 2);
  if (Status status = set.out.download(out.data(), set.out.bytes(), *stream_); !status.ok()) return status;
  std::vector<std::uint16_t>& passed = passed_[rung_ >= kRankDedup ? 1 : 0][set.call];
  if (passed.empty()) {
    if (Status status = compare(set, out); !status.ok()) return status;
    passed = std::move(out);
  } else if (out != passed && difference_.empty()) {
    difference_ = fmt::format("rung {}, call {}: the output differs from one that was right", rung_, set.call);
  }
  return {};
}

Status RankRun::compare(const CallSet& set, const std::vector<std::uint16_t>& out) {
  const auto& desc = config_.desc;
  const moe::Routing& routing = set.routings[static_cast<std::size_t>(rank_)];
  const auto k = static_cast<std::size_t>(desc.experts_per_token);
  std::vector<std::uint16_t> x(hidden());
  std::vector<harness::ExpectedElement> expected(hidden());
  comparison_.begin_call(set.call);
  for (int token = 0; token < routing.tokens; ++token) {
    const std::size_t row = static_cast<std::size_t>(token) * hidden(), entry = static_cast<std::size_t>(token) * k;
    moe::fill_row(desc, ranks_, config_.inputs, set.call, rank_, token, x);
    const std::vector<float> seen = moe::row_values(desc, Fp8Format::kOcp, x);
    moe::expected_row(desc, ranks_, std::span(routing.experts).subspan(entry, k),
                      std::span(routing.weights).subspan(entry, k), seen, experts_, expected,
                      rung_ >= kRankDedup ? moe::Returned::kOwnersSum : moe::Returned::kEachOutput);
    comparison_.add(token, 0, std::span(out).subspan(row, hidden()), expected);
  }
  for (std::size_t i = static_cast<std::size_t>(routing.tokens) * hidden(); i < out.size(); ++i) {
    if (out[i] == harness::kPoison16 || !difference_.empty()) continue;
    difference_ = fmt::format("rung {}, call {}: row {} of the output was written, beyond {} tokens", rung_, set.call,
                              i / hidden(), routing.tokens);
  }
  return {};
}

harness::CheckOutcome RankRun::outcome(const Status& status) const {
  return harness::judge(fmt::format("rung {}, rank {}", rung_, rank_), status, comparison_.verdict(), difference_);
}

// -- the bench

harness::BenchOutcome RankRun::bench(const harness::BenchOptions& options) {
  harness::BenchOutcome result;
  result.no_baseline = "the rungs are each other's";
  Status status = agree(open());
  std::optional<Timer> timer;
  if (status.ok()) {
    auto created = Timer::create(*world_, *stream_, options.samples, sets_.size());
    status = created.status();
    if (created.ok()) timer.emplace(std::move(*created));
  }
  for (std::size_t i = 0; i < sets_.size() && status.ok(); ++i) status = prepare(sets_[i], static_cast<int>(i));
  const Timer::Calls calls{[this](std::size_t set) { return sets_[set].out.poison(*stream_); },
                           [this](std::size_t set) { return enqueue(sets_[set]); },
                           [this] {
                             Status verified;
                             for (const CallSet& set : sets_) {
                               if (verified.ok()) verified = verify(set);
                             }
                             return verified;
                           }};
  status = agree(status);
  for (int rung = config_.first_rung; rung <= config_.last_rung && status.ok(); ++rung) {
    status = agree(open_rung(rung));
    harness::Measurement measurement;
    measurement.name = kRungNames[rung];
    if (status.ok()) status = agree(timer->measure(calls, measurement));
    if (status.ok()) status = close_rung();
    result.measurements.push_back(std::move(measurement));
  }
  if (status.ok()) result.floor = floor_of_case();
  result.plan = fmt::format("{} blocks of {} threads, a row in {} segments", blocks_, kThreads, shape_.segments);
  if (status.ok()) status = timer->close();
  if (status.ok()) status = barrier_->close();
  result.check = outcome(status);
  return result;
}

/// The floor of rungs from kRankDedup on: each token crosses once to every other rank that owns one of its experts, and one row returns.
harness::Floor RankRun::floor_of_case() {
  return moe::floor_of(config_.desc, sets_[0].routings, ceilings_of(world_->device().model(), ranks_));
}

}  // namespace farwarp::lessons::ladder
