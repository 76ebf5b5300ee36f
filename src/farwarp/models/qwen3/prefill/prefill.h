// Prefill of prompts: whole chunks of tokens by the operators gemm and attention. README.md describes it.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "farwarp/models/qwen3/plan.h"
#include "farwarp/models/qwen3/prefill/args.h"
#include "farwarp/ops/attention/attention.h"
#include "farwarp/ops/gemm/gemm.h"
#include "farwarp/ops/parallel_gemm/gemm_ar/gemm_ar.h"
#include "farwarp/runtime/device_memory.h"
#include "farwarp/world/host/world.h"

namespace farwarp::qwen3 {

/// A product, or that of all ranks together.
class Product {
 public:
  /// Collective.
  Status create(World& world, const GemmDesc& of_rank, bool adds_ranks);
  Status close();
  Status operator()(const void* x, const void* w, void* y, Stream stream);

 private:
  std::optional<Gemm> alone_;
  std::optional<GemmAllReduce> together_;
};

/// Those of up to `rows` tokens.
struct Products {
  int rows;
  Product qkv, gate_up, out, down;

  /// Collective.
  Status create(World& world, const Qwen3PrefillProducts& plan);
  Status close();
};

class Prefill {
 public:
  /// The kernels that create() takes.
  static constexpr const char* kKernels[] = {"qwen3_prefill_unpack", "qwen3_prefill_hidden", "qwen3_prefill_heads",
                                             "qwen3_prefill_gather", "qwen3_prefill_activate"};

  /// Collective. `plan` has a prefill. Takes plan.prefill's memory and part of the heap, and fills the memory in
  /// `stream`. `kernels`: in the order of kKernels. `model`: of all of the decoder's calls. The World and `plan` must
  /// outlive the object.
  static Result<Prefill> create(World& world, const Qwen3Plan& plan, std::vector<Kernel> kernels, const Args& model,
                                Stream stream);
  /// Collective. The streams that used it must be idle.
  Status close();

  /// Enqueues the prefill of the prompt of `column`, `tokens` tokens that are on the device: the keys and values of all
  /// but the last are then in the cache, and the sequence is at the last.
  Status run(int column, int tokens, Stream stream);

 private:
  enum KernelNumber : std::uint8_t { kUnpack, kHidden, kHeads, kGather, kActivate };

  Prefill(World& world, const Qwen3Plan& plan, std::vector<Kernel> kernels)
      : world_(&world), plan_(&plan), kernels_(std::move(kernels)) {}
  Status allocate(Stream stream);
  Status create_operators();
  Status count_blocks();
  Status run_chunk(PrefillArgs args, Stream stream);
  /// The least products that have room for so many tokens.
  Products& products_for(int rows);
  /// Unpacks a step's matrix, and multiplies `x` by it.
  Status multiply(Product& product, const PrefillArgs& args, const std::uint16_t* x, std::uint16_t* y, Stream stream);
  /// `units`: of work, of which a block takes `of_block` at a time.
  Status launch(KernelNumber kernel, const PrefillArgs& args, std::int64_t units, int of_block, Stream stream);
  int warps_of_block() const { return kPrefillThreads / world_->device().shape().traits.warp_size; }

  World* world_;
  const Qwen3Plan* plan_;
  std::vector<Kernel> kernels_;
  std::vector<int> blocks_;         ///< of each kernel, of a multiprocessor
  std::vector<Products> products_;  ///< in the order of the plan: fewer and fewer rows
  std::optional<Attention> attention_;
  std::vector<DeviceMemory> memory_;
  PrefillArgs args_{};
  std::uint16_t* attended_ = nullptr;  ///< bf16 [rows][query_heads][head_dim]
  std::uint16_t* product_ = nullptr;   ///< bf16 [rows][hidden]
};

}  // namespace farwarp::qwen3
