// The 128-byte swizzle: how rows of 128 bytes lie in shared memory so that neither copies of rows nor the reads of matrix units
// down a column meet in one bank. PTX ISA, "Swizzling Modes".
#pragma once

namespace farwarp {

inline constexpr int kSwizzleRowBytes = 128;
inline constexpr int kSwizzleAlignment = 1024;  ///< of the tile: the pattern repeats after 8 rows

/// Byte offset in the tile of byte `byte` of row `row`: each row's 16-byte chunks are permuted by the row's number.
constexpr int swizzled_offset(int row, int byte) {
  return row * kSwizzleRowBytes + ((byte / 16) ^ (row % 8)) * 16 + byte % 16;
}

}  // namespace farwarp
