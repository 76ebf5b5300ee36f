// Desc + machine -> plan of the MoE all-to-all. Pure: no device, no World.
#pragma once

#include <cstdint>
#include <string>

#include "farwarp/base/expert_ranks.h"
#include "farwarp/base/fp8.h"
#include "farwarp/base/half.h"
#include "farwarp/base/machine_shape.h"
#include "farwarp/base/status.h"

namespace farwarp {

/// How rows are dispatched. Sums return as words; with rings (kRows in bulk mode, where the machine has bulk copies)
/// rows return by bulk copies and return_flags.
enum class MoeMode : std::uint8_t {
  kAuto,
  kWords,  ///< data that is its own flag
  kBulk,   ///< bulk copies and flags
};
const char* name_of(MoeMode mode);  ///< "words", ...
enum class MoeLayout : std::uint8_t {
  kExpertMajor,  ///< experts one after another, each start aligned to row_alignment
  kMasked,  ///< every expert has the same room, plan.recv_rows / plan.max_local_experts rows, and a token's row once
  kRows,    ///< a row once for each rank that it is sent to, by source rank and token, with its entries for that rank
};
/// Where the scales of fp8 dispatch lie in MoeReceived::scales.
enum class MoeScales : std::uint8_t {
  kRowMajor,  ///< fp32 [plan.recv_rows, ceil(hidden / 128)]
  /// fp32 [plan.max_local_experts, ceil(hidden / 128), room of an expert]: of a group, those of an expert's rows
  kColumns,
  /// Bytes [plan.max_local_experts, hidden / 512, room of an expert, 4]: the biased exponents (UE8M0) of four groups,
  /// as kColumns. Needs powers_of_two, and a hidden that 512 divides.
  kExponentColumns,
};
/// The experts of the fused form: functions of one element. fused() takes no others. To add one to the source tree:
///   rows.dev.h           a functor
///   plan.h               a value here
///   variants.h           a KernelId, and six kernels: words and bulk, each for bf16, fp16 and fp8
///   entry.dev.cc         a using-declaration of the functor
///   state.h              a CallForm of its own, a line of kFusedExperts
///   moe_a2a.cc           its name in the message of fused()
///   case/                to check it: a choice, and its help, in case.cc; make_experts() of inputs.cc computes it
///   README.md            its name in the table of kernels
///   tests/               its name in EXPERT of operators/variants_test.cc, and in fuzz_parameters.py
///   c.h, c/moe.cc        a value and its mapping: else C has kRankScale and kTable only
enum class MoeExpert : std::uint8_t {
  kRankScale,  ///< y = x * (1 + rank)
  kTable,      ///< y = x * scale[e] + shift[e], from a table that only the owner holds
};

struct MoeAllToAllDesc {
  int num_experts = 0;             ///< ranks .. 4096. Expert e lives on rank floor(e * ranks / num_experts)
  int experts_per_token = 0;       ///< 1 .. 32
  int hidden = 0;                  ///< a multiple of 8
  int max_tokens = 0;              ///< per rank and call, 1 .. 65535; max_tokens * experts_per_token at most 1048575
  DType dtype = DType::kBf16;      ///< kBf16 or kF16
  DType index_type = DType::kI32;  ///< kI32 or kI64
  /// Rows are dispatched and delivered as e4m3 in the device's format (OCP on Hopper and gfx950, FNUZ on gfx942), with
  /// one fp32 scale for each 128 numbers. Needs dtype kBf16; sums return as bf16.
  bool fp8_dispatch = false;
  MoeLayout layout = MoeLayout::kExpertMajor;
  /// kRows: 16-bit elements of a row that dispatch carries, e4m3 numbers with their scales for one; 0: hidden. Sums
  /// have `hidden` elements. In words mode eight bytes of all ones lose the highest bit of the last one, so the last
  /// 16-bit element must be a NaN there.
  int dispatch_hidden = 0;
  MoeScales scales = MoeScales::kRowMajor;  ///< others: with fp8_dispatch and layout kMasked
  bool powers_of_two = false;               ///< with fp8_dispatch: scales are rounded up to powers of two
  /// What dispatch keeps for combine lies in memory of the caller, a handle (MoeReceived::handle). A dispatch may then
  /// follow a dispatch, and combine takes any handle, any number of times. Split form only.
  bool handles = false;
  int row_alignment = 1;  ///< rows; 128 for grouped GEMMs; a power of two up to 1024
  /// The weights are given to combine, not to dispatch: they travel to the owners first. Split form only.
  bool weights_at_combine = false;
  /// Split form: rows of MoeReceived::x. If more arrive, the call ends in kCapacity on this rank. 0: the worst case.
  std::int64_t recv_rows = 0;
  MoeMode mode = MoeMode::kAuto;
  int max_sms = 0;  ///< a launch has at most so many blocks, each on a multiprocessor of its own; 0: all
  /// Segments of a row, which different warps take; at most 1024; 0: the plan's choice. More than min(hidden,
  /// dispatch_hidden) / D are reduced to that: D is 8 * warp size, in bulk mode with fp8 512.
  int segments = 0;
  /// Bulk mode, dispatch in one launch: number of blocks that send while the others route and receive, at most half of
  /// all. 0: the plan's choice; -1: every block first sends, then receives.
  int send_only_blocks = 0;
};

/// Offset of each part of the workspace, in bytes, as if the workspace were one buffer. It is two: what follows
/// words_begin is the second. MoeAllToAll::create() moves the offsets of returns and, in words mode, of rows to it. The
/// device uses the moved table.
struct MoeWorkspace {
  std::int64_t headers = 0;       ///< packets [2][ranks][header_packets]: bitmaps of rows, and counts
  std::int64_t routes = 0;        ///< packets [2][ranks][max_tokens][k]: the routes of each row
  std::int64_t rows = 0;          ///< [2][ranks][max_tokens] of plan.row_bytes
  std::int64_t row_flags = 0;     ///< bulk: u64 cells [2][ranks][max_tokens][segments]
  std::int64_t returns = 0;       ///< [2][max_tokens][ranks][hidden] of dtype
  std::int64_t return_flags = 0;  ///< with rings: u64 cells [2][max_tokens][ranks][segments]
  /// With Desc::weights_at_combine: packets [2][ranks][max_tokens][k], the weights of a row's copies. With handles and
  /// kRows: those that owners return (MoeAllToAll::return_row_weights()).
  std::int64_t combine_weights = 0;
  /// plan.kept_bytes, from dispatch to combine; peers do not access it (Args::kept). With Desc::handles: for the
  /// dispatch that precedes combine of a handle.
  std::int64_t kept = 0;
  std::int64_t discarded = 0;  ///< with Desc::handles: counts and offsets that nobody reads
  /// From here to `total` memory begins as all ones, which words need: returns (with rings it holds rows, not words),
  /// and in words mode rows.
  std::int64_t words_begin = 0;
  std::int64_t total = 0;
};

struct MoeAllToAllPlan {
  MoeAllToAllDesc desc;
  int ranks = 0;
  MoeMode mode = MoeMode::kWords;  ///< not kAuto
  std::string why_mode;
  Fp8Format fp8 = Fp8Format::kOcp;  ///< of the device, for fp8_dispatch
  int blocks = 0;
  int threads = 0;
  int segments = 1;  ///< segments of a row, which different warps take
  int send_only_blocks =
      0;  ///< blocks that send in dispatch while the others receive; 0: every block sends, then receives
  int sending_warps = 0;       ///< fused form: warps of a block that send rows before they receive
  int dispatch_hidden = 0;     ///< 16-bit elements of a row of MoeTokens::x
  std::int64_t row_bytes = 0;  ///< of a dispatched row in the workspace
  int header_packets = 0;
  int max_local_experts = 0;
  std::int64_t recv_rows = 0;
  std::int64_t shared_bytes = 0;  ///< of a block, in kernels whose rows pass through it
  MoeWorkspace workspace;
  /// What dispatch keeps for combine: a u32, the number of received rows; from byte 256 on u64 [ranks * max_tokens][1 +
  /// k], a row's source and token, then output row and weight of each of its copies; or, with rings, from
  /// byte 256 on i32 [ranks][max_tokens], the output row of each source's row; -1: none.
  std::int64_t kept_bytes = 0;
  /// With Desc::handles: bytes of a handle, and where the two parts that callers may read begin in it: layout kMasked
  /// only.
  std::int64_t handle_bytes = 0;
  std::int64_t handle_ranges =
      0;  ///< i64 [local experts][ranks]: the first row from a rank among the expert's << 32 | number of rows
  std::int64_t handle_tokens = 0;  ///< i32 [recv_rows]: each row's token at its source
  /// With rings, which is MoeLayout::kRows in bulk mode on a machine with bulk copies: rows move in pieces through
  /// slots in shared memory. Else these two are 0.
  int slot_bytes = 0;       ///< of a ring
  int returning_warps = 0;  ///< combine in one launch: warps of a block that return rows while the others add up
  std::uint64_t configuration = 0;  ///< hash of everything that ranks must agree on
  std::string to_string() const;
};

/// kInvalidArgument names the field, its value and what is allowed.
Result<MoeAllToAllPlan> plan_moe_all_to_all(const MoeAllToAllDesc& desc, const MachineShape& shape, int ranks);

}  // namespace farwarp
