#include "farwarp/models/qwen3/weights/packing.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>
#include <vector>

#include "farwarp/base/sizes.h"
#include "farwarp/models/qwen3/decode/args.h"
#include "farwarp/models/qwen3/weights/files.h"

namespace farwarp::qwen3 {
namespace {

constexpr std::size_t kStagingBytes = std::size_t{64} << 20;

LaunchConfig pack_launch(Device& device) { return {4 * device.shape().multiprocessors, kPackThreads, 0}; }

}  // namespace

Packing::Part Packing::rows_of_rank(int tensor_rows, int rows, int columns) const {
  const int first = std::min(rank_ * rows, tensor_rows);
  return {tensor_rows, columns, first, std::min(rows, tensor_rows - first), 0, columns};
}
Packing::Part Packing::columns_of_rank(int rows, int columns) const {
  const int of_rank = columns / plan_.ranks;
  return {rows, columns, 0, rows, rank_ * of_rank, of_rank};
}

/// Rows of a part, from `first` on, into `staging_`.
Status Packing::copy_rows(const Part& part, std::span<const std::byte> tensor, std::int32_t first, std::int32_t rows) {
  const std::int64_t pitch = std::int64_t{part.tensor_columns} * 2, bytes = std::int64_t{part.columns} * 2;
  const std::byte* from =
      tensor.data() + (std::int64_t{part.first_row} + first) * pitch + std::int64_t{part.first_column} * 2;
  if (bytes != pitch) {
    gathered_.resize(size(rows * bytes));
    for (std::int32_t row = 0; row < rows; ++row)
      std::memcpy(gathered_.data() + row * bytes, from + row * pitch, size(bytes));
    from = gathered_.data();
  }
  return device_.copy_in(staging_.get(), from, size(rows * bytes), stream_);
}

/// A tensor's rows come through `staging_`, as many at a time as fit.
Status Packing::pack_file(PackArgs pack, const Part& part) {
  const std::int64_t row_bytes = std::int64_t{part.columns} * 2;
  const bool vector = part.tensor_rows == 1 && pack.shape.tiles == 0;
  const auto shape = vector ? std::vector<std::int64_t>{part.tensor_columns}
                            : std::vector<std::int64_t>{part.tensor_rows, part.tensor_columns};
  const auto tensor = files_->find(tensor_name(pack.random.tensor, plan_.config.layers), "BF16", shape);
  if (!tensor.ok()) return tensor.status();
  if (!staging_.get()) {
    auto created = DeviceMemory::create(device_, kStagingBytes);
    if (!created.ok()) return created.status();
    staging_ = std::move(*created);
  }
  const auto at_once = static_cast<std::int32_t>(static_cast<std::int64_t>(kStagingBytes) / row_bytes);
  const std::int32_t rows = pack.rows, first_row = pack.first_row;
  std::byte* const to = pack.to;
  for (std::int32_t row = 0; row < rows; row += at_once) {
    pack.source = staging_.as<const std::uint16_t>();
    pack.rows = std::min(at_once, rows - row);
    pack.first_row = first_row + row;
    if (pack.shape.tiles == 0) pack.to = to + row * row_bytes;
    Status status = copy_rows(part, tensor->data, row, pack.rows);
    if (status.ok()) status = farwarp::launch(device_, kernel_, pack_launch(device_), pack, stream_);
    if (!status.ok()) return status;
  }
  return {};
}

Status Packing::run(const DeviceMemory& weights, const DeviceMemory& embedding, const DeviceMemory& cache) {
  const Qwen3Config& config = plan_.config;
  Status status = device_.fill(weights.get(), 0, weights.bytes(), stream_);  // rows and columns that no tensor has
  if (status.ok()) status = device_.fill(cache.get(), 0, cache.bytes(), stream_);
  const auto put = [&](std::int32_t tensor, const Part& part, float scale, float offset, std::byte* to,
                       fleet::MatrixShape shape, int first_row, int paired) {
    if (!status.ok()) return;
    const PackArgs pack{nullptr,
                        {seed_, tensor, scale, offset},
                        part.rows,
                        part.columns,
                        std::int64_t{part.first_row} * part.tensor_columns + part.first_column,
                        part.tensor_columns,
                        to,
                        shape,
                        plan_.workers,
                        first_row,
                        paired};
    status = files_ != nullptr ? pack_file(pack, part)
                               : farwarp::launch(device_, kernel_, pack_launch(device_), pack, stream_);
  };
  auto* const memory = weights.as<std::byte>();
  const int dim = config.head_dim, heads = plan_.query_heads * dim, kv = plan_.kv_heads * dim;
  const auto scale_for = [](int columns) {
    return static_cast<float>(std::sqrt(3.0 / columns));
  };  // products keep the size of their input
  for (const fleet::Step& step : plan_.graph.steps) {
    const auto matrix = [&](Tensor tensor, const Part& part, int first_row, int paired) {
      put(tensor_number(tensor, step.layer), part, scale_for(part.tensor_columns), 0, memory + step.weights,
          step.matrix, first_row, paired);
    };
    const auto rows = [&](Tensor tensor, int of_rank, int first_row, int paired) {
      matrix(tensor, rows_of_rank(of_rank * plan_.ranks, of_rank, config.hidden), first_row, paired);
    };
    const Part of_head = rows_of_rank(config.vocabulary, plan_.head_rows, config.hidden);
    switch (static_cast<Kind>(step.kind)) {
      case Kind::kQkv:
        rows(Tensor::kQ, heads, 0, 0);
        rows(Tensor::kK, kv, heads, 0);
        rows(Tensor::kV, kv, heads + kv, 0);
        break;
      case Kind::kOut: matrix(Tensor::kOut, columns_of_rank(config.hidden, config.query_heads * dim), 0, 0); break;
      case Kind::kGateUp:
        rows(Tensor::kGate, plan_.intermediate, 0, 1);
        rows(Tensor::kUp, plan_.intermediate, 0, 2);
        break;
      case Kind::kDown: matrix(Tensor::kDown, columns_of_rank(config.hidden, config.intermediate), 0, 0); break;
      case Kind::kHead:
        if (config.tied)
          put(tensor_number(GlobalTensor::kEmbedding, config.layers), of_head, 1, 0, memory + step.weights, step.matrix,
              0, 0);
        else
          put(tensor_number(GlobalTensor::kHead, config.layers), of_head, scale_for(config.hidden), 0,
              memory + step.weights, step.matrix, 0, 0);
        break;
      default: break;
    }
  }
  for (int layer = 0; layer < config.layers; ++layer) {
    const Qwen3Plan::Norms norms = plan_.norms_of(layer);
    const auto norm = [&](Tensor tensor, int rows, std::int64_t at) {
      put(tensor_number(tensor, layer), whole(1, rows), 0.25f, 1, memory + at, {}, 0, 0);
    };
    norm(Tensor::kInputNorm, config.hidden, norms.input);
    norm(Tensor::kPostNorm, config.hidden, norms.post_attention);
    norm(Tensor::kQNorm, dim, norms.q);
    norm(Tensor::kKNorm, dim, norms.k);
  }
  put(tensor_number(GlobalTensor::kFinalNorm, config.layers), whole(1, config.hidden), 0.25f, 1,
      memory + plan_.final_norm, {}, 0, 0);
  put(tensor_number(GlobalTensor::kEmbedding, config.layers), whole(config.vocabulary, config.hidden), 1, 0,
      embedding.as<std::byte>(), {}, 0, 0);
  return status;
}

}  // namespace farwarp::qwen3
