#include "farwarp/models/qwen3/decoder_state.h"

#include <fmt/format.h>

#include <cmath>
#include <iterator>
#include <utility>

namespace farwarp {
namespace {

using qwen3::size;

constexpr std::size_t kPrefillKernel = 2;  // of kernel_names(), the first

}  // namespace

std::vector<std::string> Qwen3Decoder::State::kernel_names(const Qwen3Plan& plan) {
  std::vector<std::string> names = {fmt::format("qwen3_{}_{}",
                                                plan.limits.most_top_k > 0 ? "sample"
                                                : plan.streams             ? "stream"
                                                                           : "decode",
                                                plan.columns),
                                    "qwen3_pack"};
  if (plan.prefill.rows > 0)
    names.insert(names.end(), std::begin(qwen3::Prefill::kKernels), std::end(qwen3::Prefill::kKernels));
  if (plan.gang) names.push_back(fmt::format("qwen3_gang_{}", plan.columns));
  return names;
}

Status Qwen3Decoder::State::allocate() {
  const Qwen3Config& config = plan.config;
  const std::int64_t task_bytes = static_cast<std::int64_t>(plan.graph.steps.size()) * plan.workers *
                                  static_cast<std::int64_t>(sizeof(fleet::Task));
  const std::int64_t plain_bytes = (plan.gang ? plan.graph.with_plain_buffers() : plan.graph).plain_bytes;
  const std::pair<DeviceMemory*, std::int64_t> wanted[] = {
      {&weights, plan.weight_bytes},
      {&embedding, plan.embedding_bytes},
      {&residual, std::int64_t{config.hidden} * plan.columns * 2},
      {&cache, plan.cache_bytes},
      {&rotations, std::int64_t{plan.limits.positions} * config.head_dim * 4},
      {&tasks, task_bytes},
      {&gang_tasks, plan.gang ? task_bytes : 0},
      {&lists, (plan.workers + 1) * 4},
      {&page_table, std::int64_t{plan.columns} * plan.max_pages * 4},
      {&prompts, std::int64_t{plan.columns} * plan.limits.positions * 4},
      {&state, sizeof(qwen3::DecodeState)},
      {&gang_cells, plan.gang ? sizeof(fleet::GangCells) : 0},
      {&phase_cells, plan.streams ? sizeof(fleet::PhaseCells) : 0},
      {&plain, plain_bytes}};
  for (const auto& [memory, bytes] : wanted) {
    if (bytes == 0) continue;
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
  tasks_of_worker = static_cast<int>(plan.graph.steps.size());
  std::vector<std::int32_t> begins;
  for (int worker = 0; worker <= plan.workers; ++worker) begins.push_back(worker * tasks_of_worker);
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
  Status status = set_tasks(plan.graph, tasks, stream);
  if (status.ok() && plan.gang) status = set_tasks(plan.graph.with_plain_buffers(), gang_tasks, stream);
  if (status.ok()) status = device.copy_in(lists.get(), begins.data(), lists.bytes(), stream);
  if (status.ok()) status = device.copy_in(rotations.get(), angles.data(), rotations.bytes(), stream);
  if (status.ok()) status = device.copy_in(page_table.get(), pages.data(), page_table.bytes(), stream);
  return status.ok() ? end_all(stream) : status;
}

Status Qwen3Decoder::State::set_tasks(const fleet::Graph& graph, const DeviceMemory& to, Stream stream) {
  const auto planned =
      fleet::plan_static(graph, plan.workers, static_cast<std::int64_t>(opened.buffer(0).offset));
  if (!planned.ok()) return planned.status();
  return world->device().copy_in(to.get(), planned->tasks.data(), to.bytes(), stream);
}

/// No column has a sequence. Tags begin anew, so no buffer may have one: it is new, or World::recover() has filled it.
Status Qwen3Decoder::State::end_all(Stream stream) {
  qwen3::DecodeState none{};
  none.tag = 1;
  positions.assign(size(plan.columns), -1);
  recoveries = world->recoveries();
  Device& device = world->device();
  Status status;
  for (const DeviceMemory* cells : {&gang_cells, &phase_cells}) {
    if (status.ok() && cells->bytes() > 0) status = device.fill(cells->get(), 0, cells->bytes(), stream);
  }
  if (status.ok() && plan.streams)
    status = device.fill(plain.get(), 0, plain.bytes(), stream);  // heads of columns that attend to nothing
  if (status.ok()) status = device.copy_in(state.get(), &none, sizeof none, stream);
  return status;
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
  args.launch = {.view = world->view(),
                 .slot = opened.slot(),
                 .workers = plan.workers,
                 .tasks = tasks.as<const fleet::Task>(),
                 .lists = lists.as<const std::int32_t>(),
                 .first_task = 0,
                 .end_task = tasks_of_worker,
                 .tokens = 1,
                 .tags_of_token = plan.graph.tags_of_token(),
                 .ends_token = 1,
                 .next_tag = &state.as<qwen3::DecodeState>()->tag,
                 .weights = weights.as<const std::byte>(),
                 .plain = plain.as<std::byte>(),
                 .residual = residual.as<std::uint64_t>(),
                 .epsilon = config.epsilon,
                 .phases = phase_cells.as<fleet::PhaseCells>(),
                 .gang = gang_cells.as<fleet::GangCells>()};
  args.embedding = embedding.as<const std::uint16_t>();
  args.rotations = rotations.as<const float>();
  args.cache = cache.as<std::byte>();
  args.page_table = page_table.as<const std::int32_t>();
  args.q_norm = plan.norms + 2 * config.hidden * 2;
  args.k_norm = args.q_norm + config.head_dim * 2;
  args.norm_pitch = plan.norm_pitch;
  args.state = state.as<qwen3::DecodeState>();
  args.prompts = prompts.as<const std::int32_t>();
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
  args.sharing = plan.sharing;
  args.scale_log2 = static_cast<float>(qwen3::kLog2OfE / std::sqrt(static_cast<double>(config.head_dim)));
  args.most_top_k = plan.limits.most_top_k;
  args.sequences = plan.limits.sequences;
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

Status Qwen3Decoder::State::launch(const qwen3::Args& call, Stream stream) const {
  // A launch of the last step alone has one worker, because the others might read the state after that one has written it.
  const bool last_alone = call.launch.first_task == tasks_of_worker - 1;
  return farwarp::launch(world->device(), opened.kernel(0),
                         {last_alone ? 1 : plan.workers, plan.threads, size(plan.shared_bytes)}, call, stream);
}

Status Qwen3Decoder::State::launch_gang(const qwen3::Args& call, Stream stream) const {
  qwen3::Args of_gang = call;
  of_gang.launch.tasks = gang_tasks.as<const fleet::Task>();
  return farwarp::launch(world->device(), opened.kernel(kernel_names(plan).size() - 1),
                         {plan.workers, plan.threads, size(plan.shared_bytes)}, of_gang, stream);
}

}  // namespace farwarp
