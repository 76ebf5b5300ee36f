#include "farwarp/runtime/trace_room.h"

#include <algorithm>
#include <chrono>

#include "farwarp/base/sizes.h"
#include "farwarp/runtime/trace_clocks.h"

namespace farwarp {
namespace {

// Of all launches of a trace, of one launch, and of one warp.
constexpr std::size_t kBytes = std::size_t{1} << 30;
constexpr std::size_t kLaunchBytes = std::size_t{256} << 20;
constexpr std::size_t kWarpRecords = 4096;
constexpr std::chrono::nanoseconds kPatience = std::chrono::seconds(10);

}  // namespace

Status TraceRoom::open(Device& device, Stream stream) {
  Status status;
  if (memory_ == nullptr) {
    const auto memory = device.allocate(kBytes);
    if (!memory.ok()) return memory.status();
    memory_ = static_cast<std::byte*>(*memory);
    status = device.fill(memory_, 0, kBytes, {});
    if (status.ok()) status = device.synchronize({}, static_cast<std::uint64_t>(kPatience.count()));
  } else if (used_ > 0) {
    status = device.fill(memory_, 0, used_, stream);
  }
  used_ = 0;
  grids_.clear();
  return status;
}

TraceBuffer TraceRoom::next(const std::string& kernel, int blocks, int warps) {
  const std::size_t all_warps = size(blocks) * size(warps);
  const std::size_t per_warp = std::min(kWarpRecords, kLaunchBytes / (all_warps * sizeof(TraceRecord)));
  const std::size_t records = all_warps * per_warp * sizeof(TraceRecord), heads = size(blocks) * sizeof(TraceBlock);
  const std::size_t bytes = (records + heads + all_warps * sizeof(std::uint32_t) + 63) / 64 * 64;
  if (memory_ == nullptr || used_ + bytes > kBytes) return {};
  std::byte* const first = memory_ + used_;
  used_ += bytes;
  const TraceBuffer to{reinterpret_cast<TraceBlock*>(first + records), reinterpret_cast<TraceRecord*>(first),
                       reinterpret_cast<std::uint32_t*>(first + records + heads), static_cast<std::uint32_t>(per_warp),
                       0};
  grids_.push_back({kernel, size(blocks), size(warps), to});
  return to;
}

Result<DeviceTrace> TraceRoom::take(Device& device) {
  std::vector<std::byte> copy(used_);
  const Status status = used_ > 0 ? device.copy_out(copy.data(), memory_, used_, {}) : Status();
  DeviceTrace trace;
  const auto at = [&](const auto* pointer) {
    return reinterpret_cast<decltype(pointer)>(copy.data() + (reinterpret_cast<const std::byte*>(pointer) - memory_));
  };
  for (const Grid& grid : grids_) {
    if (!status.ok()) break;
    const std::size_t warps = grid.blocks * grid.warps;
    add_launch({.kernel = grid.kernel,
                .blocks = {at(grid.to.blocks), grid.blocks},
                .warps = static_cast<int>(grid.warps),
                .records = {at(grid.to.records), warps * grid.to.per_warp},
                .per_warp = grid.to.per_warp,
                .dropped = {at(grid.to.dropped), warps}},
               trace);
  }
  if (memory_ != nullptr) device.release(memory_);
  memory_ = nullptr;
  used_ = 0;
  grids_.clear();
  if (!status.ok()) return status;
  return trace;
}

}  // namespace farwarp
