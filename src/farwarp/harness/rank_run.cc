#include "farwarp/harness/rank_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "farwarp/base/sizes.h"
#include "farwarp/harness/inputs.h"
#include "farwarp/harness/tracing.h"

namespace farwarp::harness {

RankRun::RankRun(std::shared_ptr<Bootstrap> bootstrap, const RunOptions& options, const Comparison& comparison)
    : bootstrap_(std::move(bootstrap)),
      options_(options),
      rank_(bootstrap_->rank()),
      ranks_(bootstrap_->size()),
      findings_{comparison},
      none_{comparison} {}

RankRun::~RankRun() {
  if (stream_) world_->device().destroy_stream(*stream_);
}

Status RankRun::open_world(std::int64_t heap_bytes) {
  constexpr std::size_t kControl = std::size_t{1} << 20;  // more than a World and a timer keep in the heap
  WorldOptions world_options;
  world_options.target = options_.target;
  world_options.deadline = options_.deadline;
  world_options.heap_bytes = static_cast<std::size_t>(heap_bytes) + kControl;
  auto world = World::create(bootstrap_, world_options);
  if (!world.ok()) return world.status();
  world_.emplace(std::move(*world));
  const auto stream = world_->device().create_stream();
  if (!stream.ok()) return stream.status();
  stream_ = *stream;
  return {};
}

std::chrono::nanoseconds RankRun::patience(int launches, std::chrono::nanoseconds delay) const {
  std::chrono::nanoseconds patience = launches * (options_.deadline + delay) + std::chrono::seconds(10);
  if (options_.fault.kind == Fault::Kind::kDelay) patience += std::chrono::milliseconds(options_.fault.amount);
  return patience;
}

Status RankRun::wait(std::chrono::nanoseconds patience) {
  const Status drained = world_->device().synchronize(*stream_, static_cast<std::uint64_t>(patience.count()));
  const Status status = world_->status();
  return status.ok() ? drained : status;
}

Status RankRun::agree(const Status& mine) {
  const auto all_ok = true_on_all(*bootstrap_, mine.ok());
  if (!mine.ok()) return mine;
  if (!all_ok.ok()) return all_ok.status();
  return *all_ok ? Status() : Status{StatusCode::kAborted, "another rank failed"};
}

Status RankRun::capture_once(std::unique_ptr<Graph>& graph, const Work& enqueue) {
  if (graph != nullptr) return {};
  auto captured = capture(world_->device(), *stream_, enqueue);
  if (!captured.ok()) return captured.status();
  graph = std::move(*captured);
  return {};
}

Status RankRun::make_burst(int number, int calls, int longest_us, const Work& enqueue_call) {
  Status status;
  for (int call = 0; call < calls && status.ok(); ++call) {
    if (longest_us > 0) {
      const RandomStream stream(options_.seed, {size(number), size(call), size(rank_), 77});
      status = world_->device().enqueue_delay(*stream_, stream.below(0, size(longest_us) + 1) * 1000);
    }
    if (status.ok()) status = enqueue_call();
  }
  return status.ok() ? wait(patience(calls, std::chrono::microseconds(calls * longest_us))) : status;
}

Status RankRun::record(bool last, const Work& work) {
  if (!last || trace_collector() == nullptr) return work();
  return traced(*world_, *stream_, work, [](const Work& recorded) { return recorded(); });
}

Status RankRun::make_calls(int least, const std::function<Status(int)>& call_once) {
  const int calls = std::max(least, options_.calls);
  Status status;
  for (int call = 0; call < calls && status.ok(); ++call)
    status = record(call + 1 == calls, [&] { return call_once(call); });
  return recover_from_fault(status, [&] { return call_once(calls); });
}

Status RankRun::recover_from_fault(const Status& status, const Work& call_again) {
  const Fault::Kind fault = options_.fault.kind;
  if (fault == Fault::Kind::kNone || fault == Fault::Kind::kKill) return status;
  // A rank may have finished its last call before another gave up. So all ranks agree on whether to recover.
  const Status agreed = agree(status);
  if (agreed.ok()) return agreed;
  Status recovered = world_->recover({*stream_});
  if (recovered.ok()) {
    findings_ = none_;
    recovered = call_again();
  }
  const Verdict verdict = findings_.comparison.verdict();
  const bool right = recovered.ok() && findings_.difference.empty() && verdict.pass;
  recovery_ = right ? "; after recover() the next call was right"
                    : fmt::format("; the call after recover() was wrong: {} {} {}", recovered.to_string(),
                                  findings_.difference, verdict.detail);
  return agreed;
}

Status RankRun::close_operator(const Status& status, const Work& close) {
  const auto all_ok = true_on_all(*bootstrap_, status.ok());
  if (!all_ok.ok()) return status.ok() ? all_ok.status() : status;
  return *all_ok ? close() : status;
}

CheckOutcome RankRun::outcome(const Status& status) const {
  CheckOutcome outcome =
      judge(fmt::format("rank {}", rank_), status, findings_.comparison.verdict(), findings_.difference);
  if (!outcome.pass) outcome.detail += recovery_;
  return outcome;
}

}  // namespace farwarp::harness
