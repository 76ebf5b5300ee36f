// The arguments of the kernels of attention.
#pragma once

#include <cstdint>

#include "farwarp/base/tensor_map.h"
#include "farwarp/ops/attention/mapping.h"
#include "farwarp/world/view.h"

namespace farwarp::attention {

/// Sites of the ledger: waits, and what a kernel found in device memory.
enum Site : std::uint32_t { kSiteStage, kSiteQueryStarts, kSiteKeyStarts, kSiteKeyCounts, kSitePage, kSites };
inline constexpr const char* kSiteNames[kSites] = {"a barrier of the block", "query_starts", "key_starts", "key_counts",
                                                   "block_table"};

inline constexpr int kUnlimited = 1 << 30;  ///< a window that reaches as far as there are keys

/// Where the rows of a sequence are. Row r of a tensor of head h begins at base + 2 * (batch * batch_pitch + r *
/// row_pitch + h * head_dim) bytes; ragged sequences share batch 0.
struct Rows {
  std::int64_t row_pitch;    ///< elements
  std::int64_t batch_pitch;  ///< elements; 0: ragged
};

/// The argument block of every kernel of attention; a kernel reads what it needs.
struct Args {
  TensorMap q;  ///< wgmma: grid [heads, batch], boxes of a block's rows x 64 columns
  TensorMap k;  ///< wgmma: grid [kv heads, batch or pages], boxes of a tile's keys, or of the keys of a page, x 64
  TensorMap v;  ///< as k
  WorldView view;
  std::uint32_t slot;  ///< of the operator in its World
  WorkGrid grid;
  Divisor by_group;  ///< query heads of a KV head
  Divisor by_page;   ///< page_size, if paged
  std::int32_t heads, kv_heads, head_dim;
  std::int32_t max_queries, max_keys;      ///< of a sequence
  std::int32_t total_queries, total_keys;  ///< rows of q and of k, where sequences are ragged
  std::int32_t page_size, pages,
      table_pitch;                         ///< page_size 0: k and v are not paged; table_pitch: entries of a sequence
  std::int32_t window_left, window_right;  ///< keys before and after a query's own that it attends to; kUnlimited: all
  float scale;                             ///< of the scores
  float scale_log2;                        ///< the same times log2(e)
  float cap_log2;                          ///< softcap: 2 * log2(e) * scale / softcap; `scale` is then the softcap
  std::int64_t counter;                    ///< offset in the heap: a word that counts claims of works, from all ones
  Rows q_rows, k_rows, v_rows, out_rows;
  const void* q_base;
  const void* k_base;
  const void* v_base;
  void* out;
  float* lse;                        ///< [batch, heads, max_queries] or [heads, total_queries], or null
  const float* sinks;                ///< [heads], or null
  const std::int32_t* query_starts;  ///< [batch + 1], or null: q is not ragged
  const std::int32_t* key_starts;    ///< [batch + 1], or null: k and v are not ragged
  const std::int32_t* key_counts;    ///< [batch], or null: max_keys
  const std::int32_t* block_table;   ///< [batch, table_pitch], or null
};

}  // namespace farwarp::attention
