// A parallel product without our kernels: NCCL's collective and cuBLASLt's product, one after the other.
#pragma once

#include <memory>
#include <string>

#include "farwarp/base/status.h"
#include "farwarp/ops/parallel_gemm/desc.h"
#include "farwarp/world/host/world.h"

namespace farwarp {
class CublasProduct;
}

namespace farwarp::parallel_gemm {

/// Not thread-safe; calls of one instance must be in one stream. They are asynchronous, allocate nothing and can be captured. Every
/// rank of the World must make every call. NCCL's waits are its own: the World's deadline and abort do not bound them. While one of our
/// kernels waits for a peer, no rank may be inside a call of this that has not been captured: NCCL may wait on the host.
class Unfused {
 public:
  /// Collective, and it has the same success on all ranks: where one of them cannot go on, the others get kUnavailable in its words.
  /// kUnavailable without NCCL or cuBLASLt, or on a target that is not CUDA; kInvalidArgument with ParallelGemmDesc::max_sms, which
  /// nothing here would keep to. What the Desc says of tiles, splits and comm blocks is our plan's and counts for nothing. `algorithm`:
  /// the number that cuBLASLt's heuristic gives it, from 0; 0 is taken if there are not so many. Device memory of its own, outside of
  /// the heap: x of all ranks or what is to be reduced, and 32 MiB; while it is created, operands too. The World must outlive it and
  /// stay where it is.
  static Result<Unfused> create(World& world, Kind kind, const ParallelGemmDesc& desc, int algorithm = 0);
  Unfused(Unfused&&) noexcept;
  Unfused& operator=(Unfused&&) noexcept;
  /// As close().
  ~Unfused();
  /// Collective: NCCL may wait for the other ranks. Streams that used it are idle, graphs that captured its calls destroyed.
  /// Afterwards every call returns kMisuse, as of an object that was moved from.
  Status close();

  /// Operands and result of the operator of this kind, but for where sums are rounded: each rank's term to Desc::dtype, and NCCL may
  /// round once on every rank. Pointers are multiples of 256; else as check_operands().
  /// `all_x`: as AllGatherGemm has it.
  Status operator()(const void* x, const void* w, const void* bias, void* y, Stream stream, void* all_x = nullptr);
  /// A part of the call: cuBLASLt alone, of what an exchange has brought, or for what is to be reduced.
  Status product(const void* x, const void* w, const void* bias, void* y, Stream stream);
  /// A part of the call: NCCL alone.
  Status exchange(const void* x, void* y, Stream stream);

  /// Not of an object that was moved from.
  CublasProduct& cublas();
  std::string describe_product() const;   ///< "cuBLASLt 13.1.0, algorithm 2 of 8"
  std::string describe_exchange() const;  ///< "NCCL 2.28.9, all-gather"
  /// How often a term of its result is rounded, at most: cuBLASLt may round where it splits k.
  int roundings() const;

 private:
  struct State;
  Status check_open() const;
  explicit Unfused(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace farwarp::parallel_gemm
