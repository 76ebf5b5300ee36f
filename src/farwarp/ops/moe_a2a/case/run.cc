#include "farwarp/ops/moe_a2a/case/run.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <span>
#include <utility>

#include "farwarp/harness/inputs.h"
#include "farwarp/harness/submission.h"

namespace farwarp::moe {
namespace {

using harness::DeviceBuffer;
using harness::Fault;

}  // namespace

// -- preparing

Status RankRun::open() {
  if (config_.desc.recv_rows == kAutoRows) {
    config_.desc.recv_rows = 0;
    for (int call = 0; call <= options_.calls && !config_.fused; ++call) {  // also the call after recover()
      const auto routings = make_routings(config_.desc, ranks_, config_.inputs, call);
      config_.desc.recv_rows = std::max(config_.desc.recv_rows, least_recv_rows(config_.desc, routings));
    }
  }
  const Status status = create_operators();
  return status.ok() ? allocate_buffers() : status;
}

Status RankRun::create_operators() {
  const auto device = Device::open(options_.target, rank_);
  if (!device.ok()) return device.status();
  const auto plan = plan_moe_all_to_all(config_.desc, (*device)->shape(), ranks_);
  if (!plan.ok()) return plan.status();
  if (Status status = open_world(plan->workspace.total * config_.in_flight); !status.ok()) return status;
  for (int i = 0; i < config_.in_flight; ++i) {
    auto op = MoeAllToAll::create(*world_, config_.desc);
    if (!op.ok()) return op.status();
    instances_.emplace_back().op.emplace(std::move(*op));
  }
  return {};
}

Status RankRun::allocate_buffers() {
  const MoeAllToAllDesc& desc = config_.desc;
  const auto entries = static_cast<std::size_t>(desc.max_tokens) * static_cast<std::size_t>(desc.experts_per_token);
  const auto rows = static_cast<std::size_t>(config_.fused ? 0 : plan().recv_rows);
  const auto local = static_cast<std::size_t>(local_experts());
  const bool by_rows = desc.layout == MoeLayout::kRows;
  const std::size_t offsets = by_rows ? static_cast<std::size_t>(ranks_) + 1 : local + 1;
  const std::size_t row_entries = by_rows ? rows * static_cast<std::size_t>(desc.experts_per_token) : 0;
  std::vector<std::pair<DeviceBuffer*, std::size_t>> sizes;
  for (Instance& instance : instances_) {
    sizes.insert(sizes.end(), {{&instance.recv_x, rows * received_row_bytes()},
                               {&instance.counts, local * sizeof(std::int32_t)},
                               {&instance.offsets, offsets * sizeof(std::int32_t)},
                               {&instance.origins, rows * sizeof(std::int64_t)},
                               {&instance.scales, rows * groups() * sizeof(float)},
                               {&instance.y, rows * row_bytes()},
                               {&instance.experts, row_entries * static_cast<std::size_t>(bytes_of(desc.index_type))},
                               {&instance.weights, row_entries * sizeof(float)}});
  }
  sets_.resize(static_cast<std::size_t>(std::max(config_.burst, config_.in_flight)));
  use_set(0);
  for (CallBuffers& set : sets_) {
    sizes.insert(sizes.end(), {{&set.x, static_cast<std::size_t>(desc.max_tokens) * row_bytes()},
                               {&set.indices, entries * static_cast<std::size_t>(bytes_of(desc.index_type))},
                               {&set.weights, entries * sizeof(float)},
                               {&set.token_count, sizeof(std::int32_t)},
                               {&set.table, local * sizeof(ExpertFunction)},
                               {&set.out, static_cast<std::size_t>(desc.max_tokens) * row_bytes()}});
  }
  for (const auto& [buffer, bytes] : sizes) {
    auto created = DeviceBuffer::create(world_->device(), bytes);
    if (!created.ok()) return created.status();
    *buffer = std::move(*created);
  }
  return {};
}

Status RankRun::upload_inputs(int call) {
  set_->routings = make_routings(config_.desc, ranks_, config_.inputs, call);
  set_->experts = make_experts(config_.desc, ranks_, config_.inputs, call);
  const bool scales_alone = harness::submission() != nullptr;
  for (ExpertFunction& expert : set_->experts) expert.shift = scales_alone ? 0 : expert.shift;
  const Routing& routing = own_routing();
  std::vector<std::uint16_t> x(static_cast<std::size_t>(routing.tokens) * hidden());
  for (int token = 0; token < routing.tokens; ++token) {
    fill_row(config_.desc, ranks_, config_.inputs, call, rank_, token,
             std::span(x).subspan(static_cast<std::size_t>(token) * hidden(), hidden()));
  }
  Status status = set_->x.upload(x.data(), x.size() * 2, *stream_);
  const std::vector<std::int64_t> wide(routing.experts.begin(), routing.experts.end());
  const bool is_wide = config_.desc.index_type == DType::kI64;
  if (status.ok()) {
    status = is_wide ? set_->indices.upload(wide.data(), wide.size() * 8, *stream_)
                     : set_->indices.upload(routing.experts.data(), routing.experts.size() * 4, *stream_);
  }
  if (status.ok()) status = set_->weights.upload(routing.weights.data(), routing.weights.size() * 4, *stream_);
  if (status.ok()) status = set_->token_count.upload(&routing.tokens, sizeof(std::int32_t), *stream_);
  const std::span mine = std::span(set_->experts).subspan(first_expert(), local_experts());
  std::vector<float> scales;
  for (const ExpertFunction& expert : mine) scales.push_back(expert.scale);
  return !status.ok()   ? status
         : scales_alone ? set_->table.upload(scales.data(), scales.size() * sizeof(float), *stream_)
                        : set_->table.upload(mine.data(), mine.size_bytes(), *stream_);
}

Status RankRun::poison_outputs() {
  Instance& of = *instance_;
  for (DeviceBuffer* buffer :
       {&set_->out, &of.recv_x, &of.counts, &of.offsets, &of.origins, &of.scales, &of.y, &of.experts, &of.weights}) {
    if (buffer->bytes() == 0) continue;
    if (Status status = buffer->poison(*stream_); !status.ok()) return status;
  }
  return {};
}

// -- calling

Status RankRun::inject_fault() {
  const Fault& fault = options_.fault;
  MoeFaults faults;
  if (fault.kind == Fault::Kind::kDropPut) faults.drop_put = static_cast<std::uint32_t>(fault.amount);
  if (fault.kind == Fault::Kind::kMismatch && rank_ == fault.rank) faults.mismatch = true;
  for (Instance& instance : instances_) instance.op->inject(faults);
  return harness::apply_fault(fault, rank_, *bootstrap_, world_->device(), *stream_);
}

Status RankRun::all_calls() {
  Status status;
  const int together = std::max(config_.burst, config_.in_flight);
  for (int call = 0; call < options_.calls && status.ok(); call += together) {
    const int count = std::min(together, options_.calls - call);
    status = record(call + count == options_.calls, [&] { return burst(call, count); });
  }
  return recover_from_fault(status, [this] {
    for (Instance& instance : instances_) {
      instance.op->forget_call();
      instance.op->inject({});
    }
    return burst(options_.calls, 1);
  });
}

void RankRun::use_set(int number) {
  set_ = &sets_[static_cast<std::size_t>(number) % sets_.size()];
  instance_ = &instances_[static_cast<std::size_t>(number) % instances_.size()];
}

/// Enqueues `count` calls, each with inputs and outputs of its own, and checks the results when all are done.
Status RankRun::burst(int first, int count) {
  Status status;
  for (int i = 0; i < count && status.ok(); ++i) {
    use_set(i);
    status = prepare_call(first + i);
  }
  if (status.ok() && first == 0) status = inject_fault();
  for (int i = 0; i < count && status.ok(); ++i) {
    use_set(i);
    const std::uint64_t longest = config_.longest_delay_ns;
    if (longest != 0) {
      const std::uint64_t delay = delay_before(config_.inputs, first + i, rank_, longest);
      status = world_->device().enqueue_delay(*stream_, delay);
    }
    if (status.ok()) status = launch_phase(config_.fused ? kFused : kDispatch);
  }
  if (status.ok() && !config_.fused) status = wait_for_burst();
  for (int i = 0; i < count && status.ok() && !config_.fused; ++i) {
    use_set(i);
    status = check_dispatch(first + i);
    if (status.ok()) status = apply_experts();
    if (status.ok()) status = launch_phase(kCombine);
  }
  if (status.ok()) status = wait_for_burst();
  for (int i = 0; i < count && status.ok(); ++i) {
    use_set(i);
    status = check_output(first + i);
  }
  return status;
}

Status RankRun::prepare_call(int call) {
  const Status status = upload_inputs(call);
  return status.ok() ? poison_outputs() : status;
}

Status RankRun::enqueue(Phase phase) {
  if (harness::submission() != nullptr) {
    const MoeAllToAllDesc& desc = config_.desc;
    constexpr auto f32 = harness::ElementType::kF32;
    const auto type = harness::element_type(desc.dtype), index = harness::element_type(desc.index_type);
    const std::int64_t count = own_routing().tokens, most = desc.max_tokens, k = desc.experts_per_token;
    return harness::submission()->call(*bootstrap_, world_->device(), *stream_,
                                       {{"x", type, {count, desc.hidden}, {most, desc.hidden}, set_->x.get()},
                                        {"topk_indices", index, {count, k}, {most, k}, set_->indices.get()},
                                        {"topk_weights", f32, {count, k}, {most, k}, set_->weights.get()},
                                        {"expert_scales", f32, {local_experts()}, {}, set_->table.get()}},
                                       {{"out", type, {count, desc.hidden}, {most, desc.hidden}, set_->out.get()}});
  }
  MoeTokens tokens;
  tokens.x = set_->x.get();
  tokens.topk_indices = set_->indices.get();
  const bool late = config_.desc.weights_at_combine;
  tokens.topk_weights = late ? nullptr : set_->weights.as<float>();
  tokens.tokens = config_.count_on_device ? -1 : own_routing().tokens;
  tokens.tokens_on_device = config_.count_on_device ? set_->token_count.as<std::int32_t>() : nullptr;
  const Instance& of = *instance_;
  MoeReceived received = {of.recv_x.get(), of.counts.as<std::int32_t>(), of.offsets.as<std::int32_t>(),
                          of.origins.as<std::int64_t>(), of.scales.as<float>()};
  received.topk_indices = of.experts.get();
  received.topk_weights = of.weights.as<float>();
  const bool counted = config_.halves && config_.desc.layout == MoeLayout::kRows;
  const MoeCounts counts = counted ? MoeCounts{received.counts, received.offsets} : MoeCounts{};
  const float* const weights = late ? set_->weights.as<float>() : nullptr;
  MoeAllToAll& op = *instance_->op;
  Status status;
  switch (phase) {
    case kFused: return op.fused(tokens, config_.inputs.expert, set_->table.as<float>(), set_->out.get(), *stream_);
    case kDispatch:
      if (!config_.halves) return op.dispatch(tokens, received, *stream_);
      status = op.dispatch_send(tokens, *stream_, counts);
      if (counted) received.counts = received.offsets = nullptr;
      return status.ok() ? op.dispatch_recv(received, *stream_) : status;
    default:
      if (!config_.halves) return op.combine(of.y.get(), set_->out.get(), *stream_, weights);
      status = op.combine_send(of.y.get(), *stream_, weights);
      return status.ok() ? op.combine_recv(set_->out.get(), *stream_) : status;
  }
}

Status RankRun::launch_phase(Phase phase) {
  if (!config_.graph) return enqueue(phase);
  if (set_->graphs[phase] == nullptr) {
    auto graph = capture(world_->device(), *stream_, [&] { return enqueue(phase); });
    if (!graph.ok()) return graph.status();
    set_->graphs[phase] = std::move(*graph);
  }
  return world_->device().launch(*set_->graphs[phase], *stream_);
}

Status RankRun::wait_for_burst() {
  return wait(patience(std::max(2, config_.burst), std::chrono::nanoseconds(config_.longest_delay_ns)));
}

// -- verifying

Status RankRun::check_dispatch(int call) {
  const std::int64_t needed = least_recv_rows(config_.desc, rank_, set_->routings);
  if (plan().recv_rows < needed) {
    return internal_error(
        fmt::format("{} rows arrive in a buffer of {}, and dispatch did not say so", needed, plan().recv_rows));
  }
  const Instance& of = *instance_;
  expected_ = expected_dispatch(config_.desc, plan().recv_rows, rank_, set_->routings);
  received_.resize(of.recv_x.bytes());
  received_scales_.resize(of.scales.bytes() / sizeof(float));
  std::vector<std::int32_t> counts(expected_.counts.size()), offsets(expected_.offsets.size());
  std::vector<std::int64_t> origins(expected_.origins.size());
  Status status = of.recv_x.download(received_.data(), of.recv_x.bytes(), *stream_);
  if (status.ok()) status = of.counts.download(counts.data(), of.counts.bytes(), *stream_);
  if (status.ok()) status = of.offsets.download(offsets.data(), of.offsets.bytes(), *stream_);
  if (status.ok()) status = of.origins.download(origins.data(), origins.size() * 8, *stream_);
  if (status.ok() && of.scales.bytes() != 0) {
    status = of.scales.download(received_scales_.data(), of.scales.bytes(), *stream_);
  }
  if (!status.ok() || !findings_.difference.empty()) return status;
  // Everything that dispatch delivers must be equal to the bit.
  std::string difference = first_difference<std::int32_t>("counts", counts, expected_.counts);
  if (difference.empty()) difference = first_difference<std::int32_t>("offsets", offsets, expected_.offsets);
  if (difference.empty()) difference = first_difference<std::int64_t>("origins", origins, expected_.origins);
  if (difference.empty()) difference = row_difference(call);
  if (!difference.empty()) findings_.difference = fmt::format("call {}: {}", call, difference);
  return config_.desc.layout == MoeLayout::kRows ? check_entries(call) : Status();
}

std::string RankRun::row_difference(int call) const {
  // In the order of origins, so that a row that several experts here receive is generated once.
  std::vector<std::pair<std::int64_t, std::size_t>> arrivals;
  for (std::size_t row = 0; row < expected_.origins.size(); ++row) {
    if (expected_.origins[row] >= 0) arrivals.emplace_back(expected_.origins[row], row);
  }
  std::sort(arrivals.begin(), arrivals.end());
  std::vector<std::uint16_t> x(hidden());
  std::int64_t generated = -1;
  for (const auto& [origin, row] : arrivals) {
    const int source = static_cast<int>(origin >> 48);
    const int token = static_cast<int>(origin >> 16 & 0xffffffff);
    if (std::exchange(generated, origin >> 16) != origin >> 16)
      fill_row(config_.desc, ranks_, config_.inputs, call, source, token, x);
    if (!row_arrived(x, row)) {
      return fmt::format("row {} differs from row {} of rank {}", row, token, source);
    }
  }
  return {};
}

/// Whether received row `row` equals `x` to the bit.
bool RankRun::row_arrived(std::span<const std::uint16_t> x, std::size_t row) const {
  const std::byte* numbers = received_.data() + row * received_row_bytes();
  if (!config_.desc.fp8_dispatch) return std::memcmp(x.data(), numbers, row_bytes()) == 0;
  const QuantisedRow expected = quantised_row(fp8(), x);
  for (std::size_t group = 0; group < groups(); ++group) {
    if (received_scale(row, group) != expected.scales[group]) return false;
  }
  return std::memcmp(expected.numbers.data(), numbers, hidden()) == 0;
}

float RankRun::received_scale(std::size_t row, std::size_t group) const {
  if (config_.desc.scales == MoeScales::kRowMajor) return received_scales_[row * groups() + group];
  const auto room = static_cast<std::size_t>(plan().recv_rows / plan().max_local_experts);
  return received_scales_[(row / room * groups() + group) * room + row % room];
}

/// The values that an expert sees in received row `row`.
std::vector<float> RankRun::received_values(std::size_t row) const {
  const std::byte* numbers = received_.data() + row * received_row_bytes();
  std::vector<float> values(hidden());
  for (std::size_t i = 0; i < hidden(); ++i) {
    if (config_.desc.fp8_dispatch) {
      values[i] = float_from_fp8(fp8(), static_cast<std::uint8_t>(numbers[i])) * received_scale(row, i / kScaleGroup);
    } else {
      std::uint16_t bits = 0;
      std::memcpy(&bits, numbers + 2 * i, 2);
      values[i] = harness::decode(config_.desc.dtype, bits);
    }
  }
  return values;
}

// In place of a user's grouped GEMM: y = expert(x) for the received rows, rounded to the dtype. Padding stays poisoned.
Status RankRun::apply_experts() {
  if (config_.desc.layout == MoeLayout::kRows) return apply_experts_to_rows();
  std::vector<std::uint16_t> outputs(instance_->y.bytes() / 2, harness::kPoison16);
  for (int local = 0; local < local_experts(); ++local) {
    const ExpertFunction& expert = set_->experts[static_cast<std::size_t>(first_expert() + local)];
    const auto first = static_cast<std::size_t>(expected_.offsets[static_cast<std::size_t>(local)]);
    const auto count = static_cast<std::size_t>(expected_.counts[static_cast<std::size_t>(local)]);
    for (std::size_t row = first; row < first + count; ++row) {
      const std::vector<float> x = received_values(row);
      for (std::size_t i = 0; i < hidden(); ++i) {
        outputs[row * hidden() + i] =
            harness::encode(config_.desc.dtype, static_cast<float>(expert_output(config_.desc.dtype, expert, x[i])));
      }
    }
  }
  return instance_->y.upload(outputs.data(), instance_->y.bytes(), *stream_);
}

Status RankRun::check_output(int call) {
  std::vector<std::uint16_t> out(set_->out.bytes() / 2);
  if (Status status = set_->out.download(out.data(), set_->out.bytes(), *stream_); !status.ok()) return status;
  const Routing& routing = own_routing();
  const auto k = static_cast<std::size_t>(config_.desc.experts_per_token);
  std::vector<std::uint16_t> x(hidden());
  std::vector<harness::ExpectedElement> expected(hidden());
  std::vector<double> values(hidden());
  const bool exact = kind_in_call(config_.inputs, call) == harness::InputKind::kExact;
  findings_.comparison.begin_call(call);
  for (int token = 0; token < routing.tokens; ++token) {
    const std::size_t entry = static_cast<std::size_t>(token) * k;
    fill_row(config_.desc, ranks_, config_.inputs, call, rank_, token, x);
    const std::vector<float> seen = row_values(config_.desc, fp8(), x);
    expected_row(config_.desc, ranks_, std::span(routing.experts).subspan(entry, k),
                 std::span(routing.weights).subspan(entry, k), seen, set_->experts, expected);
    const auto row = std::span(out).subspan(static_cast<std::size_t>(token) * hidden(), hidden());
    if (exact) {
      std::ranges::transform(expected, values.begin(), &harness::ExpectedElement::value);
      findings_.comparison.add_exact(token, 0, row, values);
    } else {
      findings_.comparison.add(token, 0, row, expected);
    }
  }
  for (std::size_t i = static_cast<std::size_t>(routing.tokens) * hidden();
       i < out.size() && findings_.difference.empty(); ++i) {
    if (out[i] != harness::kPoison16)
      findings_.difference = fmt::format("call {}: row {} of the output was written, beyond {} tokens", call,
                                         i / hidden(), routing.tokens);
  }
  return {};
}

// -- ending

Status RankRun::close(const Status& status) {
  return close_operator(status, [this] {
    Status closed;
    for (Instance& instance : instances_) {
      if (const Status one = instance.op->close(); closed.ok()) closed = one;
    }
    return closed;
  });
}

}  // namespace farwarp::moe
