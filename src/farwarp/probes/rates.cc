// Rates: memory and links.
#include <fmt/format.h>

#include <algorithm>

#include "farwarp/probes/probes.h"

namespace farwarp::probes {
namespace {

int tiles_of(std::size_t bytes) { return static_cast<int>(bytes / kTileBytes); }

/// The seed of the words that `writer` writes in `probe`: words of another probe or rank cannot be mistaken for them.
std::uint64_t seed_of(int probe, int writer) {
  return static_cast<std::uint64_t>(probe * kMaxRanks + writer + 1) << 40;
}

/// The index of `writer`'s share among the shares that `owner` receives.
int share_of(int owner, int writer) { return writer < owner ? writer : writer - 1; }

StreamArgs stream_args(const void* source, int tiles, std::uint64_t seed = 0) {
  StreamArgs args{};
  args.source = static_cast<const Vec16*>(source);
  args.tiles = tiles;
  args.seed = seed;
  args.tile_stride = kTileWords;
  return args;
}

void add_target(StreamArgs& args, void* target) { args.targets[args.target_count++] = static_cast<Vec16*>(target); }

}  // namespace

/// Launches on all multiprocessors; for bulk copies with one block on each, since one thread of a block issues them.
/// *warps gets the number of sums in `out`.
Status Probes::launch_stream(const Kernel& kernel, const StreamArgs& args, int* warps) {
  const bool bulk = kernel.handle == kernels_.bulk.handle;
  LaunchConfig config{1, kStreamThreads, bulk ? std::size_t{kTileBytes} : 0};
  const auto resident = device_.blocks_per_multiprocessor(kernel, config.threads, config.shared_bytes);
  if (!resident.ok()) return resident.status();
  const int each = bulk ? 1 : std::min(*resident, kBlocksPerMultiprocessor);
  config.blocks = std::min(each * device_.shape().multiprocessors, args.tiles * std::max(1, args.target_count));
  if (sizes_.max_blocks != 0) config.blocks = std::min(config.blocks, sizes_.max_blocks);
  if (warps != nullptr) *warps = config.blocks * (kStreamThreads / device_.shape().traits.warp_size);
  StreamArgs complete = args;
  complete.out = out_;
  return farwarp::launch(device_, kernel, config, complete, stream_);
}

Result<std::uint64_t> Probes::sum_of_warps(int warps) {
  std::vector<std::uint64_t> sums(static_cast<std::size_t>(warps));
  Status status = device_.copy_out(sums.data(), out_, sums.size() * sizeof(sums[0]), stream_);
  if (status.ok()) status = world_.status();
  if (!status.ok()) return status;
  std::uint64_t total = 0;
  for (const std::uint64_t sum : sums) total += sum;
  return total;
}

/// GB/s, where each rank that takes part moves `bytes`. The other ranks enqueue nothing. `check` checks what arrived,
/// on every rank.
Result<double> Probes::rate(std::size_t bytes, bool takes_part, const Work& work,
                            const std::function<Status()>& check) {
  const Work silence = [] { return Status(); };
  auto mine = median([&] { return timed(takes_part ? work : silence); });
  if (mine.ok() && !takes_part) mine = 0.0;
  const auto slowest = agree(mine);
  if (!slowest.ok()) return slowest;
  if (Status right = all_ok(check()); !right.ok()) return right;
  if (*slowest <= 0) return internal_error(fmt::format("{}: {} bytes took no time", device_.name(), bytes));
  return static_cast<double>(bytes) / (*slowest * 1e3);
}

Status Probes::fill(void* memory, int tiles, std::uint64_t seed) {
  StreamArgs args = stream_args(nullptr, tiles, seed);
  add_target(args, memory);
  if (Status status = launch_stream(kernels_.store, args); !status.ok()) return status;
  return finish();
}

Status Probes::check_words(const void* memory, int tiles, std::uint64_t seed, int tile_stride) {
  StreamArgs args = stream_args(memory, tiles, seed);
  args.tile_stride = tile_stride;
  int warps = 0;
  if (Status status = launch_stream(kernels_.check, args, &warps); !status.ok()) return status;
  const auto wrong = sum_of_warps(warps);
  if (!wrong.ok()) return wrong.status();
  if (*wrong == 0) return {};
  return internal_error(fmt::format("{}: {} of {} words did not arrive", device_.name(), *wrong,
                                    static_cast<std::int64_t>(tiles) * kTileWords));
}

Status Probes::check_sum(int warps, int tiles, std::uint64_t seed) {
  const auto sum = sum_of_warps(warps);
  if (!sum.ok()) return sum.status();
  const std::uint64_t words = static_cast<std::uint64_t>(tiles) * kTileWords;
  const std::uint64_t expected =
      words * seed + kStride * (words / 2 * (words - 1));  // of word_at(seed, 0 .. words - 1)
  if (*sum == expected) return {};
  return internal_error(
      fmt::format("{}: {} words read add up to {:#x}, expected {:#x}", device_.name(), words, *sum, expected));
}

Result<double> Probes::memory_read() {
  const int tiles = tiles_of(sizes_.memory_bytes);
  const std::uint64_t seed = seed_of(static_cast<int>(Kind::kFill), world_.rank());
  if (Status filled = all_ok(fill(memory_[0], tiles, seed)); !filled.ok()) return filled;
  int warps = 0;
  const auto read = [&] { return launch_stream(kernels_.read, stream_args(memory_[0], tiles), &warps); };
  return rate(sizes_.memory_bytes, true, read, [&] { return check_sum(warps, tiles, seed); });
}

Result<double> Probes::memory_copy() {
  const int tiles = tiles_of(sizes_.memory_bytes);
  const std::uint64_t seed = seed_of(static_cast<int>(Kind::kFill), world_.rank());
  if (Status filled = all_ok(fill(memory_[0], tiles, seed)); !filled.ok()) return filled;
  StreamArgs args = stream_args(memory_[0], tiles);
  add_target(args, memory_[1]);
  const auto copy = [&] { return launch_stream(kernels_.copy, args); };
  return rate(2 * sizes_.memory_bytes, true, copy, [&] { return check_words(memory_[1], tiles, seed, kTileWords); });
}

std::byte* Probes::link_memory(int rank) const { return world_.view().heap[rank] + link_.offset; }

bool Probes::has(const Kernel& kernel) const {
  return kernel.handle != kernels_.bulk.handle || device_.shape().traits.bulk_copy;
}

/// Rank 1 fills its memory, rank 0 loads it.
Result<double> Probes::link_pair_load() {
  if (world_.size() < 2) return 0.0;
  const int tiles = tiles_of(sizes_.link_bytes);
  const std::uint64_t seed = seed_of(static_cast<int>(Kind::kFill), 1);
  Status filled;
  if (world_.rank() == 1) filled = fill(link_memory(1), tiles, seed);
  const bool reader = world_.rank() == 0;
  int warps = 0;
  if (Status ready = all_ok(filled); !ready.ok()) return ready;
  return rate(
      sizes_.link_bytes, reader,
      [&] { return launch_stream(kernels_.load, stream_args(link_memory(1), tiles), &warps); },
      [&] { return reader ? check_sum(warps, tiles, seed) : Status(); });
}

/// Rank 0 sends to rank 1.
Result<double> Probes::link_pair_send(const Kernel& kernel, Kind kind) {
  if (world_.size() < 2 || !has(kernel)) return 0.0;
  StreamArgs args = stream_args(nullptr, tiles_of(sizes_.link_bytes), seed_of(static_cast<int>(kind), 0));
  args.tile_stride = kind == Kind::kPairBulk ? 0 : kTileWords;
  add_target(args, link_memory(1));
  return rate(
      sizes_.link_bytes, world_.rank() == 0, [&] { return launch_stream(kernel, args); },
      [&] {
        return world_.rank() == 1 ? check_words(link_memory(1), args.tiles, args.seed, args.tile_stride) : Status();
      });
}

/// All ranks send to all at once, each an equal share of link_bytes to every peer.
Result<double> Probes::link_all_send(const Kernel& kernel, Kind kind) {
  const int me = world_.rank(), ranks = world_.size();
  if (ranks < 2 || !has(kernel)) return 0.0;
  const int tiles = tiles_of(sizes_.link_bytes) / (ranks - 1);
  const std::size_t share = static_cast<std::size_t>(tiles) * kTileBytes;
  const auto part = [&](int owner, int writer) {
    return link_memory(owner) + static_cast<std::size_t>(share_of(owner, writer)) * share;
  };
  StreamArgs args = stream_args(nullptr, tiles, seed_of(static_cast<int>(kind), me));
  args.tile_stride = kind == Kind::kAllBulk ? 0 : kTileWords;
  for (int i = 1; i < ranks; ++i) add_target(args, part((me + i) % ranks, me));
  const auto check = [&] {
    Status status;
    for (int writer = 0; writer < ranks && status.ok(); ++writer) {
      if (writer == me) continue;
      status = check_words(part(me, writer), tiles, seed_of(static_cast<int>(kind), writer), args.tile_stride);
    }
    return status;
  };
  return rate(
      share * static_cast<std::size_t>(ranks - 1), true, [&] { return launch_stream(kernel, args); }, check);
}

}  // namespace farwarp::probes
