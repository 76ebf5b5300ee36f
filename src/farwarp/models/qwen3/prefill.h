// Prefill of prompts: whole chunks of tokens by the operators gemm and attention. README.md describes it.
#pragma once

#include <optional>
#include <vector>

#include "farwarp/models/qwen3/plan.h"
#include "farwarp/models/qwen3/prefill_args.h"
#include "farwarp/ops/attention/attention.h"
#include "farwarp/ops/gemm/gemm.h"
#include "farwarp/runtime/device_memory.h"
#include "farwarp/world/host/world.h"

namespace farwarp::qwen3 {

class Prefill {
 public:
  /// `plan` has a prefill. Takes plan.prefill's memory and part of the heap. `model`: of all of the decoder's calls. The World and `plan` must outlive
  /// the object.
  static Result<Prefill> create(World& world, const Qwen3Plan& plan, const Args& model);
  /// The streams that used it must be idle.
  Status close();

  /// Enqueues the prefill of the first `tokens` tokens of the prompt of `column`, which is on the device: their keys and values are then in the cache.
  Status run(int column, int tokens, Stream stream);

 private:
  Prefill(World& world, const Qwen3Plan& plan) : world_(&world), plan_(&plan) {}
  Status allocate();
  Status find_kernels();
  Status create_operators();
  Status run_chunk(PrefillArgs args, Stream stream);
  /// Unpacks a step's matrix, and multiplies `x` by it.
  Status multiply(Gemm& gemm, const PrefillArgs& args, const std::uint16_t* x, std::uint16_t* y, Stream stream);
  /// `units`: of work, of which a block takes `of_block` at a time.
  Status launch(const Kernel& kernel, const PrefillArgs& args, std::int64_t units, int of_block, Stream stream);
  int warps_of_block() const { return kPrefillThreads / world_->device().shape().traits.warp_size; }

  World* world_;
  const Qwen3Plan* plan_;
  Kernel unpack_, hidden_, heads_, gather_, activate_;
  std::optional<Gemm> qkv_, out_, gate_up_, down_;
  std::optional<Attention> attention_;
  std::vector<DeviceMemory> memory_;
  PrefillArgs args_{};
  std::uint16_t* attended_ = nullptr;  ///< bf16 [rows][query_heads][head_dim]
  std::uint16_t* product_ = nullptr;   ///< bf16 [rows][hidden]
};

}  // namespace farwarp::qwen3
