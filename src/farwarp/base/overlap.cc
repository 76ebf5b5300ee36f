#include "farwarp/base/overlap.h"

#include <fmt/format.h>

#include <algorithm>

namespace farwarp {
namespace {

std::int64_t address(const Extent& of) { return static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(of.begin)); }
bool is_empty(const Extent& of) { return of.begin == nullptr || of.rows <= 0 || of.row_bytes <= 0; }
/// Bytes from the first to the last.
std::int64_t span(const Extent& of) { return (of.rows - 1) * (of.rows > 1 ? of.pitch : 0) + of.row_bytes; }
/// One row if rows follow each other without holes.
Extent merged(const Extent& of) {
  if (of.rows > 1 && of.pitch != of.row_bytes) return of;
  return {of.name, of.begin, of.rows * of.row_bytes, 1, 0};
}
std::int64_t floor_of(std::int64_t a, std::int64_t b) { return a / b - (a % b < 0 ? 1 : 0); }

/// Whether a row of `of` has a byte of [first, end).
bool touches(const Extent& of, std::int64_t first, std::int64_t end) {
  const std::int64_t begin = address(of), pitch = of.rows > 1 ? of.pitch : span(of);
  // The first row that ends after `first`.
  const std::int64_t row = std::max<std::int64_t>(0, floor_of(first - begin - of.row_bytes, pitch) + 1);
  return row < of.rows && begin + row * pitch < end;
}

Status check_pair(const Extent& result, const Extent& other) {
  if (!overlap(result, other)) return {};
  const std::int64_t distance = address(result) - address(other);
  return invalid_argument(
      fmt::format("{} overlaps {}: it begins {} bytes {} that tensor, which spans {} bytes; allowed: memory that no "
                  "other tensor of the call has",
                  result.name, other.name, distance < 0 ? -distance : distance,
                  distance < 0 ? "before" : "after the start of", span(other)));
}

}  // namespace

bool overlap(const Extent& one, const Extent& other) {
  if (is_empty(one) || is_empty(other)) return false;
  const std::int64_t from = address(one), to = address(other);
  if (from + span(one) <= to || to + span(other) <= from) return false;
  const Extent a = merged(one), b = merged(other);
  if (a.rows == 1) return touches(b, from, from + a.row_bytes);
  if (b.rows == 1) return touches(a, to, to + b.row_bytes);
  if (a.pitch == b.pitch) {  // row i of a and row i + k of b are as far apart for all i
    const std::int64_t distance = to - from;
    // The least k for which row i + k of b ends after the start of row i of a.
    const std::int64_t k = std::max(1 - a.rows, floor_of(-distance - b.row_bytes, a.pitch) + 1);
    return k < b.rows && distance + k * a.pitch < a.row_bytes;
  }
  const Extent &fewer = a.rows < b.rows ? a : b, &more = a.rows < b.rows ? b : a;
  for (std::int64_t row = 0; row < fewer.rows; ++row) {
    const std::int64_t first = address(fewer) + row * fewer.pitch;
    if (touches(more, first, first + fewer.row_bytes)) return true;
  }
  return false;
}

Status check_apart(std::initializer_list<Extent> inputs, std::initializer_list<Extent> results) {
  for (const Extent* result = results.begin(); result != results.end(); ++result) {
    for (const Extent& input : inputs) {
      if (Status status = check_pair(*result, input); !status.ok()) return status;
    }
    for (const Extent* other = results.begin(); other != result; ++other) {
      if (Status status = check_pair(*result, *other); !status.ok()) return status;
    }
  }
  return {};
}

}  // namespace farwarp
