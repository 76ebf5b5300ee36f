// A parallel product without us: NCCL and cuBLASLt one after the other, to be timed beside ours.
#pragma once

#include <string>

#include "farwarp/harness/cublas_product.h"
#include "farwarp/ops/parallel_gemm/desc.h"
#include "farwarp/world/host/nccl_group.h"

namespace farwarp::parallel_gemm {

/// Move-only. All calls are in one stream.
class Baseline {
 public:
  /// Collective. kUnavailable, on all ranks alike, without NCCL, cuBLASLt or CUDA. The World must outlive it and stay where it is.
  static Result<Baseline> create(World& world, Kind kind, const ParallelGemmDesc& desc, Stream stream);

  /// Collective: connects NCCL and finds cuBLASLt's fastest algorithm, so that the rest can be captured and timed.
  Status make_ready(harness::DeviceTimer& timer, const void* x, const void* w, const void* bias, void* y);

  /// all-gather: exchange(), then product(); otherwise product(), then exchange(). Asynchronous, can be captured.
  Status all(const void* x, const void* w, const void* bias, void* y);
  /// This rank's product alone, of what an exchange has brought, or to be reduced.
  Status product(const void* x, const void* w, const void* bias, void* y);
  /// NCCL alone.
  Status exchange(const void* x, void* y);

  std::string describe_product() const { return product_.describe(); }
  std::string describe_exchange() const;
  /// Of its result, at most, as in compare.h: NCCL may round once on every rank, cuBLASLt where it splits k.
  int roundings() const { return kind_ == Kind::kAllGather ? 2 : world_->size() + 1; }

 private:
  Baseline(World& world, Kind kind, const ParallelGemmDesc& desc, Stream stream, harness::CublasProduct product,
           harness::DeviceBuffer between, NcclGroup group);

  World* world_;
  Kind kind_;
  ParallelGemmDesc desc_;
  LocalShape local_;
  Stream stream_;
  harness::CublasProduct product_;
  harness::DeviceBuffer between_;  ///< x of all ranks, or what is to be reduced
  NcclGroup group_;                // goes before the buffers do
};

}  // namespace farwarp::parallel_gemm
