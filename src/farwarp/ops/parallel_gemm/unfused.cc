#include "farwarp/ops/parallel_gemm/unfused.h"

#include <fmt/format.h>

#include <optional>
#include <utility>

#include "farwarp/ops/parallel_gemm/operands.h"
#include "farwarp/runtime/cublas_product.h"
#include "farwarp/world/host/collectives.h"
#include "farwarp/world/host/nccl_group.h"

namespace farwarp::parallel_gemm {
namespace {

static_assert(kUnfusedAlignment == cublas_lt::Matmul::kAlignment);

std::size_t elements(int rows, int columns) {
  return static_cast<std::size_t>(rows) * static_cast<std::size_t>(columns);
}

const char* collective_of(Kind kind) {
  switch (kind) {
    case Kind::kAllGather: return "all-gather";
    case Kind::kReduceScatter: return "reduce-scatter";
    case Kind::kAllReduce: return "all-reduce";
  }
  return "?";
}

struct Operands {
  DeviceMemory x, w, bias, y;
};

}  // namespace

struct Unfused::State {
  State(World& its_world, Kind its_kind, const ParallelGemmDesc& its_desc)
      : world(its_world), kind(its_kind), desc(its_desc), local(local_shape(its_kind, its_desc, its_world.size())) {}

  bool gathers() const { return kind == Kind::kAllGather; }
  Status open_product(int algorithm);
  Status make_room();
  // `buffer`: x of all ranks, or the partial sums to be reduced.
  Status exchange(const void* x, void* buffer, void* y, Stream stream);
  Status product_of(const void* x, const void* w, const void* bias, void* buffer, void* y, Stream stream);
  Status call(const void* x, const void* w, const void* bias, void* buffer, void* y, Stream stream);
  Status call_once(Stream stream);

  World& world;
  Kind kind;
  ParallelGemmDesc desc;
  LocalShape local;
  std::optional<CublasProduct> product;
  DeviceMemory exchanged;  // what NCCL gives to the product (all-gather) or gets from it, unless the caller gives all_x
  Operands first;          // operands of the first call
  std::optional<NcclGroup> group;  // the last member, so that it is destroyed before the memory
};

Status Unfused::State::open_product(int algorithm) {
  auto created = CublasProduct::create(world.device(), {desc.m, local.w_rows, local.k, desc.dtype, desc.has_bias});
  if (!created.ok()) return created.status();
  product.emplace(std::move(*created));
  if (algorithm > 0 && algorithm < product->algorithms()) product->choose(algorithm);
  return make_room();
}

Status Unfused::State::make_room() {
  for (const auto& [memory, count] :
       {std::pair{&exchanged, elements(desc.m, gathers() ? local.k : local.w_rows)},
        std::pair{&first.x, elements(local.x_rows, local.k)}, std::pair{&first.w, elements(local.w_rows, local.k)},
        std::pair{&first.bias, elements(1, local.w_rows)},
        std::pair{&first.y, elements(local.y_rows, local.y_columns)}}) {
    auto made = DeviceMemory::create(world.device(), 2 * count);
    if (!made.ok()) return made.status();
    *memory = std::move(*made);
  }
  return {};
}

Status Unfused::State::exchange(const void* x, void* buffer, void* y, Stream stream) {
  const nccl::Library& nccl = group->library();
  const nccl::DataType type = nccl::data_type(desc.dtype);
  const auto handle = static_cast<nccl::StreamHandle>(stream.handle);
  const std::size_t received = elements(local.y_rows, local.y_columns);
  return world.device().while_current([&] {
    switch (kind) {
      case Kind::kAllGather:
        return nccl.call(nccl.all_gather, x, buffer, elements(local.x_rows, local.k), type, group->communicator(),
                         handle);
      case Kind::kReduceScatter:
        return nccl.call(nccl.reduce_scatter, buffer, y, received, type, nccl::Reduction::kSum, group->communicator(),
                         handle);
      case Kind::kAllReduce:
        return nccl.call(nccl.all_reduce, buffer, y, received, type, nccl::Reduction::kSum, group->communicator(),
                         handle);
    }
    return internal_error("no such kind of product");
  });
}

Status Unfused::State::product_of(const void* x, const void* w, const void* bias, void* buffer, void* y,
                                  Stream stream) {
  return product->enqueue(gathers() ? buffer : x, w, bias, gathers() ? y : buffer, stream);
}

Status Unfused::State::call(const void* x, const void* w, const void* bias, void* buffer, void* y, Stream stream) {
  const Status status = gathers() ? exchange(x, buffer, y, stream) : product_of(x, w, bias, buffer, y, stream);
  if (!status.ok()) return status;
  return gathers() ? product_of(x, w, bias, buffer, y, stream) : exchange(x, buffer, y, stream);
}

/// Makes the first call, on uninitialised memory. In its first call NCCL connects and both libraries load their
/// kernels, so that call must not be captured.
Status Unfused::State::call_once(Stream stream) {
  const Status called = group->connect(stream, [&] {
    return call(first.x.get(), first.w.get(), desc.has_bias ? first.bias.get() : nullptr, exchanged.get(),
                first.y.get(), stream);
  });
  if (called.ok()) first = {};
  return called;
}

Unfused::Unfused(std::unique_ptr<State> state) : state_(std::move(state)) {}
Unfused::Unfused(Unfused&&) noexcept = default;
Unfused& Unfused::operator=(Unfused&&) noexcept = default;
Unfused::~Unfused() = default;

Result<Unfused> Unfused::create(World& world, Kind kind, const ParallelGemmDesc& desc, int algorithm) {
  if (Status usable = world.check_usable(); !usable.ok()) return usable;
  Status mine = check(kind, desc, world.size());
  if (mine.ok() && desc.max_sms != 0)
    mine = invalid_argument(
        fmt::format("ParallelGemmDesc.max_sms is {}; allowed: 0 on path unfused, as nothing bounds the blocks of NCCL "
                    "and cuBLASLt",
                    desc.max_sms));
  const bool wrong = !mine.ok();
  auto state = std::make_unique<State>(world, kind, desc);
  if (mine.ok() && world.device().target() == TargetKind::kCuda) mine = state->open_product(algorithm);
  const auto stream = world.device().create_stream();
  if (mine.ok()) mine = stream.status();
  auto group = NcclGroup::create(world, mine);  // on other targets its error says what is missing
  Status status = wrong ? mine : group.status();
  if (status.ok()) {
    state->group.emplace(std::move(*group));
    status = all_ok(world.bootstrap(), state->call_once(*stream), world.options().deadline);
  }
  if (!status.ok()) state.reset();  // before the stream is destroyed: NCCL may still use the memory
  if (stream.ok()) world.device().destroy_stream(*stream);
  if (!status.ok()) return status;
  return Unfused(std::move(state));
}

Status Unfused::check_open() const {
  if (!state_) return {StatusCode::kMisuse, "the unfused product was moved from: call the object it was moved to"};
  return state_->group ? Status() : Status(StatusCode::kMisuse, "the unfused product was called after close()");
}

Status Unfused::close() {
  if (Status open = check_open(); !open.ok()) return open;
  state_->group.reset();
  return {};
}

Status Unfused::operator()(const void* x, const void* w, const void* bias, void* y, Stream stream, void* all_x) {
  if (Status open = check_open(); !open.ok()) return open;
  State& state = *state_;
  Status status = check_operands(state.desc, x, w, bias, y, kUnfusedAlignment);
  if (status.ok()) status = check_returned_x(state.desc, all_x, kUnfusedAlignment);
  if (status.ok()) status = check_memory(state.kind, state.desc, state.world.size(), x, w, bias, y, all_x);
  if (status.ok()) status = state.world.status();
  return status.ok() ? state.call(x, w, bias, all_x != nullptr ? all_x : state.exchanged.get(), y, stream) : status;
}

Status Unfused::product(const void* x, const void* w, const void* bias, void* y, Stream stream) {
  if (Status open = check_open(); !open.ok()) return open;
  return state_->product_of(x, w, bias, state_->exchanged.get(), y, stream);
}

Status Unfused::exchange(const void* x, void* y, Stream stream) {
  if (Status open = check_open(); !open.ok()) return open;
  return state_->exchange(x, state_->exchanged.get(), y, stream);
}

const DeviceMemory& Unfused::exchanged() const { return state_->exchanged; }

CublasProduct& Unfused::cublas() { return *state_->product; }

std::string Unfused::describe_product() const { return state_ ? state_->product->describe() : ""; }

std::string Unfused::describe_exchange() const {
  if (!check_open().ok()) return "";
  return fmt::format("{}, {}", state_->group->library().describe(), collective_of(state_->kind));
}

int Unfused::roundings() const { return state_ ? unfused_roundings(state_->kind, state_->world.size()) : 0; }

}  // namespace farwarp::parallel_gemm
