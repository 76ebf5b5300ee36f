#include "farwarp/ops/attention/attention.h"

#include <fmt/format.h>

#include <bit>
#include <utility>

#include "farwarp/base/arguments.h"
#include "farwarp/base/overlap.h"
#include "farwarp/ops/attention/args.h"
#include "farwarp/world/host/opened_operator.h"

namespace farwarp {
namespace {

constexpr double kLog2E = 1.4426950408889634;

std::uint64_t configuration_of(const AttentionDesc& desc) {
  return hash_of({desc.batch,
                  desc.heads,
                  desc.kv_heads,
                  desc.head_dim,
                  desc.max_queries,
                  desc.max_keys,
                  static_cast<int>(desc.dtype),
                  desc.causal,
                  desc.window_left,
                  desc.window_right,
                  std::bit_cast<std::int32_t>(desc.scale),
                  std::bit_cast<std::int32_t>(desc.softcap),
                  desc.has_sinks,
                  desc.has_lse,
                  desc.ragged_queries,
                  desc.total_queries,
                  desc.ragged_keys,
                  desc.total_keys,
                  desc.has_key_counts,
                  desc.page_size,
                  desc.pages,
                  desc.q_pitch,
                  desc.k_pitch,
                  desc.v_pitch,
                  desc.out_pitch,
                  desc.max_sms,
                  desc.choose_mapping,
                  static_cast<int>(desc.mapping)});
}

/// `wanted`: whether the descriptor asks for the tensor.
Status check_tensor(const char* name, const void* pointer, bool wanted, int alignment) {
  if (wanted) return check_pointer(name, pointer, alignment);
  if (pointer != nullptr)
    return invalid_argument(fmt::format("{} is given; allowed: null, as the descriptor does not ask for it", name));
  return {};
}

Status check_tensors(const AttentionDesc& desc, const AttentionTensors& tensors) {
  return first_failure({check_tensor("q", tensors.q, true, 16), check_tensor("k", tensors.k, true, 16),
                        check_tensor("v", tensors.v, true, 16), check_tensor("out", tensors.out, true, 16),
                        check_tensor("lse", tensors.lse, desc.has_lse, 4),
                        check_tensor("sinks", tensors.sinks, desc.has_sinks, 4),
                        check_tensor("query_starts", tensors.query_starts, desc.ragged_queries, 4),
                        check_tensor("key_starts", tensors.key_starts, desc.ragged_keys, 4),
                        check_tensor("key_counts", tensors.key_counts, desc.has_key_counts, 4),
                        check_tensor("block_table", tensors.block_table, desc.page_size > 0, 4)});
}

Status check_memory(const AttentionPlan& plan, const AttentionTensors& tensors) {
  const AttentionDesc& desc = plan.desc;
  const std::int64_t bytes = static_cast<std::int64_t>(bytes_of(desc.dtype)), batch = desc.batch;
  const std::int64_t queries = desc.ragged_queries ? desc.total_queries : batch * desc.max_queries;
  const std::int64_t keys = desc.page_size > 0 ? std::int64_t{desc.pages} * desc.page_size
                            : desc.ragged_keys ? desc.total_keys
                                               : batch * desc.max_keys;
  const std::int64_t of_query = desc.heads * desc.head_dim * bytes, of_key = desc.kv_heads * desc.head_dim * bytes;
  return check_apart({{"q", tensors.q, of_query, queries, desc.q_pitch * bytes},
                      {"k", tensors.k, of_key, keys, desc.k_pitch * bytes},
                      {"v", tensors.v, of_key, keys, desc.v_pitch * bytes},
                      {"sinks", tensors.sinks, desc.heads * 4},
                      {"query_starts", tensors.query_starts, (batch + 1) * 4},
                      {"key_starts", tensors.key_starts, (batch + 1) * 4},
                      {"key_counts", tensors.key_counts, batch * 4},
                      {"block_table", tensors.block_table, batch * plan.table_pitch() * 4}},
                     {{"out", tensors.out, of_query, queries, desc.out_pitch * bytes},
                      {"lse", tensors.lse, queries * desc.heads * 4}});
}

TensorMapDesc map_of_q(const AttentionPlan& plan, const void* q) {
  const AttentionDesc& desc = plan.desc;
  const bool ragged = desc.ragged_queries;
  return {.base = const_cast<void*>(q),
          .rows = ragged ? desc.total_queries : desc.max_queries,
          .columns = desc.head_dim,
          .pitch = desc.q_pitch,
          .box_rows = plan.block_queries,
          .box_columns = 64,
          .swizzled = true,
          .grid = {desc.heads, ragged ? 1 : desc.batch},
          .grid_pitch = {desc.head_dim, ragged ? desc.q_pitch : desc.q_pitch * desc.max_queries}};
}

/// Of k or v. A matrix of the grid is a head of a sequence, or of a page.
TensorMapDesc map_of_keys(const AttentionPlan& plan, const void* base, std::int64_t pitch) {
  const AttentionDesc& desc = plan.desc;
  const bool paged = desc.page_size > 0;
  const std::int64_t rows = paged ? desc.page_size : desc.ragged_keys ? desc.total_keys : desc.max_keys;
  return {.base = const_cast<void*>(base),
          .rows = rows,
          .columns = desc.head_dim,
          .pitch = pitch,
          .box_rows = paged && desc.page_size < plan.step_keys ? desc.page_size : plan.step_keys,
          .box_columns = 64,
          .swizzled = true,
          .grid = {desc.kv_heads, paged              ? desc.pages
                                  : desc.ragged_keys ? 1
                                                     : desc.batch},
          .grid_pitch = {desc.head_dim, pitch * rows}};
}

}  // namespace

struct Attention::State {
  World* world = nullptr;
  AttentionPlan plan;
  OpenedOperator opened;  ///< with one kernel and the workspace
  attention::Args args{};

  Status set_operands(const AttentionTensors& tensors);
};

/// Encodes the tensor maps again only if a tensor has another address than in the call before.
Status Attention::State::set_operands(const AttentionTensors& tensors) {
  const bool same = args.q_base == tensors.q && args.k_base == tensors.k && args.v_base == tensors.v;
  args.q_base = tensors.q;
  args.k_base = tensors.k;
  args.v_base = tensors.v;
  args.out = tensors.out;
  args.lse = tensors.lse;
  args.sinks = tensors.sinks;
  args.query_starts = tensors.query_starts;
  args.key_starts = tensors.key_starts;
  args.key_counts = tensors.key_counts;
  args.block_table = tensors.block_table;
  const Device& device = world->device();
  if (same || device.shape().traits.matrix_unit != MatrixUnit::kWgmma) return {};
  const auto q = device.encode(map_of_q(plan, tensors.q));
  const auto k = device.encode(map_of_keys(plan, tensors.k, plan.desc.k_pitch));
  const auto v = device.encode(map_of_keys(plan, tensors.v, plan.desc.v_pitch));
  for (const auto* map : {&q, &k, &v}) {
    if (map->ok()) continue;
    args.q_base = nullptr;  // so that the next call encodes the maps again
    return map->status();
  }
  args.q = *q;
  args.k = *k;
  args.v = *v;
  return {};
}

Result<Attention> Attention::create(World& world, const AttentionDesc& desc) {
  const auto plan = plan_attention(desc, world.device().shape());
  const AttentionPlan wanted = plan.ok() ? *plan : AttentionPlan{};
  auto opened = open_state<State>(world, plan,
                                  {.name = "attention",
                                   .site_names = attention::kSiteNames,
                                   .configuration = configuration_of(desc),
                                   .kernels = {wanted.kernel},
                                   .buffers = {{wanted.workspace_bytes, 0xff}}});
  if (!opened.ok()) return opened.status();
  std::unique_ptr<State> state = std::move(*opened);
  const AttentionDesc& filled = plan->desc;
  const auto rows = [&](std::int64_t pitch, bool ragged, int count) {
    return attention::Rows{pitch, ragged ? 0 : pitch * count};
  };
  const bool paged = filled.page_size > 0;
  const int key_rows = paged ? filled.page_size : filled.max_keys;
  attention::Args& args = state->args;
  args.view = world.view();
  args.slot = state->opened.slot();
  args.grid = plan->grid(world.device().shape());
  args.by_group = Divisor(filled.heads / filled.kv_heads);
  args.by_page = Divisor(paged ? filled.page_size : 1);
  args.heads = filled.heads;
  args.kv_heads = filled.kv_heads;
  args.head_dim = filled.head_dim;
  args.max_queries = filled.max_queries;
  args.max_keys = filled.max_keys;
  args.total_queries = filled.total_queries;
  args.total_keys = filled.total_keys;
  args.page_size = filled.page_size;
  args.pages = filled.pages;
  args.table_pitch = plan->table_pitch();
  args.window_left = filled.window_left;
  args.window_right = filled.window_right;
  args.scale = filled.softcap > 0 ? filled.softcap : filled.scale;
  args.scale_log2 = static_cast<float>(args.scale * kLog2E);
  args.cap_log2 = filled.softcap > 0 ? static_cast<float>(2 * kLog2E * filled.scale / filled.softcap) : 0;
  args.counter = static_cast<std::int64_t>(state->opened.buffer(0).offset);
  args.q_rows = rows(filled.q_pitch, filled.ragged_queries, filled.max_queries);
  args.k_rows = rows(filled.k_pitch, filled.ragged_keys, key_rows);
  args.v_rows = rows(filled.v_pitch, filled.ragged_keys, key_rows);
  args.out_rows = rows(filled.out_pitch, filled.ragged_queries, filled.max_queries);
  return Attention(std::move(state));
}

Attention::Attention(std::unique_ptr<State> state) : state_(std::move(state)) {}
Attention::Attention(Attention&&) noexcept = default;
Attention& Attention::operator=(Attention&&) noexcept = default;
Attention::~Attention() = default;

Status Attention::close() { return close_opened("Attention", state_); }

const AttentionPlan& Attention::plan() const {
  static const AttentionPlan kNone;
  return state_ ? state_->plan : kNone;
}

Status Attention::operator()(const AttentionTensors& tensors, Stream stream) {
  if (Status open = check_open("Attention", state_); !open.ok()) return open;
  State& state = *state_;
  Status status = check_tensors(state.plan.desc, tensors);
  if (status.ok()) status = check_memory(state.plan, tensors);
  if (status.ok()) status = state.world->status();
  if (status.ok()) status = state.set_operands(tensors);
  if (!status.ok()) return status;
  const LaunchConfig config{state.plan.blocks, state.plan.threads, static_cast<std::size_t>(state.plan.shared_bytes)};
  return launch(state.world->device(), state.opened.kernel(0), config, state.args, stream);
}

}  // namespace farwarp
