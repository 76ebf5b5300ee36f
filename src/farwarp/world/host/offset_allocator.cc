#include "farwarp/world/host/offset_allocator.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

namespace farwarp {
namespace {

/// Calls visit(begin, end) for every gap between live buffers, in order, until it returns true.
template <class Visit>
void for_each_gap(const std::map<std::size_t, std::size_t>& live, std::size_t capacity, Visit visit) {
  std::size_t begin = 0;
  for (const auto& [offset, bytes] : live) {
    if (visit(begin, offset)) return;
    begin = offset + bytes;
  }
  visit(begin, capacity);
}

}  // namespace

Result<std::size_t> OffsetAllocator::allocate(std::size_t bytes, std::size_t alignment) {
  if (bytes == 0) return invalid_argument("bytes is 0; allowed: 1 or more");
  if (!std::has_single_bit(alignment) || alignment > capacity_) {
    return invalid_argument(
        fmt::format("alignment is {}; allowed: a power of two up to the heap's {} bytes", alignment, capacity_));
  }
  bool found = false;
  std::size_t start = 0;
  for_each_gap(live_, capacity_, [&](std::size_t begin, std::size_t end) {
    start = (begin + alignment - 1) & ~(alignment - 1);
    return found = start < end && end - start >= bytes;
  });
  if (!found) {
    return Status{StatusCode::kOutOfMemory, fmt::format("the symmetric heap has no room for {} bytes aligned to {}: {} "
                                                        "of {} bytes are free, the largest piece has {}; "
                                                        "raise WorldOptions::heap_bytes",
                                                        bytes, alignment, free_bytes(), capacity_, largest_gap())};
  }
  live_.emplace(start, bytes);
  return start;
}

Status OffsetAllocator::free(std::size_t offset, std::size_t bytes) {
  const auto piece = live_.find(offset);
  if (piece == live_.end() || piece->second != bytes) {
    return invalid_argument(fmt::format(
        "buffer has offset {} and {} bytes; allowed: a buffer that allocate returned and that was not freed", offset,
        bytes));
  }
  live_.erase(piece);
  return {};
}

std::size_t OffsetAllocator::free_bytes() const {
  std::size_t sum = 0;
  for_each_gap(live_, capacity_, [&](std::size_t begin, std::size_t end) {
    sum += end - begin;
    return false;
  });
  return sum;
}

std::size_t OffsetAllocator::largest_gap() const {
  std::size_t largest = 0;
  for_each_gap(live_, capacity_, [&](std::size_t begin, std::size_t end) {
    largest = std::max(largest, end - begin);
    return false;
  });
  return largest;
}

}  // namespace farwarp
