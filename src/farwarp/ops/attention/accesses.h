// Which tiles of Q, K, V and O the works of an attention's forward pass access, in order: what machine/cache_model.h
// simulates.
#pragma once

#include "farwarp/base/status.h"
#include "farwarp/machine/cache_model.h"
#include "farwarp/ops/attention/mapping.h"

namespace farwarp::attention {

struct PrefillShape {
  int batch = 1;
  int heads = 1;     ///< of the queries
  int kv_heads = 1;  ///< divides heads
  int seq_q = 1;
  int seq_k = 1;
  int head_dim = 128;
  int block_m = 128;    ///< rows of Q of a work
  int block_n = 64;     ///< rows of K and V that are loaded at once
  bool causal = false;  ///< row i of Q attends to rows up to i + seq_k - seq_q of K
  int window = 0;       ///< of causal: and to that many rows at most; 0: no limit
  int element_bytes = 2;
};
/// kInvalidArgument names the parameter, its value and what is allowed.
Status check(const PrefillShape& shape);

constexpr int query_blocks(const PrefillShape& shape) { return (shape.seq_q + shape.block_m - 1) / shape.block_m; }

/// Tiles of K that a query block reads, and as many of V.
struct TileRange {
  int first;
  int count;
};
TileRange kv_tiles(const PrefillShape& shape, int query_block);

/// Of both products, of the tiles that are read.
double flops_of(const PrefillShape& shape);

/// Whether two mappings differ in the names of heads and of query blocks only, so that their simulations give the same:
/// each work reads as many tiles, and works that share a head's K and V in one share another head's in the other.
/// check(shape) is ok.
bool same_sharing(const PrefillShape& shape, Mapping one, Mapping other, bool folded, int xcds);

/// Each work reads its rows of Q, then a tile of K and one of V in turn, and writes its rows of O.
class PrefillAccesses : public AccessPlan {
 public:
  /// check(shape) is ok. `xcds`: those that the mapping takes into account.
  PrefillAccesses(const PrefillShape& shape, Mapping mapping, bool folded, int xcds, int section = 1)
      : shape_(shape),
        grid_(work_grid(mapping, folded, shape.batch, shape.heads, query_blocks(shape), xcds, section)) {}

  std::int64_t workgroups() const override { return grid_.works; }
  std::int64_t accesses(std::int64_t workgroup) const override;
  void read(std::int64_t workgroup, std::int64_t first, std::span<TileAccess> out) const override;
  std::int64_t tile_bytes() const override;

 private:
  PrefillShape shape_;
  WorkGrid grid_;
};

}  // namespace farwarp::attention
