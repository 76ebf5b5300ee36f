#include "farwarp/ops/parallel_gemm/case_baseline.h"

#include <fmt/format.h>

#include <optional>
#include <utility>

namespace farwarp::parallel_gemm {
namespace {

std::size_t elements(int rows, int columns) {
  return static_cast<std::size_t>(rows) * static_cast<std::size_t>(columns);
}

const char* name_of(Kind kind) {
  switch (kind) {
    case Kind::kAllGather: return "all-gather";
    case Kind::kReduceScatter: return "reduce-scatter";
    case Kind::kAllReduce: return "all-reduce";
  }
  return "?";
}

}  // namespace

Baseline::Baseline(World& world, Kind kind, const ParallelGemmDesc& desc, Stream stream, harness::CublasProduct product,
                   harness::DeviceBuffer between, NcclGroup group)
    : world_(&world),
      kind_(kind),
      desc_(desc),
      local_(local_shape(kind, desc, world.size())),
      stream_(stream),
      product_(std::move(product)),
      between_(std::move(between)),
      group_(std::move(group)) {}

Result<Baseline> Baseline::create(World& world, Kind kind, const ParallelGemmDesc& desc, Stream stream) {
  const LocalShape local = local_shape(kind, desc, world.size());
  const bool gathers = kind == Kind::kAllGather;
  auto product =
      harness::CublasProduct::create(world.device(), {desc.m, local.w_rows, local.k, desc.dtype, desc.has_bias});
  Status mine = product.status();
  harness::DeviceBuffer between;
  if (mine.ok()) {
    auto created =
        harness::DeviceBuffer::create(world.device(), 2 * elements(desc.m, gathers ? local.k : local.w_rows));
    mine = created.status();
    if (created.ok()) between = std::move(*created);
  }
  auto group = NcclGroup::create(world, mine);
  if (!group.ok()) return group.status();
  return Baseline(world, kind, desc, stream, std::move(*product), std::move(between), std::move(*group));
}

Status Baseline::make_ready(harness::DeviceTimer& timer, const void* x, const void* w, const void* bias, void* y) {
  // What lies between is computed first, so that no product is timed on zeros or on what was there before.
  Status status = group_.connect(stream_, [&] { return all(x, w, bias, y); });
  void* const out = kind_ == Kind::kAllGather ? y : between_.get();
  const void* const in = kind_ == Kind::kAllGather ? between_.get() : x;
  if (status.ok()) status = product_.choose_fastest(timer, in, w, bias, out, stream_);
  return status;
}

Status Baseline::all(const void* x, const void* w, const void* bias, void* y) {
  const bool gathers = kind_ == Kind::kAllGather;
  const Status status = gathers ? exchange(x, y) : product(x, w, bias, y);
  if (!status.ok()) return status;
  return gathers ? product(x, w, bias, y) : exchange(x, y);
}

Status Baseline::product(const void* x, const void* w, const void* bias, void* y) {
  if (kind_ == Kind::kAllGather) return product_.enqueue(between_.get(), w, bias, y, stream_);
  return product_.enqueue(x, w, bias, between_.get(), stream_);
}

Status Baseline::exchange(const void* x, void* y) {
  const nccl::Library& nccl = group_.library();
  const nccl::DataType type = nccl::data_type(desc_.dtype);
  const nccl::Communicator communicator = group_.communicator();
  const auto stream = static_cast<nccl::StreamHandle>(stream_.handle);
  return world_->device().while_current([&] {
    switch (kind_) {
      case Kind::kAllGather:
        return nccl.call(nccl.all_gather, x, between_.get(), elements(local_.x_rows, local_.k), type, communicator,
                         stream);
      case Kind::kReduceScatter:
        return nccl.call(nccl.reduce_scatter, between_.get(), y, elements(local_.y_rows, local_.y_columns), type,
                         nccl::Reduction::kSum, communicator, stream);
      case Kind::kAllReduce:
        return nccl.call(nccl.all_reduce, between_.get(), y, elements(local_.y_rows, local_.y_columns), type,
                         nccl::Reduction::kSum, communicator, stream);
    }
    return internal_error("no such kind of product");
  });
}

std::string Baseline::describe_exchange() const {
  return fmt::format("{}, {}", group_.library().describe(), name_of(kind_));
}

}  // namespace farwarp::parallel_gemm
