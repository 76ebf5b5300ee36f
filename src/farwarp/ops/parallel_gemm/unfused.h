// A parallel product without our kernels: NCCL's collective and cuBLASLt's product, one after the other.
#pragma once

#include <memory>
#include <string>

#include "farwarp/base/status.h"
#include "farwarp/ops/parallel_gemm/desc.h"
#include "farwarp/world/host/world.h"

namespace farwarp {
class CublasProduct;
class DeviceMemory;
}  // namespace farwarp

namespace farwarp::parallel_gemm {

/// How often a product and an exchange in two kernels round a term of the result, at most. A product may round where it
/// splits k, an exchange after each rank's sum.
inline int unfused_roundings(Kind kind, int ranks) { return kind == Kind::kAllGather ? 2 : ranks + 1; }

/// Not thread-safe; calls of one instance must be in one stream. They are asynchronous, allocate nothing and can be
/// captured. Every rank of the World must make every call. The World's deadline and abort do not bound NCCL's waits.
/// While one of our kernels waits for a peer, no rank may be inside a call of this class that is not captured: NCCL may
/// wait on the host.
class Unfused {
 public:
  /// Collective; succeeds on all ranks or on none. If one rank cannot go on, the others get kUnavailable with its
  /// message. kUnavailable without NCCL or cuBLASLt, or on a target that is not CUDA. kInvalidArgument with
  /// ParallelGemmDesc::max_sms, since nothing bounds the blocks of the libraries. The Desc's options for our plan
  /// (tiles, splits, comm blocks) are ignored. `algorithm`: its number in the order of cuBLASLt's heuristic, from 0;
  /// with too large a number 0 is used. Takes device memory outside of the heap: x of all ranks or the partial sums,
  /// and 32 MiB; during creation operands, too. The World must outlive it and stay where it is.
  static Result<Unfused> create(World& world, Kind kind, const ParallelGemmDesc& desc, int algorithm = 0);
  Unfused(Unfused&&) noexcept;
  Unfused& operator=(Unfused&&) noexcept;
  /// The same as close().
  ~Unfused();
  /// Collective: NCCL may wait for the other ranks. The streams that used it must be idle, and graphs that captured its
  /// calls destroyed. Afterwards every call returns kMisuse, as for a moved-from object.
  Status close();

  /// Operands and result are those of our operator of this kind. Only the rounding differs: each rank's term is rounded
  /// to Desc::dtype, and NCCL may round once on every rank. Pointers must be multiples of 256; for the rest see
  /// check_operands(). `all_x`: as for AllGatherGemm.
  Status operator()(const void* x, const void* w, const void* bias, void* y, Stream stream, void* all_x = nullptr);
  /// A part of the call: cuBLASLt alone. It reads the x that the last exchange() gathered, or writes the partial sums
  /// to be reduced.
  Status product(const void* x, const void* w, const void* bias, void* y, Stream stream);
  /// A part of the call: NCCL alone.
  Status exchange(const void* x, void* y, Stream stream);

  /// What the first of the two parts writes and the second reads.
  const DeviceMemory& exchanged() const;
  /// Must not be called on a moved-from object.
  CublasProduct& cublas();
  std::string describe_product() const;   ///< "cuBLASLt 13.1.0, algorithm 2 of 8"
  std::string describe_exchange() const;  ///< "NCCL 2.28.9, all-gather"
  /// unfused_roundings()
  int roundings() const;

 private:
  struct State;
  Status check_open() const;
  explicit Unfused(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace farwarp::parallel_gemm
