// The kernels of the MoE all-to-all, each listed once: the entry points, their names and what a call launches come from here.
#pragma once

#include <optional>

#include "farwarp/base/half.h"

namespace farwarp::moe {

/// What an instance launches: one kernel for each.
enum KernelId {
  kFusedRankScale,
  kFusedTable,
  kDispatch,
  kDispatchSend,
  kDispatchRecv,
  kCombine,
  kCombineSend,
  kCombineRecv,
  kKernels
};

/// How rows travel to their experts: the mode, and whether as fp8. Columns: MoeScales::kColumns, which matters to kernels that receive.
enum class Wire { Words, Bulk, Fp8Words, Fp8Bulk, Fp8WordsColumns, Fp8BulkColumns };

struct Variant {
  const char* name;
  KernelId id;
  std::optional<Wire> wire;                ///< none: the same for all
  std::optional<DType> dtype;              ///< of out, and of x unless the wire has fp8; none: the same for both
  std::optional<bool> weights_at_combine;  ///< none: the same with and without
  std::optional<bool> rows;                ///< whether for MoeLayout::kRows; none: for all layouts
};

}  // namespace farwarp::moe

/// KERNEL(name, id, Wire, T, Expert)
#define FARWARP_MOE_A2A_FUSED(KERNEL)                                                    \
  KERNEL(moe_a2a_fused_words_bf16_rank_scale, kFusedRankScale, Words, Bf16, RankScale)   \
  KERNEL(moe_a2a_fused_words_bf16_table, kFusedTable, Words, Bf16, TableExpert)          \
  KERNEL(moe_a2a_fused_words_fp16_rank_scale, kFusedRankScale, Words, Half, RankScale)   \
  KERNEL(moe_a2a_fused_words_fp16_table, kFusedTable, Words, Half, TableExpert)          \
  KERNEL(moe_a2a_fused_words_fp8_rank_scale, kFusedRankScale, Fp8Words, Bf16, RankScale) \
  KERNEL(moe_a2a_fused_words_fp8_table, kFusedTable, Fp8Words, Bf16, TableExpert)        \
  KERNEL(moe_a2a_fused_bulk_bf16_rank_scale, kFusedRankScale, Bulk, Bf16, RankScale)     \
  KERNEL(moe_a2a_fused_bulk_bf16_table, kFusedTable, Bulk, Bf16, TableExpert)            \
  KERNEL(moe_a2a_fused_bulk_fp16_rank_scale, kFusedRankScale, Bulk, Half, RankScale)     \
  KERNEL(moe_a2a_fused_bulk_fp16_table, kFusedTable, Bulk, Half, TableExpert)            \
  KERNEL(moe_a2a_fused_bulk_fp8_rank_scale, kFusedRankScale, Fp8Bulk, Bf16, RankScale)   \
  KERNEL(moe_a2a_fused_bulk_fp8_table, kFusedTable, Fp8Bulk, Bf16, TableExpert)

/// KERNEL(name, id, Wire, part)
#define FARWARP_MOE_A2A_DISPATCH(KERNEL)                                                   \
  KERNEL(moe_a2a_dispatch_words, kDispatch, Words, both)                                   \
  KERNEL(moe_a2a_dispatch_send_words, kDispatchSend, Words, send)                          \
  KERNEL(moe_a2a_dispatch_recv_words, kDispatchRecv, Words, receive)                       \
  KERNEL(moe_a2a_dispatch_words_fp8, kDispatch, Fp8Words, both)                            \
  KERNEL(moe_a2a_dispatch_send_words_fp8, kDispatchSend, Fp8Words, send)                   \
  KERNEL(moe_a2a_dispatch_recv_words_fp8, kDispatchRecv, Fp8Words, receive)                \
  KERNEL(moe_a2a_dispatch_bulk, kDispatch, Bulk, both)                                     \
  KERNEL(moe_a2a_dispatch_send_bulk, kDispatchSend, Bulk, send)                            \
  KERNEL(moe_a2a_dispatch_recv_bulk, kDispatchRecv, Bulk, receive)                         \
  KERNEL(moe_a2a_dispatch_bulk_fp8, kDispatch, Fp8Bulk, both)                              \
  KERNEL(moe_a2a_dispatch_send_bulk_fp8, kDispatchSend, Fp8Bulk, send)                     \
  KERNEL(moe_a2a_dispatch_recv_bulk_fp8, kDispatchRecv, Fp8Bulk, receive)                  \
  KERNEL(moe_a2a_dispatch_words_fp8_columns, kDispatch, Fp8WordsColumns, both)             \
  KERNEL(moe_a2a_dispatch_recv_words_fp8_columns, kDispatchRecv, Fp8WordsColumns, receive) \
  KERNEL(moe_a2a_dispatch_bulk_fp8_columns, kDispatch, Fp8BulkColumns, both)               \
  KERNEL(moe_a2a_dispatch_recv_bulk_fp8_columns, kDispatchRecv, Fp8BulkColumns, receive)

/// KERNEL(name, id, Wire, part)
#define FARWARP_MOE_A2A_DISPATCH_ROWS(KERNEL)                             \
  KERNEL(moe_a2a_dispatch_rows_words, kDispatch, Words, both)             \
  KERNEL(moe_a2a_dispatch_rows_send_words, kDispatchSend, Words, send)    \
  KERNEL(moe_a2a_dispatch_rows_recv_words, kDispatchRecv, Words, receive) \
  KERNEL(moe_a2a_dispatch_rows_bulk, kDispatch, Bulk, both)               \
  KERNEL(moe_a2a_dispatch_rows_send_bulk, kDispatchSend, Bulk, send)      \
  KERNEL(moe_a2a_dispatch_rows_recv_bulk, kDispatchRecv, Bulk, receive)

/// KERNEL(name, id, T, part)
#define FARWARP_MOE_A2A_COMBINE(KERNEL)                          \
  KERNEL(moe_a2a_combine_bf16, kCombine, Bf16, both)             \
  KERNEL(moe_a2a_combine_send_bf16, kCombineSend, Bf16, send)    \
  KERNEL(moe_a2a_combine_recv_bf16, kCombineRecv, Bf16, receive) \
  KERNEL(moe_a2a_combine_fp16, kCombine, Half, both)             \
  KERNEL(moe_a2a_combine_send_fp16, kCombineSend, Half, send)    \
  KERNEL(moe_a2a_combine_recv_fp16, kCombineRecv, Half, receive)

/// KERNEL(name, id, T, part)
#define FARWARP_MOE_A2A_COMBINE_WEIGHTS(KERNEL)                       \
  KERNEL(moe_a2a_combine_weights_bf16, kCombine, Bf16, both)          \
  KERNEL(moe_a2a_combine_weights_send_bf16, kCombineSend, Bf16, send) \
  KERNEL(moe_a2a_combine_weights_fp16, kCombine, Half, both)          \
  KERNEL(moe_a2a_combine_weights_send_fp16, kCombineSend, Half, send)

/// KERNEL(name, id, T, part)
#define FARWARP_MOE_A2A_COMBINE_ROWS(KERNEL)                               \
  KERNEL(moe_a2a_combine_rows_bulk_bf16, kCombine, Bf16, both)             \
  KERNEL(moe_a2a_combine_rows_send_bulk_bf16, kCombineSend, Bf16, send)    \
  KERNEL(moe_a2a_combine_rows_recv_bulk_bf16, kCombineRecv, Bf16, receive) \
  KERNEL(moe_a2a_combine_rows_bulk_fp16, kCombine, Half, both)             \
  KERNEL(moe_a2a_combine_rows_send_bulk_fp16, kCombineSend, Half, send)    \
  KERNEL(moe_a2a_combine_rows_recv_bulk_fp16, kCombineRecv, Half, receive)

namespace farwarp::moe {

#define FARWARP_FUSED_VARIANT(name, id, wire, T, expert) Variant{#name, id, Wire::wire, T::kDType, {}, {}},
#define FARWARP_DISPATCH_VARIANT(name, id, wire, part) Variant{#name, id, Wire::wire, {}, {}, false},
#define FARWARP_DISPATCH_ROWS_VARIANT(name, id, wire, part) Variant{#name, id, Wire::wire, {}, {}, true},
#define FARWARP_COMBINE_VARIANT(name, id, T, part) \
  Variant{#name, id, {}, T::kDType, id == kCombineRecv ? std::optional<bool>() : false, {}},
#define FARWARP_COMBINE_ROWS_VARIANT(name, id, T, part) Variant{#name, id, Wire::Bulk, T::kDType, false, true},
#define FARWARP_COMBINE_WEIGHTS_VARIANT(name, id, T, part) Variant{#name, id, {}, T::kDType, true, {}},

/// Of several kernels that suit a call, the first one is meant.
inline constexpr Variant kVariants[] = {
    FARWARP_MOE_A2A_COMBINE_ROWS(FARWARP_COMBINE_ROWS_VARIANT)  //
    FARWARP_MOE_A2A_FUSED(FARWARP_FUSED_VARIANT) FARWARP_MOE_A2A_DISPATCH(FARWARP_DISPATCH_VARIANT)
        FARWARP_MOE_A2A_DISPATCH_ROWS(FARWARP_DISPATCH_ROWS_VARIANT) FARWARP_MOE_A2A_COMBINE(FARWARP_COMBINE_VARIANT)
            FARWARP_MOE_A2A_COMBINE_WEIGHTS(FARWARP_COMBINE_WEIGHTS_VARIANT)};

#undef FARWARP_FUSED_VARIANT
#undef FARWARP_DISPATCH_VARIANT
#undef FARWARP_DISPATCH_ROWS_VARIANT
#undef FARWARP_COMBINE_VARIANT
#undef FARWARP_COMBINE_ROWS_VARIANT
#undef FARWARP_COMBINE_WEIGHTS_VARIANT

}  // namespace farwarp::moe
