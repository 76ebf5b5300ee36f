// The kernels of the MoE all-to-all, each listed once: the entry points, their names and what a call launches come from
// here.
#pragma once

#include <optional>

#include "farwarp/base/half.h"

namespace farwarp::moe {

/// What an instance launches: one kernel for each. Halves of dispatch and combine are launches of the same kernel
/// (Args::halves).
enum KernelId {
  kFusedRankScale,
  kFusedTable,
  kDispatch,
  kCombine,
  kReturnRowWeights,   ///< kRows, between dispatch and combine
  kEndWithoutCombine,  ///< of a dispatch that is followed by another one
  kKernels
};

/// How rows travel to their experts: the mode, and whether as fp8. Columns: MoeScales::kColumns and kExponentColumns.
enum class Wire { Words, Bulk, Fp8Words, Fp8Bulk, Fp8WordsColumns, Fp8BulkColumns };

struct Variant {
  const char* name;
  KernelId id;
  std::optional<Wire> wire;                ///< none: the same for all
  std::optional<DType> dtype;              ///< Desc::dtype, of all but rows that arrive as fp8; none: the same for both
  std::optional<bool> weights_at_combine;  ///< none: the same with and without
  std::optional<bool> rows;                ///< whether for MoeLayout::kRows; none: for all layouts
};

}  // namespace farwarp::moe

// Names follow "moe_a2a_"; a profiler shows farwarp::moe_a2a::NAME.

/// KERNEL(name, id, Wire, T, Expert)
#define FARWARP_MOE_A2A_FUSED(KERNEL)                                            \
  KERNEL(fused_words_bf16_rank_scale, kFusedRankScale, Words, Bf16, RankScale)   \
  KERNEL(fused_words_bf16_table, kFusedTable, Words, Bf16, TableExpert)          \
  KERNEL(fused_words_fp16_rank_scale, kFusedRankScale, Words, Half, RankScale)   \
  KERNEL(fused_words_fp16_table, kFusedTable, Words, Half, TableExpert)          \
  KERNEL(fused_words_fp8_rank_scale, kFusedRankScale, Fp8Words, Bf16, RankScale) \
  KERNEL(fused_words_fp8_table, kFusedTable, Fp8Words, Bf16, TableExpert)        \
  KERNEL(fused_bulk_bf16_rank_scale, kFusedRankScale, Bulk, Bf16, RankScale)     \
  KERNEL(fused_bulk_bf16_table, kFusedTable, Bulk, Bf16, TableExpert)            \
  KERNEL(fused_bulk_fp16_rank_scale, kFusedRankScale, Bulk, Half, RankScale)     \
  KERNEL(fused_bulk_fp16_table, kFusedTable, Bulk, Half, TableExpert)            \
  KERNEL(fused_bulk_fp8_rank_scale, kFusedRankScale, Fp8Bulk, Bf16, RankScale)   \
  KERNEL(fused_bulk_fp8_table, kFusedTable, Fp8Bulk, Bf16, TableExpert)

/// KERNEL(name, id, Wire)
#define FARWARP_MOE_A2A_DISPATCH(KERNEL)                         \
  KERNEL(dispatch_words, kDispatch, Words)                       \
  KERNEL(dispatch_words_fp8, kDispatch, Fp8Words)                \
  KERNEL(dispatch_words_fp8_columns, kDispatch, Fp8WordsColumns) \
  KERNEL(dispatch_bulk, kDispatch, Bulk)                         \
  KERNEL(dispatch_bulk_fp8, kDispatch, Fp8Bulk)                  \
  KERNEL(dispatch_bulk_fp8_columns, kDispatch, Fp8BulkColumns)

/// KERNEL(name, id, Wire)
#define FARWARP_MOE_A2A_DISPATCH_ROWS(KERNEL)   \
  KERNEL(dispatch_rows_words, kDispatch, Words) \
  KERNEL(dispatch_rows_bulk, kDispatch, Bulk)

/// KERNEL(name, id, T)
#define FARWARP_MOE_A2A_COMBINE(KERNEL) \
  KERNEL(combine_bf16, kCombine, Bf16)  \
  KERNEL(combine_fp16, kCombine, Half)

/// KERNEL(name, id, T)
#define FARWARP_MOE_A2A_COMBINE_WEIGHTS(KERNEL) \
  KERNEL(combine_weights_bf16, kCombine, Bf16)  \
  KERNEL(combine_weights_fp16, kCombine, Half)

/// KERNEL(name, id, T)
#define FARWARP_MOE_A2A_COMBINE_ROWS(KERNEL)     \
  KERNEL(combine_rows_bulk_bf16, kCombine, Bf16) \
  KERNEL(combine_rows_bulk_fp16, kCombine, Half)

/// KERNEL(name, id)
#define FARWARP_MOE_A2A_BETWEEN(KERNEL)         \
  KERNEL(return_row_weights, kReturnRowWeights) \
  KERNEL(end_without_combine, kEndWithoutCombine)

namespace farwarp::moe {

#define FARWARP_FUSED_VARIANT(name, id, wire, T, expert) Variant{"moe_a2a_" #name, id, Wire::wire, T::kDType, {}, {}},
#define FARWARP_DISPATCH_VARIANT(name, id, wire) Variant{"moe_a2a_" #name, id, Wire::wire, {}, {}, false},
#define FARWARP_DISPATCH_ROWS_VARIANT(name, id, wire) Variant{"moe_a2a_" #name, id, Wire::wire, {}, {}, true},
#define FARWARP_COMBINE_VARIANT(name, id, T) Variant{"moe_a2a_" #name, id, {}, T::kDType, false, {}},
#define FARWARP_COMBINE_ROWS_VARIANT(name, id, T) Variant{"moe_a2a_" #name, id, Wire::Bulk, T::kDType, false, true},
#define FARWARP_COMBINE_WEIGHTS_VARIANT(name, id, T) Variant{"moe_a2a_" #name, id, {}, T::kDType, true, {}},
#define FARWARP_BETWEEN_VARIANT(name, id) Variant{"moe_a2a_" #name, id, {}, {}, {}, {}},

/// Of several kernels that suit a call, the first one is meant.
inline constexpr Variant kVariants[] = {
    FARWARP_MOE_A2A_COMBINE_ROWS(FARWARP_COMBINE_ROWS_VARIANT)  //
    FARWARP_MOE_A2A_FUSED(FARWARP_FUSED_VARIANT) FARWARP_MOE_A2A_DISPATCH(FARWARP_DISPATCH_VARIANT)
        FARWARP_MOE_A2A_DISPATCH_ROWS(FARWARP_DISPATCH_ROWS_VARIANT) FARWARP_MOE_A2A_COMBINE(FARWARP_COMBINE_VARIANT)
            FARWARP_MOE_A2A_COMBINE_WEIGHTS(FARWARP_COMBINE_WEIGHTS_VARIANT)
                FARWARP_MOE_A2A_BETWEEN(FARWARP_BETWEEN_VARIANT)};

#undef FARWARP_FUSED_VARIANT
#undef FARWARP_DISPATCH_VARIANT
#undef FARWARP_DISPATCH_ROWS_VARIANT
#undef FARWARP_COMBINE_VARIANT
#undef FARWARP_COMBINE_ROWS_VARIANT
#undef FARWARP_COMBINE_WEIGHTS_VARIANT
#undef FARWARP_BETWEEN_VARIANT

}  // namespace farwarp::moe
