// Fills a decoder's weights.
#pragma once

#include "farwarp/models/qwen3/pack_args.h"
#include "farwarp/models/qwen3/plan.h"
#include "farwarp/models/safetensors.h"
#include "farwarp/runtime/device_memory.h"

namespace farwarp::qwen3 {

class Packing {
 public:
  /// `files`: null for random weights from `seed`. `kernel`: qwen3_pack.
  Packing(Device& device, const Kernel& kernel, const Qwen3Plan& plan, const Safetensors* files, std::uint64_t seed,
          Stream stream)
      : device_(device), kernel_(kernel), plan_(plan), files_(files), seed_(seed), stream_(stream) {}

  /// Enqueues all copies and kernels; the stream must be idle before this object ends. The cache gets zeros.
  Status run(const DeviceMemory& weights, const DeviceMemory& embedding, const DeviceMemory& cache);

 private:
  Status pack_file(PackArgs pack, std::int32_t number);

  Device& device_;
  const Kernel& kernel_;
  const Qwen3Plan& plan_;
  const Safetensors* files_;
  std::uint64_t seed_;
  Stream stream_;
  DeviceMemory staging_;
};

}  // namespace farwarp::qwen3
