#include "farwarp/ops/flash_decode/case/unfused.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "farwarp/base/arguments.h"
#include "farwarp/ops/flash_decode/case/unfused_args.h"
#include "farwarp/runtime/device_memory.h"
#include "farwarp/world/host/nccl_group.h"
#include "farwarp/world/host/opened_operator.h"

namespace farwarp::decode {
namespace {

constexpr int kRowsOfBlock = kUnfusedThreads / kUnfusedVectors;

/// The descriptor of the local call. The sinks are added when parts are merged, once.
FlashDecodeDesc local_desc(FlashDecodeDesc desc) {
  desc.kv_shards = 1;
  desc.exchange = DecodeExchange::kBest;
  desc.sinks = false;
  return desc;
}

std::int64_t rows_of(const FlashDecodeDesc& desc) { return std::int64_t{desc.batch} * desc.query_heads; }
std::int64_t inbox_bytes(const FlashDecodeDesc& desc, int ranks) {
  return 2 * ranks * rows_of(desc) * (kUnfusedVectors + 1) * 16;
}

}  // namespace

struct UnfusedDecode::State {
  World* world = nullptr;
  FlashDecodePlan plan;   ///< of the local call
  OpenedOperator opened;  ///< kernels: combine, exchange; buffer: inbox
  std::optional<FlashDecode> decode;
  DeviceMemory part, gathered;
  std::optional<NcclGroup> group;  ///< after the buffers, so that it is destroyed before them
  Status nccl;
  UnfusedArgs args{};
  int blocks = 1;

  Status allocate_parts();
  Status open_nccl();
  Status gather(Stream stream);
  Status merge(std::size_t kernel, const void* parts, const FlashDecodeTensors& tensors, Stream stream);
};

Status UnfusedDecode::State::allocate_parts() {
  const auto bytes = static_cast<std::size_t>(args.part_bytes), ranks = static_cast<std::size_t>(args.ranks);
  auto own = DeviceMemory::create(world->device(), bytes), all = DeviceMemory::create(world->device(), bytes * ranks);
  if (!own.ok()) return own.status();
  if (!all.ok()) return all.status();
  part = std::move(*own);
  gathered = std::move(*all);
  return {};
}

/// Ok without NCCL: `nccl` then says why.
Status UnfusedDecode::State::open_nccl() {
  auto created = NcclGroup::create(*world, {});
  nccl = created.status();
  if (nccl.code() == StatusCode::kUnavailable) return {};
  if (!nccl.ok()) return nccl;
  group.emplace(std::move(*created));
  const auto stream = world->device().create_stream();
  if (!stream.ok()) return stream.status();
  Status status = group->connect(*stream, [&] { return gather(*stream); });
  if (!group->stuck()) world->device().destroy_stream(*stream);
  return status;
}

Status UnfusedDecode::State::gather(Stream stream) {
  const nccl::Library& library = group->library();
  return group->grouped([&] {
    return library.call(library.all_gather, part.get(), gathered.get(), static_cast<std::size_t>(args.part_bytes / 4),
                        nccl::DataType::kInt32, group->communicator(), static_cast<nccl::StreamHandle>(stream.handle));
  });
}

Status UnfusedDecode::State::merge(std::size_t kernel, const void* parts, const FlashDecodeTensors& tensors,
                                   Stream stream) {
  args.parts = static_cast<const std::byte*>(parts);
  args.sinks = tensors.sinks;
  args.out = tensors.out;
  args.lse = tensors.lse;
  return launch(world->device(), opened.kernel(kernel), {blocks, kUnfusedThreads, 0}, args, stream);
}

Result<std::int64_t> UnfusedDecode::heap_bytes(const FlashDecodeDesc& desc, const MachineShape& shape, int ranks) {
  const auto plan = plan_flash_decode(local_desc(desc), shape, ranks);
  if (!plan.ok()) return plan.status();
  return plan->workspace_bytes + plan->counter_bytes + inbox_bytes(desc, ranks);
}

Result<UnfusedDecode> UnfusedDecode::create(World& world, const FlashDecodeDesc& desc) {
  const FlashDecodeDesc local = local_desc(desc);
  const auto plan = plan_flash_decode(local, world.device().shape(), world.size());
  const std::string type(name_of(desc.dtype));
  auto opened = open_state<State>(
      world, plan,
      {.name = "flash-decode unfused",
       .site_names = kUnfusedSiteNames,
       .configuration = hash_of({desc.batch, desc.query_heads, desc.head_dim, static_cast<int>(desc.dtype)}),
       .kernels = {"flash_decode_unfused_combine_" + type, "flash_decode_unfused_exchange_" + type},
       .buffers = {{inbox_bytes(desc, world.size()), 0xff}}});
  if (!opened.ok()) return opened.status();
  UnfusedDecode result(std::move(*opened));
  State& state = *result.state_;
  auto decode = FlashDecode::create(world, local);
  if (!decode.ok()) return decode.status();
  state.decode.emplace(std::move(*decode));
  const std::int64_t rows = rows_of(desc), bytes = rows * desc.head_dim * 2;
  state.args.view = world.view();
  state.args.slot = state.opened.slot();
  state.args.ranks = world.size();
  state.args.rows = static_cast<std::int32_t>(rows);
  state.args.query_heads = desc.query_heads;
  state.args.head_dim = desc.head_dim;
  state.args.lse_offset = bytes;
  state.args.part_bytes = (bytes + rows * 4 + 15) / 16 * 16;
  state.args.inbox = static_cast<std::int64_t>(state.opened.buffer(0).offset);
  // They wait for peers, so all blocks must be resident.
  state.blocks = static_cast<int>(
      std::min<std::int64_t>((rows + kRowsOfBlock - 1) / kRowsOfBlock, world.device().shape().multiprocessors));
  Status status = state.allocate_parts();
  if (status.ok()) status = state.open_nccl();
  if (!status.ok()) return status;
  return result;
}

UnfusedDecode::UnfusedDecode(std::unique_ptr<State> state) : state_(std::move(state)) {}
UnfusedDecode::UnfusedDecode(UnfusedDecode&&) noexcept = default;
UnfusedDecode& UnfusedDecode::operator=(UnfusedDecode&&) noexcept = default;
UnfusedDecode::~UnfusedDecode() = default;

Status UnfusedDecode::close() {
  Status status = state_->decode->close();
  return status.ok() ? close_opened("UnfusedDecode", state_) : status;
}

Status UnfusedDecode::local(const FlashDecodeTensors& tensors, Stream stream) {
  FlashDecodeTensors own = tensors;
  own.sinks = nullptr;
  own.out = state_->part.get();
  own.lse = reinterpret_cast<float*>(static_cast<std::byte*>(state_->part.get()) + state_->args.lse_offset);
  return (*state_->decode)(own, stream);
}

Status UnfusedDecode::fused_wait(const FlashDecodeTensors& tensors, Stream stream) {
  Status status = local(tensors, stream);
  return status.ok() ? state_->merge(1, state_->part.get(), tensors, stream) : status;
}

Status UnfusedDecode::bsp(const FlashDecodeTensors& tensors, Stream stream) {
  if (!state_->nccl.ok()) return state_->nccl;
  Status status = local(tensors, stream);
  if (status.ok()) status = state_->gather(stream);
  return status.ok() ? state_->merge(0, state_->gathered.get(), tensors, stream) : status;
}

harness::Staged UnfusedDecode::staged(const FlashDecodeTensors& tensors, Stream stream) {
  State& state = *state_;
  const std::vector<harness::DeviceSpan> part = {{state.part.get(), state.part.bytes()}};
  const harness::Stage own{.name = "this rank's keys", .enqueue = [=, this] { return local(tensors, stream); }};
  const auto merging = [=, &state](std::size_t kernel, const void* parts) {
    return [=, &state] { return state.merge(kernel, parts, tensors, stream); };
  };
  if (!state.nccl.ok())
    return {
        "fused-wait",
        {own, {.name = "send and merge", .exchange = true, .enqueue = merging(1, state.part.get()), .reads = part}}};
  const harness::Stage gather{.name = "NCCL, all-gather",
                              .exchange = true,
                              .enqueue = [=, &state] { return state.gather(stream); },
                              .reads = part};
  return {describe_bsp(),
          {own,
           gather,
           {.name = "merge",
            .enqueue = merging(0, state.gathered.get()),
            .reads = {{state.gathered.get(), state.gathered.bytes()}}}}};
}

const Status& UnfusedDecode::nccl() const { return state_->nccl; }

std::string UnfusedDecode::describe_bsp() const { return "bsp, " + state_->group->library().describe(); }

}  // namespace farwarp::decode
