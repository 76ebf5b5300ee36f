// Tensor maps: how the host describes a matrix in device memory to the unit that copies boxes of it (Hopper's TMA).
#pragma once

#include <cstddef>
#include <cstdint>

namespace farwarp {

/// A row-major matrix of 16-bit elements and the box that one copy moves, or a grid of such matrices: those of all
/// heads of all sequences, for example. A box lies in one matrix.
struct TensorMapDesc {
  void* base = nullptr;  ///< 16-byte aligned
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t pitch = 0;  ///< elements from one row to the next: a multiple of 8, at least `columns`
  int box_rows = 0;        ///< 1..256
  int box_columns = 0;     ///< a multiple of 8; 8..64 if swizzled, else 8..256
  bool swizzled = false;   ///< the box in shared memory: see base/swizzle.h
  // Matrix (i, j) of a grid begins at base + 2 * (i * grid_pitch[0] + j * grid_pitch[1]) bytes. All zeros: one matrix,
  // no grid.
  std::int64_t grid[2] = {0, 0};        ///< how many; both 1 or more
  std::int64_t grid_pitch[2] = {0, 0};  ///< elements: multiples of 8
};

/// A matrix of a grid.
struct GridIndex {
  int i = -1;
  int j = -1;
};

/// What tensor_load() and tensor_store() take: opaque, made by Device::encode(), passed in a kernel's arguments.
struct alignas(128) TensorMap {
  std::uint64_t words[16];
};

}  // namespace farwarp
