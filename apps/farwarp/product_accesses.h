// Which tiles of weights and activations the workers of a product access, in order, by several traversals: what
// machine/cache_model.h simulates.
#pragma once

#include <cstdint>
#include <string_view>

#include "farwarp/base/status.h"
#include "farwarp/machine/cache_model.h"

namespace farwarp::cli {

/// In which order the tiles of a product's result go to workers. The first three are those of Fleet (arXiv 2604.15379).
enum class Traversal : std::uint8_t {
  /// each XCD has a share of the weights' rows; workers beside each other have the same weights and other sequences
  kMWindow,
  kNFirst,  ///< the same shares; workers beside each other have other weights
  kMSplit,  ///< no two XCDs, and no two workers of one, have the same weights and other sequences at once
  /// farwarp: a worker has tiles of weights for all sequences and keeps the activations, so each weight is read once
  kWhole,
};
inline constexpr Traversal kTraversals[] = {Traversal::kMWindow, Traversal::kNFirst, Traversal::kMSplit,
                                            Traversal::kWhole};
constexpr std::string_view name_of(Traversal traversal) {
  switch (traversal) {
    case Traversal::kMWindow: return "m_window";
    case Traversal::kNFirst: return "n_first";
    case Traversal::kMSplit: return "m_split";
    case Traversal::kWhole: return "whole";
  }
  return "?";
}

/// A product of weights [rows, columns] and the vectors of `sequences` sequences, bf16.
struct ProductShape {
  int sequences = 1;
  int rows = 0;
  int columns = 0;
  // Of a tile of the result; kWhole has tiles of 16 rows and all sequences instead.
  int tile_rows = 64;
  int tile_sequences = 16;
  int step_columns = 256;  ///< that are loaded at once
  int window = 0;          ///< kMWindow: tiles of sequences that are beside each other; 0: all
  int xcds = 1;
  int workers_per_xcd = 1;
};
/// kInvalidArgument names the parameter, its value and what is allowed.
Status check(const ProductShape& shape);

/// A worker's tiles, one after the other: of each, steps of activations and weights in turn, then the result. Worker w
/// is of XCD w % xcds.
class ProductAccesses : public AccessPlan {
 public:
  /// check(shape) is ok.
  ProductAccesses(const ProductShape& shape, Traversal traversal);

  std::int64_t workgroups() const override;
  std::int64_t accesses(std::int64_t worker) const override;
  void read(std::int64_t worker, std::int64_t first, std::span<TileAccess> out) const override;
  std::int64_t tile_bytes() const override;

 private:
  struct Place {
    int rows, sequences;  ///< numbers of the tiles
  };
  enum class Kind : std::uint8_t { kActivations, kWeights, kResult };
  struct Which {
    int tile;  ///< of the worker
    int step;
    Kind kind;
  };
  int tiles_of(std::int64_t worker) const;
  Which which(std::int64_t access) const;
  Place place(std::int64_t worker, int tile) const;

  ProductShape shape_;
  Traversal traversal_;
  int row_tiles_, sequence_tiles_, steps_;
};

}  // namespace farwarp::cli
