// The products of tensor parallelism by whichever path is known to be faster: our kernels, or NCCL and cuBLASLt.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "farwarp/base/status.h"
#include "farwarp/ops/parallel_gemm/desc.h"
#include "farwarp/world/host/world.h"

namespace farwarp {

/// Not thread-safe; calls of one instance must be in one stream. They are asynchronous, allocate nothing and can be captured. Every
/// rank of the World must make every call. What path() says is what runs, on all ranks alike: by kOwn as AllGatherGemm,
/// GemmReduceScatter or GemmAllReduce, by kUnfused as parallel_gemm::Unfused, whose waits the World's deadline does not bound.
class ParallelGemm {
 public:
  using Kind = parallel_gemm::Kind;
  using Path = parallel_gemm::Path;

  /// Bytes of the World's heap that create() takes at most; 0 for kUnfused.
  static Result<std::int64_t> heap_bytes(const Device& device, int ranks, Kind kind, const ParallelGemmDesc& desc,
                                         Path path = Path::kBest);

  /// Collective; kMismatch on all ranks where their Kinds, Descs or Paths differ. kBest takes what the table of plans has for this kind
  /// of device and number of ranks (parallel_gemm README), rank 0's table on all ranks; without an entry, or where some rank lacks a
  /// library, our own kernels. kUnfused is kUnavailable on all ranks where one lacks something. The World must outlive it and stay
  /// where it is.
  static Result<ParallelGemm> create(World& world, Kind kind, const ParallelGemmDesc& desc, Path path = Path::kBest);
  ParallelGemm(ParallelGemm&&) noexcept;
  ParallelGemm& operator=(ParallelGemm&&) noexcept;
  /// Does not give the workspace back; where path() is kUnfused it is collective, as close() is. Use close().
  ~ParallelGemm();
  /// Collective; the streams that used it must be idle, and by kUnfused graphs that captured its calls destroyed. Afterwards every call
  /// returns kMisuse, as of an object that was moved from.
  Status close();

  /// kOwn or kUnfused.
  Path path() const;
  /// Why path(): "measured 2026-11-22: own 37.2 us, unfused 32.6 us", "asked for".
  const std::string& why() const;
  /// For people: our plan, or the libraries.
  std::string plan() const;
  /// Roundings of a term on its way into the result, at most.
  int roundings() const;

  /// x, w, bias and y as the Kind has them: desc.h. Device pointers, multiples of 256 on either path; `bias` is null exactly if the
  /// Desc has none. `all_x`: as AllGatherGemm has it.
  Status operator()(const void* x, const void* w, const void* bias, void* y, Stream stream, void* all_x = nullptr);

  /// Fault injection, from the next call on: the `number`-th tile or piece (from 1) that our kernels would send is not sent; 0: all are.
  void drop_put(int number);

 private:
  struct State;
  Status check_open() const;
  explicit ParallelGemm(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace farwarp
