// The tiles of a product of weights and a batch, as the workers of each XCD go through them (arXiv 2604.15379, "M-tile"), for the cache model.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "farwarp/machine/cache_model.h"

namespace farwarp {

/// Of y = x * w^T an XCD has a share of w's rows. A tile of y is `tile_m` rows of x by `tile_n` rows of w.
struct ChipletTiles {
  int m_tiles = 1, n_tiles = 1;  ///< of an XCD
  int window = 1;                ///< tiles of x that are gone through before the next tile of w

  struct Tile {
    int m, n;
  };
  /// Tile `number`, 0 to m_tiles * n_tiles - 1: in a window, x is fastest. Consecutive workers have consecutive tiles, so they read the same rows of w.
  constexpr Tile at(int number) const {
    const int of_window = window * n_tiles, first = number / of_window * window, in_window = number % of_window;
    const int height = std::min(window, m_tiles - first);
    return {first + in_window % height, in_window / height};
  }
};

/// A product that all XCDs share: worker i of an XCD has the tiles i, i + workers, ...
class ChipletProduct : public AccessPlan {
 public:
  struct Shape {
    int xcds = 8, workers = 31;  ///< of an XCD
    int rows = 0, columns = 0;   ///< of w, bf16
    int batch = 0;
    int tile_m = 16, tile_n = 64, tile_k = 256;
    int window = 1;
    bool reads_x = true;  ///< false: x is read once and then kept in shared memory
  };
  explicit ChipletProduct(const Shape& shape)
      : shape_(shape),
        tiles_{shape.batch / shape.tile_m, shape.rows / shape.xcds / shape.tile_n, shape.window},
        steps_(shape.columns / shape.tile_k) {}

  std::int64_t workgroups() const override { return std::int64_t{shape_.xcds} * shape_.workers; }
  std::int64_t accesses(std::int64_t workgroup) const override {
    const std::int64_t worker = workgroup / shape_.xcds, all = std::int64_t{tiles_.m_tiles} * tiles_.n_tiles;
    return worker >= all ? 0 : ((all - worker - 1) / shape_.workers + 1) * steps_ * of_step();
  }
  void read(std::int64_t workgroup, std::int64_t first, std::span<TileAccess> out) const override {
    const int xcd = static_cast<int>(workgroup % shape_.xcds), worker = static_cast<int>(workgroup / shape_.xcds);
    for (TileAccess& access : out) {
      const auto step = static_cast<int>(first / of_step());
      const ChipletTiles::Tile tile = tiles_.at(worker + step / steps_ * shape_.workers);
      const bool of_x = first++ % of_step() != 0;
      const int row = of_x ? tile.m : xcd * tiles_.n_tiles + tile.n;
      const int bytes = (of_x ? shape_.tile_m : shape_.tile_n) * shape_.tile_k * 2;
      access = {.object = of_x ? 1u : 0u,
                .tile = static_cast<std::uint32_t>(row * steps_ + step % steps_),
                .bytes = bytes,
                .pitch = bytes,
                .flops = of_x == shape_.reads_x ? 2.0 * shape_.tile_m * shape_.tile_n * shape_.tile_k : 0};
    }
  }
  std::int64_t tile_bytes() const override {
    return std::int64_t{std::max(shape_.tile_m, shape_.tile_n)} * shape_.tile_k * 2;
  }

 private:
  int of_step() const { return shape_.reads_x ? 2 : 1; }

  Shape shape_;
  ChipletTiles tiles_;
  int steps_;  ///< of a tile
};

}  // namespace farwarp
