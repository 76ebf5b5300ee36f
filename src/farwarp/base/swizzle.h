// The 128-byte swizzle: a layout of rows of 128 bytes in shared memory without bank conflicts, both for copies of rows
// and for matrix units' reads of columns. PTX ISA, "Swizzling Modes".
#pragma once

namespace farwarp {

inline constexpr int kSwizzleRowBytes = 128;
inline constexpr int kSwizzleAlignment = 1024;  ///< of a tile, in bytes: the pattern repeats after 8 rows

/// Byte offset in the tile of byte `byte` of row `row`: each row's 16-byte chunks are permuted by the row's number.
constexpr int swizzled_offset(int row, int byte) {
  return row * kSwizzleRowBytes + ((byte / 16) ^ (row % 8)) * 16 + byte % 16;
}

}  // namespace farwarp
