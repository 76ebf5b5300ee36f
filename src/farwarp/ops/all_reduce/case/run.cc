#include "farwarp/ops/all_reduce/case/run.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <utility>

#include "farwarp/harness/inputs.h"
#include "farwarp/harness/submission.h"
#include "farwarp/world/view.h"

namespace farwarp::all_reduce {
namespace {

using harness::DeviceBuffer;

/// Poisoned bytes after the tensors: an element too many would show there.
constexpr std::size_t kGuardBytes = 256;

std::uint32_t load_bits(const std::byte* from, int bytes) {
  std::uint32_t bits = 0;  // little-endian
  std::memcpy(&bits, from, static_cast<std::size_t>(bytes));
  return bits;
}

}  // namespace

RankRun::RankRun(const CheckConfig& config, std::shared_ptr<Bootstrap> bootstrap, const harness::RunOptions& options)
    : harness::RankRun(std::move(bootstrap), options,
                       harness::Comparison(DType::kBf16, 1, 1)),  // not used: see verify()
      config_(config),
      inputs_{config.desc.dtype, ranks_, options.seed, config.inputs} {
  // Other inputs show in which order ranks are added.
  if (harness::submission() != nullptr) inputs_.kind = InputKind::kUniform;
}

Status RankRun::open() {
  const auto device = Device::open(options_.target, rank_);
  if (!device.ok()) return device.status();
  const auto plan = plan_all_reduce(config_.desc, (*device)->shape(), ranks_);
  if (!plan.ok()) return plan.status();
  if (Status status = open_world(plan->word_bytes + plan->part_bytes + plan->signal_bytes); !status.ok()) return status;
  AllReduceDesc desc = config_.desc;
  if (options_.fault.kind == harness::Fault::Kind::kMismatch && options_.fault.rank == rank_)
    desc.max_elements += desc.max_elements > 1 ? -1 : 1;
  auto op = AllReduce::create(*world_, desc);
  if (!op.ok()) return op.status();
  op_.emplace(std::move(*op));
  if (options_.fault.kind == harness::Fault::Kind::kDropPut && rank_ == 0)
    op_->drop_put(static_cast<int>(options_.fault.amount));
  // An input of its own ends with its last element: the emulator reports a read of more.
  return harness::create_buffers(world_->device(), {{&in_, tensor_bytes() + (config_.in_place ? kGuardBytes : 0)},
                                                    {&out_, tensor_bytes() + kGuardBytes}});
}

std::int64_t RankRun::elements_of(int call) const {
  if (!config_.varied) return config_.elements;
  const harness::RandomStream stream(options_.seed, {static_cast<std::uint64_t>(call), 47});
  const auto elements = static_cast<std::uint64_t>(config_.elements);
  // All sizes are as likely on a logarithmic scale, so that calls of both forms follow each other.
  const std::uint64_t most = std::max<std::uint64_t>(1, elements >> stream.below(0, 8));
  return static_cast<std::int64_t>(call == 0 ? elements : 1 + stream.below(1, most));
}

Status RankRun::fill(int call) {
  call_ = call;
  elements_ = elements_of(call);
  Status status = in_.poison(*stream_);
  if (status.ok()) status = out_.poison(*stream_);
  if (!status.ok()) return status;
  std::vector<std::byte> in(static_cast<std::size_t>(elements_ * element_bytes()));
  for (std::int64_t i = 0; i < elements_; ++i) {
    const std::uint32_t bits = inputs_.bits(call, rank_, i);
    std::memcpy(in.data() + i * element_bytes(), &bits, static_cast<std::size_t>(element_bytes()));
  }
  return in_.upload(in.data(), in.size(), *stream_);
}

Status RankRun::enqueue() {
  const auto type = harness::element_type(config_.desc.dtype);
  if (harness::submission() != nullptr)
    return harness::submission()->call(*bootstrap_, world_->device(), *stream_,
                                       {{"in", type, {elements_}, {}, in_.get()}},
                                       {{"out", type, {elements_}, {}, out_.get()}});
  return (*op_)(in_.get(), result().get(), elements_, *stream_);
}

Status RankRun::call_once(int call) {
  if (call >= options_.calls) op_->drop_put(0);  // after recover()
  Status status = fill(call);
  if (status.ok() && call == 0)
    status = harness::apply_fault(options_.fault, rank_, *bootstrap_, world_->device(), *stream_);
  if (graph_elements_ != elements_) graph_.reset();
  graph_elements_ = elements_;
  if (status.ok() && config_.graph) status = capture_once(graph_, [this] { return enqueue(); });
  if (!status.ok()) return status;
  status = make_burst(call, config_.burst, config_.delay_us, [this] {
    const Status ready = config_.in_place ? Status() : out_.poison(*stream_);
    if (!ready.ok()) return ready;
    return graph_ ? world_->device().launch(*graph_, *stream_) : enqueue();
  });
  return status.ok() ? verify() : status;
}

Status RankRun::all_calls() {
  constexpr int kLeast = 3;  // the third call uses the first one's words again
  Status status = make_calls(kLeast, [this](int call) { return call_once(call); });
  graph_.reset();
  return status;
}

/// Every element, to the bit: the order of the sum is specified. So the rank's Comparison, which allows for roundings,
/// gets no element.
Status RankRun::verify() {
  std::vector<std::byte> got(result().bytes());
  if (Status status = result().download(got.data(), got.size(), *stream_); !status.ok()) return status;
  if (harness::submission() != nullptr)
    compare_in_any_order(got, "the");
  else if (findings_.difference.empty())
    compare(got, config_.in_place ? config_.burst : 1);
  return {};
}

/// `times`: how often the tensor was reduced in place.
void RankRun::compare(const std::vector<std::byte>& got, int times) {
  const DType dtype = config_.desc.dtype;
  std::array<std::uint32_t, kMaxRanks> all{};
  const std::span<std::uint32_t> terms(all.data(), static_cast<std::size_t>(ranks_));
  for (std::int64_t i = 0; i < elements_; ++i) {
    for (int rank = 0; rank < ranks_; ++rank) terms[static_cast<std::size_t>(rank)] = inputs_.bits(call_, rank, i);
    std::uint32_t expected = 0;
    for (int time = 0; time < times; ++time) {
      expected = sum_of(dtype, terms);
      std::ranges::fill(terms, expected);
    }
    const std::uint32_t bits = load_bits(got.data() + i * element_bytes(), element_bytes());
    if (same(dtype, bits, expected)) continue;
    findings_.difference = fmt::format("call {}: element {} of {} is {} ({:#x}), expected {} ({:#x})", call_, i,
                                       elements_, number_of(dtype, bits), bits, number_of(dtype, expected), expected);
    return;
  }
  for (auto i = static_cast<std::size_t>(elements_ * element_bytes()); i < got.size(); ++i) {
    if (got[i] == std::byte{harness::kPoisonByte}) continue;
    findings_.difference = fmt::format("call {}: byte {} after the {} elements was written", call_,
                                       i - static_cast<std::size_t>(elements_ * element_bytes()), elements_);
    return;
  }
}

/// For those who add in an order of their own, and may round each sum to the dtype. All errors together may be twice as
/// large, as root mean square, as roundings of independent sums make them: terms of fewer bits would show.
void RankRun::compare_in_any_order(const std::vector<std::byte>& got, const char* whose) {
  const DType dtype = config_.desc.dtype;
  const double unit = dtype == DType::kBf16 ? 0x1p-8 : dtype == DType::kF16 ? 0x1p-11 : 0x1p-24;
  double error_squares = 0, allowed_squares = 0;
  for (std::int64_t i = 0; i < elements_ && findings_.difference.empty(); ++i) {
    double sum = 0, size = 0, squares = 0;
    for (int rank = 0; rank < ranks_; ++rank) {
      const double term = number_of(dtype, inputs_.bits(call_, rank, i));
      sum += term;
      size += std::abs(term);
      squares += term * term;
    }
    const std::uint32_t bits = load_bits(got.data() + i * element_bytes(), element_bytes());
    const double error = std::abs(number_of(dtype, bits) - sum);
    // Of the sum of k terms in a random order; an element is rounded by at most `unit`, evenly distributed.
    const double others = std::max(0.0, sum * sum - squares);
    for (int k = 2; k <= ranks_ && std::isfinite(sum); ++k) {
      const double part = static_cast<double>(k) / ranks_;
      allowed_squares += unit * unit / 3 * (part * squares + part * part * others);
      if (k == ranks_) error_squares += error * error;
    }
    if (!std::isfinite(sum) || error <= ranks_ * unit * size) continue;  // the comparison is false for a NaN
    findings_.difference = fmt::format("call {}: element {} of {} result is {} ({:#x}), expected {}", call_, i, whose,
                                       number_of(dtype, bits), bits, sum);
  }
  const double allowed = 2 * (1 + 5 / std::sqrt(static_cast<double>(std::max<std::int64_t>(elements_, 1))));
  if (findings_.difference.empty() && error_squares > allowed * allowed * allowed_squares)
    findings_.difference = fmt::format("call {}: errors of {} result together are {:.1f} times what roundings make",
                                       call_, whose, std::sqrt(error_squares / allowed_squares));
}

Status RankRun::close(const Status& status) {
  return close_operator(status, [this] { return op_->close(); });
}

}  // namespace farwarp::all_reduce
