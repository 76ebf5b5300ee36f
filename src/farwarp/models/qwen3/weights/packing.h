// Fills a decoder's weights.
#pragma once

#include <span>
#include <vector>

#include "farwarp/models/qwen3/plan.h"
#include "farwarp/models/qwen3/weights/pack_args.h"
#include "farwarp/models/safetensors.h"
#include "farwarp/runtime/device_memory.h"

namespace farwarp::qwen3 {

class Packing {
 public:
  /// `rank`'s part of the weights. `files`: null for random weights from `seed`. `kernel`: qwen3_pack.
  Packing(Device& device, const Kernel& kernel, const Qwen3Plan& plan, int rank, const Safetensors* files,
          std::uint64_t seed, Stream stream)
      : device_(device), kernel_(kernel), plan_(plan), rank_(rank), files_(files), seed_(seed), stream_(stream) {}

  /// Enqueues all copies and kernels; the stream must be idle before this object ends. The cache gets zeros.
  Status run(const DeviceMemory& weights, const DeviceMemory& embedding, const DeviceMemory& cache);

 private:
  /// What is packed of a tensor.
  struct Part {
    std::int32_t tensor_rows, tensor_columns;
    std::int32_t first_row, rows, first_column, columns;
  };
  static Part whole(int rows, int columns) { return {rows, columns, 0, rows, 0, columns}; }
  /// The rank's `rows` rows of all ranks'; the last ranks may have fewer, or none.
  Part rows_of_rank(int tensor_rows, int rows, int columns) const;
  Part columns_of_rank(int rows, int columns) const;

  Status pack_file(PackArgs pack, const Part& part);
  Status copy_rows(const Part& part, std::span<const std::byte> tensor, std::int32_t first, std::int32_t rows);

  Device& device_;
  const Kernel& kernel_;
  const Qwen3Plan& plan_;
  int rank_;
  const Safetensors* files_;
  std::uint64_t seed_;
  Stream stream_;
  DeviceMemory staging_;
  std::vector<std::byte> gathered_;  ///< rows of a part that has not all columns
};

}  // namespace farwarp::qwen3
