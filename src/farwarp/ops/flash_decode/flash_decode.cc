#include "farwarp/ops/flash_decode/flash_decode.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "farwarp/base/arguments.h"
#include "farwarp/base/overlap.h"
#include "farwarp/ops/flash_decode/args.h"
#include "farwarp/ops/flash_decode/layout.h"
#include "farwarp/world/host/opened_operator.h"

namespace farwarp {
namespace {

constexpr double kLog2OfE = 1.4426950408889634;

std::uint64_t configuration_of(const FlashDecodeDesc& desc) {
  return hash_of({desc.batch, desc.query_tokens, desc.query_heads, desc.kv_heads, desc.head_dim, desc.page_size,
                  desc.max_pages, static_cast<int>(desc.dtype), static_cast<int>(desc.kv_dtype),
                  static_cast<int>(desc.layout), desc.window, desc.sinks,
                  static_cast<std::int64_t>(desc.scale * 0x1p40), desc.kv_shards, static_cast<int>(desc.exchange),
                  desc.split_keys, static_cast<int>(desc.work), desc.max_sms});
}

/// Elements from page to page, from KV head to KV head and from key to key, in the cache's own type.
struct CachePitches {
  std::int64_t page, head, row;
};
CachePitches pitches_of(const FlashDecodeDesc& desc) {
  const std::int64_t dim = desc.head_dim, heads = desc.kv_heads, rows = desc.page_size;
  if (desc.layout == KvLayout::kTokensFirst) return {rows * heads * dim, dim, heads * dim};
  return {rows * heads * dim, rows * dim, dim};
}

Status check_given(const char* name, const void* pointer, int alignment, bool wanted, const char* why) {
  if (wanted) return check_pointer(name, pointer, alignment);
  if (pointer != nullptr) return invalid_argument(fmt::format("{} is given; allowed: null, as {}", name, why));
  return {};
}

Status check_tensors(const FlashDecodeDesc& desc, const FlashDecodeTensors& given) {
  const bool fp8 = desc.kv_dtype == KvDType::kFp8;
  return first_failure({check_pointer("q", given.q, 16), check_pointer("k", given.k, 16),
                        check_pointer("v", given.v, 16), check_pointer("block_table", given.block_table, 4),
                        check_pointer("lengths", given.lengths, 4), check_pointer("out", given.out, 16),
                        given.lse == nullptr ? Status() : check_pointer("lse", given.lse, 4),
                        check_given("k_scale", given.k_scale, 4, fp8, "FlashDecodeDesc.kv_dtype is same"),
                        check_given("v_scale", given.v_scale, 4, fp8, "FlashDecodeDesc.kv_dtype is same"),
                        check_given("sinks", given.sinks, 4, desc.sinks, "FlashDecodeDesc.sinks is false")});
}

Status check_memory(const FlashDecodeDesc& desc, const FlashDecodeTensors& given) {
  const auto bytes = static_cast<std::int64_t>(bytes_of(desc.dtype));
  const std::int64_t cache_bytes = desc.kv_dtype == KvDType::kFp8 ? 1 : bytes;
  const std::int64_t tokens = std::int64_t{desc.batch} * desc.query_tokens;
  const std::int64_t of_results = tokens * desc.query_heads * desc.head_dim * bytes;
  const std::int64_t of_cache = std::int64_t{desc.pages} * desc.page_size * desc.kv_heads * desc.head_dim * cache_bytes;
  return check_apart({{"q", given.q, of_results},
                      {"k", given.k, of_cache},
                      {"v", given.v, of_cache},
                      {"block_table", given.block_table, std::int64_t{desc.batch} * desc.max_pages * 4},
                      {"lengths", given.lengths, desc.batch * 4},
                      {"k_scale", given.k_scale, desc.kv_heads * 4},
                      {"v_scale", given.v_scale, desc.kv_heads * 4},
                      {"sinks", given.sinks, desc.query_heads * 4}},
                     {{"out", given.out, of_results}, {"lse", given.lse, tokens * desc.query_heads * 4}});
}

}  // namespace

struct FlashDecode::State {
  World* world = nullptr;
  FlashDecodePlan plan;
  OpenedOperator opened;  ///< with one kernel; buffers: workspace, counters, inbox
  decode::Args args{};

  Result<TensorMap> map_of(const void* pages) const;
  Status set_cache(const void* k, const void* v);
};

/// The map of one matrix for each (KV head, page). To the copies fp8 elements are pairs, so a map has half as many
/// columns.
Result<TensorMap> FlashDecode::State::map_of(const void* pages) const {
  const FlashDecodeDesc& desc = plan.desc;
  const CachePitches pitches = pitches_of(desc);
  const bool fp8 = desc.kv_dtype == KvDType::kFp8;
  const int elements = fp8 ? 2 : 1;
  const decode::DecodeShared shared{plan.dim, plan.block_rows, decode::Source::kTensor, fp8};
  return world->device().encode({.base = const_cast<void*>(pages),
                                 .rows = desc.page_size,
                                 .columns = desc.head_dim / elements,
                                 .pitch = pitches.row / elements,
                                 .box_rows = desc.page_size < decode::kStageKeys ? desc.page_size : decode::kStageKeys,
                                 .box_columns = fp8 ? plan.dim / 2 : 64,
                                 .swizzled = shared.swizzled(),
                                 .grid = {desc.kv_heads, desc.pages},
                                 .grid_pitch = {pitches.head / elements, pitches.page / elements}});
}

/// Encodes the maps again only if the cache has another address than in the call before.
Status FlashDecode::State::set_cache(const void* k, const void* v) {
  if (args.k_pages == k && args.v_pages == v) return {};
  args.k_pages = args.v_pages = nullptr;
  if (plan.desc.page_size > 1 && world->device().shape().traits.bulk_copy) {
    const auto of_k = map_of(k), of_v = map_of(v);
    if (!of_k.ok()) return of_k.status();
    if (!of_v.ok()) return of_v.status();
    args.k = *of_k;
    args.v = *of_v;
  }
  args.k_pages = k;
  args.v_pages = v;
  return {};
}

Result<FlashDecode> FlashDecode::create(World& world, const FlashDecodeDesc& desc) {
  const auto plan = plan_flash_decode(desc, world.device().shape(), world.size());
  const FlashDecodePlan wanted = plan.ok() ? *plan : FlashDecodePlan{};
  auto opened = open_state<State>(
      world, plan,
      {.name = "flash-decode",
       .site_names = decode::kSiteNames,
       .configuration = configuration_of(desc),
       .kernels = {wanted.kernel},
       .buffers = {{wanted.workspace_bytes}, {wanted.counter_bytes, 0xff}, {wanted.inbox_bytes, 0xff}}});
  if (!opened.ok()) return opened.status();
  std::unique_ptr<State> state = std::move(*opened);
  const FlashDecodeDesc& full = plan->desc;
  const CachePitches pitches = pitches_of(full);
  const auto workspace = static_cast<std::int64_t>(state->opened.buffer(0).offset);
  const auto counters = static_cast<std::int64_t>(state->opened.buffer(1).offset);
  const auto inbox = static_cast<std::int64_t>(state->opened.buffer(2).offset);
  decode::Args& args = state->args;
  args.view = world.view();
  args.slot = state->opened.slot();
  args.rule = {full.query_tokens, full.window, Divisor(plan->target_splits), full.split_keys / decode::kStageKeys};
  args.batch = full.batch;
  args.kv_heads = full.kv_heads;
  args.group = full.query_heads / full.kv_heads;
  args.head_dim = full.head_dim;
  args.rows = plan->rows;
  args.block_rows = plan->block_rows;
  args.item_rows = plan->item_rows;
  args.work_shift = full.work == DecodeWork::kBest    ? -1
                    : full.work == DecodeWork::kSplit ? 0
                    : full.work == DecodeWork::kGroup ? decode::kGroupShift
                                                      : decode::kAllShift;
  args.share_factor = plan->share_factor;
  const int most_keys = full.max_pages * full.page_size;
  args.most_visible = full.window == 0 ? most_keys : std::min(most_keys, full.window + full.query_tokens - 1);
  args.row_blocks = plan->row_blocks;
  args.by_items = Divisor(full.kv_heads * plan->row_blocks);
  args.by_row_blocks = Divisor(plan->row_blocks);
  args.by_kv_heads = Divisor(full.kv_heads);
  args.by_group = Divisor(args.group);
  args.by_item_rows = Divisor(plan->item_rows);
  args.by_ranks = Divisor(world.size());
  args.most_partials = plan->most_splits;
  args.page_size = full.page_size;
  args.pages = full.pages;
  args.max_pages = full.max_pages;
  args.page_pitch = pitches.page;
  args.head_pitch = pitches.head;
  args.row_pitch = pitches.row;
  args.scale = full.scale;
  args.scale_log2 = static_cast<float>(full.scale * kLog2OfE);
  args.exchange = full.kv_shards == 1                         ? decode::Exchange::kNone
                  : full.exchange == DecodeExchange::kOneShot ? decode::Exchange::kOneShot
                                                              : decode::Exchange::kTwoShot;
  args.at = {workspace, workspace + plan->statistics, counters, inbox, inbox + plan->finished};
  return FlashDecode(std::move(state));
}

FlashDecode::FlashDecode(std::unique_ptr<State> state) : state_(std::move(state)) {}
FlashDecode::FlashDecode(FlashDecode&&) noexcept = default;
FlashDecode& FlashDecode::operator=(FlashDecode&&) noexcept = default;
FlashDecode::~FlashDecode() = default;

Status FlashDecode::close() { return close_opened("FlashDecode", state_); }

const FlashDecodePlan& FlashDecode::plan() const {
  static const FlashDecodePlan kNone;
  return state_ ? state_->plan : kNone;
}

void FlashDecode::drop_put(int number) {
  if (state_) state_->args.drop_put = static_cast<std::uint32_t>(number);
}

Status FlashDecode::operator()(const FlashDecodeTensors& tensors, Stream stream) {
  if (Status open = check_open("FlashDecode", state_); !open.ok()) return open;
  State& state = *state_;
  Status status = check_tensors(state.plan.desc, tensors);
  if (status.ok()) status = check_memory(state.plan.desc, tensors);
  if (status.ok()) status = state.world->status();
  if (status.ok()) status = state.set_cache(tensors.k, tensors.v);
  if (!status.ok()) return status;
  decode::Args& args = state.args;
  args.q = tensors.q;
  args.block_table = tensors.block_table;
  args.lengths = tensors.lengths;
  args.k_scale = tensors.k_scale;
  args.v_scale = tensors.v_scale;
  args.sinks = tensors.sinks;
  args.out = tensors.out;
  args.lse = tensors.lse;
  const LaunchConfig config{state.plan.blocks, state.plan.threads, static_cast<std::size_t>(state.plan.shared_bytes)};
  return launch(state.world->device(), state.opened.kernel(0), config, args, stream);
}

}  // namespace farwarp
