// The bench of flash-decode, and its floor.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "farwarp/harness/floors.h"
#include "farwarp/harness/submission.h"
#include "farwarp/ops/flash_decode/case/run.h"

namespace farwarp::decode {

harness::BenchOutcome RankRun::bench(const harness::BenchOptions& bench_options) {
  const bool unfused =
      problem_.shared_keys() && ranks_ > 1 && bench_options.baselines && harness::submission() == nullptr;
  if (!unfused)
    outcome_.no_baseline = problem_.shared_keys() && ranks_ > 1
                               ? "not asked for"
                               : "PyTorch's attention is timed by tools/decode_pytorch.py";
  Status status = open(1, unfused);
  if (harness::submission() != nullptr) {
    if (status.ok()) status = all_calls();
  } else {
    if (status.ok()) status = fill(*set_, 0);
    if (status.ok()) status = measure(bench_options, unfused);
  }
  if (status.ok())
    harness::set_floors(outcome_, world_->device().model(), ranks_,
                        [this](const Ceilings& ceilings) { return floor(ceilings); });
  if (op_) outcome_.plan = op_->plan().to_string();
  unfused_graphs_.clear();
  if (unfused_ && status.ok()) status = unfused_->close();
  unfused_.reset();
  outcome_.check = outcome(close(status));
  return std::move(outcome_);
}

Status RankRun::measure(const harness::BenchOptions& bench_options, bool unfused) {
  auto timer = harness::DeviceTimer::create(*world_, *stream_);
  if (!timer.ok()) return timer.status();
  harness::Contest contest(
      *world_, *stream_, *timer, bench_options.samples, 1, [](int) {},
      [this](bool ours) {
        if (ours) return poison();
        const Status status = unfused_out_.poison(*stream_);
        return status.ok() ? unfused_lse_.poison(*stream_) : status;
      });
  const harness::Contender ours{.name = "flash-decode", .step = [this] { return enqueue(); }};
  std::vector<harness::Contender> contenders = {ours};
  if (bench_options.taxes) {
    const Status status = measure_taxes(*timer, {bench_options.samples, *bench_options.taxes}, unfused);
    return status.ok() ? timer->close() : status;
  }
  if (unfused) {
    if (Status status = open_unfused(contest, contenders); !status.ok()) return status;
  }
  auto measured = contest.in_turn(contenders);
  if (!measured.ok()) return measured.status();
  const auto graph_us = contest.from_graphs(ours);
  if (!graph_us.ok()) return graph_us.status();
  const auto train_us = contest.in_train(ours);
  if (!train_us.ok()) return train_us.status();
  measured->front().graph_us = *graph_us;
  measured->front().back_to_back_us = *train_us;
  outcome_.measurements = std::move(*measured);
  Status status = verify();
  if (status.ok() && unfused) status = verify_unfused();
  return status.ok() ? timer->close() : status;
}

Status RankRun::measure_taxes(harness::DeviceTimer& timer, const harness::TaxOptions& options, bool unfused) {
  if (unfused) {
    const auto given = create_unfused();
    if (!given.ok()) return given.status();
    auto taxes = harness::measure_taxes(
        *world_, *stream_, timer, unfused_->staged(*given, *stream_), [this] { return enqueue(); }, options);
    if (!taxes.ok()) return taxes.status();
    outcome_.taxes = std::move(*taxes);
  } else if (Status status = enqueue(); !status.ok()) {
    return status;
  }
  Status status = wait(patience());
  if (status.ok()) status = verify();
  return status.ok() && unfused ? compare_with_ours(outcome_.taxes->baseline_name) : status;
}

/// The tensors of the ways of several kernels, whose outputs are their own.
Result<FlashDecodeTensors> RankRun::create_unfused() {
  auto unfused = UnfusedDecode::create(*world_, problem_.desc);
  if (!unfused.ok()) return unfused.status();
  unfused_.emplace(std::move(*unfused));
  auto out = harness::DeviceBuffer::create(world_->device(), set_->out.bytes()),
       lse = harness::DeviceBuffer::create(world_->device(), set_->lse.bytes());
  if (!out.ok()) return out.status();
  if (!lse.ok()) return lse.status();
  unfused_out_ = std::move(*out);
  unfused_lse_ = std::move(*lse);
  FlashDecodeTensors given = tensors();
  given.out = unfused_out_.get();
  given.lse = unfused_lse_.as<float>();
  return given;
}

/// Adds the operator and the ways of several kernels as contenders, each from a graph.
Status RankRun::open_unfused(harness::Contest& contest, std::vector<harness::Contender>& contenders) {
  const auto created = create_unfused();
  if (!created.ok()) return created.status();
  const FlashDecodeTensors given = *created;
  const auto add = [&](const std::string& name, const harness::Work& step, bool ours = false) {
    auto graphs = contest.capture(step);
    if (!graphs.ok()) return graphs.status();
    const std::size_t index = unfused_graphs_.size();
    unfused_graphs_.push_back(std::move(graphs->front()));
    contenders.push_back({.name = name + ", graph",
                          .step = [this, index] { return world_->device().launch(*unfused_graphs_[index], *stream_); },
                          .ours = ours});
    return Status();
  };
  Status status = add(
      "flash-decode", [this] { return enqueue(); }, true);
  if (status.ok()) status = add("fused-wait", [this, given] { return unfused_->fused_wait(given, *stream_); });
  if (status.ok()) status = add("this rank's keys alone", [this, given] { return unfused_->local(given, *stream_); });
  if (status.ok()) contenders.back().part = true;
  outcome_.no_baseline = unfused_->nccl().message();
  if (!status.ok() || !unfused_->nccl().ok()) return status;
  return add(unfused_->describe_bsp(), [this, given] { return unfused_->bsp(given, *stream_); });
}

/// Launches the graphs again and compares their results with ours, which have been verified.
Status RankRun::verify_unfused() {
  for (const std::size_t index : {std::size_t{1}, std::size_t{3}}) {
    if (index >= unfused_graphs_.size() || !findings_.difference.empty()) return {};
    Status status = unfused_out_.poison(*stream_);
    if (status.ok()) status = world_->device().launch(*unfused_graphs_[index], *stream_);
    if (status.ok()) status = wait(patience());
    if (status.ok()) status = compare_with_ours(index == 1 ? "fused-wait" : "bsp");
    if (!status.ok()) return status;
  }
  return {};
}

/// Compares the output of a way of several kernels with ours. The ranks' parts are rounded to the dtype before they are
/// merged, with an error of at most half a unit in the last place each, and the results once more.
Status RankRun::compare_with_ours(const std::string& whose) {
  const FlashDecodeDesc& desc = problem_.desc;
  const double unit = desc.dtype == DType::kBf16 ? 0x1p-8 : 0x1p-11;
  const std::size_t dim = static_cast<std::size_t>(desc.head_dim), rows = set_->out.bytes() / 2 / dim;
  std::vector<std::uint16_t> ours(rows * dim), theirs(rows * dim);
  Status status = set_->out.download(ours.data(), ours.size() * 2, *stream_);
  if (status.ok()) status = unfused_out_.download(theirs.data(), theirs.size() * 2, *stream_);
  if (!status.ok()) return status;
  for (std::size_t row = 0; row < rows; ++row) {
    double square = 0, error = 0;
    for (std::size_t i = row * dim; i < (row + 1) * dim; ++i) {
      const double value = harness::decode(desc.dtype, ours[i]), other = harness::decode(desc.dtype, theirs[i]);
      square += value * value;
      error += (other - value) * (other - value);
    }
    if (error <= 4 * unit * unit * square) continue;  // false for a NaN
    findings_.difference =
        fmt::format("row {} of {} differs from ours by {:.2g} of its norm", row, whose, std::sqrt(error / square));
    return {};
  }
  return {};
}

/// Memory reads each key and value that some token sees once. If ranks share keys, partial outputs then cross the links
/// once.
harness::Floor RankRun::floor(const Ceilings& ceilings) {
  const FlashDecodeDesc& desc = problem_.desc;
  if (ceilings.hbm_read_gb_s == 0) return {};
  double most_megabytes = 0;
  for (int rank = 0; rank < ranks_; ++rank) {
    double keys = 0;
    for (int sequence = 0; sequence < desc.batch; ++sequence) {
      const int length = set_->inputs->length(rank, sequence);
      keys += desc.window > 0 ? std::min(length, desc.window + desc.query_tokens - 1) : length;
    }
    most_megabytes = std::max(most_megabytes, 2e-6 * keys * desc.kv_heads * desc.head_dim * (problem_.fp8() ? 1 : 2));
  }
  harness::Floor floor{
      most_megabytes / ceilings.hbm_read_gb_s * 1e3,
      fmt::format("memory ({:.1f} MB of keys and values at {:.0f} GB/s)", most_megabytes, ceilings.hbm_read_gb_s)};
  if (problem_.shared_keys() && ranks_ > 1) {
    floor.us += ceilings.packet_us;
    floor.bound_by += " and one latency of a link";
  }
  floor.bound_by += "; " + ceilings.source;
  return floor;
}

}  // namespace farwarp::decode
