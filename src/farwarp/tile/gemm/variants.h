// The kernels of a product. Each operator lists its kernels once, in its variants.h. The entry points, their names and
// what a plan chooses from all come from that list.
#pragma once

#include <algorithm>
#include <span>

#include "farwarp/base/half.h"

namespace farwarp::tile {

/// A kernel of a product.
struct Variant {
  const char* name;
  DType dtype;
  int rows, columns;  ///< of a tile: rows of A and of B
  bool swap_ab;       ///< A is w and B is x; else A is x
};

/// Columns of the widest tile whose rows are x's.
constexpr int widest_of(std::span<const Variant> kernels) {
  int widest = 0;
  for (const Variant& kernel : kernels) widest = kernel.swap_ab ? widest : std::max(widest, kernel.columns);
  return widest;
}

}  // namespace farwarp::tile

/// An element of an array of Variants.
#define FARWARP_VARIANT(name, T, rows, columns, swap_ab) \
  ::farwarp::tile::Variant{#name, ::farwarp::T::kDType, rows, columns, swap_ab},

// Lists of KERNEL(name, T, rows, columns, swap_ab). A name is PREFIX_TYPE_TILE.

#define FARWARP_BOTH_TYPES(LIST, KERNEL, prefix) LIST(KERNEL, prefix, bf16, Bf16) LIST(KERNEL, prefix, fp16, Half)

/// wgmma: tiles of 128 rows of x, in every second width. For operators that communicate: where the link is the bound,
/// the other widths gain little.
#define FARWARP_EVEN_TILES_OF(KERNEL, prefix, type, T) \
  KERNEL(prefix##_##type##_64, T, 128, 64, false)      \
  KERNEL(prefix##_##type##_128, T, 128, 128, false)    \
  KERNEL(prefix##_##type##_192, T, 128, 192, false)    \
  KERNEL(prefix##_##type##_256, T, 128, 256, false)
/// The same without the widest.
#define FARWARP_NARROW_TILES_OF(KERNEL, prefix, type, T) \
  KERNEL(prefix##_##type##_64, T, 128, 64, false)        \
  KERNEL(prefix##_##type##_128, T, 128, 128, false)      \
  KERNEL(prefix##_##type##_192, T, 128, 192, false)
/// wgmma: tiles of 128 rows of w, for few rows of x.
#define FARWARP_SWAP_AB_TILES_OF(KERNEL, prefix, type, T) \
  KERNEL(prefix##_##type##_swap_ab_16, T, 128, 16, true)  \
  KERNEL(prefix##_##type##_swap_ab_32, T, 128, 32, true)  \
  KERNEL(prefix##_##type##_swap_ab_64, T, 128, 64, true)
/// mfma: kMfmaLarge and kMfmaSmall.
#define FARWARP_MFMA_TILES_OF(KERNEL, prefix, type, T)  \
  KERNEL(prefix##_##type##_256x128, T, 256, 128, false) \
  KERNEL(prefix##_##type##_64x128, T, 64, 128, false)

#define FARWARP_EVEN_TILES(KERNEL, prefix) FARWARP_BOTH_TYPES(FARWARP_EVEN_TILES_OF, KERNEL, prefix)
#define FARWARP_NARROW_TILES(KERNEL, prefix) FARWARP_BOTH_TYPES(FARWARP_NARROW_TILES_OF, KERNEL, prefix)
#define FARWARP_SWAP_AB_TILES(KERNEL, prefix) FARWARP_BOTH_TYPES(FARWARP_SWAP_AB_TILES_OF, KERNEL, prefix)
#define FARWARP_MFMA_TILES(KERNEL, prefix) FARWARP_BOTH_TYPES(FARWARP_MFMA_TILES_OF, KERNEL, prefix)
