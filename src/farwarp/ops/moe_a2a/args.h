// What host and device share of the MoE all-to-all: the argument block of its kernels, its wait sites, and the layout
// of its shared memory.
#pragma once

#include <cstdint>

#include "farwarp/base/divisor.h"
#include "farwarp/ops/moe_a2a/plan.h"
#include "farwarp/world/view.h"

namespace farwarp::moe {

/// Wait sites and complaints, as the ledger names them.
enum Site : std::uint32_t {
  kSiteHeader,         ///< a source's header: which rows it sends; split form: how many entries each expert gets
  kSiteRow,            ///< words mode: a row's routes, and its data
  kSiteRoutes,         ///< bulk mode: a row's routes
  kSiteData,           ///< bulk mode: the flag of a row's segment
  kSiteReturn,         ///< what an owner returns
  kSiteStaging,        ///< a bulk load into this block's shared memory
  kSiteTokens,         ///< complaint: token count outside 0 .. max_tokens
  kSiteExpert,         ///< complaint: expert index outside -1 .. num_experts-1
  kSiteCapacity,       ///< complaint: more rows than recv_rows
  kSiteConfiguration,  ///< complaint: a peer's header carries another configuration
  kSiteWeights,        ///< weights that a source sends at combine, or that an owner returns (return_row_weights())
  kSites,
};
inline constexpr const char* kSiteNames[kSites] = {
    "dispatch header", "dispatch row", "dispatch routes", "dispatch data", "combine return", "staging load",
    "token count",     "expert index", "recv_rows",       "configuration", "combine weights"};

inline constexpr int kMaxTopK = 32;  ///< the lanes of the smallest warp: lane j holds k-slot j
inline constexpr int kMaxExperts = 4096;
inline constexpr int kThreads = 256;
inline constexpr int kStagingBytes = 16384;  ///< bulk mode: one warp's staging buffer in shared memory
/// MoeLayout::kRows in bulk mode, on targets with bulk copies: slots of a warp's ring in shared memory, and the most
/// bytes of one.
inline constexpr int kRingSlots = 3, kMaxSlotBytes = 8192;
inline constexpr int kBatch = 128;        ///< tokens a block routes at a time
inline constexpr int kBitmapTokens = 32;  ///< tokens of one bitmap, which is one header packet
constexpr int num_bitmaps(int max_tokens) { return (max_tokens + kBitmapTokens - 1) / kBitmapTokens; }
/// The configuration folded to 32 bits, so that it fits into a packet beside a bitmap. The reader compares it with its
/// own and detects a peer with another configuration or another form of the call.
constexpr std::uint32_t folded(std::uint64_t configuration) {
  return static_cast<std::uint32_t>(configuration ^ configuration >> 32);
}
/// An inbox slot that stays idle is retagged once in this many calls of its parity, so that no tag is ever 2^32 - 4
/// calls old.
inline constexpr std::uint32_t kRetagPeriod = 1u << 16;

/// Phases of a call, in OperatorCells::phase: what the kernels so far have done, or are doing (finish_with_cells()).
/// The fused form goes from kIdle to kIdle in one launch. In the split form dispatch and combine are one launch each,
/// or two halves each.
inline constexpr std::uint32_t kIdle = 0, kSent = 1, kReceived = 2, kReturning = 3;

/// Args::halves
inline constexpr std::int32_t kSendHalf = 1, kReceiveHalf = 2, kBothHalves = 3;

/// Byte of Args::kept at which what is kept of rows begins.
inline constexpr std::int64_t kKeptRowsAt = 256;

/// One top-k entry of a token, at the rank that owns its expert.
struct Route {
  float weight;
  std::int32_t expert;  ///< local
  std::int32_t index;   ///< rows by expert: number of the row among this source's rows for that expert; fused form and
                        ///< kRows: 0
};
/// On the link a route is one 64-bit word, from its lowest bit: weight in 32 bits, index in 20, expert in 12.
inline constexpr int kRouteIndexBits = 20;
/// Most entries of a rank in a call: one less than there are indices, so that no route has an index of all ones.
inline constexpr int kMaxEntries = (1 << kRouteIndexBits) - 1;
/// The word of a k-slot without a route at this rank. It differs from every route by its index (kMaxEntries).
inline constexpr std::uint64_t kNoRoute = ~std::uint64_t{0};

/// Which blocks of a launch send, and which receive.
struct Roles {
  std::int32_t sending_blocks;  ///< blocks [0, sending_blocks) send rows; all blocks, if there are no send-only ones
  std::int32_t sending_warps;   ///< in each sending block, warps [0, sending_warps) send (of combine: return)
  std::int32_t workers;         ///< blocks from `first_worker` on: they route tokens (split form) and receive rows
  std::int32_t first_worker;
};

// fp8 dispatch: kScaleGroup numbers share a scale. In bulk mode a segment begins at a multiple of kFp8Align numbers, so
// that its scales are aligned to 16 bytes as well. In words mode a segment begins with a scale group.
inline constexpr int kScaleGroup = 128;
inline constexpr int kFp8Align = 4 * kScaleGroup;
constexpr std::int64_t fp8_scales_at(int hidden) { return (hidden + 15) / 16 * 16; }
constexpr int fp8_groups(int hidden) { return (hidden + kScaleGroup - 1) / kScaleGroup; }

/// Parts of shared memory, in bytes; one function for host and device.
struct SharedLayout {
  // While tokens are routed (split form):
  std::int64_t
      histogram;         ///< u32 [num_experts]: number of entries, first those of earlier tokens, then a running count
  std::int64_t indices;  ///< u32 [kBatch][k]: index of the entry among its expert's entries
  // While rows arrive, in the same memory as the two above:
  std::int64_t bitmaps;  ///< u32 [bitmaps of a source][ranks]; the second index is i of source rank_after(1 + i)
  /// Split form: i32 [ranks][local experts]. Counts of (source, expert), then, except for kRows, first output rows.
  std::int64_t bases;
  std::int64_t totals;  ///< split form: u32 [local experts]
  // Throughout:
  std::int64_t barriers;  ///< u64 [warps]
  std::int64_t staging;   ///< bytes [warps][kStagingBytes]: bulk mode on targets with bulk copies, but not kRows
  std::int64_t total;
};

/// Bytes of shared memory after SharedLayout::total with MoeLayout::kRows: sums of bitmaps.
constexpr std::int64_t bitmap_sums_bytes(int ranks, int max_tokens) {
  return 4ll * (num_bitmaps(max_tokens) * ranks + ranks + 1);
}

/// With MoeLayout::kRows in bulk mode, on targets with bulk copies: the rings, after the sums of bitmaps, which end
/// at `sums_end`.
struct RingLayout {
  std::int64_t barriers, slots;  ///< RingArgs::barriers, RingArgs::slots
  std::int32_t slot_bytes;       ///< as many as fit into `room` bytes of shared memory, at most kMaxSlotBytes
  std::int64_t total;
};
constexpr RingLayout ring_layout(std::int64_t sums_end, std::int64_t room, int warps) {
  constexpr std::int32_t kMinSlotBytes = 1024, kAlign = 128;
  RingLayout layout{};
  const std::int64_t rings = std::int64_t{warps} * kRingSlots;
  layout.barriers = (sums_end + kAlign - 1) / kAlign * kAlign;
  layout.slots = (layout.barriers + 8 * rings + kAlign - 1) / kAlign * kAlign;
  const std::int64_t fits = (room - layout.slots) / rings / kAlign * kAlign;
  layout.slot_bytes = static_cast<std::int32_t>(fits > kMaxSlotBytes   ? kMaxSlotBytes
                                                : fits < kMinSlotBytes ? kMinSlotBytes
                                                                       : fits);
  layout.total = layout.slots + rings * layout.slot_bytes;
  return layout;
}
/// Bytes of a row's segment that are copied at a time: as few pieces as fit into slots, all about as long.
constexpr std::int32_t ring_piece_bytes(int hidden, int segments, std::int32_t slot_bytes) {
  const std::int32_t longest = (hidden / 8 + segments - 1) / segments * 16;
  const std::int32_t pieces = (longest + slot_bytes - 1) / slot_bytes;
  return (longest / 16 + pieces - 1) / pieces * 16;
}

constexpr SharedLayout shared_layout(int num_experts, int ranks, int k, int max_tokens, int local_experts, int warps,
                                     bool staged) {
  SharedLayout layout{};
  std::int64_t end = 0;
  const auto take = [&end](std::int64_t bytes) {
    const std::int64_t start = end;
    end = (end + bytes + 127) / 128 * 128;
    return start;
  };
  layout.histogram = take(4ll * num_experts);
  layout.indices = take(4ll * kBatch * k);
  const std::int64_t routing_end = end;
  end = 0;
  layout.bitmaps = take(4ll * num_bitmaps(max_tokens) * ranks);
  layout.bases = take(4ll * ranks * local_experts);
  layout.totals = take(4ll * local_experts);
  end = end > routing_end ? end : routing_end;
  layout.barriers = take(8ll * warps);
  layout.staging = take(staged ? static_cast<std::int64_t>(kStagingBytes) * warps : 0);
  layout.total = end;
  return layout;
}

/// The shared memory of a launch: the parts, the sums of bitmaps with MoeLayout::kRows, and the rings if that is in
/// bulk mode on a target with bulk copies.
struct LaunchMemory {
  SharedLayout parts;
  std::int64_t bitmap_sums;  ///< RowsArgs::bitmap_sums
  RingLayout rings;          ///< without rings: zeros
  std::int64_t total;
};
/// `plan` has its mode, threads and max_local_experts.
constexpr LaunchMemory launch_memory(const MoeAllToAllPlan& plan, const TargetTraits& traits) {
  const MoeAllToAllDesc& desc = plan.desc;
  const bool rows_once = desc.layout == MoeLayout::kRows, copies = plan.mode == MoeMode::kBulk && traits.bulk_copy;
  const int warps = plan.threads / traits.warp_size;
  LaunchMemory memory{};
  memory.parts = shared_layout(desc.num_experts, plan.ranks, desc.experts_per_token, desc.max_tokens,
                               plan.max_local_experts, warps, copies && !rows_once);
  memory.bitmap_sums = memory.parts.total;
  memory.total = memory.bitmap_sums + (rows_once ? bitmap_sums_bytes(plan.ranks, desc.max_tokens) : 0);
  if (copies && rows_once) {
    memory.rings = ring_layout(memory.total, traits.shared_bytes, warps);
    memory.total = memory.rings.total;
  }
  return memory;
}

/// rank_of() without a division: floor(n / num_experts) = n * reciprocal >> 32 for n below 2^15, because the reciprocal
/// is too large by less than 2^-32 and n / num_experts is at least 1 / 4096 below the next integer. For num_experts = 1
/// the reciprocal is 0, and so is the only quotient.
constexpr std::uint32_t moe_reciprocal(int num_experts) {
  return static_cast<std::uint32_t>(0xffffffffu / static_cast<std::uint32_t>(num_experts) + 1);
}

// ---- the argument block: what all kernels read, and a group for each of their families ------------------------------

/// This rank's tokens. Read by every kernel that moves rows or weights.
struct TokenArgs {
  std::int32_t count;
  const std::int32_t* on_device;  ///< or null: the count
  const void* topk;
  std::int32_t wide_indices;  ///< 1: topk holds int64, and what dispatch delivers of it, too
  const float* weights;       ///< of dispatch and fused; with Desc::weights_at_combine of combine
};

/// Rows that are sent. Read by the kernels fused_* and dispatch_*.
struct SendArgs {
  const void* x;
  std::int32_t row_bytes;  ///< of a dispatched row in the workspace
  std::int32_t scales_at;  ///< fp8: where a row's scales begin, in bytes
  std::uint32_t drop_put;  ///< fault injection: this rank drops the rows of this token, counted from 1; 0: none
  std::uint64_t configuration;
};

/// fp8 rows. Read by the kernels fused_*_fp8_* and dispatch_*_fp8*; `scales` and `by_room` by the latter.
struct Fp8Args {
  std::int32_t exponents;  ///< 1: scales are powers of two; 2: and are delivered as bytes, their exponents
  float* scales;
  Divisor by_room;  ///< masked layout: rows of an expert
};

/// Rows that are delivered. Read by the kernels dispatch_*.
struct DispatchArgs {
  void* recv_x;
  std::int64_t recv_rows;
  std::int32_t* counts;
  std::int32_t* row_offsets;
  std::int64_t* origins;
  std::int32_t lane_entries;  ///< entries of tokens that a warp counts at a time, one on a lane
  Divisor by_k;
  std::int32_t masked_layout;  ///< 1: MoeLayout::kMasked
};

/// Rows by expert. Read by the kernels dispatch_*; by dispatch_rows_* `row_tokens` alone, which is null for them.
struct ExpertRowsArgs {
  std::int32_t row_alignment;
  std::int32_t* count_sums;  ///< or null: [local experts], to which counts are added
  std::int64_t* row_ranges;  ///< masked layout, or null: [local experts][ranks]: first row in the expert's << 32 | rows
  std::int32_t* row_tokens;  ///< masked layout, or null: [recv_rows]: token of each row at its source
};

/// MoeLayout::kRows. Read by the kernels dispatch_rows_*.
struct RowsArgs {
  const std::int32_t* expert_counts;  ///< or null: [num_experts], the counts that owners are told
  void* recv_topk;
  float* recv_weights;
  std::int64_t bitmap_sums;  ///< in shared memory, i32: rows_before(), then first_rows()
};

/// Rows in pieces: MoeLayout::kRows in bulk mode, on targets with bulk copies; else zeros. Read by the kernels
/// dispatch_rows_bulk and combine_rows_bulk_*; `slot_bytes` by return_row_weights, too.
struct RingArgs {
  std::int64_t barriers;  ///< in shared memory, u64 [warps][kRingSlots]
  std::int64_t slots;     ///< in shared memory, bytes [warps][kRingSlots][slot_bytes]
  std::int32_t slot_bytes;
  std::int32_t piece_bytes;  ///< bytes of a row that are copied at a time, at most slot_bytes
};

/// Sums. Read by the kernels combine_*; `out` by fused_*, too.
struct CombineArgs {
  const void* y;
  void* out;
};

/// Read by the kernel return_row_weights.
struct RowWeightArgs {
  const float* of_rows;  ///< [rows][k], what this owner returns beside the rows
  float* sums;           ///< [tokens][k]
};

/// Read by the kernels fused_*_table.
struct FusedArgs {
  const float* expert_table;
};

/// The argument block of every kernel.
struct Args {
  // Read by kernels of all families, by end_without_combine the first two alone.
  WorldView view;
  std::uint32_t operator_slot;  ///< the operator's slot in its World
  std::int32_t num_experts;
  std::uint32_t reciprocal;  ///< moe_reciprocal(num_experts)
  std::int32_t k;
  std::int32_t hidden;  ///< of this launch: dispatch: plan.dispatch_hidden; else Desc::hidden
  std::int32_t max_tokens;
  std::int32_t max_local_experts;
  std::int32_t segments;  ///< segments of a row, which different warps take
  Divisor by_segments, by_ranks;
  Roles roles;          ///< of this launch
  std::int32_t halves;  ///< of dispatch or of combine, which this launch does: kSendHalf, kReceiveHalf, or both
  std::int32_t dispatch_was_empty;  ///< combine_weights_* of a handle, 1: this call's dispatch has sent no rows
  std::int32_t header_packets;
  std::int64_t workspace;  ///< offset in every heap
  MoeWorkspace offsets;    ///< relative to workspace
  /// What dispatch keeps for combine: memory of the workspace, or the caller's handle. Without rings: a u32, the
  /// number of records, and from kKeptRowsAt on Regions::kept_record(). With rings: Regions::kept_output_row().
  std::byte* kept;
  TokenArgs tokens;
  // Read by the families that their comments name.
  SharedLayout shared;  ///< read by the kernels fused_* and dispatch_*
  SendArgs send;
  Fp8Args fp8;
  DispatchArgs dispatch;
  ExpertRowsArgs expert_rows;
  RowsArgs rows;
  RingArgs ring;
  CombineArgs combine;
  RowWeightArgs row_weights;
  FusedArgs fused;
};

}  // namespace farwarp::moe
