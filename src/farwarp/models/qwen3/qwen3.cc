#include "farwarp/models/qwen3/qwen3.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "farwarp/base/arguments.h"
#include "farwarp/models/qwen3/args.h"
#include "farwarp/models/qwen3/files.h"
#include "farwarp/models/qwen3/pack_args.h"
#include "farwarp/runtime/device_memory.h"
#include "farwarp/world/host/opened_operator.h"

namespace farwarp {
namespace {

using qwen3::GlobalTensor;
using qwen3::Tensor;

constexpr double kLog2OfE = 1.4426950408889634;
constexpr int kMostTokens = 1 << 16;
constexpr std::size_t kStagingBytes = std::size_t{64} << 20;
constexpr std::uint64_t kPatienceNs = 600'000'000'000;  // for copies and packing

std::size_t size(std::int64_t value) { return static_cast<std::size_t>(value); }

LaunchConfig pack_launch(Device& device) { return {4 * device.shape().multiprocessors, qwen3::kPackThreads, 0}; }

}  // namespace

struct Qwen3Decoder::State {
  World* world = nullptr;
  Qwen3Plan plan;
  OpenedOperator opened;  ///< kernels: decode, pack; one buffer
  DeviceMemory weights, embedding, cache, rotations, tasks, lists, page_table, prompts, state;
  DeviceMemory staging;  ///< for weights from files, while they are loaded
  qwen3::Args args{};
  int tasks_of_worker = 0;
  std::vector<std::int64_t> positions;  ///< of each column, at most; -1: no sequence

  Status allocate();
  Status pack(const Safetensors* files, std::uint64_t seed, Stream stream);
  Status pack_file(const Safetensors& files, qwen3::PackArgs pack, std::int32_t number, Stream stream);
  Status set_tables(Stream stream);
  void set_args();
  Status launch(const qwen3::Args& call, Stream stream) const;
};

Status Qwen3Decoder::State::allocate() {
  const Qwen3Config& config = plan.config;
  const std::pair<DeviceMemory*, std::int64_t> wanted[] = {
      {&weights, plan.weight_bytes},
      {&embedding, plan.embedding_bytes},
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
  positions.assign(size(plan.columns), -1);
  return {};
}

/// A tensor's rows come through `staging`, as many at a time as fit.
Status Qwen3Decoder::State::pack_file(const Safetensors& files, qwen3::PackArgs pack, std::int32_t number,
                                      Stream stream) {
  Device& device = world->device();
  const std::int64_t row_bytes = std::int64_t{pack.columns} * 2;
  const bool vector = pack.rows == 1 && pack.shape.tiles == 0;
  const auto shape =
      vector ? std::vector<std::int64_t>{pack.columns} : std::vector<std::int64_t>{pack.rows, pack.columns};
  const auto tensor = files.find(qwen3::tensor_name(number, plan.config.layers), "BF16", shape);
  if (!tensor.ok()) return tensor.status();
  if (!staging.get()) {
    auto created = DeviceMemory::create(device, kStagingBytes);
    if (!created.ok()) return created.status();
    staging = std::move(*created);
  }
  const auto at_once = static_cast<std::int32_t>(static_cast<std::int64_t>(kStagingBytes) / row_bytes);
  const std::int32_t rows = pack.rows, first_row = pack.first_row;
  std::byte* const to = pack.to;
  for (std::int32_t row = 0; row < rows; row += at_once) {
    pack.source = staging.as<const std::uint16_t>();
    pack.rows = std::min(at_once, rows - row);
    pack.first_row = first_row + row;
    if (pack.shape.tiles == 0) pack.to = to + row * row_bytes;
    Status status =
        device.copy_in(staging.get(), tensor->data.data() + row * row_bytes, size(pack.rows * row_bytes), stream);
    if (status.ok()) status = farwarp::launch(device, opened.kernel(1), pack_launch(device), pack, stream);
    if (!status.ok()) return status;
  }
  return {};
}

/// Fills all weights, from files or (null) with random numbers, in the layout of the tasks.
Status Qwen3Decoder::State::pack(const Safetensors* files, std::uint64_t seed, Stream stream) {
  const Qwen3Config& config = plan.config;
  Device& device = world->device();
  Status status = device.fill(weights.get(), 0, weights.bytes(), stream);  // rows and columns that no tensor has
  if (status.ok()) status = device.fill(cache.get(), 0, cache.bytes(), stream);
  const auto put = [&](std::int32_t number, int rows, int columns, float scale, float offset, std::byte* to,
                       fleet::MatrixShape shape, int first_row, int paired) {
    if (!status.ok()) return;
    const qwen3::PackArgs pack{
        nullptr, {seed, number, scale, offset}, rows, columns, to, shape, plan.workers, first_row, paired};
    status = files != nullptr ? pack_file(*files, pack, number, stream)
                              : farwarp::launch(device, opened.kernel(1), pack_launch(device), pack, stream);
  };
  auto* const memory = weights.as<std::byte>();
  const int dim = config.head_dim, heads = config.query_heads * dim, kv = config.kv_heads * dim;
  const auto scale_for = [](int columns) {
    return static_cast<float>(std::sqrt(3.0 / columns));
  };  // products keep the size of their input
  for (const fleet::Step& step : plan.graph.steps) {
    const auto matrix = [&](Tensor tensor, int rows, int columns, int first_row, int paired) {
      put(tensor_number(tensor, step.layer), rows, columns, scale_for(columns), 0, memory + step.weights, step.matrix,
          first_row, paired);
    };
    switch (static_cast<qwen3::Kind>(step.kind)) {
      case qwen3::Kind::kQkv:
        matrix(Tensor::kQ, heads, config.hidden, 0, 0);
        matrix(Tensor::kK, kv, config.hidden, heads, 0);
        matrix(Tensor::kV, kv, config.hidden, heads + kv, 0);
        break;
      case qwen3::Kind::kOut: matrix(Tensor::kOut, config.hidden, heads, 0, 0); break;
      case qwen3::Kind::kGateUp:
        matrix(Tensor::kGate, config.intermediate, config.hidden, 0, 1);
        matrix(Tensor::kUp, config.intermediate, config.hidden, 0, 2);
        break;
      case qwen3::Kind::kDown: matrix(Tensor::kDown, config.hidden, config.intermediate, 0, 0); break;
      case qwen3::Kind::kHead:
        if (config.tied)
          put(tensor_number(GlobalTensor::kEmbedding, config.layers), config.vocabulary, config.hidden, 1, 0,
              memory + step.weights, step.matrix, 0, 0);
        else
          put(tensor_number(GlobalTensor::kHead, config.layers), config.vocabulary, config.hidden,
              scale_for(config.hidden), 0, memory + step.weights, step.matrix, 0, 0);
        break;
      default: break;
    }
  }
  for (int layer = 0; layer < config.layers; ++layer) {
    std::byte* to = memory + plan.norms + layer * plan.norm_pitch;
    for (const auto& [tensor, rows] :
         {std::pair{Tensor::kInputNorm, config.hidden}, std::pair{Tensor::kPostNorm, config.hidden},
          std::pair{Tensor::kQNorm, dim}, std::pair{Tensor::kKNorm, dim}}) {
      put(tensor_number(tensor, layer), 1, rows, 0.25f, 1, to, {}, 0, 0);
      to += rows * 2;
    }
  }
  put(tensor_number(GlobalTensor::kFinalNorm, config.layers), 1, config.hidden, 0.25f, 1, memory + plan.final_norm, {},
      0, 0);
  put(tensor_number(GlobalTensor::kEmbedding, config.layers), config.vocabulary, config.hidden, 1, 0,
      embedding.as<std::byte>(), {}, 0, 0);
  return status;
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
  qwen3::DecodeState first{};
  first.tag = 1;  // zeros have tag 0
  Status status = device.copy_in(tasks.get(), planned->tasks.data(), tasks.bytes(), stream);
  if (status.ok()) status = device.copy_in(lists.get(), begins.data(), lists.bytes(), stream);
  if (status.ok()) status = device.copy_in(rotations.get(), angles.data(), rotations.bytes(), stream);
  if (status.ok()) status = device.copy_in(page_table.get(), pages.data(), page_table.bytes(), stream);
  if (status.ok()) status = device.copy_in(state.get(), &first, sizeof first, stream);
  return status;
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
  args.query_heads = config.query_heads;
  args.kv_heads = config.kv_heads;
  args.head_dim = config.head_dim;
  args.intermediate = config.intermediate;
  args.vocabulary = config.vocabulary;
  args.pages = plan.columns * plan.max_pages;
  args.max_pages = plan.max_pages;
  args.max_prompt = plan.limits.positions;
  args.segments = plan.limits.segments;
  args.epsilon = config.epsilon;
  args.scale_log2 = static_cast<float>(kLog2OfE / std::sqrt(static_cast<double>(config.head_dim)));
  args.partials = base + plan.graph.buffers[size(plan.partials)].offset;
  args.candidates = base + plan.graph.buffers[size(plan.candidates)].offset;
}

Result<Qwen3Decoder> Qwen3Decoder::create_random(World& world, const Qwen3Config& config, const Qwen3Limits& limits,
                                                 std::uint64_t seed) {
  return create_from(world, plan_qwen3(config, limits, world.device().shape()), nullptr, seed);
}

Result<Qwen3Decoder> Qwen3Decoder::create(World& world, const std::string& folder, const Qwen3Limits& limits) {
  const auto config = read_qwen3_config(folder);
  const auto files = config.ok() ? Safetensors::open(folder) : Result<Safetensors>(config.status());
  return create_from(
      world, files.ok() ? plan_qwen3(*config, limits, world.device().shape()) : Result<Qwen3Plan>(files.status()),
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
       .configuration = hash_of({config.hidden, config.layers, config.query_heads, config.kv_heads, config.head_dim,
                                 config.intermediate, config.vocabulary, config.tied, limits.sequences,
                                 limits.positions, limits.segments, limits.max_sms}),
       .kernels = {fmt::format("qwen3_decode_{}", wanted.columns), "qwen3_pack"},
       .buffers = {{wanted.buffer_bytes}}});
  if (!opened.ok()) return opened.status();
  std::unique_ptr<State> state = std::move(*opened);
  Device& device = world.device();
  auto stream = device.create_stream();
  Status status = stream.ok() ? state->allocate() : stream.status();
  if (status.ok()) status = state->pack(files, seed, *stream);
  if (status.ok()) status = state->set_tables(*stream);
  if (status.ok()) status = device.synchronize(*stream, kPatienceNs);
  if (stream.ok()) device.destroy_stream(*stream);
  state->staging = {};
  if (!status.ok()) {
    (void)state->opened.close();  // the first failure is told
    return status;
  }
  state->set_args();
  return Qwen3Decoder(std::move(state));
}

Qwen3Decoder::Qwen3Decoder(std::unique_ptr<State> state) : state_(std::move(state)) {}
Qwen3Decoder::Qwen3Decoder(Qwen3Decoder&&) noexcept = default;
Qwen3Decoder& Qwen3Decoder::operator=(Qwen3Decoder&&) noexcept = default;
Qwen3Decoder::~Qwen3Decoder() = default;

Status Qwen3Decoder::close() { return close_opened("Qwen3Decoder", state_); }

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

}  // namespace

Status Qwen3Decoder::start(int column, std::span<const std::int32_t> prompt, Stream stream) {
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
  const qwen3::SequenceState first{prompt[0], 0, 1, static_cast<std::int32_t>(prompt.size())};
  Device& device = state.world->device();
  Status status = device.copy_in(state.prompts.as<std::int32_t>() + size(column) * size(plan.limits.positions),
                                 prompt.data(), prompt.size() * 4, stream);
  if (status.ok())
    status = device.copy_in(&state.state.as<qwen3::DecodeState>()->sequences[column], &first, sizeof first, stream);
  if (status.ok()) state.positions[size(column)] = 0;
  return status;
}

Status Qwen3Decoder::pretend(int column, int positions, std::int32_t token, Stream stream) {
  if (Status open = check_open("Qwen3Decoder", state_); !open.ok()) return open;
  State& state = *state_;
  if (positions < 0 || positions >= state.plan.limits.positions)
    return invalid_argument(
        fmt::format("positions is {}; allowed: 0 to {}", positions, state.plan.limits.positions - 1));
  if (Status status = start(column, {&token, 1}, stream); !status.ok()) return status;
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

}  // namespace farwarp
