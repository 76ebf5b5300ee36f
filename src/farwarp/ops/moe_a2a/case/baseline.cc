#include "farwarp/ops/moe_a2a/case/baseline.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "farwarp/ops/moe_a2a/case/baseline_args.h"
#include "farwarp/world/host/nccl_group.h"

namespace farwarp {
namespace moe {
namespace {

constexpr int kVectorBytes = 16;
constexpr std::uint64_t kUploadTimeout = 60'000'000'000;

Status check_rows(const char* name, const void* pointer) {
  if (pointer != nullptr && reinterpret_cast<std::uintptr_t>(pointer) % kVectorBytes == 0) return {};
  return invalid_argument(fmt::format("{} is {}; allowed: a multiple of {}", name, fmt::ptr(pointer), kVectorBytes));
}

}  // namespace

Result<MoeBaselineKernels> MoeBaselineKernels::create(Device& device, const MoeAllToAllDesc& desc, int rank,
                                                      int ranks) {
  const auto plan = plan_moe_all_to_all(desc, device.shape(), ranks);  // for its checks
  if (!plan.ok()) return plan.status();
  MoeBaselineKernels kernels(device, desc, rank, ranks);
  const std::string prefix = "moe_a2a_baseline_", type = name_of(desc.dtype);
  const auto pack = kernels.find(prefix + "pack");
  const auto expert = kernels.find(prefix + "expert_" + type);
  const auto unpack = kernels.find(prefix + "unpack_" + type);
  for (const auto* found : {&pack, &expert, &unpack}) {
    if (!found->ok()) return found->status();
  }
  kernels.pack_ = *pack;
  kernels.expert_ = *expert;
  kernels.unpack_ = *unpack;
  return kernels;
}

Result<MoeBaselineKernels::SizedKernel> MoeBaselineKernels::find(const std::string& name) const {
  const auto kernel = device_->kernel(name);
  if (!kernel.ok()) return kernel.status();
  const auto resident = device_->blocks_per_multiprocessor(*kernel, kBaselineThreads, 0);
  if (!resident.ok()) return resident.status();
  return SizedKernel{*kernel, *resident * device_->shape().multiprocessors};
}

Result<MoeBaselineKernels::DeviceMemory> MoeBaselineKernels::allocate(std::size_t bytes) const {
  const auto memory = device_->allocate(std::max<std::size_t>(bytes, kVectorBytes));
  if (!memory.ok()) return memory.status();
  return DeviceMemory(*memory, Release{device_});
}

Status MoeBaselineKernels::check(int prepared) const {
  if (prepared >= 0 && prepared < static_cast<int>(prepared_.size())) return {};
  return invalid_argument(
      fmt::format("prepared is {}; allowed: a handle from prepare(), below {}", prepared, prepared_.size()));
}

Status MoeBaselineKernels::check(std::span<const Routing> routings) const {
  if (routings.size() != static_cast<std::size_t>(ranks_)) {
    return invalid_argument(fmt::format("routings has {} ranks; allowed: {}", routings.size(), ranks_));
  }
  for (std::size_t rank = 0; rank < routings.size(); ++rank) {
    const Routing& routing = routings[rank];
    const std::string name = fmt::format("routings[{}]", rank);
    if (routing.tokens < 0 || routing.tokens > desc_.max_tokens) {
      return invalid_argument(fmt::format("{}.tokens is {}; allowed: 0 to {}", name, routing.tokens, desc_.max_tokens));
    }
    const auto entries = static_cast<std::size_t>(routing.tokens) * static_cast<std::size_t>(desc_.experts_per_token);
    if (routing.experts.size() != entries) {
      return invalid_argument(
          fmt::format("{}.experts has {} entries; allowed: {}", name, routing.experts.size(), entries));
    }
    for (const std::int32_t expert : routing.experts) {
      if (expert >= -1 && expert < desc_.num_experts) continue;
      return invalid_argument(fmt::format("{}.experts has {}; allowed: -1 to {}", name, expert, desc_.num_experts - 1));
    }
  }
  return {};
}

Status MoeBaselineKernels::reserve_rows(std::size_t bytes) {
  if (!row_buffers_.empty() && bytes <= last_bytes_) return {};
  auto rows = allocate(bytes);
  if (!rows.ok()) return rows.status();
  row_buffers_.push_back(std::move(*rows));
  last_bytes_ = bytes;
  return {};
}

Result<int> MoeBaselineKernels::prepare(std::span<const Routing> routings) {
  if (Status status = check(routings); !status.ok()) return status;
  const auto ranks = static_cast<std::size_t>(ranks_), rank = static_cast<std::size_t>(rank_);
  const auto owner = [this](std::int32_t expert) {
    return static_cast<std::size_t>(moe_rank_of(expert, ranks_, desc_.num_experts));
  };
  const Routing& own = routings[rank];
  std::vector<std::int64_t> to(ranks), from(ranks), entries(static_cast<std::size_t>(desc_.num_experts));
  for (std::size_t source = 0; source < ranks; ++source) {
    for (const std::int32_t expert : routings[source].experts) from[source] += expert >= 0 && owner(expert) == rank;
  }
  for (const std::int32_t expert : own.experts) {
    if (expert < 0) continue;
    ++entries[static_cast<std::size_t>(expert)];
    if (owner(expert) != rank) ++to[owner(expert)];
  }
  const std::int64_t rows_sent = std::accumulate(to.begin(), to.end(), std::int64_t{0});
  Prepared prepared;
  prepared.tokens = own.tokens;
  prepared.rows_received = std::accumulate(from.begin(), from.end(), std::int64_t{0});
  Status status = reserve_rows(static_cast<std::size_t>(rows_sent + prepared.rows_received) * row_bytes());
  if (!status.ok()) return status;
  prepared.rows = static_cast<std::byte*>(row_buffers_.back().get());
  prepared.first_received = prepared.rows + static_cast<std::size_t>(rows_sent) * row_bytes();

  std::int64_t row = 0;
  const auto chunks = [&](const std::vector<std::int64_t>& counts) {
    std::vector<BaselineChunk> result;
    for (const std::int64_t count : counts) {
      result.push_back({prepared.rows + static_cast<std::size_t>(row) * row_bytes(),
                        static_cast<std::size_t>(count) * static_cast<std::size_t>(desc_.hidden)});
      row += count;
    }
    return result;
  };
  prepared.sent = chunks(to);
  prepared.received = chunks(from);

  // Sorting by expert also sorts by destination. An expert's entries are in the order of tokens and k-slots.
  std::int64_t next_sent = 0;
  std::int64_t next_own = std::accumulate(from.begin(), from.begin() + rank_, rows_sent);
  std::vector<std::int64_t> next(entries.size());
  for (std::size_t expert = 0; expert < entries.size(); ++expert) {
    std::int64_t& cursor = owner(static_cast<std::int32_t>(expert)) == rank ? next_own : next_sent;
    next[expert] = cursor;
    cursor += entries[expert];
  }
  std::vector<std::int32_t> packed_rows;
  for (const std::int32_t expert : own.experts) {
    packed_rows.push_back(expert < 0 ? -1 : static_cast<std::int32_t>(next[static_cast<std::size_t>(expert)]++));
  }
  auto memory = allocate(packed_rows.size() * sizeof(packed_rows[0]));
  if (!memory.ok()) return memory.status();
  prepared.packed_rows = std::move(*memory);
  if (!packed_rows.empty()) {
    status = device_->copy_in(prepared.packed_rows.get(), packed_rows.data(),
                              packed_rows.size() * sizeof(packed_rows[0]), Stream{});
    if (status.ok()) status = device_->synchronize(Stream{}, kUploadTimeout);  // calls use other streams
    if (!status.ok()) return status;
  }
  prepared_.push_back(std::move(prepared));
  return static_cast<int>(prepared_.size()) - 1;
}

template <class Args>
Status MoeBaselineKernels::run(const SizedKernel& kernel, const Args& args, std::int64_t vectors, Stream stream) {
  if (vectors == 0) return {};
  const std::int64_t wanted = (vectors + kBaselineThreads - 1) / kBaselineThreads;
  const int blocks = static_cast<int>(std::min<std::int64_t>(wanted, kernel.most_blocks));
  return launch(*device_, kernel.kernel, {blocks, kBaselineThreads, 0}, args, stream);
}

Status MoeBaselineKernels::pack(int prepared, const void* x, Stream stream) {
  if (Status status = check(prepared); !status.ok()) return status;
  const Prepared& call = prepared_[static_cast<std::size_t>(prepared)];
  if (call.tokens == 0) return {};
  if (Status status = check_rows("x", x); !status.ok()) return status;
  BaselineTokenArgs args{};
  args.tokens = call.tokens;
  args.k = desc_.experts_per_token;
  args.vectors = static_cast<std::int32_t>(row_bytes() / kVectorBytes);
  args.packed_rows = Global(static_cast<const std::int32_t*>(call.packed_rows.get()));
  args.x = Global(static_cast<const Vec16*>(x));
  args.rows = Global(reinterpret_cast<Vec16*>(call.rows));
  return run(pack_, args, std::int64_t{args.tokens} * args.vectors, stream);
}

Status MoeBaselineKernels::apply_experts(int prepared, Stream stream) {
  if (Status status = check(prepared); !status.ok()) return status;
  const Prepared& call = prepared_[static_cast<std::size_t>(prepared)];
  BaselineExpertArgs args{};
  args.rows = Global(reinterpret_cast<Vec16*>(call.first_received));
  args.vectors = call.rows_received * static_cast<std::int64_t>(row_bytes() / kVectorBytes);
  args.scale = static_cast<float>(1 + rank_);
  return run(expert_, args, args.vectors, stream);
}

Status MoeBaselineKernels::unpack(int prepared, const float* weights, void* out, Stream stream) {
  if (Status status = check(prepared); !status.ok()) return status;
  const Prepared& call = prepared_[static_cast<std::size_t>(prepared)];
  if (call.tokens == 0) return {};
  if (weights == nullptr) return invalid_argument("weights is null; allowed: a device pointer");
  if (Status status = check_rows("out", out); !status.ok()) return status;
  BaselineTokenArgs args{};
  args.tokens = call.tokens;
  args.k = desc_.experts_per_token;
  args.vectors = static_cast<std::int32_t>(row_bytes() / kVectorBytes);
  args.packed_rows = Global(static_cast<const std::int32_t*>(call.packed_rows.get()));
  args.weights = Global(weights);
  args.out = Global(static_cast<Vec16*>(out));
  args.rows = Global(reinterpret_cast<Vec16*>(call.rows));
  return run(unpack_, args, std::int64_t{args.tokens} * args.vectors, stream);
}

}  // namespace moe

using moe::BaselineChunk;
using Chunks = std::span<const BaselineChunk>;

struct MoeNcclBaseline::State {
  State(World& its_world, NcclGroup its_group, moe::MoeBaselineKernels its_kernels, DType dtype)
      : world(its_world), kernels(std::move(its_kernels)), group(std::move(its_group)), type(nccl::data_type(dtype)) {}
  Status connect();
  Status exchange(Chunks out, Chunks in, Stream stream);

  World& world;
  moe::MoeBaselineKernels kernels;
  NcclGroup group;  // after `kernels`, so that it is destroyed before the buffers
  nccl::DataType type;
};

Status MoeNcclBaseline::State::connect() {
  constexpr std::size_t kElements = 8, kBytes = kElements * 2;
  Device& device = world.device();
  const auto ranks = static_cast<std::size_t>(world.size());
  const auto memory = device.allocate(2 * ranks * kBytes);
  if (!memory.ok()) return memory.status();
  const auto stream = device.create_stream();
  std::vector<BaselineChunk> chunks;
  for (std::size_t i = 0; i < 2 * ranks; ++i) {
    chunks.push_back({static_cast<std::byte*>(*memory) + i * kBytes, kElements});
  }
  Status status = stream.status();
  if (status.ok()) {
    status = group.connect(*stream,
                           [&] { return exchange(Chunks(chunks).first(ranks), Chunks(chunks).last(ranks), *stream); });
  }
  if (group.stuck()) return status;
  if (stream.ok()) device.destroy_stream(*stream);
  device.release(*memory);
  return status;
}

Status MoeNcclBaseline::State::exchange(Chunks out, Chunks in, Stream stream) {
  const nccl::Library& nccl = group.library();
  const auto handle = static_cast<nccl::StreamHandle>(stream.handle);
  const int ranks = world.size(), rank = world.rank();
  return group.grouped([&] {
    Status status;
    for (int distance = 1; distance < ranks && status.ok(); ++distance) {  // so that not all ranks send to rank 0 first
      const int to = (rank + distance) % ranks, from = (rank + ranks - distance) % ranks;
      const BaselineChunk &going = out[static_cast<std::size_t>(to)], &coming = in[static_cast<std::size_t>(from)];
      if (going.elements != 0) {
        status = nccl.call(nccl.send, going.rows, going.elements, type, to, group.communicator(), handle);
      }
      if (status.ok() && coming.elements != 0) {
        status = nccl.call(nccl.recv, coming.rows, coming.elements, type, from, group.communicator(), handle);
      }
    }
    return status;
  });
}

Result<MoeNcclBaseline> MoeNcclBaseline::create(World& world, const MoeAllToAllDesc& desc) {
  auto kernels = moe::MoeBaselineKernels::create(world.device(), desc, world.rank(), world.size());
  auto group = NcclGroup::create(world, kernels.status());
  if (!group.ok()) return group.status();
  auto state = std::make_unique<State>(world, std::move(*group), std::move(*kernels), desc.dtype);
  if (Status status = state->connect(); !status.ok()) return status;
  return MoeNcclBaseline(std::move(state));
}

MoeNcclBaseline::MoeNcclBaseline(std::unique_ptr<State> state) : state_(std::move(state)) {}
MoeNcclBaseline::MoeNcclBaseline(MoeNcclBaseline&&) noexcept = default;
MoeNcclBaseline& MoeNcclBaseline::operator=(MoeNcclBaseline&&) noexcept = default;
MoeNcclBaseline::~MoeNcclBaseline() = default;

Result<int> MoeNcclBaseline::prepare(std::span<const moe::Routing> routings) {
  return state_->kernels.prepare(routings);
}

std::vector<harness::Stage> MoeNcclBaseline::stages(int prepared, const void* x, const float* weights, void* out,
                                                    Stream stream) {
  moe::MoeBaselineKernels& kernels = state_->kernels;
  const auto spans_of = [](Chunks chunks) {
    std::vector<harness::DeviceSpan> spans;
    for (const BaselineChunk& chunk : chunks) {
      if (chunk.elements != 0) spans.push_back({chunk.rows, 2 * chunk.elements});
    }
    return spans;
  };
  std::vector<harness::DeviceSpan> sent = spans_of(kernels.sent(prepared)),
                                   received = spans_of(kernels.received(prepared)), all = sent;
  all.insert(all.end(), received.begin(), received.end());
  State* const state = state_.get();
  return {
      {.name = "sort", .enqueue = [=] { return state->kernels.pack(prepared, x, stream); }},
      {.name = "NCCL, dispatch",
       .exchange = true,
       .enqueue =
           [=] { return state->exchange(state->kernels.sent(prepared), state->kernels.received(prepared), stream); },
       .reads = sent},
      {.name = "experts", .enqueue = [=] { return state->kernels.apply_experts(prepared, stream); }, .reads = received},
      {.name = "NCCL, combine",
       .exchange = true,
       .enqueue =
           [=] { return state->exchange(state->kernels.received(prepared), state->kernels.sent(prepared), stream); },
       .reads = received},
      {.name = "sum", .enqueue = [=] { return state->kernels.unpack(prepared, weights, out, stream); }, .reads = all},
  };
}

Status MoeNcclBaseline::enqueue(int prepared, const void* x, const float* weights, void* out, Stream stream) {
  if (Status known = state_->kernels.check(prepared); !known.ok()) return known;
  Status status;
  for (const harness::Stage& stage : stages(prepared, x, weights, out, stream)) {
    if (status.ok()) status = stage.enqueue();
  }
  return status;
}

std::string MoeNcclBaseline::describe() const { return state_->group.library().describe() + ", sorted"; }

}  // namespace farwarp
