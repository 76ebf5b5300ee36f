// Whether the memory of a call's results is apart from that of its inputs.
#pragma once

#include <cstdint>
#include <initializer_list>

#include "farwarp/base/status.h"

namespace farwarp {

/// The bytes of one tensor: rows of `row_bytes` bytes that begin `pitch` bytes apart. Without rows or bytes it has no
/// memory.
struct Extent {
  const char* name = "";  ///< the caller's
  const void* begin = nullptr;
  std::int64_t row_bytes = 0;
  std::int64_t rows = 1;
  std::int64_t pitch = 0;  ///< at least row_bytes; ignored with one row
};

/// Whether two tensors share a byte. Exact, so views that lie between each other's rows are apart.
bool overlap(const Extent& a, const Extent& b);

/// kInvalidArgument if a result shares a byte with an input or with another result. A kernel reads and writes in any
/// order. Tensors of no memory, null ones too, are apart from all.
Status check_apart(std::initializer_list<Extent> inputs, std::initializer_list<Extent> results);

}  // namespace farwarp
