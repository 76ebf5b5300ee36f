#include "farwarp/models/qwen3/packing.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "farwarp/models/qwen3/args.h"
#include "farwarp/models/qwen3/files.h"

namespace farwarp::qwen3 {
namespace {

constexpr std::size_t kStagingBytes = std::size_t{64} << 20;

std::size_t size(std::int64_t value) { return static_cast<std::size_t>(value); }

LaunchConfig pack_launch(Device& device) { return {4 * device.shape().multiprocessors, kPackThreads, 0}; }

}  // namespace

/// A tensor's rows come through `staging_`, as many at a time as fit.
Status Packing::pack_file(PackArgs pack, std::int32_t number) {
  const std::int64_t row_bytes = std::int64_t{pack.columns} * 2;
  const bool vector = pack.rows == 1 && pack.shape.tiles == 0;
  const auto shape =
      vector ? std::vector<std::int64_t>{pack.columns} : std::vector<std::int64_t>{pack.rows, pack.columns};
  const auto tensor = files_->find(tensor_name(number, plan_.config.layers), "BF16", shape);
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
    Status status =
        device_.copy_in(staging_.get(), tensor->data.data() + row * row_bytes, size(pack.rows * row_bytes), stream_);
    if (status.ok()) status = farwarp::launch(device_, kernel_, pack_launch(device_), pack, stream_);
    if (!status.ok()) return status;
  }
  return {};
}

Status Packing::run(const DeviceMemory& weights, const DeviceMemory& embedding, const DeviceMemory& cache) {
  const Qwen3Config& config = plan_.config;
  Status status = device_.fill(weights.get(), 0, weights.bytes(), stream_);  // rows and columns that no tensor has
  if (status.ok()) status = device_.fill(cache.get(), 0, cache.bytes(), stream_);
  const auto put = [&](std::int32_t number, int rows, int columns, float scale, float offset, std::byte* to,
                       fleet::MatrixShape shape, int first_row, int paired) {
    if (!status.ok()) return;
    const PackArgs pack{nullptr, {seed_, number, scale, offset}, rows, columns, to, shape, plan_.workers, first_row,
                        paired};
    status = files_ != nullptr ? pack_file(pack, number)
                               : farwarp::launch(device_, kernel_, pack_launch(device_), pack, stream_);
  };
  auto* const memory = weights.as<std::byte>();
  const int dim = config.head_dim, heads = config.query_heads * dim, kv = config.kv_heads * dim;
  const auto scale_for = [](int columns) {
    return static_cast<float>(std::sqrt(3.0 / columns));
  };  // products keep the size of their input
  for (const fleet::Step& step : plan_.graph.steps) {
    const auto matrix = [&](Tensor tensor, int rows, int columns, int first_row, int paired) {
      put(tensor_number(tensor, step.layer), rows, columns, scale_for(columns), 0, memory + step.weights, step.matrix,
          first_row, paired);
    };
    switch (static_cast<Kind>(step.kind)) {
      case Kind::kQkv:
        matrix(Tensor::kQ, heads, config.hidden, 0, 0);
        matrix(Tensor::kK, kv, config.hidden, heads, 0);
        matrix(Tensor::kV, kv, config.hidden, heads + kv, 0);
        break;
      case Kind::kOut: matrix(Tensor::kOut, config.hidden, heads, 0, 0); break;
      case Kind::kGateUp:
        matrix(Tensor::kGate, config.intermediate, config.hidden, 0, 1);
        matrix(Tensor::kUp, config.intermediate, config.hidden, 0, 2);
        break;
      case Kind::kDown: matrix(Tensor::kDown, config.hidden, config.intermediate, 0, 0); break;
      case Kind::kHead:
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
    std::byte* to = memory + plan_.norms + layer * plan_.norm_pitch;
    for (const auto& [tensor, rows] :
         {std::pair{Tensor::kInputNorm, config.hidden}, std::pair{Tensor::kPostNorm, config.hidden},
          std::pair{Tensor::kQNorm, dim}, std::pair{Tensor::kKNorm, dim}}) {
      put(tensor_number(tensor, layer), 1, rows, 0.25f, 1, to, {}, 0, 0);
      to += rows * 2;
    }
  }
  put(tensor_number(GlobalTensor::kFinalNorm, config.layers), 1, config.hidden, 0.25f, 1, memory + plan_.final_norm, {},
      0, 0);
  put(tensor_number(GlobalTensor::kEmbedding, config.layers), config.vocabulary, config.hidden, 1, 0,
      embedding.as<std::byte>(), {}, 0, 0);
  return status;
}

}  // namespace farwarp::qwen3
