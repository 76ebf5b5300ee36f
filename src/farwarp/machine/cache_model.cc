#include "farwarp/machine/cache_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <memory>

#include "farwarp/machine/cache_store.h"
#include "farwarp/machine/event_queue.h"

namespace farwarp {
namespace {

/// Bytes per ns are GB/s.
class Server {
 public:
  explicit Server(double bytes_per_ns) : bytes_per_ns_(bytes_per_ns) {}
  /// When `bytes` that are asked for at `time` have been moved: one after the other.
  double serve(double time, double bytes) {
    free_ = std::max(free_, time) + bytes / bytes_per_ns_;
    return free_;
  }

 private:
  double bytes_per_ns_;
  double free_ = 0;
};

/// The pace of a workgroup: mean 1, standard deviation `skew`. A sum of 12 uniform numbers is close to normal, and the
/// same everywhere.
double pace_of(std::int64_t workgroup, double skew, std::uint64_t seed) {
  std::uint64_t state = seed * 0x9e3779b97f4a7c15 + static_cast<std::uint64_t>(workgroup) * 0xd1342543de82ef95;
  double sum = -6;
  for (int i = 0; i < 12; ++i) {
    state += 0x9e3779b97f4a7c15;  // splitmix64
    std::uint64_t x = state;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
    x = (x ^ x >> 27) * 0x94d049bb133111eb;
    sum += static_cast<double>((x ^ x >> 31) >> 11) * 0x1p-53;
  }
  return std::max(0.1, 1 + skew * sum);
}

struct Totals {
  std::int64_t units = 0;  ///< lines or tiles that were accessed
  std::int64_t reads = 0, hits = 0, pending = 0, misses = 0, memory_side_hits = 0;
  double bytes = 0, fabric_bytes = 0, hbm_bytes = 0;
};

constexpr int kBuffered = 32;

/// A place for a resident workgroup.
struct Place {
  std::int64_t workgroup = 0;
  std::int64_t next = 0, accesses = 0;  ///< of the workgroup
  double pace = 1;
  double computed = 0;  ///< when it has computed what it has loaded
  std::array<TileAccess, kBuffered> buffer;
};

template <class Store>
class Simulation {
 public:
  Simulation(const CacheMachine& machine, const AccessPlan& plan, const CacheOptions& options, std::int64_t workgroups,
             std::int64_t uncounted)
      : machine_(machine),
        plan_(plan),
        options_(options),
        simulated_(workgroups),
        uncounted_(uncounted),
        line_(machine.l2.line),
        l2s_(static_cast<std::size_t>(machine.xcds), Store::of(machine.l2, line_)),
        memory_side_(Store::of(machine.memory_side, line_)),
        l2_servers_(l2s_.size(), Server(machine.l2_gb_s)),
        fabric_(machine.memory_side_gb_s > 0 ? machine.memory_side_gb_s : std::numeric_limits<double>::infinity()),
        hbm_(machine.hbm_gb_s),
        places_per_xcd_(machine.cus_per_xcd * machine.resident),
        places_(static_cast<std::size_t>(machine.xcds * places_per_xcd_)),
        compute_free_(static_cast<std::size_t>(machine.xcds * machine.cus_per_xcd), 0.0),
        queue_(static_cast<int>(places_.size())) {
    for (int xcd = 0; xcd < machine.xcds; ++xcd)
      next_workgroup_.push_back((xcd - machine.first_xcd % machine.xcds + machine.xcds) % machine.xcds);
  }

  void run() {
    for (int at = 0; at < places_per_xcd_; ++at) {
      for (int xcd = 0; xcd < machine_.xcds; ++xcd) {
        const int place = xcd * places_per_xcd_ + at;
        if (start(place, 0)) queue_.push(place, 0);
      }
    }
    while (!queue_.empty()) {
      const int place = queue_.first();
      const double time = step(place, queue_.first_time());
      if (places_[static_cast<std::size_t>(place)].next < places_[static_cast<std::size_t>(place)].accesses) {
        queue_.replace_first(time);
        continue;
      }
      end_ = std::max(end_, places_[static_cast<std::size_t>(place)].computed);
      if (++finished_ == uncounted_) {
        all_before_count_ = all_;
        began_ = end_;
      }
      if (start(place, places_[static_cast<std::size_t>(place)].computed)) {
        queue_.replace_first(places_[static_cast<std::size_t>(place)].computed);
      } else {
        queue_.pop_first();
      }
    }
  }

  Totals counted() const {
    Totals totals = all_;
    const Totals& before = all_before_count_;
    totals.reads -= before.reads;
    totals.hits -= before.hits;
    totals.pending -= before.pending;
    totals.misses -= before.misses;
    totals.memory_side_hits -= before.memory_side_hits;
    totals.bytes -= before.bytes;
    totals.fabric_bytes -= before.fabric_bytes;
    totals.hbm_bytes -= before.hbm_bytes;
    return totals;
  }
  /// From when the counting began.
  double nanoseconds() const { return end_ - began_; }

 private:
  /// The next workgroup of the place's XCD begins. False: there is none.
  bool start(int number, double time) {
    const int xcd = number / places_per_xcd_;
    Place& place = places_[static_cast<std::size_t>(number)];
    for (;;) {
      const std::int64_t workgroup = next_workgroup_[static_cast<std::size_t>(xcd)];
      if (workgroup >= simulated_) return false;
      next_workgroup_[static_cast<std::size_t>(xcd)] += machine_.xcds;
      place.workgroup = workgroup;
      place.next = 0;
      place.accesses = plan_.accesses(workgroup);
      place.pace = pace_of(workgroup, options_.skew, options_.seed);
      place.computed = time;
      if (place.accesses > 0) return true;
      ++finished_;
    }
  }

  /// The next access of the place's workgroup. Returns when the one after it is made.
  double step(int number, double time) {
    Place& place = places_[static_cast<std::size_t>(number)];
    const auto at = static_cast<std::size_t>(place.next % kBuffered);
    if (at == 0) {
      const auto count = static_cast<std::size_t>(std::min<std::int64_t>(kBuffered, place.accesses - place.next));
      plan_.read(place.workgroup, place.next, std::span(place.buffer).first(count));
    }
    ++place.next;
    const TileAccess& access = place.buffer[at];
    const int xcd = number / places_per_xcd_;
    const double there = make(access, xcd, time);
    const int cu = xcd * machine_.cus_per_xcd + number % places_per_xcd_ % machine_.cus_per_xcd;
    double& free = compute_free_[static_cast<std::size_t>(cu)];  // the workgroups of a CU compute in turn
    const double begin = std::max(std::max(there, place.computed), access.flops > 0 ? free : 0.0);
    place.computed = begin + access.flops * 1e-3 / machine_.cu_tflops * place.pace;
    if (access.flops > 0) free = place.computed;
    return options_.ahead > 0 ? begin : place.computed;
  }

  /// Returns when the data is there; a write is not waited for.
  double make(const TileAccess& access, int xcd, double time) {
    const double bytes = access.bytes;
    all_.bytes += bytes;
    const double from_l2 = l2_servers_[static_cast<std::size_t>(xcd)].serve(time, bytes) + machine_.l2_ns;
    double there = from_l2;
    const std::int64_t units = Store::kTiles ? 1 : (access.bytes + line_ - 1) / line_;
    const std::int64_t pitch = Store::kTiles ? 1 : (access.pitch + line_ - 1) / line_;
    const std::int64_t unit_bytes = Store::kTiles ? access.bytes : line_;
    const std::uint64_t first = (std::uint64_t{access.object} << kObjectShift) +
                                static_cast<std::uint64_t>(access.tile) * static_cast<std::uint64_t>(pitch);
    for (std::int64_t unit = 0; unit < units; ++unit) {
      const std::uint64_t key = first + static_cast<std::uint64_t>(unit);
      ++all_.units;
      there =
          std::max(there, access.write ? write(key, xcd, time, unit_bytes) : read(key, xcd, time, from_l2, unit_bytes));
    }
    return access.write ? time : there;
  }

  double read(std::uint64_t key, int xcd, double time, double from_l2, std::int64_t bytes) {
    ++all_.reads;
    Store& l2 = l2s_[static_cast<std::size_t>(xcd)];
    if (const ReadyTime* const ready = l2.find(key); ready != nullptr) {
      const bool pending = *ready > from_l2;
      all_.pending += pending;
      all_.hits += !pending || options_.pending == PendingLine::kHit;
      return std::max(*ready, from_l2);
    }
    ++all_.misses;
    all_.fabric_bytes += static_cast<double>(bytes);
    const double ready = read_beyond_l2(key, xcd, time, bytes);
    l2.insert(key, ready, bytes);
    return ready;
  }

  double read_beyond_l2(std::uint64_t key, int xcd, double time, std::int64_t size) {
    const auto bytes = static_cast<double>(size);
    if (machine_.memory_side.bytes > 0) {
      const double moved = fabric_.serve(time, bytes);
      if (const ReadyTime* const ready = memory_side_.find(key); ready != nullptr) {
        ++all_.memory_side_hits;
        return std::max(*ready, moved + machine_.memory_side_ns);
      }
      const double ready = std::max(moved, hbm_.serve(time, bytes)) + machine_.hbm_ns;
      all_.hbm_bytes += bytes;
      memory_side_.insert(key, ready, size);
      return ready;
    }
    for (int peer = 0; machine_.reads_peer_l2 && peer < machine_.xcds; ++peer) {
      if (peer == xcd) continue;
      const ReadyTime* const ready = l2s_[static_cast<std::size_t>(peer)].find(key);
      if (ready == nullptr) continue;
      ++all_.memory_side_hits;
      return std::max(*ready, fabric_.serve(time, bytes) + machine_.memory_side_ns);
    }
    all_.hbm_bytes += bytes;
    return hbm_.serve(time, bytes) + machine_.hbm_ns;
  }

  /// A write takes room in the L2 and in the memory side, and is counted as one transfer to memory when it is made.
  double write(std::uint64_t key, int xcd, double time, std::int64_t size) {
    const auto bytes = static_cast<double>(size);
    Store& l2 = l2s_[static_cast<std::size_t>(xcd)];
    if (l2.find(key) == nullptr) l2.insert(key, time, size);
    if (machine_.memory_side.bytes > 0) {
      fabric_.serve(time, bytes);
      if (memory_side_.find(key) == nullptr) memory_side_.insert(key, time, size);
    }
    hbm_.serve(time, bytes);
    all_.fabric_bytes += bytes;
    all_.hbm_bytes += bytes;
    return time;
  }

  const CacheMachine& machine_;
  const AccessPlan& plan_;
  const CacheOptions& options_;
  std::int64_t simulated_, uncounted_;
  int line_;
  std::vector<Store> l2s_;
  Store memory_side_;
  std::vector<Server> l2_servers_;
  Server fabric_, hbm_;
  int places_per_xcd_;
  std::vector<Place> places_;
  std::vector<double> compute_free_;
  EventQueue queue_;
  std::vector<std::int64_t> next_workgroup_;
  std::int64_t finished_ = 0;
  double end_ = 0, began_ = 0;
  Totals all_, all_before_count_;
};

struct Lines : LineStore {
  static constexpr bool kTiles = false;
  using LineStore::LineStore;
  static Lines of(const CacheLevel& level, int line) { return Lines(level.bytes, level.ways, line); }
};
struct Tiles : TileStore {
  static constexpr bool kTiles = true;
  using TileStore::TileStore;
  static Tiles of(const CacheLevel& level, int /*line*/) { return Tiles(level.bytes); }
};

/// What all workgroups of the grid do, and how many of the first are simulated.
struct Extent {
  std::int64_t accesses = 0;
  std::int64_t simulated = 0;  ///< workgroups
  std::int64_t uncounted = 0;  ///< of these
  double balance = 1;
};

Extent extent_of(const CacheMachine& machine, const AccessPlan& plan, std::int64_t most_accesses) {
  Extent extent;
  std::vector<double> accesses(static_cast<std::size_t>(machine.xcds), 0.0);
  const std::int64_t workgroups = plan.workgroups();
  for (std::int64_t workgroup = 0; workgroup < workgroups; ++workgroup) {
    const std::int64_t count = plan.accesses(workgroup);
    extent.accesses += count;
    if (extent.accesses <= most_accesses) extent.simulated = workgroup + 1;
    accesses[static_cast<std::size_t>((workgroup + machine.first_xcd) % machine.xcds)] += static_cast<double>(count);
  }
  const double most = *std::max_element(accesses.begin(), accesses.end());
  if (most > 0) extent.balance = static_cast<double>(extent.accesses) / most / machine.xcds;
  const std::int64_t resident = std::int64_t{machine.xcds} * machine.cus_per_xcd * machine.resident;
  extent.simulated = std::min(workgroups, std::max(extent.simulated, resident));
  // The workgroups begin in step, and a window is to show how they run later.
  if (extent.simulated < workgroups) extent.uncounted = extent.simulated / 2;
  return extent;
}

template <class Store>
CacheResult simulate(const CacheMachine& machine, const AccessPlan& plan, const CacheOptions& options,
                     const Extent& extent) {
  Simulation<Store> simulation(machine, plan, options, extent.simulated, extent.uncounted);
  simulation.run();
  const Totals totals = simulation.counted();
  const auto share = [](std::int64_t part, std::int64_t of) {
    return of == 0 ? 0.0 : static_cast<double>(part) / static_cast<double>(of);
  };
  CacheResult result;
  result.granularity = Store::kTiles ? Granularity::kTile : Granularity::kLine;
  result.workgroups = plan.workgroups();
  result.simulated = extent.simulated;
  result.counted = extent.simulated - extent.uncounted;
  result.accesses = totals.units;
  result.l2_hit_rate = share(totals.hits, totals.reads);
  result.l2_pending_rate = share(totals.pending, totals.reads);
  result.memory_side_hit_rate = share(totals.memory_side_hits, totals.misses);
  double scale = 1;
  if (!result.whole()) {
    std::int64_t counted = 0;
    for (std::int64_t w = extent.uncounted; w < extent.simulated; ++w) counted += plan.accesses(w);
    scale = static_cast<double>(extent.accesses) / static_cast<double>(std::max<std::int64_t>(counted, 1));
  }
  result.l2_bytes = totals.bytes * scale;
  result.fabric_bytes = totals.fabric_bytes * scale;
  result.hbm_bytes = totals.hbm_bytes * scale;
  result.microseconds = simulation.nanoseconds() * scale * 1e-3;
  result.balance = extent.balance;
  return result;
}

Status check_options(const CacheOptions& options) {
  const auto reject = [](const char* name, auto value, const char* allowed) {
    return invalid_argument(fmt::format("{} is {}: allowed is {}", name, value, allowed));
  };
  if (!(options.skew >= 0 && options.skew <= 1)) return reject("skew", options.skew, "a number in 0..1");
  if (options.ahead < 0 || options.ahead > 1) return reject("ahead", options.ahead, "0 or 1");
  if (options.most_accesses < 1) return reject("most_accesses", options.most_accesses, "a number above 0");
  return {};
}

}  // namespace

Result<CacheResult> simulate_caches(const CacheMachine& machine, const AccessPlan& plan, const CacheOptions& options) {
  if (Status status = check(machine); !status.ok()) return status;
  if (Status status = check_options(options); !status.ok()) return status;
  const std::int64_t lines_per_tile = (plan.tile_bytes() + machine.l2.line - 1) / machine.l2.line;
  const Extent extent = extent_of(machine, plan, options.most_accesses);
  const bool lines = options.granularity == Granularity::kLine ||
                     (options.granularity == Granularity::kAuto && extent.simulated == plan.workgroups() &&
                      extent.accesses * lines_per_tile <= options.most_line_accesses);
  if (lines) return simulate<Lines>(machine, plan, options, extent);
  return simulate<Tiles>(machine, plan, options, extent);
}

}  // namespace farwarp
