#include "farwarp/substrate/emu/arena.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace farwarp::emu {
namespace {

constexpr std::size_t kPoisonFileBytes = std::size_t{8} << 20;

std::size_t round_up(std::size_t bytes, std::size_t unit) { return (bytes + unit - 1) / unit * unit; }

int ordinal_of(int device) { return device % Arena::kPerPersonality; }

Status mmap_failed(const char* what, std::size_t bytes) {
  return {StatusCode::kOutOfMemory,
          fmt::format("emulator: {} of {} bytes failed: {}", what, bytes, std::strerror(errno))};
}

std::byte* reserve_range(std::size_t bytes, int protection) {
  void* range = mmap(nullptr, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (range == MAP_FAILED) return nullptr;
  madvise(range, bytes, MADV_DONTDUMP);
  return static_cast<std::byte*>(range);
}

}  // namespace

Status Arena::reserve() {
  if (base_ != nullptr) return {};
  std::byte* base = reserve_range(kArenaBytes, PROT_NONE);
  if (!base) return mmap_failed("reserving the address space", kArenaBytes);
  std::byte* shadow = reserve_range(2 * kArenaBytes, PROT_READ | PROT_WRITE);
  if (!shadow) return mmap_failed("reserving the shadow memory", 2 * kArenaBytes);
  std::byte* owners = reserve_range(kOwnerBytes, PROT_READ | PROT_WRITE);
  if (!owners) return mmap_failed("reserving the allocation map", kOwnerBytes);
  base_ = base;
  shadow_ = reinterpret_cast<Shadow*>(shadow);
  chunk_owner_ = reinterpret_cast<std::uint32_t*>(owners);
  return {};
}

Arena::~Arena() {
  if (base_ == nullptr) return;
  munmap(base_, kArenaBytes);
  munmap(shadow_, 2 * kArenaBytes);
  munmap(chunk_owner_, kOwnerBytes);
  if (poison_fd_ >= 0) close(poison_fd_);
}

Result<std::byte*> Arena::find_gap(int region, std::size_t bytes) {
  std::byte* start = base_ + static_cast<std::size_t>(region) * kRegionBytes;
  const std::byte* end = start + kMemoryBytes;
  const std::size_t wanted = round_up(bytes, kChunkBytes) + kChunkBytes;
  std::byte* at = start + kChunkBytes;
  for (auto it = by_address_.lower_bound(start); it != by_address_.end() && it->first < end; ++it) {
    if (static_cast<std::size_t>(it->first - at) >= wanted) break;
    at = it->first + round_up(allocations_[it->second].bytes, kChunkBytes) + kChunkBytes;
  }
  if (bytes > kRegionBytes || wanted > static_cast<std::size_t>(end > at ? end - at : 0)) {
    return Status(StatusCode::kOutOfMemory,
                  fmt::format("emulator: {} bytes do not fit into a device of {} bytes", bytes, kMemoryBytes));
  }
  return at;
}

void* Arena::enter(int region, std::byte* begin, std::size_t bytes, int fd) {
  std::uint32_t entry = static_cast<std::uint32_t>(allocations_.size());
  if (free_entries_.empty()) {
    allocations_.emplace_back();
  } else {
    entry = free_entries_.back();
    free_entries_.pop_back();
  }
  allocations_[entry] = {begin, bytes, region, fd};
  by_address_[begin] = entry;
  const std::size_t first = offset_of(begin) / kChunkBytes;
  for (std::size_t chunk = 0; chunk * kChunkBytes < bytes; ++chunk) chunk_owner_[first + chunk] = entry;
  return begin;
}

Status Arena::map_poison(std::byte* begin, std::size_t bytes) {
  // Large memory is not filled. One poisoned file is mapped over all of it repeatedly, copy on write.
  if (bytes >= kPoisonFileBytes && poison_fd_ < 0) {
    poison_fd_ = memfd_create("farwarp-poison", MFD_CLOEXEC);
    const std::vector<unsigned char> poison(kPoisonFileBytes, kPoison);
    if (poison_fd_ < 0 || write(poison_fd_, poison.data(), poison.size()) != static_cast<ssize_t>(poison.size())) {
      return mmap_failed("filling the poison file", kPoisonFileBytes);
    }
  }
  std::byte* at = begin;
  for (; bytes >= kPoisonFileBytes; at += kPoisonFileBytes, bytes -= kPoisonFileBytes) {
    if (mmap(at, kPoisonFileBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE, poison_fd_, 0) ==
        MAP_FAILED) {
      return mmap_failed("mapping device memory", bytes);
    }
  }
  if (bytes == 0) return {};
  if (mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0) ==
      MAP_FAILED) {
    return mmap_failed("mapping device memory", bytes);
  }
  std::memset(at, kPoison, bytes);
  return {};
}

Result<void*> Arena::allocate(int device, std::size_t bytes) {
  if (bytes == 0) return invalid_argument("emulator: allocate: bytes is 0, must be at least 1");
  auto gap = find_gap(device, bytes);
  if (!gap.ok()) return gap.status();
  if (Status mapped = map_poison(*gap, round_up(bytes, kChunkBytes)); !mapped.ok()) return mapped;
  return enter(device, *gap, bytes, -1);
}

Result<void*> Arena::allocate_memfd(int device, std::size_t bytes, int* fd) {
  if (bytes == 0) return invalid_argument("emulator: allocate_shared: bytes is 0, must be at least 1");
  // Sealed: another process that has the file cannot take memory away from this one.
  const int file = memfd_create("farwarp-heap", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (file < 0 || ftruncate(file, static_cast<off_t>(round_up(bytes, kChunkBytes))) != 0 ||
      fcntl(file, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    const Status failed = mmap_failed("a memfd", bytes);
    if (file >= 0) close(file);
    return failed;
  }
  auto gap = find_gap(device, bytes);
  if (gap.ok() &&
      mmap(*gap, round_up(bytes, kChunkBytes), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0) == MAP_FAILED) {
    gap = mmap_failed("mapping a memfd", bytes);
  }
  if (!gap.ok()) {
    close(file);
    return gap.status();
  }
  *fd = file;
  return enter(device, *gap, bytes, file);
}

Result<void*> Arena::map_memfd(int fd, std::size_t bytes) {
  if (bytes == 0) return invalid_argument("emulator: map_shared: bytes is 0, must be at least 1");
  auto gap = find_gap(kImported, bytes);
  if (!gap.ok()) return gap.status();
  if (mmap(*gap, round_up(bytes, kChunkBytes), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED) {
    return mmap_failed("mapping another process's memfd", bytes);
  }
  return enter(kImported, *gap, bytes, -1);
}

bool Arena::release(void* pointer) {
  const auto it = by_address_.find(static_cast<std::byte*>(pointer));
  if (it == by_address_.end()) return false;
  const std::uint32_t entry = it->second;
  const Allocation allocation = allocations_[entry];
  const std::size_t mapped = round_up(allocation.bytes, kChunkBytes);
  mmap(allocation.begin, mapped, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
  forget_writers(allocation.begin, mapped);
  const std::size_t first = offset_of(allocation.begin) / kChunkBytes;
  for (std::size_t chunk = 0; chunk * kChunkBytes < mapped; ++chunk) chunk_owner_[first + chunk] = 0;
  if (allocation.fd >= 0) close(allocation.fd);
  allocations_[entry] = {};
  free_entries_.push_back(entry);
  by_address_.erase(it);
  return true;
}

void Arena::forget_writers(void* begin, std::size_t bytes) {
  if (bytes == 0) return;
  constexpr std::uintptr_t kPage = 4096;
  const Granule last = granule_of(static_cast<std::byte*>(begin) + bytes - 1);
  auto* from = reinterpret_cast<std::byte*>(&shadow_of(begin));
  auto* to = reinterpret_cast<std::byte*>(&shadow_at(last) + 1);
  auto* first_page = reinterpret_cast<std::byte*>(round_up(reinterpret_cast<std::uintptr_t>(from), kPage));
  auto* last_page = reinterpret_cast<std::byte*>(reinterpret_cast<std::uintptr_t>(to) / kPage * kPage);
  constexpr std::ptrdiff_t kWorthACall = 16 * kPage;
  if (last_page - first_page < kWorthACall) {
    std::memset(from, 0, static_cast<std::size_t>(to - from));
    return;
  }
  std::memset(from, 0, static_cast<std::size_t>(first_page - from));
  madvise(first_page, static_cast<std::size_t>(last_page - first_page),
          MADV_DONTNEED);  // anonymous: reads as zero again
  std::memset(last_page, 0, static_cast<std::size_t>(to - last_page));
}

Status Arena::open_shared_slots(int device, int multiprocessors) {
  const std::size_t bytes = static_cast<std::size_t>(multiprocessors) * kBlocksPerMultiprocessor * kSharedSlotBytes;
  constexpr std::size_t kAll = kRegionBytes - kMemoryBytes;
  if (bytes > kAll) {
    return invalid_argument(fmt::format("emulator: multiprocessors is {}, must be at most {}", multiprocessors,
                                        kAll / kSharedSlotBytes / kBlocksPerMultiprocessor));
  }
  if (mprotect(shared_slot(device, 0), bytes, PROT_READ | PROT_WRITE) != 0)
    return mmap_failed("mapping shared memory", bytes);
  return {};
}

std::byte* Arena::shared_slot(int device, int slot) const {
  return base_ + static_cast<std::size_t>(device) * kRegionBytes + kMemoryBytes +
         static_cast<std::size_t>(slot) * kSharedSlotBytes;
}

void Arena::poison_slot(std::byte* slot, std::size_t bytes) {
  bytes = round_up(bytes, 8);
  std::memset(slot, kPoison, bytes);
  forget_writers(slot, bytes);
}

std::string Arena::describe(const void* address) const {
  const auto* at = static_cast<const std::byte*>(address);
  if (!contains(address)) return fmt::format("address {} outside device memory", fmt::ptr(address));
  const std::uint64_t in_region = offset_of(address) % kRegionBytes;
  if (in_region >= kMemoryBytes) {
    return fmt::format("byte {} of a block's shared memory on device {}", (in_region - kMemoryBytes) % kSharedSlotBytes,
                       ordinal_of(device_of(address)));
  }
  auto next = by_address_.upper_bound(const_cast<std::byte*>(at));
  if (next != by_address_.begin()) {
    const Allocation& before = allocations_[std::prev(next)->second];
    const auto offset = static_cast<std::size_t>(at - before.begin);
    if (before.device == device_of(address)) {
      const std::string owner =
          before.device == kImported ? "another process" : fmt::format("device {}", ordinal_of(before.device));
      if (offset < before.bytes)
        return fmt::format("byte {} of a {}-byte allocation of {}", offset, before.bytes, owner);
      return fmt::format("{} bytes past the end of a {}-byte allocation of {}", offset - before.bytes, before.bytes,
                         owner);
    }
  }
  return fmt::format("unallocated memory of device {}", ordinal_of(device_of(address)));
}

}  // namespace farwarp::emu
