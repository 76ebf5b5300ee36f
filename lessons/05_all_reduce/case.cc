// The all-reduce as an operator of the command line: farwarp check lesson-05, farwarp bench lesson-05.
#include "farwarp/harness/case.h"

#include <fmt/format.h>

#include <utility>
#include <vector>

#include "all_reduce.h"
#include "farwarp/harness/contest.h"
#include "farwarp/harness/device_buffer.h"
#include "farwarp/harness/inputs.h"
#include "farwarp/harness/params.h"
#include "farwarp/harness/rank_run.h"
#include "farwarp/harness/submission.h"
#include "farwarp/machine/ceilings.h"

namespace farwarp::lessons {
namespace {

float element(std::uint64_t seed, int rank, int call, std::size_t i) {
  const harness::RandomStream stream(seed, {static_cast<std::uint64_t>(rank), static_cast<std::uint64_t>(call)});
  return 1.0f / static_cast<float>(1 + stream.below(i, 1009));
}

class Run : public harness::RankRun {
 public:
  Run(const AllReduceDesc& desc, std::shared_ptr<Bootstrap> bootstrap, const harness::RunOptions& options)
      : RankRun(std::move(bootstrap), options, harness::Comparison(DType::kBf16, 1, 1)),  // not used: see verify()
        desc_(desc) {}

  Status open() {
    const auto device = Device::open(options_.target, rank_);
    if (!device.ok()) return device.status();
    const auto plan = plan_all_reduce(desc_, (*device)->shape(), ranks_);
    if (!plan.ok()) return plan.status();
    if (Status status = open_world(plan->flag_bytes + plan->vector_bytes); !status.ok()) return status;
    AllReduceDesc desc = desc_;
    if (options_.fault.kind == harness::Fault::Kind::kMismatch && options_.fault.rank == rank_)
      desc.elements += desc.elements > 1 ? -1 : 1;
    auto op = AllReduce::create(*world_, desc);
    if (!op.ok()) return op.status();
    op_.emplace(std::move(*op));
    for (harness::DeviceBuffer* buffer : {&in_, &out_}) {
      auto created = harness::DeviceBuffer::create(world_->device(), 4 * size());
      if (!created.ok()) return created.status();
      *buffer = std::move(*created);
    }
    return {};
  }

  Status all_calls() {
    constexpr int kLeast = 3;  // the third call uses the first one's buffers again
    return make_calls(kLeast, [this](int call) { return call_once(call); });
  }

  Status close(const Status& status) {
    return close_operator(status, [this] { return op_->close(); });
  }

  harness::BenchOutcome bench(const harness::BenchOptions& bench_options) {
    harness::BenchOutcome result;
    result.no_baseline = "a lesson has none";
    Status status = open();
    if (harness::submission() != nullptr) {
      if (status.ok()) status = all_calls();
    } else {
      if (status.ok()) status = fill(0);
      if (status.ok()) status = measure(bench_options, result);
      if (status.ok()) status = verify(0);
    }
    if (status.ok()) result.floor = floor();
    result.check = outcome(close(status));
    return result;
  }

 private:
  std::size_t size() const { return static_cast<std::size_t>(desc_.elements); }

  Status fill(int call) {
    std::vector<float> in(size());
    for (std::size_t i = 0; i < in.size(); ++i) in[i] = element(options_.seed, rank_, call, i);
    const Status status = in_.upload(in.data(), in_.bytes(), *stream_);
    return status.ok() ? out_.poison(*stream_) : status;
  }

  Status enqueue() {
    using harness::ElementType;
    if (harness::submission() != nullptr)
      return harness::submission()->call(*bootstrap_, world_->device(), *stream_,
                                         {{"in", ElementType::kF32, {desc_.elements}, {}, in_.get()}},
                                         {{"out", ElementType::kF32, {desc_.elements}, {}, out_.get()}});
    return (*op_)(in_.as<float>(), out_.as<float>(), *stream_);
  }

  Status call_once(int call) {
    Status status = fill(call);
    if (status.ok() && call == 0) {
      status = harness::apply_fault(options_.fault, rank_, *bootstrap_, world_->device(), *stream_);
    }
    if (status.ok()) status = enqueue();
    if (status.ok()) status = wait(patience());
    return status.ok() ? verify(call) : status;
  }

  /// Every element, to the bit: the order of the sum is specified. So the rank's Comparison, which allows for
  /// roundings, gets no element.
  Status verify(int call) {
    std::vector<float> out(size());
    if (Status status = out_.download(out.data(), out_.bytes(), *stream_); !status.ok()) return status;
    for (std::size_t i = 0; i < out.size() && findings_.difference.empty(); ++i) {
      float sum = 0;
      for (int rank = 0; rank < ranks_; ++rank) sum += element(options_.seed, rank, call, i);
      if (out[i] != sum)
        findings_.difference = fmt::format("call {}: out[{}] is {}, expected {}", call, i, out[i], sum);
    }
    return {};
  }

  Status measure(const harness::BenchOptions& bench_options, harness::BenchOutcome& result) {
    auto timer = harness::DeviceTimer::create(*world_, *stream_);
    if (!timer.ok()) return timer.status();
    harness::Contest contest(
        *world_, *stream_, *timer, bench_options.samples, 1, [](int) {},
        [this](bool) { return out_.poison(*stream_); });
    const harness::Contender ours{.name = "all-reduce", .step = [this] { return enqueue(); }};
    auto measured = contest.in_turn({ours});
    if (!measured.ok()) return measured.status();
    const auto graph_us = contest.from_graphs(ours);
    if (!graph_us.ok()) return graph_us.status();
    const auto train_us = contest.in_train(ours);
    if (!train_us.ok()) return train_us.status();
    measured->front().graph_us = *graph_us;
    measured->front().back_to_back_us = *train_us;
    result.measurements = std::move(*measured);
    result.plan = fmt::format("{} blocks of {} elements", op_->plan().blocks, desc_.elements);
    return timer->close();
  }

  harness::Floor floor() {
    const Ceilings ceilings = ceilings_of(world_->device().model(), ranks_);
    if (ceilings.link_all_store_gb_s == 0) return {};
    const double kilobytes = 4e-3 * desc_.elements * (ranks_ - 1);
    return {kilobytes / ceilings.link_all_store_gb_s + ceilings.packet_us,
            fmt::format("link ({:.1f} KB at {:.0f} GB/s) and one latency", kilobytes, ceilings.link_all_store_gb_s)};
  }

  AllReduceDesc desc_;
  std::optional<AllReduce> op_;
  harness::DeviceBuffer in_, out_;
};

class AllReduceCase final : public harness::Case {
 public:
  explicit AllReduceCase(const AllReduceDesc& desc) : desc_(desc) {}

  std::string describe() const override { return fmt::format("lesson-05 elements={}", desc_.elements); }

  harness::CheckOutcome check(std::shared_ptr<Bootstrap> bootstrap, const harness::RunOptions& options) override {
    Run run(desc_, std::move(bootstrap), options);
    Status status = run.open();
    if (status.ok()) status = run.all_calls();
    return run.outcome(run.close(status));
  }

  harness::BenchOutcome bench(std::shared_ptr<Bootstrap> bootstrap, const harness::RunOptions& options,
                              const harness::BenchOptions& bench_options) override {
    return Run(desc_, std::move(bootstrap), options).bench(bench_options);
  }

 private:
  AllReduceDesc desc_;
};

const std::vector<harness::ParamInfo> kParams = {{"elements", "1000", "1 to 1048576"},
                                                 {"max_sms", "0", "0 (all) or more"}};

[[maybe_unused]] const bool registered = [] {
  using enum harness::Fault::Kind;
  harness::register_operator({"lesson-05",
                              "all-reduce: the smallest complete operator, to copy",
                              kParams,
                              [](const harness::Params& params) -> Result<std::unique_ptr<harness::Case>> {
                                harness::ParamReader reader(params, kParams);
                                AllReduceDesc desc;
                                desc.elements = reader.small_integer("elements", 1, 1 << 20);
                                desc.max_sms = reader.small_integer("max_sms", 0, 1 << 16);
                                if (!reader.status().ok()) return reader.status();
                                return std::unique_ptr<harness::Case>(std::make_unique<AllReduceCase>(desc));
                              },
                              {kDelay, kKill, kMismatch},
                              nullptr,
                              {},
                              nullptr,
                              false,
                              harness::Params{}});
  return true;
}();

}  // namespace
}  // namespace farwarp::lessons
