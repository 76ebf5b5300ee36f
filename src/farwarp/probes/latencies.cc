// Latencies: flags, packets, barriers and launches.
#include <fmt/format.h>

#include "farwarp/probes/probes.h"

namespace farwarp::probes {

/// Nanoseconds that the counted rounds took on this device's clock. expected(rank) is the sum of what `rank` should
/// send to this rank.
Result<std::uint64_t> Probes::counted_nanoseconds(const Kernel& kernel,
                                                  const std::function<std::uint64_t(int)>& expected) {
  const auto offset = [](const SymmetricBuffer& buffer) { return static_cast<std::int64_t>(buffer.offset); };
  const SyncArgs args{world_.view(),
                      static_cast<std::uint32_t>(slot_),
                      sizes_.rounds,
                      offset(packets_),
                      offset(flags_),
                      offset(barriers_),
                      out_};
  Status status = farwarp::launch(device_, kernel, {1, kSyncThreads, 0}, args, stream_);
  if (Status done = finish(); status.ok()) status = done;
  std::uint64_t found[1 + kMaxRanks] = {};
  if (status.ok()) status = device_.copy_out(found, out_, sizeof(found), stream_);
  if (!status.ok()) return status;
  for (int rank = 0; rank < world_.size(); ++rank) {
    const std::uint64_t wanted = expected(rank);
    if (wanted == 0 || found[1 + rank] == wanted) continue;
    return internal_error(fmt::format("{}: {} from rank {} adds up to {}, expected {}", kernel.name, sizes_.rounds,
                                      rank, found[1 + rank], wanted));
  }
  return found[0];
}

/// Between ranks 0 and 1, half of a round trip as rank 0 sees it.
Result<double> Probes::one_way(const Kernel& kernel) {
  if (world_.size() < 2) return 0.0;
  const auto rounds = static_cast<std::uint64_t>(sizes_.rounds);
  const int me = world_.rank();
  const auto expected =
      [&](int slot) -> std::uint64_t {  // the kernel has one sum: rank 0's of the answers, rank 1's of what it answered
    if (slot != 0 || me > 1) return 0;
    return rounds * (rounds - 1) / 2 + (me == 0 ? rounds : 0);
  };
  const auto mine = median([&]() -> Result<double> {
    const auto taken = counted_nanoseconds(kernel, expected);
    if (!taken.ok()) return taken.status();
    return static_cast<double>(*taken) * 1e-3 / (2 * static_cast<double>(sizes_.rounds - kWarmUpRounds));
  });
  return agree(mine.ok() && me != 0 ? Result<double>(0) : mine);
}

Result<double> Probes::barrier() {
  if (world_.size() < 2) return 0.0;
  const auto rounds = static_cast<std::uint64_t>(sizes_.rounds);
  const auto expected = [&](int rank) { return rounds * (rounds - 1) / 2 + rounds * static_cast<std::uint64_t>(rank); };
  return agree(median([&]() -> Result<double> {
    const auto taken = counted_nanoseconds(kernels_.barrier, expected);
    if (!taken.ok()) return taken.status();
    return static_cast<double>(*taken) * 1e-3 / static_cast<double>(sizes_.rounds - kWarmUpRounds);
  }));
}

/// Only rank 0 launches, so that the ranks do not contend for the driver's locks. The stream is not held back, because
/// the host's time is what is measured.
Result<double> Probes::per_launch(const Work& launch_once) {
  if (world_.rank() != 0) return agree(0.0);
  return agree(median([&]() -> Result<double> {
    Status status = device_.record(*start_, stream_);
    for (int i = 0; i < sizes_.launches && status.ok(); ++i) status = launch_once();
    if (status.ok()) status = device_.record(*end_, stream_);
    if (Status done = finish(); status.ok()) status = done;
    if (!status.ok()) return status;
    const auto taken = device_.microseconds_between(*start_, *end_);
    if (!taken.ok()) return taken;
    return *taken / sizes_.launches;
  }));
}

Result<double> Probes::launch() {
  return per_launch([&] {
    return farwarp::launch(device_, kernels_.empty, {1, kSyncThreads, 0}, EmptyArgs{}, stream_);
  });
}

Result<double> Probes::graph_launch() {
  const auto graph = capture(device_, stream_, [&] {
    return farwarp::launch(device_, kernels_.empty, {1, kSyncThreads, 0}, EmptyArgs{}, stream_);
  });
  return per_launch([&] { return graph.ok() ? device_.launch(**graph, stream_) : graph.status(); });
}

}  // namespace farwarp::probes
