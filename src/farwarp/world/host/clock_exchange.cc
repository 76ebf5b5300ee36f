#include "farwarp/world/host/clock_exchange.h"

#include <chrono>
#include <cstring>
#include <vector>

#include "farwarp/base/sizes.h"
#include "farwarp/runtime/device_memory.h"
#include "farwarp/world/clock_exchange_args.h"
#include "farwarp/world/host/opened_operator.h"

namespace farwarp {
namespace {

constexpr std::chrono::seconds kPatience{60};
constexpr std::size_t kTimes = size(kMaxRanks) * kClockRounds * 2;

/// Rank 0's times with `rank`, and what `rank` read in between.
ClockOffset offset_from(const std::uint64_t* asked, const std::uint64_t* read) {
  ClockOffset best;
  for (int round = 0; round < kClockRounds; ++round) {
    const std::uint64_t sent = asked[2 * round], answered = asked[2 * round + 1];
    const double half = static_cast<double>(answered - sent) / 2;
    if (round > 0 && half >= best.error) continue;
    best = {static_cast<double>(static_cast<std::int64_t>(read[round] - sent)) - half, half};
  }
  return best;
}

/// The times that this rank's kernel has read.
Result<std::vector<std::byte>> read_times(World& world, Stream stream, const OpenedOperator& opened) {
  Device& device = world.device();
  auto times = DeviceMemory::create(device, kTimes * sizeof(std::uint64_t));
  if (!times.ok()) return times.status();
  const ClockExchangeArgs args{world.view(), opened.slot(), static_cast<std::int64_t>(opened.buffer(0).offset),
                               times->as<std::uint64_t>()};
  Status status = launch(device, opened.kernel(0), {1, 64, 0}, args, stream);
  const auto patience = std::chrono::nanoseconds(2 * world.options().deadline);
  if (status.ok()) status = device.synchronize(stream, static_cast<std::uint64_t>(patience.count()));
  if (const Status failed = world.status(); !failed.ok()) status = failed;
  std::vector<std::byte> bytes(times->bytes());
  if (status.ok()) status = device.copy_out(bytes.data(), times->get(), bytes.size(), stream);
  if (!status.ok()) return status;
  return bytes;
}

}  // namespace

Result<ClockOffset> exchange_clocks(World& world, Stream stream) {
  if (world.size() == 1) return ClockOffset{};
  static constexpr const char* kSiteNames[] = {"clock"};
  auto opened = OpenedOperator::open(
      world, {.name = "clock exchange",
              .site_names = kSiteNames,
              .configuration = 1,
              .kernels = {"world_clock_exchange"},
              .buffers = {{static_cast<std::int64_t>(sizeof(std::uint64_t)) * kMaxRanks * kClockRounds}}});
  if (!opened.ok()) return opened.status();
  const auto mine = read_times(world, stream, *opened);
  if (const Status agreed = world.agree("clock exchange", 1, mine.status()); !agreed.ok()) return agreed;
  const auto all = world.bootstrap().allgather(*mine, kPatience);
  if (!all.ok()) return all.status();
  if (const Status closed = opened->close(); !closed.ok()) return closed;
  if (world.rank() == 0) return ClockOffset{};
  std::vector<std::uint64_t> asked(kTimes), read(kTimes);
  std::memcpy(asked.data(), all->front().data(), kTimes * sizeof(std::uint64_t));
  std::memcpy(read.data(), mine->data(), kTimes * sizeof(std::uint64_t));
  return offset_from(asked.data() + world.rank() * kClockRounds * 2, read.data());
}

}  // namespace farwarp
