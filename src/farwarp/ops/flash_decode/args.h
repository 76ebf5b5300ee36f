// The arguments of the kernels of flash-decode.
#pragma once

#include <cstdint>

#include "farwarp/base/divisor.h"
#include "farwarp/base/tensor_map.h"
#include "farwarp/ops/flash_decode/schedule.h"
#include "farwarp/world/view.h"

namespace farwarp::decode {

/// Wait sites of the ledger, and what kBadInput names.
enum Site : std::uint32_t { kSiteStage, kSiteLength, kSitePage, kSitePartial, kSiteFinished, kSites };
inline constexpr const char* kSiteNames[kSites] = {"a stage of keys", "lengths", "block_table",
                                                   "a peer's partial output", "a peer's finished output"};

/// How partial outputs of ranks are merged.
enum class Exchange : std::uint8_t { kNone, kOneShot, kTwoShot };

/// Offsets in the heap. Row slots are numbered [item][row of the item]; an item is a (sequence, KV head, block of
/// rows).
struct Offsets {
  std::int64_t sums;        ///< [items][most partials][item_rows][dim] fp32: of works
  std::int64_t statistics;  ///< [items][most partials][item_rows]: highest score | sum, fp32
  std::int64_t counters;    ///< [items]: how many works have arrived, less one
  std::int64_t inbox;       ///< words [2 parities][source][rows that this rank merges][dim / 4 + 1] of 16 bytes
  std::int64_t finished;    ///< words [2 parities][row slots][dim / 4 + 1] of 8 bytes; two-shot
};

struct Args {
  TensorMap k, v;  ///< of pages; Source::kTensor
  WorldView view;
  std::uint32_t slot;  ///< of the operator in its World
  SplitRule rule;
  std::int32_t batch;
  std::int32_t kv_heads;
  std::int32_t group;  ///< query heads of a KV head
  std::int32_t head_dim;
  std::int32_t rows;          ///< of a (sequence, KV head): query tokens * group
  std::int32_t block_rows;    ///< most rows of an item, as the kernel's variant has it
  std::int32_t item_rows;     ///< of an item: rows, at most block_rows
  std::int32_t work_shift;    ///< a work is 1 << work_shift splits; -1: by a block's share of the stages
  float share_factor;         ///< from keys of all sequences to stages of a work that is all of its item, at most
  std::int32_t most_visible;  ///< keys of a sequence that its tokens see
  std::int32_t row_blocks;    ///< items of a (sequence, KV head)
  Divisor by_items;           ///< of a sequence: kv_heads * row_blocks
  Divisor by_row_blocks;
  Divisor by_kv_heads;
  Divisor by_group;
  Divisor by_item_rows;
  Divisor by_ranks;            ///< of the World
  std::int32_t most_partials;  ///< works that an item can have
  std::int32_t page_size;
  std::int32_t pages;
  std::int32_t max_pages;   ///< columns of the block table
  std::int64_t page_pitch;  ///< elements from page to page
  std::int64_t head_pitch;  ///< elements from KV head to KV head
  std::int64_t row_pitch;   ///< elements from key to key of a page
  float scale;              ///< of q * k
  float scale_log2;         ///< scale * log2(e)
  Exchange exchange;
  std::uint32_t drop_put;  ///< 1 + the row slot that this rank does not send; 0: sends all
  Offsets at;
  const void* q;  ///< [batch, query_tokens, query heads, head_dim]
  const void* k_pages;
  const void* v_pages;
  const std::int32_t* block_table;  ///< [batch, max_pages]
  const std::int32_t* lengths;      ///< [batch]
  const float* k_scale;             ///< [kv_heads], or null
  const float* v_scale;             ///< [kv_heads], or null
  const float* sinks;               ///< [query heads], or null
  void* out;                        ///< as q
  float* lse;                       ///< [batch, query_tokens, query heads], or null
};

}  // namespace farwarp::decode
