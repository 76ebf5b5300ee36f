// Simulates which accesses of a kernel's workgroups hit in which cache. README.md says what is modelled and what is
// not.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "farwarp/base/status.h"
#include "farwarp/machine/cache_machine.h"

namespace farwarp {

/// A tile is read or written as a whole. Tiles of an object do not overlap; tile t begins t * pitch bytes after the
/// first.
struct TileAccess {
  std::uint32_t object = 0;
  std::uint32_t tile = 0;
  std::int32_t bytes = 0;
  std::int32_t pitch = 0;  ///< the same for all tiles of an object, at least `bytes`
  bool write = false;
  double flops = 0;  ///< what the workgroup computes when it has the tile, before its next access
};

/// The accesses of all workgroups of a kernel, in the order in which each makes them. An operator implements it.
class AccessPlan {
 public:
  virtual ~AccessPlan() = default;
  virtual std::int64_t workgroups() const = 0;
  virtual std::int64_t accesses(std::int64_t workgroup) const = 0;
  /// Sets `out` to the accesses of `workgroup` from number `first` on. All of them exist.
  virtual void read(std::int64_t workgroup, std::int64_t first, std::span<TileAccess> out) const = 0;
  /// Bytes of the largest tile; from it the number of lines is estimated.
  virtual std::int64_t tile_bytes() const = 0;
};

enum class Granularity : std::uint8_t {
  kAuto,  ///< lines if that is not too slow, else tiles
  kLine,  ///< caches hold lines, in sets
  kTile,  ///< caches hold tiles, in one set
};
constexpr std::string_view name_of(Granularity granularity) {
  switch (granularity) {
    case Granularity::kAuto: return "auto";
    case Granularity::kLine: return "line";
    case Granularity::kTile: return "tile";
  }
  return "?";
}

/// Of an access to a line that is still on its way into the L2.
enum class PendingLine : std::uint8_t { kHit, kMiss };

struct CacheOptions {
  /// Standard deviation of the workgroups' pace: a workgroup computes each of its tiles this much more slowly or
  /// faster, relative to the mean. README.md says where the default comes from.
  double skew = 0.05;
  std::uint64_t seed = 1;
  PendingLine pending = PendingLine::kHit;
  Granularity granularity = Granularity::kAuto;
  int ahead = 0;                            ///< 1: a tile is loaded while the one before is computed
  std::int64_t most_accesses = 20'000'000;  ///< tile accesses that are simulated at most: a window of a larger grid
  std::int64_t most_line_accesses = 40'000'000;  ///< kAuto: lines, if there are no more accesses to lines than these
};

/// Rates and bytes are of the counted workgroups; the other figures say of what they are.
struct CacheResult {
  Granularity granularity = Granularity::kTile;  ///< kLine or kTile
  std::int64_t workgroups = 0;                   ///< of the grid
  std::int64_t simulated = 0;                    ///< workgroups: the first of the grid
  std::int64_t counted = 0;                      ///< workgroups: all, or the later ones of a window
  std::int64_t accesses = 0;                     ///< simulated accesses to lines or tiles
  double l2_hit_rate = 0;                        ///< of reads, pending ones as the options say
  double l2_pending_rate = 0;                    ///< reads of what is on its way into the L2, of all reads
  double memory_side_hit_rate = 0;  ///< of the reads that miss the L2; with reads_peer_l2: served by another L2
  // Of the whole grid; of a window, in proportion to the bytes that the counted workgroups and all workgroups access.
  double l2_bytes = 0;      ///< read from the L2s and written to them
  double fabric_bytes = 0;  ///< between the L2s and the memory side
  double hbm_bytes = 0;
  double microseconds = 0;  ///< rough: README.md
  double balance = 1;       ///< mean / maximum, over XCDs, of the accesses of all workgroups of the grid
  bool whole() const { return counted == workgroups; }
};

/// kInvalidArgument: machine or options.
Result<CacheResult> simulate_caches(const CacheMachine& machine, const AccessPlan& plan,
                                    const CacheOptions& options = {});

}  // namespace farwarp
