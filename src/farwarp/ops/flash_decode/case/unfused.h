// Flash-decode of ranks that share keys, in more than one kernel: what bench times beside the one kernel of
// FlashDecode. The steps are those of arXiv 2511.02168.
#pragma once

#include <memory>
#include <string>

#include "farwarp/base/status.h"
#include "farwarp/harness/taxes.h"
#include "farwarp/ops/flash_decode/flash_decode.h"
#include "farwarp/world/host/world.h"

namespace farwarp::decode {

/// All steps begin with FlashDecode of this rank's keys alone. Its output and LSE are the rank's part, rounded to the
/// dtype. Not thread-safe; calls of one instance must be in one stream, are asynchronous and can be captured. Every
/// rank makes every call.
class UnfusedDecode {
 public:
  /// What the World's heap must have for it.
  static Result<std::int64_t> heap_bytes(const FlashDecodeDesc& desc, const MachineShape& shape, int ranks);
  /// Collective. `desc.kv_shards` is the World's size, and more than 1. Without NCCL, bsp() is unavailable. The World
  /// must outlive it and must not move.
  static Result<UnfusedDecode> create(World& world, const FlashDecodeDesc& desc);
  UnfusedDecode(UnfusedDecode&&) noexcept;
  UnfusedDecode& operator=(UnfusedDecode&&) noexcept;
  /// Collective: NCCL may wait for the other ranks. Streams must be idle, and graphs that captured calls destroyed.
  ~UnfusedDecode();
  /// Collective; as the destructor, and returns the heap.
  Status close();

  /// A part of the others: this rank's keys alone. `tensors.out` and `lse` are not written.
  Status local(const FlashDecodeTensors& tensors, Stream stream);
  /// The part, then one kernel that sends it to all peers, waits for each row of theirs, and merges it.
  Status fused_wait(const FlashDecodeTensors& tensors, Stream stream);
  /// Bulk-synchronous: the part, then NCCL's all-gather, then a kernel that merges all parts. kUnavailable without
  /// NCCL.
  Status bsp(const FlashDecodeTensors& tensors, Stream stream);

  /// The stages of bsp(), or, without NCCL, of fused_wait().
  harness::Staged staged(const FlashDecodeTensors& tensors, Stream stream);

  /// Ok if bsp() is available. The same on all ranks.
  const Status& nccl() const;
  std::string describe_bsp() const;  ///< "bsp, NCCL 2.28.9"

 private:
  struct State;
  explicit UnfusedDecode(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace farwarp::decode
