#include "farwarp/ops/parallel_gemm/ag_gemm/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <span>

#include "farwarp/ops/parallel_gemm/ag_gemm/args.h"
#include "farwarp/ops/parallel_gemm/ag_gemm/variants.h"
#include "farwarp/ops/parallel_gemm/rates.h"
#include "farwarp/tile/gemm/shape_wgmma.h"

namespace farwarp {
namespace {

constexpr int ceil_div(int a, int b) { return (a + b - 1) / b; }
constexpr std::int64_t align(std::int64_t bytes) { return (bytes + 255) / 256 * 256; }

/// Bytes of all ranks' x, up to which x crosses as words: four inboxes take heap.
constexpr std::int64_t kMaxBytesAsWords = std::int64_t{40} << 20;
constexpr double kFlopsPerUs = 700e6;

constexpr int kNarrowestColumns = 64;  ///< columns of a tile

std::int64_t x_bytes(const AllGatherGemmPlan& plan) { return std::int64_t{2} * plan.local.y_rows * plan.local.k; }

double us_of_sending(const AllGatherGemmPlan& plan) {
  return 2.0 * (plan.ranks - 1) * plan.local.x_rows * plan.local.k / parallel_gemm::kLinkBytesPerUs;
}
double us_of_multiplying(const AllGatherGemmPlan& plan) {
  return 2.0 * plan.local.y_rows * plan.local.w_rows * plan.local.k / kFlopsPerUs;
}

/// A step of 128 rows. Stamps of four loading warps with tiles of 64 columns: 2048 x 720 x 2880 on 2 H200s, 2026-11.
/// Wider tiles take 0.65.
constexpr double kUsOfLoading = 0.5;

std::int64_t tiles_of(const AllGatherGemmPlan& plan, int columns) {
  return std::int64_t{ceil_div(plan.local.y_rows, tile::kWgmmaRows)} * ceil_div(plan.local.w_rows, columns);
}

/// Whether words are faster than boxes: for few rows; else if the links take longer than the matrix unit, and about as
/// long as the loaders in all rounds of tiles, or longer. Then the links bound, and flags would wait for the data in
/// flight on them. MEASURED.md, "Reasons for the plan's constants".
bool words_pay(const AllGatherGemmPlan& plan, const MachineShape& shape) {
  if (x_bytes(plan) > kMaxBytesAsWords) return false;
  if (plan.local.y_rows <= tile::kMaxSwapAbRows) return true;
  const std::int64_t tiles = tiles_of(plan, tile::widest_of(ag_gemm::kWordsKernels));
  const auto rounds = static_cast<double>((tiles + shape.multiprocessors - 1) / shape.multiprocessors);
  const double sending = us_of_sending(plan), loading = kUsOfLoading * ceil_div(plan.local.k, 64) * rounds;
  return sending > us_of_multiplying(plan) && loading < 1.4 * sending;
}

/// Sets plan.words. With one rank it is false, since no data crosses a link.
Status choose_exchange(AllGatherGemmPlan& plan, const MachineShape& shape) {
  using Exchange = ParallelGemmExchange;
  const Exchange asked = plan.desc.exchange;
  const bool hopper = shape.traits.matrix_unit == MatrixUnit::kWgmma;
  const auto refuse = [&](const std::string& allowed) {
    return invalid_argument(fmt::format("ParallelGemmDesc.exchange is {}; allowed: {}", name_of(asked), allowed));
  };
  if (!hopper && asked != Exchange::kAuto) return refuse("auto here");
  if (asked == Exchange::kWords && x_bytes(plan) > ag_gemm::kMaxInboxBytes)
    return refuse(fmt::format("auto and boxes where x has more than {} bytes", ag_gemm::kMaxInboxBytes));
  const bool has_kernel = plan.desc.tile_columns <= tile::widest_of(ag_gemm::kWordsKernels);
  const bool wanted = asked == Exchange::kWords || (asked == Exchange::kAuto && has_kernel && words_pay(plan, shape));
  plan.words = hopper && plan.ranks > 1 && wanted;
  return {};
}

/// Large pieces need few flags. Small pieces keep every sending warp busy and let tiles start early. Words need no
/// flags.
void choose_pieces(AllGatherGemmPlan& plan) {
  if (plan.words) {
    plan.piece_rows = 1;
    plan.row_pieces = plan.local.x_rows;
    plan.piece_depth = ag_gemm::kWordsDepth;
    plan.depth_pieces = ceil_div(plan.local.k, plan.piece_depth);
    return;
  }
  const int least_pieces = plan.ranks == 2 ? 256 : 2 * 12 * 8;
  plan.piece_rows = std::min(plan.local.x_rows, ag_gemm::kMaxPieceRows);
  plan.row_pieces = ceil_div(plan.local.x_rows, plan.piece_rows);
  plan.piece_depth = 4 * ag_gemm::kBoxDepth;
  const auto pieces = [&] { return std::int64_t{plan.row_pieces} * ceil_div(plan.local.k, plan.piece_depth); };
  while (plan.piece_depth > ag_gemm::kBoxDepth && pieces() < least_pieces) plan.piece_depth /= 2;
  plan.depth_pieces = ceil_div(plan.local.k, plan.piece_depth);
}

/// To seven peers 8 blocks send 315 of 343 GB/s, 16 send 327 (8 H200s, 2026-11). More than 8 pay only if sending takes
/// more than half as long as multiplying and all tiles run at once. MEASURED.md, "Reasons for the plan's constants".
constexpr int kFewCommBlocks = 8, kManyCommBlocks = 16;
constexpr int kWordsWarps = ag_gemm::words_threads(64) / 32;  // of a comm block, with tiles of 64 columns or fewer

int choose_comm_blocks(const AllGatherGemmPlan& plan, int multiprocessors) {
  const int wanted = us_of_sending(plan) > 0.5 * us_of_multiplying(plan) ? kManyCommBlocks : kFewCommBlocks;
  const auto pieces = std::int64_t{plan.row_pieces} * plan.depth_pieces;
  const auto busy = plan.words ? (pieces + kWordsWarps - 1) / kWordsWarps : pieces;
  return static_cast<int>(
      std::max<std::int64_t>(1, std::min<std::int64_t>({wanted, busy, multiprocessors / (plan.words ? 4 : 8)})));
}

/// Whether every tile has a block of its own. Then all tiles can multiply K as it arrives.
bool tiles_run_at_once(const tile::Tiling& tiling) { return tiling.tiles() * tiling.splits <= tiling.blocks; }

/// Pieces in flight share the links. With too many, the first piece arrives nearly as late as the last, and no rank can
/// multiply until then. So only as many warps send as keep the links busy; more with few peers. MEASURED.md, "Reasons
/// for the plan's constants".
int choose_sending_warps(const AllGatherGemmPlan& plan, const MachineShape& shape) {
  constexpr double kInRounds = 1.6e6;  // bytes in flight
  constexpr int kFewestInRounds = 4;
  const double at_once_bytes = plan.ranks == 2 ? kInRounds : 3.1e6;
  const int warps = plan.threads / shape.traits.warp_size;
  if (plan.comm_blocks == 0 || plan.words || !shape.traits.bulk_copy) return warps;
  const bool at_once = tiles_run_at_once(plan);
  const double box_bytes = 2.0 * plan.piece_rows * ag_gemm::kBoxDepth * std::max(1, plan.ranks - 1);
  const int wanted = static_cast<int>((at_once ? at_once_bytes : kInRounds) / box_bytes / plan.comm_blocks + 0.5);
  return std::clamp(std::max(wanted, at_once ? 1 : kFewestInRounds), 1, warps);
}

/// Rows of pieces that are sent side by side along K: all whose tiles run in one round. So little remains to be
/// multiplied when the last piece has arrived.
int choose_piece_group(const AllGatherGemmPlan& plan) {
  if (tiles_run_at_once(plan)) return plan.row_pieces;
  const double rows_of_tiles =
      double{1} * plan.blocks / plan.tile_column_count / plan.ranks;  // of each rank, in a round
  const int rows = std::max(1, static_cast<int>(rows_of_tiles + 0.5)) * plan.rows;
  return std::clamp(rows / plan.piece_rows, 1, plan.row_pieces);
}

/// With few rows, tiles leave multiprocessors idle. Makes as many of them comm blocks as are useful, in whole clusters.
void add_idle_comm_blocks(AllGatherGemmPlan& plan, int blocks) {
  const int idle = tile::blocks_at_once(blocks, plan.cluster) - plan.blocks;
  const int pieces = plan.row_pieces * plan.depth_pieces;
  const int wanted = std::min({idle, kManyCommBlocks, ceil_div(pieces, kWordsWarps)});
  plan.comm_blocks = std::max(plan.comm_blocks, wanted / plan.cluster * plan.cluster);
}

void lay_out(AllGatherGemmPlan& plan) {
  std::int64_t at = 0;
  const auto take = [&at](std::int64_t bytes) {
    const std::int64_t offset = at;
    at += align(bytes);
    return offset;
  };
  const bool boxes = plan.ranks > 1 && !plan.words;
  plan.gathered = take(boxes ? 2 * x_bytes(plan) : 0);
  plan.arrived = take(plan.words ? 0 : 2 * (std::int64_t{8} * plan.ranks * plan.row_pieces * plan.depth_pieces));
  plan.partials = take(plan.workspace_bytes);
  plan.counters = plan.partials + plan.partial_sums_bytes;
  plan.workspace_heap_bytes = at;
  plan.inbox_bytes = plan.words ? align(ag_gemm::kInboxes * x_bytes(plan)) : 0;
  plan.heap_bytes = plan.workspace_heap_bytes + plan.inbox_bytes;
}

Status wrong(const char* field, int value, const std::string& allowed) {
  return invalid_argument(fmt::format("ParallelGemmDesc.{} is {}; allowed: {}", field, value, allowed));
}

/// With words, tiles of 64 columns have twice the loading warps. They are faster than wide tiles in splits if all of
/// them run at once and the links take about as long as the loaders. MEASURED.md, "Reasons for the plan's constants".
int tile_columns_on_remaining_blocks(const AllGatherGemmPlan& plan, const MachineShape& shape, int blocks) {
  const ParallelGemmDesc& desc = plan.desc;
  if (!plan.words || desc.tile_columns != 0 || desc.splits > 1 || plan.local.y_rows <= tile::kMaxSwapAbRows)
    return desc.tile_columns;
  const bool at_once = tiles_of(plan, kNarrowestColumns) <= blocks - plan.comm_blocks;
  return at_once && words_pay(plan, shape) ? kNarrowestColumns : 0;
}

std::span<const tile::Variant> kernels_of(const AllGatherGemmPlan& plan, const MachineShape& shape) {
  if (shape.traits.matrix_unit == MatrixUnit::kMfma) return ag_gemm::kMfmaKernels;
  if (plan.words) return ag_gemm::kWordsKernels;
  return ag_gemm::kBoxesKernels;
}

/// The product's tiles on the blocks that are not comm blocks. With K in splits on Hopper, blocks are launched in
/// clusters, and comm blocks fill whole clusters.
Result<tile::Tiling> tile_on_remaining_blocks(AllGatherGemmPlan& plan, const MachineShape& shape, int blocks) {
  const ParallelGemmDesc& desc = plan.desc;
  const int columns = tile_columns_on_remaining_blocks(plan, shape, blocks);
  const auto tile = [&](int splits) {
    const tile::TilingRequest request{.m = plan.local.y_rows,
                                      .n = plan.local.w_rows,
                                      .k = plan.local.k,
                                      .dtype = desc.dtype,
                                      .kernels = kernels_of(plan, shape),
                                      .blocks = blocks - plan.comm_blocks,
                                      .columns = columns,
                                      .splits = splits,
                                      .clusters = true,
                                      .boxes_of_256 = tile::kAllGatherBoxesOf256};
    return tile::tile_product(request, shape, "ParallelGemmDesc");
  };
  auto tiling = tile(desc.splits);
  if (!tiling.ok() || plan.comm_blocks % tiling->cluster == 0) return tiling;
  if (desc.comm_blocks == 0) {
    plan.comm_blocks = ceil_div(plan.comm_blocks, tiling->cluster) * tiling->cluster;
    tiling = tile(desc.splits);
    if (!tiling.ok() || plan.comm_blocks % tiling->cluster == 0) return tiling;
  }
  if (desc.splits > 1)
    return wrong("comm_blocks", desc.comm_blocks,
                 fmt::format("0 (the plan's choice), or a multiple of splits, which is {}", desc.splits));
  return tile(1);
}

/// An estimate for two ranks with boxes, which half of the tiles wait for: sending takes time of them from half of the
/// multiplication on, and 5 us at the end. Fitted to the suite amd2025, two H200s, 2026-11-28: MEASURED.md.
double us_of_two_ranks(const AllGatherGemmPlan& plan, const tile::Tiling& tiling) {
  constexpr double kClocksPerUs = 1755, kBytesPerUs = 29e3, kMostBytesPerUs = 300e3;  // of a comm block, of all
  const double multiplying = tiling.clocks / kClocksPerUs;
  const double bytes = 2.0 * plan.local.x_rows * plan.local.k;
  const double sending = bytes / std::min(kBytesPerUs * plan.comm_blocks, kMostBytesPerUs);
  return std::max(multiplying + 0.4 * std::max(0.0, sending - multiplying / 2), sending + 5);
}

/// Two ranks with boxes: as many comm blocks as are estimated to be the fastest. Often fewer let all tiles run in one
/// round less.
Result<tile::Tiling> tile_for_two_ranks(AllGatherGemmPlan& plan, const MachineShape& shape, int blocks) {
  constexpr int kCounts[] = {8, 14};
  constexpr double kNoise = 0.03;
  AllGatherGemmPlan best = plan;
  const auto pieces = std::int64_t{plan.row_pieces} * plan.depth_pieces;
  best.comm_blocks = static_cast<int>(std::clamp<std::int64_t>(std::min<std::int64_t>(blocks / 8, pieces), 1, 4));
  auto tiling = tile_on_remaining_blocks(best, shape, blocks);
  for (const int count : kCounts) {
    if (!tiling.ok() || count > blocks / 8 || count > pieces) break;
    AllGatherGemmPlan other = plan;
    other.comm_blocks = count;
    const auto others = tile_on_remaining_blocks(other, shape, blocks);
    if (!others.ok() || us_of_two_ranks(other, *others) >= (1 - kNoise) * us_of_two_ranks(best, *tiling)) continue;
    best = other;
    tiling = others;
  }
  plan.comm_blocks = best.comm_blocks;
  return tiling;
}

}  // namespace

Result<AllGatherGemmPlan> plan_ag_gemm(const ParallelGemmDesc& desc, const MachineShape& shape, int ranks) {
  using parallel_gemm::Kind;
  if (const Status status = check(Kind::kAllGather, desc, ranks); !status.ok()) return status;
  AllGatherGemmPlan plan;
  plan.desc = desc;
  plan.ranks = ranks;
  plan.local = local_shape(Kind::kAllGather, desc, ranks);
  if (shape.traits.matrix_unit == MatrixUnit::kMfma && plan.local.k > ag_gemm::kMfmaMostPitch)
    return wrong("k", desc.k, fmt::format("at most {} here", ag_gemm::kMfmaMostPitch));
  if (const Status status = choose_exchange(plan, shape); !status.ok()) return status;
  choose_pieces(plan);
  const int blocks = desc.max_sms == 0 ? shape.multiprocessors : std::min(desc.max_sms, shape.multiprocessors);
  if (ranks > 1 || desc.return_x) {
    if (blocks < 2) return wrong("max_sms", desc.max_sms, "0 (all), or 2 and more: one block sends or returns x");
    if (desc.comm_blocks >= blocks)
      return wrong("comm_blocks", desc.comm_blocks,
                   fmt::format("0 (the plan's choice) to {} of {} blocks", blocks - 1, blocks));
    plan.comm_blocks = desc.comm_blocks != 0 ? desc.comm_blocks : choose_comm_blocks(plan, blocks);
  }
  const bool hopper = shape.traits.bulk_copy;
  const bool two = ranks == 2 && hopper && !plan.words && desc.comm_blocks == 0 && !desc.return_x;
  auto tiling = two ? tile_for_two_ranks(plan, shape, blocks) : tile_on_remaining_blocks(plan, shape, blocks);
  if (tiling.ok() && !two && desc.comm_blocks == 0 && hopper && plan.comm_blocks > kFewCommBlocks &&
      !tiles_run_at_once(*tiling)) {
    plan.comm_blocks = kFewCommBlocks;
    tiling = tile_on_remaining_blocks(plan, shape, blocks);
  }
  if (!tiling.ok()) return tiling.status();
  static_cast<tile::Tiling&>(plan) = *tiling;
  const bool whole_rows = !plan.swap_ab && plan.local.x_rows % plan.rows == 0;
  plan.rows_per_shard = whole_rows ? plan.local.x_rows / plan.rows : 0;
  plan.own_read_directly = ranks == 1 || whole_rows;
  // A group of tiles must not mix own rows and peers' rows, so that every block begins with own rows while there are
  // any.
  if (whole_rows) plan.group = std::min(plan.group, plan.rows_per_shard);
  if (plan.words) plan.threads = ag_gemm::words_threads(plan.columns);
  if (plan.words && plan.swap_ab && desc.comm_blocks == 0) add_idle_comm_blocks(plan, blocks);
  plan.sending_warps = choose_sending_warps(plan, shape);
  plan.piece_group = choose_piece_group(plan);
  lay_out(plan);
  return plan;
}

std::string AllGatherGemmPlan::to_string() const {
  return fmt::format("{}: {}, {} more send x as {} in {} pieces of {} x {}", kernel, Tiling::to_string(), comm_blocks,
                     words ? "words" : "boxes", std::int64_t{row_pieces} * depth_pieces, piece_rows, piece_depth);
}

}  // namespace farwarp
