// Which part of an attention a block computes: maps a work's number to a batch, a query head and a query block. A query
// block is the rows of Q that a block computes at a time; it reads all of its head's K and V that its rows attend to.
// Blocks are assigned to XCDs round robin, so the mapping decides which heads' K and V an XCD's L2 has to hold at once.
#pragma once

#include <cstdint>

#include "farwarp/base/divisor.h"

namespace farwarp::attention {

/// The names are those of "Swizzled Head-first Mapping" (arXiv 2511.02132). Of a batch, work w stands for:
enum class Mapping : std::uint8_t {
  kBlockFirst,  ///< head w % heads, query block w / heads: consecutive works are of different heads
  /// the same with the heads permuted: an XCD has consecutive heads. Where xcds does not divide the heads, a head is on
  /// several XCDs nevertheless
  kBlockFirstSwizzled,
  kHeadFirst,  ///< head w / query_blocks, query block w % query_blocks: every XCD has a part of each head. In sections
               ///< of several heads: the first query blocks of a section's heads, then the second ones
  kHeadFirstSwizzled,  ///< as head_first, but an XCD has consecutive works of that order, and so whole heads
};
inline constexpr Mapping kMappings[] = {Mapping::kBlockFirst, Mapping::kBlockFirstSwizzled, Mapping::kHeadFirst,
                                        Mapping::kHeadFirstSwizzled};

constexpr const char* name_of(Mapping mapping) {
  switch (mapping) {
    case Mapping::kBlockFirst: return "block_first";
    case Mapping::kBlockFirstSwizzled: return "block_first_swizzled";
    case Mapping::kHeadFirst: return "head_first";
    case Mapping::kHeadFirstSwizzled: return "head_first_swizzled";
  }
  return "?";
}

struct WorkPlace {
  int batch;
  int head;         ///< of the queries
  int query_block;  ///< of the head's rows, from the first
};

/// All works of an attention. work_grid() prepares the divisors.
struct WorkGrid {
  std::int32_t works;            ///< batches * heads * query_blocks
  std::int32_t query_blocks;     ///< of a head
  std::int32_t section;          ///< heads whose query blocks take turns: of the mappings block_first*, all
  std::int32_t xcd_works;        ///< works of an XCD, of all works
  std::int32_t larger_xcds;      ///< the first XCDs, this many, have one work more
  std::int32_t xcd_heads;        ///< heads of an XCD, of one batch
  std::int32_t more_heads_xcds;  ///< the first XCDs, this many, have one head more
  Mapping mapping;
  bool folded;  ///< the last query block of a head is its first work: causal, the longest works come first
  Divisor by_section, by_section_works;  ///< section * query_blocks
  Divisor by_batch_works;                ///< heads * query_blocks
  Divisor by_xcds;
};

/// All sizes at least 1, batches * heads * query_blocks below 2^31. `section`: heads of a section of the mappings
/// head_first and head_first_swizzled, a divisor of `heads`.
constexpr WorkGrid work_grid(Mapping mapping, bool folded, int batches, int heads, int query_blocks, int xcds,
                             int section = 1) {
  const std::int32_t works = batches * heads * query_blocks;
  if (mapping == Mapping::kBlockFirst || mapping == Mapping::kBlockFirstSwizzled) section = heads;
  return {works,
          query_blocks,
          section,
          works / xcds,
          works % xcds,
          heads / xcds,
          heads % xcds,
          mapping,
          folded,
          Divisor(section),
          Divisor(section * query_blocks),
          Divisor(heads * query_blocks),
          Divisor(xcds)};
}

/// tile::work_on_xcd(index, xcds * share + larger, xcds), with a prepared divisor: index % xcds is an XCD, and the XCD
/// has consecutive values.
constexpr int consecutive_on_xcd(int index, int share, int larger, const Divisor& by_xcds) {
  const int turn = by_xcds.quotient(index);
  const int xcd = index - turn * by_xcds.value;
  return xcd * share + (xcd < larger ? xcd : larger) + turn;
}

/// What work `number` (0 .. works - 1) computes. A bijection for all sizes.
constexpr WorkPlace place_of(const WorkGrid& grid, int number) {
  if (grid.mapping == Mapping::kHeadFirstSwizzled)
    number = consecutive_on_xcd(number, grid.xcd_works, grid.larger_xcds, grid.by_xcds);
  const int batch = grid.by_batch_works.quotient(number);
  const int within = number - batch * grid.by_batch_works.value;
  const int section = grid.by_section_works.quotient(within);
  const int in_section = within - section * grid.by_section_works.value;
  const int query_block = grid.by_section.quotient(in_section);
  int head = section * grid.section + in_section - query_block * grid.section;
  if (grid.mapping == Mapping::kBlockFirstSwizzled)
    head = consecutive_on_xcd(head, grid.xcd_heads, grid.more_heads_xcds, grid.by_xcds);
  return {batch, head, grid.folded ? grid.query_blocks - 1 - query_block : query_block};
}

}  // namespace farwarp::attention
