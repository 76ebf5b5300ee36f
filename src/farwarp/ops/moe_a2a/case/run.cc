#include "farwarp/ops/moe_a2a/case/run.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <span>
#include <utility>

#include "farwarp/harness/inputs.h"

namespace farwarp::moe {
namespace {

using harness::DeviceBuffer;
using harness::Fault;

template <class T>
std::string first_difference(const char* what, std::span<const T> got, std::span<const T> expected) {
  for (std::size_t i = 0; i < expected.size(); ++i) {
    if (got[i] != expected[i]) return fmt::format("{}[{}] is {}, expected {}", what, i, got[i], expected[i]);
  }
  return {};
}

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
  Status status = create_operator();
  if (status.ok()) status = allocate_buffers();
  return status;
}

Status RankRun::create_operator() {
  const auto device = Device::open(options_.target, rank_);
  if (!device.ok()) return device.status();
  const auto plan = plan_moe_all_to_all(config_.desc, (*device)->shape(), ranks_);
  if (!plan.ok()) return plan.status();
  if (Status status = open_world(plan->workspace.total); !status.ok()) return status;
  auto op = MoeAllToAll::create(*world_, config_.desc);
  if (!op.ok()) return op.status();
  op_.emplace(std::move(*op));
  return {};
}

Status RankRun::allocate_buffers() {
  const MoeAllToAllDesc& desc = config_.desc;
  const auto entries = static_cast<std::size_t>(desc.max_tokens) * static_cast<std::size_t>(desc.experts_per_token);
  const auto rows = static_cast<std::size_t>(config_.fused ? 0 : op_->plan().recv_rows);
  const auto local = static_cast<std::size_t>(local_experts());
  std::vector<std::pair<DeviceBuffer*, std::size_t>> sizes = {
      {&recv_x_, rows * received_row_bytes()},         {&counts_, local * sizeof(std::int32_t)},
      {&offsets_, (local + 1) * sizeof(std::int32_t)}, {&origins_, rows * sizeof(std::int64_t)},
      {&scales_, rows * groups() * sizeof(float)},     {&y_, rows * row_bytes()}};
  sets_.resize(static_cast<std::size_t>(config_.burst));
  set_ = sets_.data();
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
  if (status.ok()) status = set_->table.upload(set_->experts.data() + first_expert(), set_->table.bytes(), *stream_);
  return status;
}

Status RankRun::poison_outputs() {
  for (const DeviceBuffer* buffer : {&set_->out, &recv_x_, &counts_, &offsets_, &origins_, &scales_, &y_}) {
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
  op_->inject(faults);
  return harness::apply_fault(fault, rank_, *bootstrap_, world_->device(), *stream_);
}

Status RankRun::all_calls() {
  Status status;
  for (int call = 0; call < options_.calls && status.ok(); call += config_.burst) {
    status = burst(call, std::min(config_.burst, options_.calls - call));
  }
  return recover_from_fault(status, [this] {
    op_->forget_call();
    op_->inject({});
    return burst(options_.calls, 1);
  });
}

/// Enqueues `count` calls, each with inputs and outputs of its own, and checks the results when all are done.
Status RankRun::burst(int first, int count) {
  Status status;
  for (int i = 0; i < count && status.ok(); ++i) {
    set_ = &sets_[static_cast<std::size_t>(i)];
    status = prepare_call(first + i);
  }
  if (status.ok() && first == 0) status = inject_fault();
  for (int i = 0; i < count && status.ok(); ++i) {
    set_ = &sets_[static_cast<std::size_t>(i)];
    const std::uint64_t longest = config_.longest_delay_ns;
    if (longest != 0) {
      const std::uint64_t delay = delay_before(config_.inputs, first + i, rank_, longest);
      status = world_->device().enqueue_delay(*stream_, delay);
    }
    if (status.ok() && config_.fused) status = launch_phase(kFused);
    if (status.ok() && !config_.fused) {
      status = run_phase(kDispatch);
      if (status.ok()) status = check_dispatch(first + i);
      if (status.ok()) status = apply_experts();
      if (status.ok()) status = run_phase(kCombine);
    }
  }
  if (status.ok()) status = wait_for_burst();
  for (int i = 0; i < count && status.ok(); ++i) {
    set_ = &sets_[static_cast<std::size_t>(i)];
    status = check_output(first + i);
  }
  return status;
}

Status RankRun::prepare_call(int call) {
  const Status status = upload_inputs(call);
  return status.ok() ? poison_outputs() : status;
}

Status RankRun::enqueue(Phase phase) {
  MoeTokens tokens;
  tokens.x = set_->x.get();
  tokens.topk_indices = set_->indices.get();
  tokens.topk_weights = set_->weights.as<float>();
  tokens.tokens = config_.count_on_device ? -1 : own_routing().tokens;
  tokens.tokens_on_device = config_.count_on_device ? set_->token_count.as<std::int32_t>() : nullptr;
  switch (phase) {
    case kFused: return op_->fused(tokens, config_.inputs.expert, set_->table.as<float>(), set_->out.get(), *stream_);
    case kDispatch:
      return op_->dispatch(tokens,
                           {recv_x_.get(), counts_.as<std::int32_t>(), offsets_.as<std::int32_t>(),
                            origins_.as<std::int64_t>(), scales_.as<float>()},
                           *stream_);
    default: return op_->combine(y_.get(), set_->out.get(), *stream_);
  }
}

Status RankRun::run_phase(Phase phase) {
  const Status status = launch_phase(phase);
  return status.ok() ? wait_for_burst() : status;
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
  if (op_->plan().recv_rows < needed) {
    return internal_error(
        fmt::format("{} rows arrive in a buffer of {}, and dispatch did not say so", needed, op_->plan().recv_rows));
  }
  expected_ = expected_dispatch(config_.desc, op_->plan().recv_rows, rank_, set_->routings);
  received_.resize(recv_x_.bytes());
  received_scales_.resize(scales_.bytes() / sizeof(float));
  std::vector<std::int32_t> counts(expected_.counts.size()), offsets(expected_.offsets.size());
  std::vector<std::int64_t> origins(expected_.origins.size());
  Status status = recv_x_.download(received_.data(), recv_x_.bytes(), *stream_);
  if (status.ok()) status = counts_.download(counts.data(), counts_.bytes(), *stream_);
  if (status.ok()) status = offsets_.download(offsets.data(), offsets_.bytes(), *stream_);
  if (status.ok()) status = origins_.download(origins.data(), origins.size() * 8, *stream_);
  if (status.ok() && scales_.bytes() != 0) {
    status = scales_.download(received_scales_.data(), scales_.bytes(), *stream_);
  }
  if (!status.ok() || !findings_.difference.empty()) return status;
  // Everything that dispatch delivers must be equal to the bit.
  std::string difference = first_difference<std::int32_t>("counts", counts, expected_.counts);
  if (difference.empty()) difference = first_difference<std::int32_t>("offsets", offsets, expected_.offsets);
  if (difference.empty()) difference = first_difference<std::int64_t>("origins", origins, expected_.origins);
  if (difference.empty()) difference = row_difference(call);
  if (!difference.empty()) findings_.difference = fmt::format("call {}: {}", call, difference);
  return {};
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
  return std::memcmp(expected.numbers.data(), numbers, hidden()) == 0 &&
         std::memcmp(expected.scales.data(), received_scales_.data() + row * groups(), groups() * sizeof(float)) == 0;
}

/// The values that an expert sees in received row `row`.
std::vector<float> RankRun::received_values(std::size_t row) const {
  const std::byte* numbers = received_.data() + row * received_row_bytes();
  std::vector<float> values(hidden());
  for (std::size_t i = 0; i < hidden(); ++i) {
    if (config_.desc.fp8_dispatch) {
      values[i] = float_from_fp8(fp8(), static_cast<std::uint8_t>(numbers[i])) *
                  received_scales_[row * groups() + i / kScaleGroup];
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
  std::vector<std::uint16_t> outputs(y_.bytes() / 2, harness::kPoison16);
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
  return y_.upload(outputs.data(), y_.bytes(), *stream_);
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
  return close_operator(status, [this] { return op_->close(); });
}

}  // namespace farwarp::moe
