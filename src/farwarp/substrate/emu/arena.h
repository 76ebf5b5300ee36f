// The address space of all emulated devices, its allocations, and the shadow of every 8-byte granule.
//
// One reservation holds a region per device. So an address gives its device and its shadow by arithmetic, and the
// addresses of a device's allocations do not depend on what other host threads allocate at the same time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "farwarp/base/status.h"
#include "farwarp/substrate/emu/vector_clock.h"

namespace farwarp::emu {

/// The byte that fresh memory is filled with: NaN as fp16, bf16, fp32 and fp64, -1 as an integer.
inline constexpr unsigned char kPoison = 0xff;

/// Which thread last wrote a granule, when and how. Packed into 64 bits: time 37 | uid 22 | flags 5. Zero: the host
/// wrote it, and all threads know the write.
class Stamp {
 public:
  static constexpr int kTimeBits = 37;  ///< half a day of steps at 3 million a second
  static constexpr std::uint64_t kChiplet = std::uint64_t{1}
                                            << 59;  ///< an atomic store of chiplet scope or narrower wrote it
  static constexpr std::uint64_t kStrong = std::uint64_t{1} << 60;  ///< an atomic store wrote it
  static constexpr std::uint64_t kAsync = std::uint64_t{1} << 61;  ///< the async proxy wrote it on behalf of the thread
  static constexpr std::uint64_t kRecord = std::uint64_t{1} << 62;   ///< a word of the granule has a release record
  static constexpr std::uint64_t kWatched = std::uint64_t{1} << 63;  ///< threads are parked on the granule

  Stamp() = default;
  Stamp(Uid uid, Time time, std::uint64_t flags) : bits_(time | static_cast<std::uint64_t>(uid) << kTimeBits | flags) {}
  Time time() const { return bits_ & ((std::uint64_t{1} << kTimeBits) - 1); }
  Uid uid() const { return static_cast<Uid>(bits_ >> kTimeBits) & ((Uid{1} << kUidBits) - 1); }
  bool has(std::uint64_t flag) const { return bits_ & flag; }
  std::uint64_t flags(std::uint64_t mask) const { return bits_ & mask; }
  void set(std::uint64_t flag) { bits_ |= flag; }
  void clear(std::uint64_t flag) { bits_ &= ~flag; }

 private:
  std::uint64_t bits_ = 0;
};
static_assert(Stamp::kTimeBits + kUidBits == 59);

struct Shadow {
  std::uint64_t previous;  ///< the granule's value before its newest write
  Stamp stamp;
};
static_assert(sizeof(Shadow) == 16);

/// Number of a granule: (address - start of the arena) / 8.
using Granule = std::uint64_t;

struct Allocation {
  std::byte* begin = nullptr;
  std::size_t bytes = 0;
  int device = -1;  ///< index of the owner; kImported for another process's memory
  int fd = -1;
};

class Arena {
 public:
  /// One numbering for both personalities: gfx942 devices begin at kPerPersonality.
  static constexpr int kPerPersonality = 8;
  static constexpr int kDevices = 2 * kPerPersonality;
  static constexpr int kImported = kDevices;  ///< the region of map_shared()
  /// With their shadows, 17 regions of 16 GiB fit into the 1.5 TiB that ThreadSanitizer leaves for mappings.
  static constexpr std::size_t kRegionBytes = std::size_t{16} << 30;
  static constexpr std::size_t kMemoryBytes =
      kRegionBytes / 4 * 3;  ///< a device's memory; the rest of its region is its blocks' shared memory
  /// Block b of multiprocessor m has its shared memory in slot m * kBlocksPerMultiprocessor + b at the end of the
  /// region.
  static constexpr int kBlocksPerMultiprocessor = 32;
  static constexpr std::size_t kSharedSlotBytes = std::size_t{256} << 10;

  Arena() = default;
  Arena(const Arena&) = delete;
  ~Arena();

  Status reserve();

  Result<void*> allocate(int device, std::size_t bytes);
  /// The memory is zeroed, not poisoned, because filling a memfd would commit all of it.
  Result<void*> allocate_memfd(int device, std::size_t bytes, int* fd);
  Result<void*> map_memfd(int fd, std::size_t bytes);
  /// Returns false if no allocation starts at `pointer`.
  bool release(void* pointer);

  Status open_shared_slots(int device, int multiprocessors);
  std::byte* shared_slot(int device, int slot) const;
  /// Fills the slot with poison that all threads know.
  void poison_slot(std::byte* slot, std::size_t bytes);

  /// The allocation that holds [address, address + bytes), or nullptr.
  const Allocation* find(const void* address, std::size_t bytes) const {
    const std::uint64_t offset = offset_of(address);
    if (offset >= kArenaBytes) return nullptr;
    const Allocation& allocation = allocations_[chunk_owner_[offset / kChunkBytes]];
    const auto at = static_cast<std::size_t>(static_cast<const std::byte*>(address) - allocation.begin);
    return at + bytes <= allocation.bytes ? &allocation : nullptr;  // entry 0 has no bytes: at + bytes cannot be 0
  }

  /// Makes the values of the range's granules known to all threads. No thread may be parked on them.
  void forget_writers(void* begin, std::size_t bytes);

  bool contains(const void* address) const { return offset_of(address) < kArenaBytes; }
  Granule granule_of(const void* address) const { return offset_of(address) / 8; }
  Shadow& shadow_of(const void* address) const { return shadow_[granule_of(address)]; }
  Shadow& shadow_at(Granule granule) const { return shadow_[granule]; }
  std::uint64_t& word_at(Granule granule) const { return reinterpret_cast<std::uint64_t*>(base_)[granule]; }

  /// "byte 64 of a 4096-byte allocation of device 2", "8 bytes past the end of ...", or "unmapped address 0x...".
  std::string describe(const void* address) const;
  int device_of(const void* address) const { return static_cast<int>(offset_of(address) / kRegionBytes); }

 private:
  static constexpr std::size_t kChunkBytes = std::size_t{64}
                                             << 10;  ///< every allocation starts at a chunk; a gap follows it
  static constexpr std::size_t kArenaBytes = kRegionBytes * (kDevices + 1);
  static constexpr std::size_t kOwnerBytes = kArenaBytes / kChunkBytes * sizeof(std::uint32_t);

  std::uint64_t offset_of(const void* address) const {
    return static_cast<std::uint64_t>(static_cast<const std::byte*>(address) - base_);
  }
  Result<std::byte*> find_gap(int region, std::size_t bytes);
  void* enter(int region, std::byte* begin, std::size_t bytes, int fd);
  Status map_poison(std::byte* begin, std::size_t bytes);

  std::byte* base_ = nullptr;
  Shadow* shadow_ = nullptr;
  std::uint32_t* chunk_owner_ = nullptr;  ///< index into allocations_; 0: no allocation
  std::vector<Allocation> allocations_ = std::vector<Allocation>(1);
  std::vector<std::uint32_t> free_entries_;
  std::map<std::byte*, std::uint32_t> by_address_;
  int poison_fd_ = -1;
};

}  // namespace farwarp::emu
