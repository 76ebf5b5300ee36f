#include "farwarp/models/qwen3/decoder_state.h"

#include <fmt/format.h>

#include <cmath>
#include <iterator>
#include <utility>

namespace farwarp {
namespace {

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

Status Qwen3Decoder::State::allocate(Stream stream) {
  const Qwen3Config& config = plan.config;
  const std::pair<DeviceMemory*, std::int64_t> wanted[] = {
      {&weights, plan.weight_bytes},
      {&embedding, plan.embedding_bytes},
      {&cache, plan.cache_bytes},
      {&rotations, std::int64_t{plan.limits.positions} * config.head_dim * 4},
      {&page_table, std::int64_t{plan.columns} * plan.max_pages * 4},
      {&prompts, std::int64_t{plan.columns} * plan.limits.positions * 4},
      {&state, sizeof(qwen3::DecodeState)}};
  for (const auto& [memory, bytes] : wanted) {
    auto created = DeviceMemory::create(world->device(), size(bytes));
    if (!created.ok()) return created.status();
    *memory = std::move(*created);
  }
  prompt_tokens.assign(size(plan.columns), 0);
  auto created = fleet::Runtime::create(*world, opened.slot(),
                                        {.graph = plan.graph,
                                         .columns = plan.columns,
                                         .rows = config.hidden,
                                         .workers = plan.workers,
                                         .threads = plan.threads,
                                         .shared_bytes = plan.shared_bytes,
                                         .gang = plan.gang},
                                        static_cast<std::int64_t>(opened.buffer(0).offset), stream);
  if (!created.ok()) return created.status();
  runtime = std::move(*created);
  return {};
}

/// What the kernels read beside the weights: cosines and sines, pages.
Status Qwen3Decoder::State::set_tables(Stream stream) {
  Device& device = world->device();
  const Qwen3Config& config = plan.config;
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
  Status status = device.copy_in(rotations.get(), angles.data(), rotations.bytes(), stream);
  if (status.ok()) status = device.copy_in(page_table.get(), pages.data(), page_table.bytes(), stream);
  return status.ok() ? end_all(stream) : status;
}

Status Qwen3Decoder::State::end_all(Stream stream) {
  const qwen3::DecodeState none{};
  positions.assign(size(plan.columns), -1);
  recoveries = world->recoveries();
  Status status = runtime.reset(stream);
  if (status.ok()) status = world->device().copy_in(state.get(), &none, sizeof none, stream);
  return status;
}

/// After World::recover() the sequences of the failed call are ended: ranks may have stopped at different tokens. Its
/// keys and values may be NaN, and would make a later sequence's outputs NaN.
Status Qwen3Decoder::State::follow_recovery(Stream stream) {
  if (recoveries == world->recoveries()) return {};
  if (Status status = world->device().fill(cache.get(), 0, cache.bytes(), stream); !status.ok()) return status;
  return end_all(stream);
}

void Qwen3Decoder::State::set_args() {
  const Qwen3Config& config = plan.config;
  args.launch = runtime.launch(weights.as<const std::byte>(), config.epsilon);
  args.embedding = embedding.as<const std::uint16_t>();
  args.rotations = rotations.as<const float>();
  args.cache = cache.as<std::byte>();
  args.page_table = page_table.as<const std::int32_t>();
  args.q_norm = plan.norms_of(0).q;
  args.k_norm = plan.norms_of(0).k;
  args.norm_pitch = plan.norm_pitch;
  args.state = state.as<qwen3::DecodeState>();
  args.prompts = prompts.as<const std::int32_t>();
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
  args.columns_in_use = plan.columns_in_use();
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

}  // namespace farwarp
