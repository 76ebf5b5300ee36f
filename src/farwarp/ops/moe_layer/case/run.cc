#include "farwarp/ops/moe_layer/case/run.h"

#include <fmt/format.h>

#include <algorithm>

#include "farwarp/base/arguments.h"
#include "farwarp/base/sizes.h"
#include "farwarp/harness/inputs.h"
#include "farwarp/ops/moe_layer/case/oracle.h"

namespace farwarp::moe_layer {
namespace {

using harness::InputKind;

std::size_t size(std::int64_t value) { return static_cast<std::size_t>(value); }

constexpr int kTileOfErrors = 128;
constexpr std::uint64_t kCheckedStream = 310;

}  // namespace

RankRun::RankRun(const CheckConfig& config, std::shared_ptr<Bootstrap> bootstrap, const harness::RunOptions& options)
    : harness::RankRun(std::move(bootstrap), options,
                       harness::Comparison(config.desc.dtype, kTileOfErrors, kTileOfErrors)),
      config_(config) {
  config_.inputs.seed = options.seed;
}

// -- preparing

Status RankRun::open() {
  const Status status = create_operators();
  return status.ok() ? allocate_buffers() : status;
}

Status RankRun::create_operators() {
  if (config_.unfused && config_.desc.num_experts % ranks_ != 0)
    return invalid_argument(fmt::format("unfused is 1; allowed: 0, or 1 if the {} ranks divide num_experts", ranks_));
  const auto device = Device::open(options_.target, rank_);
  if (!device.ok()) return device.status();
  const auto plan = plan_moe_layer(config_.desc, (*device)->shape(), ranks_);
  if (!plan.ok()) return plan.status();
  std::int64_t heap_bytes = plan->memory_bytes();
  if (config_.unfused) {
    const auto more = Unfused::heap_bytes(config_.desc, (*device)->shape(), ranks_);
    if (!more.ok()) return more.status();
    heap_bytes += *more;
  }
  if (Status status = open_world(heap_bytes); !status.ok()) return status;
  auto op = MoeLayer::create(*world_, config_.desc);
  if (!op.ok()) return op.status();
  op_.emplace(std::move(*op));
  return config_.unfused ? unfused_.open(*world_, config_.desc) : Status();
}

Status RankRun::allocate_buffers() {
  const MoeLayerDesc& desc = config_.desc;
  const std::size_t element = size(bytes_of(desc.dtype)), tokens = size(desc.max_tokens), local = size(local_experts());
  const std::size_t entries = tokens * size(desc.experts_per_token);
  const std::size_t matrix = local * hidden() * size(desc.intermediate) * element;
  const std::size_t biases = desc.has_bias ? local * element : 0;
  sets_.resize(size(config_.burst));
  for (CallBuffers& set : sets_) {
    const Status status =
        harness::create_buffers(world_->device(), {{&set.x, tokens * hidden() * element},
                                                   {&set.topk, entries * size(bytes_of(desc.index_type))},
                                                   {&set.weights, entries * sizeof(float)},
                                                   {&set.token_count, sizeof(std::int32_t)},
                                                   {&set.w1, 2 * matrix},
                                                   {&set.w2, matrix},
                                                   {&set.bias1, biases * 2 * size(desc.intermediate)},
                                                   {&set.bias2, biases * hidden()},
                                                   {&set.out, tokens * hidden() * element}});
    if (!status.ok()) return status;
  }
  if (!config_.unfused) return {};
  return harness::create_buffers(world_->device(), {{&unfused_out_, tokens * hidden() * element}});
}

Status RankRun::upload_tokens(CallBuffers& set) {
  const moe::Routing& routing = own_routing(set);
  std::vector<std::uint16_t> x(size(routing.tokens) * hidden());
  for (int token = 0; token < routing.tokens; ++token)
    fill_row(config_.desc, config_.inputs, set.call, rank_, token,
             std::span(x).subspan(size(token) * hidden(), hidden()));
  const std::vector<std::int64_t> wide(routing.experts.begin(), routing.experts.end());
  const bool is_wide = config_.desc.index_type == DType::kI64;
  Status status = set.x.upload(x.data(), x.size() * 2, *stream_);
  if (status.ok())
    status = is_wide ? set.topk.upload(wide.data(), wide.size() * 8, *stream_)
                     : set.topk.upload(routing.experts.data(), routing.experts.size() * 4, *stream_);
  if (status.ok()) status = set.weights.upload(routing.weights.data(), routing.weights.size() * 4, *stream_);
  if (status.ok()) status = set.token_count.upload(&routing.tokens, sizeof(std::int32_t), *stream_);
  return status;
}

Status RankRun::upload_matrix(const harness::DeviceBuffer& buffer, const Weights& weights, bool is_w1) {
  const MoeLayerDesc& desc = config_.desc;
  const int rows = is_w1 ? 2 * desc.intermediate : desc.hidden, columns = is_w1 ? desc.hidden : desc.intermediate;
  std::vector<std::uint16_t> matrix(size(rows) * size(columns));
  std::vector<float> values(size(columns));
  for (int local = 0; local < local_experts(); ++local) {
    const int expert = first_expert() + local;
    for (int row = 0; row < rows; ++row) {
      if (is_w1) {
        weights.w1_row(expert, row, values);
      } else {
        weights.w2_row(expert, row, values);
      }
      std::ranges::transform(values, matrix.begin() + static_cast<std::ptrdiff_t>(size(row) * values.size()),
                             [&](float value) { return harness::encode(desc.dtype, value); });
    }
    const std::size_t bytes = matrix.size() * 2;
    const Status status = world_->device().copy_in(static_cast<std::byte*>(buffer.get()) + size(local) * bytes,
                                                   matrix.data(), bytes, *stream_);
    if (!status.ok()) return status;
  }
  return {};
}

Status RankRun::upload_biases(CallBuffers& set, const Weights& weights) {
  const MoeLayerDesc& desc = config_.desc;
  std::vector<std::uint16_t> bias1, bias2;
  for (int local = 0; local < local_experts(); ++local) {
    const int expert = first_expert() + local;
    for (int row = 0; row < 2 * desc.intermediate; ++row)
      bias1.push_back(harness::encode(desc.dtype, weights.bias1(expert, row)));
    for (int row = 0; row < desc.hidden; ++row)
      bias2.push_back(harness::encode(desc.dtype, weights.bias2(expert, row)));
  }
  const Status status = set.bias1.upload(bias1.data(), bias1.size() * 2, *stream_);
  return status.ok() ? set.bias2.upload(bias2.data(), bias2.size() * 2, *stream_) : status;
}

Status RankRun::upload_matrices(CallBuffers& set) {
  const Weights weights(config_.desc, config_.inputs, set.call);
  Status status = upload_matrix(set.w1, weights, true);
  if (status.ok()) status = upload_matrix(set.w2, weights, false);
  return status.ok() && config_.desc.has_bias ? upload_biases(set, weights) : status;
}

Status RankRun::fill(CallBuffers& set, int call) {
  set.call = call;
  set.routings = make_routings(config_.desc, ranks_, config_.inputs, call);
  Status status = upload_tokens(set);
  if (status.ok()) status = upload_matrices(set);
  return status.ok() ? set.out.poison(*stream_) : status;
}

// -- calling

MoeLayerTensors RankRun::tensors_of(const CallBuffers& set) const {
  MoeLayerTensors tensors;
  tensors.x = set.x.get();
  tensors.topk_indices = set.topk.get();
  tensors.topk_weights = set.weights.as<float>();
  tensors.tokens = config_.count_on_device ? -1 : own_routing(set).tokens;
  tensors.tokens_on_device = config_.count_on_device ? set.token_count.as<std::int32_t>() : nullptr;
  tensors.w1 = set.w1.get();
  tensors.w2 = set.w2.get();
  if (config_.desc.has_bias) {
    tensors.bias1 = set.bias1.get();
    tensors.bias2 = set.bias2.get();
  }
  tensors.out = set.out.get();
  return tensors;
}

Status RankRun::enqueue(CallBuffers& set) {
  if (!config_.graph) return (*op_)(tensors_of(set), *stream_);
  const Status status = capture_once(set.graph, [&] { return (*op_)(tensors_of(set), *stream_); });
  return status.ok() ? world_->device().launch(*set.graph, *stream_) : status;
}

Status RankRun::burst(int first, int count) {
  Status status;
  for (int i = 0; i < count && status.ok(); ++i) status = fill(sets_[size(i)], first + i);
  if (status.ok() && first == 0) {
    const harness::Fault& fault = options_.fault;
    if (fault.kind == harness::Fault::Kind::kDropPut)
      op_->inject({.drop_put = static_cast<std::uint32_t>(fault.amount)});
    status = harness::apply_fault(fault, rank_, *bootstrap_, world_->device(), *stream_);
  }
  int next = 0;
  if (status.ok())
    status = make_burst(first, count, config_.longest_delay_us, [&] { return enqueue(sets_[size(next++)]); });
  for (int i = 0; i < count && status.ok(); ++i) {
    status = verify(sets_[size(i)]);
    if (status.ok() && config_.unfused) status = verify_unfused(sets_[size(i)]);
  }
  return status;
}

Status RankRun::all_calls() {
  Status status;
  for (int call = 0; call < options_.calls && status.ok(); call += config_.burst) {
    const int count = std::min(config_.burst, options_.calls - call);
    status = record(call + count == options_.calls, [&] { return burst(call, count); });
  }
  return recover_from_fault(status, [this] {
    op_->inject({});
    return burst(options_.calls, 1);
  });
}

// -- verifying

/// As many tokens as float64 can check in a few seconds: all, or the last and one of each of as many parts of the rest.
std::vector<int> RankRun::checked_tokens(int tokens, int call) const {
  constexpr double kMostProducts = 1e9;
  const MoeLayerDesc& desc = config_.desc;
  const double of_token = 3.0 * desc.experts_per_token * desc.hidden * desc.intermediate;
  const int count = std::min(tokens, std::max(3, static_cast<int>(kMostProducts / of_token)));
  const harness::RandomStream stream(options_.seed, {kCheckedStream, size(call), size(rank_)});
  std::vector<int> checked;
  for (int i = 0; i + 1 < count; ++i) {
    const std::int64_t rest = tokens - 1, first = i * rest / (count - 1), past = (i + 1) * rest / (count - 1);
    checked.push_back(static_cast<int>(first + static_cast<std::int64_t>(stream.below(size(i), size(past - first)))));
  }
  if (count > 0) checked.push_back(tokens - 1);
  return checked;
}

Status RankRun::verify(const CallBuffers& set) {
  const MoeLayerDesc& desc = config_.desc;
  std::vector<std::uint16_t> out(set.out.bytes() / 2), x(hidden());
  if (Status status = set.out.download(out.data(), set.out.bytes(), *stream_); !status.ok()) return status;
  const moe::Routing& routing = own_routing(set);
  for (std::size_t i = 0; i < out.size() && findings_.difference.empty(); ++i) {
    const int token = static_cast<int>(i / hidden());
    if ((out[i] == harness::kPoison16) == (token >= routing.tokens)) continue;
    findings_.difference = fmt::format("call {}: out[{}, {}] {}", set.call, token, i % hidden(),
                                       token < routing.tokens ? "was not written" : "is of no token and was written");
  }
  const Weights weights(desc, config_.inputs, set.call);
  const bool exact = kind_in_call(desc, config_.inputs, set.call) == InputKind::kExact;
  findings_.comparison.begin_call(set.call);
  std::vector<harness::ExpectedElement> expected(hidden());
  std::vector<double> values(hidden());
  std::vector<float> row(hidden());
  const std::vector<int> checked = checked_tokens(routing.tokens, set.call);
  const std::size_t k = size(desc.experts_per_token);
  for (const int token : checked) {
    fill_row(desc, config_.inputs, set.call, rank_, token, x);
    std::ranges::transform(x, row.begin(), [&](std::uint16_t value) { return harness::decode(desc.dtype, value); });
    expected_row(desc, ranks_, weights, std::span(routing.experts).subspan(size(token) * k, k),
                 std::span(routing.weights).subspan(size(token) * k, k), row, expected);
    const auto got = std::span(out).subspan(size(token) * hidden(), hidden());
    if (exact) {
      std::ranges::transform(expected, values.begin(), &harness::ExpectedElement::value);
      findings_.comparison.add_exact(token, 0, got, values);
    } else {
      findings_.comparison.add(token, 0, got, expected);
    }
  }
  return {};
}

/// The same call without fusion. NaNs aside, results are equal to the bit.
Status RankRun::verify_unfused(const CallBuffers& set) {
  Status status = unfused_out_.poison(*stream_);
  if (status.ok()) status = unfused_.enqueue(tensors_of(set), unfused_out_.get(), *stream_);
  if (status.ok()) status = wait(patience(4));
  if (!status.ok()) return status;
  std::vector<std::uint16_t> fused(set.out.bytes() / 2), other(fused.size());
  status = set.out.download(fused.data(), set.out.bytes(), *stream_);
  if (status.ok()) status = unfused_out_.download(other.data(), unfused_out_.bytes(), *stream_);
  const auto [mine, theirs] = std::ranges::mismatch(fused, other);
  if (mine != fused.end() && findings_.difference.empty()) {
    const std::size_t at = size(mine - fused.begin());
    findings_.difference = fmt::format("call {}: out[{}, {}] is {:#x}, without fusion {:#x}", set.call, at / hidden(),
                                       at % hidden(), *mine, *theirs);
  }
  return status;
}

Status RankRun::close(const Status& status) {
  return close_operator(status, [this] {
    const Status closed = op_->close();
    const Status other = config_.unfused ? unfused_.close() : Status();
    return closed.ok() ? other : closed;
  });
}

}  // namespace farwarp::moe_layer
