// The baseline of the MoE all-to-all: what a user of NCCL would write. It is timed in turn with MoeAllToAll in one
// process.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "farwarp/base/status.h"
#include "farwarp/harness/taxes.h"
#include "farwarp/ops/moe_a2a/plan.h"
#include "farwarp/ops/moe_a2a/reference.h"
#include "farwarp/runtime/device.h"
#include "farwarp/world/host/world.h"

namespace farwarp {
namespace moe {

/// Device memory of the rows that are sent to one peer, or received from it.
struct BaselineChunk {
  void* rows = nullptr;
  std::size_t elements = 0;  ///< of the dtype
};

/// All of the baseline except the exchange of rows between ranks: permutations and kernels, on any target.
///
/// One buffer holds the rows to each other rank, in rank order, then the rows received from each rank. Rows for experts
/// of this rank are packed among the received rows and never cross a link. On the way back each row returns to where it
/// was sent from, so one table of packed rows serves both ways. Move-only.
class MoeBaselineKernels {
 public:
  /// The device must outlive it.
  static Result<MoeBaselineKernels> create(Device& device, const MoeAllToAllDesc& desc, int rank, int ranks);
  MoeBaselineKernels(MoeBaselineKernels&&) noexcept = default;
  MoeBaselineKernels& operator=(MoeBaselineKernels&&) noexcept = default;

  /// Allocates and uploads the permutation of one routing (of all ranks), and returns a handle. Handles and captured
  /// graphs stay valid, because buffers are kept. Calls of all handles share the row buffer: enqueue them in one
  /// stream.
  Result<int> prepare(std::span<const Routing> routings);

  /// Copies a token's row once for each entry that is not skipped, sorted by expert. `x`: [tokens, hidden].
  Status pack(int prepared, const void* x, Stream stream);
  /// y = x * (1 + rank), in place on the rows that this rank received, rounded to the dtype.
  Status apply_experts(int prepared, Stream stream);
  /// `weights`: [tokens, k]; `out`: [tokens, hidden]. Sums in k-slot order in fp32 and rounds once.
  Status unpack(int prepared, const float* weights, void* out, Stream stream);

  /// By peer. This rank's own chunk of `sent` is empty, because pack() stores those rows among the received ones.
  std::span<const BaselineChunk> sent(int prepared) const { return prepared_[static_cast<std::size_t>(prepared)].sent; }
  std::span<const BaselineChunk> received(int prepared) const {
    return prepared_[static_cast<std::size_t>(prepared)].received;
  }
  /// kInvalidArgument unless prepare() has returned `prepared`.
  Status check(int prepared) const;

 private:
  struct Release {
    Device* device;
    void operator()(void* memory) const { device->release(memory); }
  };
  using DeviceMemory = std::unique_ptr<void, Release>;

  struct SizedKernel {
    Kernel kernel;
    int most_blocks = 0;  ///< the most blocks that are resident at once
  };

  struct Prepared {
    int tokens = 0;
    DeviceMemory packed_rows;
    std::byte* rows = nullptr;
    std::byte* first_received = nullptr;
    std::int64_t rows_received = 0;
    std::vector<BaselineChunk> sent, received;
  };

  MoeBaselineKernels(Device& device, const MoeAllToAllDesc& desc, int rank, int ranks)
      : device_(&device), desc_(desc), rank_(rank), ranks_(ranks) {}
  Result<SizedKernel> find(const std::string& name) const;
  Result<DeviceMemory> allocate(std::size_t bytes) const;
  Status check(std::span<const Routing> routings) const;
  /// Makes the last row buffer at least this large.
  Status reserve_rows(std::size_t bytes);
  template <class Args>
  Status run(const SizedKernel& kernel, const Args& args, std::int64_t vectors, Stream stream);
  std::size_t row_bytes() const { return static_cast<std::size_t>(desc_.hidden) * 2; }

  Device* device_;
  MoeAllToAllDesc desc_;
  int rank_, ranks_;
  SizedKernel pack_, expert_, unpack_;
  std::vector<DeviceMemory> row_buffers_;  ///< the last is the largest, and the one that new handles use
  std::size_t last_bytes_ = 0;             ///< size of the last one
  std::vector<Prepared> prepared_;
};

}  // namespace moe

/// The MoE all-to-all with NCCL: rows sorted by destination, grouped sends and receives, experts, and the same way
/// back. NVLink multicast is switched off. Not thread-safe; calls of one instance belong in one stream.
class MoeNcclBaseline {
 public:
  /// Collective. kUnavailable without NCCL or on a target that is not CUDA. Connects all pairs of ranks, so that no
  /// later call has to. The World must outlive the baseline and must not be moved.
  static Result<MoeNcclBaseline> create(World& world, const MoeAllToAllDesc& desc);
  MoeNcclBaseline(MoeNcclBaseline&&) noexcept;
  MoeNcclBaseline& operator=(MoeNcclBaseline&&) noexcept;
  /// Collective: NCCL may wait for the other ranks of the machine. Streams must be idle and graphs that captured calls
  /// destroyed, because NCCL waits for them without a bound.
  ~MoeNcclBaseline();

  /// Local; may allocate. Prepares buffers and permutations for one routing (of all ranks; every rank passes the same)
  /// and returns a handle. The host thus knows all counts in advance; a real user would have to exchange them first.
  Result<int> prepare(std::span<const moe::Routing> routings);
  /// pack -> ncclSend/Recv -> expert (x * (1 + rank)) -> ncclSend/Recv -> weighted sum. `x` and `out`: [tokens,
  /// hidden], 16-byte aligned; `weights`: [tokens, k]. Asynchronous, can be captured. All ranks call it with the same
  /// routing.
  Status enqueue(int prepared, const void* x, const float* weights, void* out, Stream stream);

  /// The same call, stage by stage.
  std::vector<harness::Stage> stages(int prepared, const void* x, const float* weights, void* out, Stream stream);

  std::string describe() const;  ///< "NCCL 2.28.9, sorted"

 private:
  struct State;
  explicit MoeNcclBaseline(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace farwarp
