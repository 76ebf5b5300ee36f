// Worlds, memory and streams of c.h.
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <memory>
#include <vector>

#include "farwarp/c/support.h"

struct farwarp_threads {
  std::vector<std::shared_ptr<farwarp::Bootstrap>> bootstraps;  ///< null where the rank has taken its own
};

namespace farwarp::c {
namespace {

farwarp_world_desc world_defaults() {
  const WorldOptions defaults;
  return {sizeof(farwarp_world_desc), static_cast<std::int32_t>(defaults.target), defaults.device,
          defaults.deadline.count(), defaults.heap_bytes};
}

Status check_duration(const char* name, std::int64_t milliseconds) {
  constexpr std::int64_t kMost = 1'000'000'000'000;  // 31 years; nanoseconds fit in 64 bits
  if (milliseconds >= 1 && milliseconds <= kMost) return {};
  return invalid_argument(fmt::format("{} is {}; allowed: 1 to {}", name, milliseconds, kMost));
}

Result<WorldOptions> read_options(const farwarp_world_desc* given) {
  const auto desc = read_desc(given, world_defaults);
  if (!desc.ok()) return desc.status();
  if (desc->target < FARWARP_CUDA || desc->target > FARWARP_EMU_GFX942)
    return invalid_argument(fmt::format("desc.target is {}; allowed: 0 to 3, farwarp_target", desc->target));
  if (desc->device < -1)
    return invalid_argument(fmt::format("desc.device is {}; allowed: -1 (the rank) or more", desc->device));
  if (Status status = check_duration("desc.deadline_ms", desc->deadline_ms); !status.ok()) return status;
  WorldOptions options;
  options.target = static_cast<TargetKind>(desc->target);
  options.device = desc->device;
  options.deadline = std::chrono::milliseconds(desc->deadline_ms);
  options.heap_bytes = desc->heap_bytes;
  return options;
}

/// Collective. `world` is set if all goes well.
Status create_world(const Result<std::shared_ptr<Bootstrap>>& bootstrap, const farwarp_world_desc* desc,
                    farwarp_world** world) {
  if (world == nullptr) return null_argument("world");
  *world = nullptr;
  if (!bootstrap.ok()) return bootstrap.status();
  const auto options = read_options(desc);
  if (!options.ok()) return options.status();
  auto membership = std::make_shared<Membership>(*bootstrap);
  auto created = World::create(membership, *options);
  if (!created.ok()) return created.status();
  *world = new farwarp_world{std::move(created).value(), std::move(membership)};
  return {};
}

/// A name of this process's next rendezvous: no other process of the machine and no other call has it.
std::array<char, 64> next_rendezvous() {
  static std::atomic<int> calls{0};
  std::array<char, 64> name{};
  const auto now = std::chrono::steady_clock::now().time_since_epoch().count();
  fmt::format_to_n(name.data(), name.size() - 1, "farwarp-c-{}-{}-{}", getpid(), calls.fetch_add(1), now);
  return name;
}

Result<std::shared_ptr<Bootstrap>> meet(int rank, int size, farwarp_allgather allgather, void* context) {
  if (allgather == nullptr) return null_argument("allgather");
  if (size < 1 || size > kMaxRanks)
    return invalid_argument(fmt::format("size is {}; allowed: 1 to {}", size, kMaxRanks));
  if (rank < 0 || rank >= size) return invalid_argument(fmt::format("rank is {}; allowed: 0 to {}", rank, size - 1));
  const auto mine = next_rendezvous();
  std::vector<std::array<char, 64>> all(static_cast<std::size_t>(size));
  const int failed = allgather(context, mine.data(), mine.size(), all.data());
  if (failed != 0) return invalid_argument(fmt::format("allgather returned {}; allowed: 0", failed));
  all[0].back() = '\0';
  constexpr std::chrono::seconds kPatience{60};
  return make_process_bootstrap(rank, size, all[0].data(), kPatience);
}

Status check_copy(farwarp_world& world, const char* device_name, const void* device, const char* host_name,
                  const void* host, std::size_t bytes) {
  if (host == nullptr && bytes > 0) return null_argument(host_name);
  const TargetKind target = world.world.device().target();
  const bool emulated = target == TargetKind::kEmuSm90 || target == TargetKind::kEmuGfx942;
  return world.allocations.check(device_name, device, bytes, emulated);
}

}  // namespace
}  // namespace farwarp::c

using farwarp::Status;
using farwarp::Stream;
using farwarp::c::guarded;
using farwarp::c::null_argument;

extern "C" {

farwarp_code farwarp_world_desc_init_sized(farwarp_world_desc* desc, std::size_t bytes) {
  return farwarp::c::init_sized(desc, bytes, farwarp::c::world_defaults);
}

std::int32_t farwarp_environment_has_ranks() { return farwarp::environment_has_ranks() ? 1 : 0; }

farwarp_code farwarp_environment_ranks(std::int32_t* rank, std::int32_t* ranks) {
  return guarded([&]() -> Status {
    if (rank == nullptr || ranks == nullptr) return null_argument(rank == nullptr ? "rank" : "ranks");
    const auto place = farwarp::place_in_environment();
    if (place.ok()) *rank = place->rank, *ranks = place->size;
    return place.status();
  });
}

farwarp_code farwarp_world_from_environment(const farwarp_world_desc* desc, farwarp_world** world) {
  return guarded([&] {
    constexpr std::chrono::seconds kPatience{60};
    return farwarp::c::create_world(farwarp::bootstrap_from_environment(kPatience), desc, world);
  });
}

farwarp_code farwarp_world_from_allgather(std::int32_t rank, std::int32_t size, farwarp_allgather allgather,
                                          void* context, const farwarp_world_desc* desc, farwarp_world** world) {
  return guarded(
      [&] { return farwarp::c::create_world(farwarp::c::meet(rank, size, allgather, context), desc, world); });
}

farwarp_code farwarp_threads_create(std::int32_t size, farwarp_threads** threads) {
  return guarded([&]() -> Status {
    if (threads == nullptr) return null_argument("threads");
    *threads = nullptr;
    if (size < 1 || size > farwarp::kMaxRanks)
      return farwarp::invalid_argument(fmt::format("size is {}; allowed: 1 to {}", size, farwarp::kMaxRanks));
    *threads = new farwarp_threads{farwarp::make_thread_bootstraps(size)};
    return {};
  });
}

void farwarp_threads_destroy(farwarp_threads* threads) { delete threads; }

farwarp_code farwarp_world_from_threads(farwarp_threads* threads, std::int32_t rank, const farwarp_world_desc* desc,
                                        farwarp_world** world) {
  return guarded([&]() -> Status {
    if (threads == nullptr) return null_argument("threads");
    const auto size = static_cast<std::int32_t>(threads->bootstraps.size());
    if (rank < 0 || rank >= size)
      return farwarp::invalid_argument(fmt::format("rank is {}; allowed: 0 to {}", rank, size - 1));
    std::shared_ptr<farwarp::Bootstrap> mine = std::move(threads->bootstraps[static_cast<std::size_t>(rank)]);
    if (mine == nullptr) return {farwarp::StatusCode::kMisuse, fmt::format("rank {} has had its world", rank)};
    return farwarp::c::create_world(std::move(mine), desc, world);
  });
}

std::int32_t farwarp_device_count(std::int32_t target) {
  if (target < FARWARP_CUDA || target > FARWARP_EMU_GFX942) return 0;
  const auto kind = static_cast<farwarp::TargetKind>(target);
  std::int32_t count = 0;
  guarded([&] {
    count = farwarp::Device::count(kind);
    if (count > 0 && !farwarp::Device::has_kernels(kind)) count = 0;
    return Status();
  });
  return count;
}

void farwarp_world_destroy(farwarp_world* world) { delete world; }
std::int32_t farwarp_world_rank(const farwarp_world* world) { return world == nullptr ? -1 : world->world.rank(); }
std::int32_t farwarp_world_size(const farwarp_world* world) { return world == nullptr ? 0 : world->world.size(); }

farwarp_code farwarp_world_status(const farwarp_world* world) {
  return guarded([&] { return world == nullptr ? null_argument("world") : world->world.status(); });
}

farwarp_code farwarp_world_recover(farwarp_world* world, void* const* streams, std::int32_t count) {
  return guarded([&]() -> Status {
    if (world == nullptr) return null_argument("world");
    if (count < 0 || (streams == nullptr && count > 0))
      return farwarp::invalid_argument(fmt::format("count is {}; allowed: 0 or more streams", count));
    std::vector<Stream> drained;
    for (std::int32_t i = 0; i < count; ++i) drained.push_back({streams[i]});
    return world->world.recover(drained);
  });
}

void farwarp_world_leave(farwarp_world* world) {
  if (world == nullptr) return;
  guarded([&] {
    world->world.abort();
    world->membership->leave();
    return Status();
  });
}

farwarp_code farwarp_allocate(farwarp_world* world, std::size_t bytes, void** pointer) {
  return guarded([&]() -> Status {
    if (world == nullptr || pointer == nullptr) return null_argument(world == nullptr ? "world" : "pointer");
    const auto memory = world->world.device().allocate(bytes);
    *pointer = memory.ok() ? *memory : nullptr;
    if (memory.ok()) world->allocations.add(*memory, bytes);
    return memory.status();
  });
}

void farwarp_release(farwarp_world* world, void* pointer) {
  if (world == nullptr || !world->allocations.remove(pointer)) return;
  guarded([&] {
    world->world.device().release(pointer);
    return Status();
  });
}

farwarp_code farwarp_copy_in(farwarp_world* world, void* to, const void* from_host, std::size_t bytes, void* stream) {
  return guarded([&]() -> Status {
    if (world == nullptr) return null_argument("world");
    if (Status status = farwarp::c::check_copy(*world, "to", to, "from_host", from_host, bytes); !status.ok())
      return status;
    return world->world.device().copy_in(to, from_host, bytes, Stream{stream});
  });
}

farwarp_code farwarp_copy_out(farwarp_world* world, void* to_host, const void* from, std::size_t bytes, void* stream) {
  return guarded([&]() -> Status {
    if (world == nullptr) return null_argument("world");
    if (Status status = farwarp::c::check_copy(*world, "from", from, "to_host", to_host, bytes); !status.ok())
      return status;
    return world->world.device().copy_out(to_host, from, bytes, Stream{stream});
  });
}

farwarp_code farwarp_stream_create(farwarp_world* world, void** stream) {
  return guarded([&]() -> Status {
    if (world == nullptr || stream == nullptr) return null_argument(world == nullptr ? "world" : "stream");
    const auto created = world->world.device().create_stream();
    *stream = created.ok() ? created->handle : nullptr;
    return created.status();
  });
}

void farwarp_stream_destroy(farwarp_world* world, void* stream) {
  if (world != nullptr && stream != nullptr) world->world.device().destroy_stream(Stream{stream});
}

farwarp_code farwarp_synchronize(farwarp_world* world, void* stream, std::int64_t timeout_ms) {
  return guarded([&]() -> Status {
    if (world == nullptr) return null_argument("world");
    if (Status valid = farwarp::c::check_duration("timeout_ms", timeout_ms); !valid.ok()) return valid;
    const Status drained =
        world->world.device().synchronize(Stream{stream}, static_cast<std::uint64_t>(timeout_ms) * 1'000'000);
    const Status status = world->world.status();  // says more than the stream
    return status.ok() ? drained : status;
  });
}
}
