#include "farwarp/models/qwen3/qwen3.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <optional>
#include <utility>

#include "farwarp/base/arguments.h"
#include "farwarp/models/qwen3/args.h"
#include "farwarp/models/qwen3/files.h"
#include "farwarp/models/qwen3/packing.h"
#include "farwarp/models/qwen3/prefill.h"
#include "farwarp/models/safetensors.h"
#include "farwarp/runtime/device_memory.h"
#include "farwarp/world/host/opened_operator.h"

namespace farwarp {
namespace {

constexpr double kLog2OfE = 1.4426950408889634;
constexpr int kMostTokens = 1 << 16;
constexpr std::uint8_t kNoTag = 0xff;  // bytes of a tag that no token has
constexpr float kLeastTemperature = 0.001f, kMostTemperature = 1000;
constexpr std::size_t kPrefillKernel = 2;               // of the opened operator's, the first
constexpr std::uint64_t kPatienceNs = 600'000'000'000;  // for copies and packing

std::size_t size(std::int64_t value) { return static_cast<std::size_t>(value); }

}  // namespace

struct Qwen3Decoder::State {
  World* world = nullptr;
  Qwen3Plan plan;
  OpenedOperator opened;  ///< kernels: decode, pack, those of a prefill; one buffer
  DeviceMemory weights, embedding, residual, cache, rotations, tasks, lists, page_table, prompts, state;
  qwen3::Args args{};
  std::optional<qwen3::Prefill> prefill;
  int tasks_of_worker = 0;
  std::vector<std::int64_t> positions;  ///< of each column, at most; -1: no sequence
  std::uint32_t recoveries = 0;         ///< of the World, that this decoder knows of
  std::vector<int> prompt_tokens;       ///< of each column

  Status allocate();
  Status set_tables(Stream stream);
  void set_args();
  Status end_all(Stream stream);
  Status follow_recovery(Stream stream);
  Status create_prefill(Stream stream);
  Status launch(const qwen3::Args& call, Stream stream) const;
};

Status Qwen3Decoder::State::allocate() {
  const Qwen3Config& config = plan.config;
  const std::pair<DeviceMemory*, std::int64_t> wanted[] = {
      {&weights, plan.weight_bytes},
      {&embedding, plan.embedding_bytes},
      {&residual, std::int64_t{config.hidden} * plan.columns * 2},
      {&cache, plan.cache_bytes},
      {&rotations, std::int64_t{plan.limits.positions} * config.head_dim * 4},
      {&tasks, static_cast<std::int64_t>(plan.graph.steps.size()) * plan.workers *
                   static_cast<std::int64_t>(sizeof(fleet::Task))},
      {&lists, (plan.workers + 1) * 4},
      {&page_table, std::int64_t{plan.columns} * plan.max_pages * 4},
      {&prompts, std::int64_t{plan.columns} * plan.limits.positions * 4},
      {&state, sizeof(qwen3::DecodeState)}};
  for (const auto& [memory, bytes] : wanted) {
    auto created = DeviceMemory::create(world->device(), size(bytes));
    if (!created.ok()) return created.status();
    *memory = std::move(*created);
  }
  prompt_tokens.assign(size(plan.columns), 0);
  return {};
}

/// What the kernels read beside the weights: tasks, cosines and sines, pages.
Status Qwen3Decoder::State::set_tables(Stream stream) {
  Device& device = world->device();
  const Qwen3Config& config = plan.config;
  fleet::Graph graph = plan.graph;
  for (fleet::Buffer& buffer : graph.buffers) buffer.offset += static_cast<std::int64_t>(opened.buffer(0).offset);
  const auto planned = fleet::plan_static(graph, plan.workers);
  if (!planned.ok()) return planned.status();
  tasks_of_worker = planned->count;
  std::vector<std::int32_t> begins;
  for (int worker = 0; worker <= plan.workers; ++worker) begins.push_back(worker * planned->count);
  std::vector<float> angles;
  for (int position = 0; position < plan.limits.positions; ++position) {
    for (int i = 0; i < config.head_dim / 2; ++i) {
      const double angle = position * std::pow(static_cast<double>(config.rope_theta), -2.0 * i / config.head_dim);
      angles.push_back(static_cast<float>(std::cos(angle)));
      angles.push_back(static_cast<float>(std::sin(angle)));
    }
  }
  std::vector<std::int32_t> pages(size(plan.columns) * size(plan.max_pages));
  for (std::size_t i = 0; i < pages.size(); ++i) pages[i] = static_cast<std::int32_t>(i);
  Status status = device.copy_in(tasks.get(), planned->tasks.data(), tasks.bytes(), stream);
  if (status.ok()) status = device.copy_in(lists.get(), begins.data(), lists.bytes(), stream);
  if (status.ok()) status = device.copy_in(rotations.get(), angles.data(), rotations.bytes(), stream);
  if (status.ok()) status = device.copy_in(page_table.get(), pages.data(), page_table.bytes(), stream);
  return status.ok() ? end_all(stream) : status;
}

/// No column has a sequence. Tags begin anew, so no buffer may have one: it is new, or World::recover() has filled it.
Status Qwen3Decoder::State::end_all(Stream stream) {
  qwen3::DecodeState none{};
  none.tag = 1;
  positions.assign(size(plan.columns), -1);
  recoveries = world->recoveries();
  return world->device().copy_in(state.get(), &none, sizeof none, stream);
}

/// After World::recover() the sequences of the failed call are ended: ranks may have stopped at different tokens. Its keys and values may be no
/// numbers, and would make those of a later sequence's pages none.
Status Qwen3Decoder::State::follow_recovery(Stream stream) {
  if (recoveries == world->recoveries()) return {};
  if (Status status = world->device().fill(cache.get(), 0, cache.bytes(), stream); !status.ok()) return status;
  return end_all(stream);
}

void Qwen3Decoder::State::set_args() {
  const Qwen3Config& config = plan.config;
  const auto base = static_cast<std::int64_t>(opened.buffer(0).offset);
  args.view = world->view();
  args.slot = opened.slot();
  args.tasks = tasks.as<const fleet::Task>();
  args.lists = lists.as<const std::int32_t>();
  args.weights = weights.as<const std::byte>();
  args.embedding = embedding.as<const std::uint16_t>();
  args.rotations = rotations.as<const float>();
  args.residual = residual.as<std::uint64_t>();
  args.cache = cache.as<std::byte>();
  args.page_table = page_table.as<const std::int32_t>();
  args.q_norm = plan.norms + 2 * config.hidden * 2;
  args.k_norm = args.q_norm + config.head_dim * 2;
  args.norm_pitch = plan.norm_pitch;
  args.state = state.as<qwen3::DecodeState>();
  args.prompts = prompts.as<const std::int32_t>();
  args.workers = plan.workers;
  args.layers = config.layers;
  args.hidden = config.hidden;
  args.query_heads = plan.query_heads;
  args.kv_heads = plan.kv_heads;
  args.head_dim = config.head_dim;
  args.intermediate = plan.intermediate;
  args.first_token = world->rank() * plan.head_rows;
  args.vocabulary = config.vocabulary;
  args.pages = plan.columns * plan.max_pages;
  args.max_pages = plan.max_pages;
  args.max_prompt = plan.limits.positions;
  args.splits = plan.limits.splits;
  args.epsilon = config.epsilon;
  args.scale_log2 = static_cast<float>(kLog2OfE / std::sqrt(static_cast<double>(config.head_dim)));
  args.partials = base + plan.graph.buffers[size(plan.partials)].offset;
  args.candidates = base + plan.graph.buffers[size(plan.candidates)].offset;
  args.most_top_k = plan.limits.most_top_k;
}

Status Qwen3Decoder::State::create_prefill(Stream stream) {
  if (plan.prefill.rows == 0) return {};
  std::vector<Kernel> kernels;
  for (std::size_t i = 0; i < std::size(qwen3::Prefill::kKernels); ++i)
    kernels.push_back(opened.kernel(kPrefillKernel + i));
  auto created = qwen3::Prefill::create(*world, plan, std::move(kernels), args, stream);
  if (!created.ok()) return created.status();
  prefill.emplace(std::move(*created));
  return {};
}

Result<Qwen3Decoder> Qwen3Decoder::create_random(World& world, const Qwen3Config& config, const Qwen3Limits& limits,
                                                 std::uint64_t seed) {
  return create_from(world, plan_qwen3(config, limits, world.device().shape(), world.size()), nullptr, seed);
}

Result<Qwen3Decoder> Qwen3Decoder::create(World& world, const std::string& folder, const Qwen3Limits& limits) {
  const auto config = read_qwen3_config(folder);
  const auto files = config.ok() ? Safetensors::open(folder) : Result<Safetensors>(config.status());
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
  std::vector<std::string> kernels = {
      fmt::format("qwen3_{}_{}", limits.most_top_k > 0 ? "sample" : "decode", wanted.columns), "qwen3_pack"};
  if (wanted.prefill.rows > 0)
    kernels.insert(kernels.end(), std::begin(qwen3::Prefill::kKernels), std::end(qwen3::Prefill::kKernels));
  auto opened = open_state<State>(
      world, plan,
      {.name = "qwen3",
       .site_names = qwen3::kSiteNames,
       .configuration =
           hash_of({config.hidden, config.layers, config.query_heads, config.kv_heads, config.head_dim,
                    config.intermediate, config.vocabulary, config.tied, limits.sequences, limits.positions,
                    limits.splits, limits.max_sms, limits.most_top_k, limits.prefill_tokens, wanted.workers}),
       .kernels = std::move(kernels),
       .buffers = {{wanted.buffer_bytes, kNoTag}}});
  if (!opened.ok()) return opened.status();
  std::unique_ptr<State> state = std::move(*opened);
  Device& device = world.device();
  auto stream = device.create_stream();
  Status status = stream.ok() ? state->allocate() : stream.status();
  std::optional<qwen3::Packing> packing;
  if (status.ok()) {
    packing.emplace(device, state->opened.kernel(1), state->plan, world.rank(), files, seed, *stream);
    status = packing->run(state->weights, state->embedding, state->cache);
  }
  if (status.ok()) status = state->set_tables(*stream);
  if (status.ok()) {
    state->set_args();
    status = state->create_prefill(*stream);
  }
  if (status.ok()) status = device.synchronize(*stream, kPatienceNs);
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
  if (!(temperature >= kLeastTemperature && temperature <= kMostTemperature))
    return wrong("temperature", temperature, fmt::format("0 (greedy), {} to {}", kLeastTemperature, kMostTemperature));
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
  const qwen3::DrawState draw{sampling.seed,
                              draws ? static_cast<float>(kLog2OfE / static_cast<double>(sampling.temperature)) : 0,
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

Status Qwen3Decoder::pretend(int column, int positions, std::int32_t token, Stream stream,
                             const Qwen3Sampling& sampling) {
  if (Status open = check_open("Qwen3Decoder", state_); !open.ok()) return open;
  State& state = *state_;
  if (positions < 0 || positions >= state.plan.limits.positions)
    return invalid_argument(
        fmt::format("positions is {}; allowed: 0 to {}", positions, state.plan.limits.positions - 1));
  if (Status status = start(column, {&token, 1}, stream, sampling); !status.ok()) return status;
  const qwen3::SequenceState first{token, positions, 1, 0};
  state.positions[size(column)] = positions;
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

Status Qwen3Decoder::State::launch(const qwen3::Args& call, Stream stream) const {
  // A launch of the last step alone has one worker, because the others might read the state after that one has written it.
  const bool last_alone = call.first_task == tasks_of_worker - 1;
  const LaunchConfig config{last_alone ? 1 : plan.workers, plan.threads, size(plan.shared_bytes)};
  return farwarp::launch(world->device(), opened.kernel(0), config, call, stream);
}

Status Qwen3Decoder::decode(const Qwen3Call& call, Stream stream) {
  if (Status open = check_open("Qwen3Decoder", state_); !open.ok()) return open;
  State& state = *state_;
  const Qwen3Plan& plan = state.plan;
  if (call.tokens < 1 || call.tokens > kMostTokens)
    return invalid_argument(fmt::format("Qwen3Call.tokens is {}; allowed: 1 to {}", call.tokens, kMostTokens));
  Status status = check_pointer("Qwen3Call.sampled", call.sampled, 4);
  if (status.ok() && call.logits != nullptr) status = check_pointer("Qwen3Call.logits", call.logits, 4);
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
  args.tokens = call.tokens;
  args.end_token = call.end_token;
  args.sampled = call.sampled;
  args.sampled_pitch = call.tokens;
  args.logits = call.logits;
  args.first_task = 0;
  args.end_task = state.tasks_of_worker;
  if (call.dispatcher == FleetDispatcher::kStatic) {
    status = state.launch(args, stream);
  } else {
    args.tokens = 1;
    for (int token = 0; token < call.tokens && status.ok(); ++token) {
      for (int step = 0; step < state.tasks_of_worker && status.ok(); ++step) {
        args.first_task = step;
        args.end_task = step + 1;
        status = state.launch(args, stream);
      }
      ++args.sampled;
      if (args.logits != nullptr) args.logits += std::int64_t{plan.columns} * plan.config.vocabulary;
    }
  }
  if (!status.ok()) return status;
  for (std::int64_t& position : state.positions) {
    if (position >= 0) position += call.tokens;
  }
  return {};
}

Status Qwen3Decoder::hidden(std::vector<std::uint16_t>& to, Stream stream) const {
  if (Status open = check_open("Qwen3Decoder", state_); !open.ok()) return open;
  to.resize(size(state_->plan.config.hidden) * size(state_->plan.columns));
  return state_->world->device().copy_out(to.data(), state_->residual.get(), to.size() * 2, stream);
}

}  // namespace farwarp
