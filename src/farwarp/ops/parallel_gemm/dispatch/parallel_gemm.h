// The products of tensor parallelism by the path that was measured to be faster: our kernels, or NCCL and cuBLASLt.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "farwarp/base/status.h"
#include "farwarp/ops/parallel_gemm/desc.h"
#include "farwarp/world/host/world.h"

namespace farwarp {

/// Not thread-safe; calls of one instance must be in one stream. They are asynchronous, allocate nothing and can be
/// captured. Every rank of the World must make every call. path() is the same on all ranks. kOwn calls AllGatherGemm,
/// GemmReduceScatter or GemmAllReduce.
/// kUnfused calls parallel_gemm::Unfused, whose waits the World's deadline does not bound. Kernels in other streams
/// that wait for peers must fit on the device beside a call's blocks (with kOwn ParallelGemmDesc::max_sms), or a wait
/// may end at its deadline, with kUnfused never.
class ParallelGemm {
 public:
  using Kind = parallel_gemm::Kind;
  using Path = parallel_gemm::Path;

  /// Bytes of the World's heap that create() takes at most; 0 for kUnfused.
  static Result<std::int64_t> heap_bytes(const Device& device, int ranks, Kind kind, const ParallelGemmDesc& desc,
                                         Path path = Path::kBest);

  /// Collective; kMismatch on all ranks if their Kinds, Descs or Paths differ. kBest uses the table of plans for this
  /// kind of device and number of ranks (parallel_gemm's README.md), rank 0's table on all ranks; without an entry, or
  /// if some rank lacks a library, our own kernels. kUnfused is kUnavailable on all ranks if one lacks something. The
  /// World must outlive the operator and stay where it is.
  static Result<ParallelGemm> create(World& world, Kind kind, const ParallelGemmDesc& desc, Path path = Path::kBest);
  ParallelGemm(ParallelGemm&&) noexcept;
  ParallelGemm& operator=(ParallelGemm&&) noexcept;
  /// Does not give the workspace back. If path() is kUnfused it is collective, as close() is. Use close() instead.
  ~ParallelGemm();
  /// Collective; the streams that used it must be idle, and with kUnfused graphs that captured its calls destroyed.
  /// Afterwards every call returns kMisuse, as for a moved-from object.
  Status close();

  /// kOwn or kUnfused.
  Path path() const;
  /// The reason for path(): "measured 2026-11-22: own 37.2 us, unfused 32.6 us", "asked for".
  const std::string& why() const;
  /// For people: our plan, or the libraries.
  std::string plan() const;
  /// Roundings of a term on its way into the result, at most.
  int roundings() const;

  /// Shapes of x, w, bias and y by Kind: desc.h. Device pointers of Desc::dtype, multiples of 256 on either path;
  /// `bias` is null exactly if the Desc has none. `all_x`: as for AllGatherGemm. y and `all_x` must not overlap an
  /// input or each other.
  Status operator()(const void* x, const void* w, const void* bias, void* y, Stream stream, void* all_x = nullptr);

  /// Fault injection, from the next call on: our kernels do not send the `number`-th tile or piece (from 1); 0: they
  /// send all.
  void drop_put(int number);

 private:
  struct State;
  Status check_open() const;
  explicit ParallelGemm(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace farwarp
