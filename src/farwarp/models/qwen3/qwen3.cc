#include "farwarp/models/qwen3/qwen3.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstddef>
#include <optional>
#include <utility>

#include "farwarp/base/arguments.h"
#include "farwarp/base/overlap.h"
#include "farwarp/models/qwen3/decoder_state.h"
#include "farwarp/models/qwen3/limits.h"
#include "farwarp/models/qwen3/weights/files.h"
#include "farwarp/models/qwen3/weights/packing.h"
#include "farwarp/models/safetensors.h"
#include "farwarp/world/host/collectives.h"

namespace farwarp {
namespace {

using qwen3::kLeastTemperature;
using qwen3::kMaxTemperature;
constexpr int kMaxTokens = 1 << 16;
constexpr std::chrono::minutes kPatience{10};  // for copies, packing, and ranks that load more slowly

/// Collective: ok if all ranks are. A rank that has failed keeps its own reason; the others get that of the first such
/// rank.
Status agree(World& world, const Status& mine) {
  const Status all = all_ok(world.bootstrap(), mine, kPatience);
  return mine.ok() ? all : mine;
}

}  // namespace

Result<Qwen3Decoder> Qwen3Decoder::create_random(World& world, const Qwen3Config& config, const Qwen3Limits& limits,
                                                 std::uint64_t seed) {
  return create_from(world, plan_qwen3(config, limits, world.device().shape(), world.size()), nullptr, seed);
}

Result<Qwen3Decoder> Qwen3Decoder::create(World& world, const std::string& folder, const Qwen3Limits& limits) {
  const auto config = read_qwen3_config(folder);
  auto files = config.ok() ? Safetensors::open(folder) : Result<Safetensors>(config.status());
  if (Status tie = files.ok() ? check_qwen3_tie(*files, *config) : Status(); !tie.ok()) files = tie;
  return create_from(world,
                     files.ok() ? plan_qwen3(*config, limits, world.device().shape(), world.size())
                                : Result<Qwen3Plan>(files.status()),
                     files.ok() ? &*files : nullptr, 0);
}

Result<Qwen3Decoder> Qwen3Decoder::create_from(World& world, const Result<Qwen3Plan>& plan, const Safetensors* files,
                                               std::uint64_t seed) {
  const Qwen3Plan wanted = plan.ok() ? *plan : Qwen3Plan{};
  const Qwen3Config& config = wanted.config;
  const Qwen3Limits& limits = wanted.limits;
  auto opened = open_state<State>(
      world, plan,
      {.name = "qwen3",
       .site_names = qwen3::kSiteNames,
       .configuration =
           hash_of({config.hidden, config.layers, config.query_heads, config.kv_heads, config.head_dim,
                    config.intermediate, config.vocabulary, config.tied, std::bit_cast<std::int32_t>(config.epsilon),
                    std::bit_cast<std::int32_t>(config.rope_theta), limits.sequences, limits.positions, limits.splits,
                    limits.max_sms, limits.most_top_k, limits.prefill_tokens, wanted.workers, wanted.columns}),
       .kernels = State::kernel_names(wanted),
       .buffers = {{wanted.graph.packet_bytes, fleet::kNoTag}}});
  if (!opened.ok()) return opened.status();
  std::unique_ptr<State> state = std::move(*opened);
  Device& device = world.device();
  auto stream = device.create_stream();
  Status status = stream.ok() ? state->allocate(*stream) : stream.status();
  std::optional<qwen3::Packing> packing;
  if (status.ok()) {
    packing.emplace(device, state->opened.kernel(1), state->plan, world.rank(), files, seed, *stream);
    status = packing->run(state->weights, state->embedding, state->cache);
  }
  if (status.ok()) status = state->set_tables(*stream);
  status = agree(world, status);
  if (status.ok()) {
    state->set_args();
    status = state->create_prefill(*stream);
    if (status.ok()) status = device.synchronize(*stream, std::chrono::nanoseconds(kPatience).count());
    status = agree(world, status);
  }
  if (stream.ok()) device.destroy_stream(*stream);
  if (!status.ok()) {
    if (state->prefill) (void)state->prefill->close();  // the first failure is told
    (void)state->opened.close();
    return status;
  }
  return Qwen3Decoder(std::move(state));
}

Qwen3Decoder::Qwen3Decoder(std::unique_ptr<State> state) : state_(std::move(state)) {}
Qwen3Decoder::Qwen3Decoder(Qwen3Decoder&&) noexcept = default;
Qwen3Decoder& Qwen3Decoder::operator=(Qwen3Decoder&&) noexcept = default;
Qwen3Decoder::~Qwen3Decoder() = default;

Status Qwen3Decoder::close() {
  const Status prefill = state_ && state_->prefill ? state_->prefill->close() : Status();
  const Status closed = close_opened("Qwen3Decoder", state_);
  return closed.ok() ? prefill : closed;
}

const Qwen3Plan& Qwen3Decoder::plan() const {
  static const Qwen3Plan kNone;
  return state_ ? state_->plan : kNone;
}

namespace {

Status check_column(int column, int columns) {
  if (column >= 0 && column < columns) return {};
  return invalid_argument(fmt::format("column is {}; allowed: 0 to {}", column, columns - 1));
}
Status check_token(std::int64_t index, std::int32_t token, int vocabulary) {
  if (token >= 0 && token < vocabulary) return {};
  return invalid_argument(fmt::format("prompt[{}] is {}; allowed: 0 to {}", index, token, vocabulary - 1));
}

Status check_sampling(const Qwen3Sampling& sampling, int most_top_k) {
  const auto wrong = [](const char* field, auto value, const std::string& allowed) {
    return invalid_argument(fmt::format("Qwen3Sampling.{} is {}; allowed: {}", field, value, allowed));
  };
  const float temperature = sampling.temperature;
  if (temperature == 0) return {};
  if (!(temperature >= kLeastTemperature && temperature <= kMaxTemperature))
    return wrong("temperature", temperature, fmt::format("0 (greedy), {} to {}", kLeastTemperature, kMaxTemperature));
  if (most_top_k == 0)
    return wrong("temperature", temperature, "0 (greedy) of a decoder whose Qwen3Limits.most_top_k is 0");
  if (sampling.top_k < 1 || sampling.top_k > most_top_k)
    return wrong("top_k", sampling.top_k,
                 fmt::format("1 to {}, Qwen3Limits.most_top_k, with a temperature", most_top_k));
  if (!(sampling.top_p > 0 && sampling.top_p <= 1)) return wrong("top_p", sampling.top_p, "more than 0, up to 1");
  return {};
}

}  // namespace

Status Qwen3Decoder::start(int column, std::span<const std::int32_t> prompt, Stream stream,
                           const Qwen3Sampling& sampling) {
  if (Status open = check_open("Qwen3Decoder", state_); !open.ok()) return open;
  State& state = *state_;
  const Qwen3Plan& plan = state.plan;
  if (Status status = check_column(column, plan.limits.sequences); !status.ok()) return status;
  if (prompt.empty() || prompt.size() > size(plan.limits.positions))
    return invalid_argument(fmt::format("prompt has {} tokens; allowed: 1 to {}, Qwen3Limits.positions", prompt.size(),
                                        plan.limits.positions));
  for (std::size_t i = 0; i < prompt.size(); ++i) {
    if (Status status = check_token(static_cast<std::int64_t>(i), prompt[i], plan.config.vocabulary); !status.ok())
      return status;
  }
  if (Status status = check_sampling(sampling, plan.limits.most_top_k); !status.ok()) return status;
  if (Status status = state.follow_recovery(stream); !status.ok()) return status;
  const qwen3::SequenceState first{prompt[0], 0, 1, static_cast<std::int32_t>(prompt.size())};
  const bool draws = sampling.temperature != 0;
  const std::int32_t top_k = draws ? sampling.top_k : 1;
  const qwen3::DrawState draw{
      sampling.seed, draws ? static_cast<float>(qwen3::kLog2OfE / static_cast<double>(sampling.temperature)) : 0,
      sampling.top_p};
  qwen3::DecodeState* const to = state.state.as<qwen3::DecodeState>();
  Device& device = state.world->device();
  Status status = device.copy_in(state.prompts.as<std::int32_t>() + size(column) * size(plan.limits.positions),
                                 prompt.data(), prompt.size() * 4, stream);
  if (status.ok()) status = device.copy_in(&to->sequences[column], &first, sizeof first, stream);
  if (status.ok()) status = device.copy_in(&to->top_k[column], &top_k, sizeof top_k, stream);
  if (status.ok()) status = device.copy_in(&to->draws[column], &draw, sizeof draw, stream);
  if (!status.ok()) return status;
  state.positions[size(column)] = 0;
  state.prompt_tokens[size(column)] = static_cast<int>(prompt.size());
  return {};
}

Status Qwen3Decoder::prefill(int column, Stream stream) {
  if (Status open = check_open("Qwen3Decoder", state_); !open.ok()) return open;
  State& state = *state_;
  if (Status status = check_column(column, state.plan.limits.sequences); !status.ok()) return status;
  if (!state.prefill)
    return {StatusCode::kMisuse, "Qwen3Decoder::prefill() was called, but Qwen3Limits.prefill_tokens is 0"};
  const bool ended = state.recoveries != state.world->recoveries();  // all sequences
  if (ended || state.positions[size(column)] < 0)
    return {StatusCode::kMisuse,
            fmt::format("Qwen3Decoder::prefill() of column {} has no sequence: call start() first", column)};
  const int tokens = state.prompt_tokens[size(column)];
  Status status = state.prefill->run(column, tokens, stream);
  if (status.ok()) state.positions[size(column)] = tokens - 1;
  return status;
}

Status Qwen3Decoder::start_with_any_keys(int column, int position, std::int32_t token, Stream stream,
                                         const Qwen3Sampling& sampling) {
  if (Status open = check_open("Qwen3Decoder", state_); !open.ok()) return open;
  State& state = *state_;
  if (position < 0 || position >= state.plan.limits.positions)
    return invalid_argument(fmt::format("position is {}; allowed: 0 to {}", position, state.plan.limits.positions - 1));
  if (Status status = start(column, {&token, 1}, stream, sampling); !status.ok()) return status;
  const qwen3::SequenceState first{token, position, 1, 0};
  state.positions[size(column)] = position;
  return state.world->device().copy_in(&state.state.as<qwen3::DecodeState>()->sequences[column], &first, sizeof first,
                                       stream);
}

Status Qwen3Decoder::stop(int column, Stream stream) {
  if (Status open = check_open("Qwen3Decoder", state_); !open.ok()) return open;
  State& state = *state_;
  if (Status status = check_column(column, state.plan.limits.sequences); !status.ok()) return status;
  const qwen3::SequenceState none{};
  state.positions[size(column)] = -1;
  return state.world->device().copy_in(&state.state.as<qwen3::DecodeState>()->sequences[column], &none, sizeof none,
                                       stream);
}

Status Qwen3Decoder::decode(const Qwen3Call& call, Stream stream) {
  if (Status open = check_open("Qwen3Decoder", state_); !open.ok()) return open;
  State& state = *state_;
  const Qwen3Plan& plan = state.plan;
  if (call.tokens < 1 || call.tokens > kMaxTokens)
    return invalid_argument(fmt::format("Qwen3Call.tokens is {}; allowed: 1 to {}", call.tokens, kMaxTokens));
  if (call.dispatcher == FleetDispatcher::kGang && !plan.gang)
    return {StatusCode::kUnavailable,
            "Qwen3Call.dispatcher is gang; allowed on a device with one L2 and bulk copies: static, graph"};
  if (call.dispatcher == FleetDispatcher::kGang && plan.limits.most_top_k > 0)
    return invalid_argument(
        fmt::format("Qwen3Call.dispatcher is gang; allowed with Qwen3Limits.most_top_k of {}: static, graph",
                    plan.limits.most_top_k));
  if (call.end_tokens.size() > size(qwen3::kMaxEndTokens))
    return invalid_argument(fmt::format("Qwen3Call.end_tokens has {} tokens; allowed: up to {}", call.end_tokens.size(),
                                        qwen3::kMaxEndTokens));
  for (std::size_t i = 0; i < call.end_tokens.size(); ++i) {
    if (call.end_tokens[i] < 0 || call.end_tokens[i] >= plan.config.vocabulary)
      return invalid_argument(fmt::format("Qwen3Call.end_tokens[{}] is {}; allowed: 0 to {}", i, call.end_tokens[i],
                                          plan.config.vocabulary - 1));
  }
  Status status = check_pointer("Qwen3Call.sampled", call.sampled, 4);
  if (status.ok() && call.logits != nullptr) status = check_pointer("Qwen3Call.logits", call.logits, 4);
  if (status.ok())
    status = check_apart(
        {}, {{"Qwen3Call.sampled", call.sampled, std::int64_t{plan.columns} * call.tokens * 4},
             {"Qwen3Call.logits", call.logits, std::int64_t{call.tokens} * plan.columns * plan.config.vocabulary * 4}});
  if (status.ok()) status = state.world->status();
  if (status.ok()) status = state.follow_recovery(stream);
  if (status.ok() &&
      std::all_of(state.positions.begin(), state.positions.end(), [](std::int64_t position) { return position < 0; }))
    status = {StatusCode::kMisuse, "Qwen3Decoder::decode() has no sequence: call start() first"};
  for (std::size_t column = 0; column < state.positions.size() && status.ok(); ++column) {
    if (state.positions[column] >= 0 && state.positions[column] + call.tokens > plan.limits.positions)
      status = invalid_argument(fmt::format(
          "Qwen3Call.tokens is {}; allowed: up to {} for column {}, which is at position {} of {}", call.tokens,
          plan.limits.positions - state.positions[column], column, state.positions[column], plan.limits.positions));
  }
  if (!status.ok()) return status;
  qwen3::Args args = state.args;
  std::fill(std::begin(args.end_tokens), std::end(args.end_tokens), -1);  // no choice is -1
  std::copy(call.end_tokens.begin(), call.end_tokens.end(), args.end_tokens);
  args.sampled = call.sampled;
  args.sampled_pitch = call.tokens;
  args.logits = call.logits;
  const std::size_t kernel = call.dispatcher == FleetDispatcher::kGang ? State::kernel_names(plan).size() - 1 : 0;
  status = state.runtime.run(
      call.dispatcher, state.opened.kernel(kernel), args, call.tokens,
      [&](qwen3::Args& next) {
        ++next.sampled;
        if (next.logits != nullptr) next.logits += std::int64_t{plan.columns} * plan.config.vocabulary;
      },
      stream);
  if (!status.ok()) return status;
  for (std::int64_t& position : state.positions) {
    if (position >= 0) position += call.tokens;
  }
  return {};
}

Status Qwen3Decoder::hidden(std::vector<std::uint16_t>& to, Stream stream) const {
  if (Status open = check_open("Qwen3Decoder", state_); !open.ok()) return open;
  to.resize(size(state_->plan.config.hidden) * size(state_->plan.columns));
  return state_->world->device().copy_out(to.data(), state_->runtime.residual().get(), to.size() * 2, stream);
}

}  // namespace farwarp
