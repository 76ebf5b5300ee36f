// The loading warpgroup: one warp copies keys into the rings of stages, one copies values, one loads rows of q, one
// joins the call and counts works.
#pragma once

#include "farwarp/ops/flash_decode/exchange.dev.h"
#include "farwarp/ops/flash_decode/stage.dev.h"

namespace farwarp::FARWARP_TARGET::decode {

inline constexpr std::int32_t kNoPage = -0x7fffffff - 1;  ///< no token sees a key of this page

/// Page indices of a sequence, as many as lanes at a time. The next ones are loaded while these are used.
class PageIndices {
 public:
  /// [warp] From the first page of the work.
  FARWARP_DEVICE void begin(const Args& args, const Work& work) {
    const int page_shift = highest_bit(static_cast<std::uint64_t>(args.page_size));
    const int oldest = args.rule.window > 0 ? work.length - args.rule.query_tokens + 1 - args.rule.window : 0;
    first_visible_ = oldest > 0 ? oldest >> page_shift : 0;
    end_ = (work.length + args.page_size - 1) >> page_shift;
    row_ = Global<const std::int32_t>(args.block_table) + std::int64_t{work.sequence} * args.max_pages;
    first_ = work.first * kStageKeys >> page_shift;
    these_ = load_from(first_);
    next_ = load_from(first_ + Target::kWarpSize);
  }
  /// [warp] The index of the lane's page, the `page`-th of the sequence. Pages of a call are `lowest` to `lowest` +
  /// boxes - 1. `lowest` does not decrease from call to call, and `lowest` - `first` is a multiple of the boxes, which
  /// divide the number of lanes.
  FARWARP_DEVICE int at(int lowest, int page) {
    if (lowest >= first_ + Target::kWarpSize) {
      first_ += Target::kWarpSize;
      these_ = next_;
      next_ = load_from(first_ + Target::kWarpSize);
    }
    return shuffle(these_, page - first_);
  }

 private:
  FARWARP_DEVICE int load_from(int first) const {
    const int page = first + lane_index();
    return page >= first_visible_ && page < end_ ? load(row_ + page) : kNoPage;
  }
  Global<const std::int32_t> row_;
  int first_visible_ = 0, end_ = 0, first_ = 0, these_ = kNoPage, next_ = kNoPage;
};

/// [warp] Records in the ledger, once for the warp, what some lane found not to be allowed.
template <class Block>
FARWARP_DEVICE void refuse(const Args& args, const Block& block, BlockWaits& waits, bool found, std::uint32_t site,
                           std::int64_t allowed, std::int64_t seen) {
  const std::uint64_t lanes = ballot(found);
  if (lanes == 0 || lane_index() != lowest_bit(lanes)) return;
  Call call = block.await_call(args, waits);
  if (call.live)
    give_up_inlined(call, StatusCode::kBadInput, site, -1, static_cast<std::uint64_t>(allowed),
                    static_cast<std::uint64_t>(seen));
}

/// [warp] Records pages that are not allowed, and replaces them by none.
template <class Block>
FARWARP_DEVICE void check_pages(const Args& args, const Block& block, BlockWaits& waits, bool reports, int& page) {
  const bool refused = page != kNoPage && (page < 0 || page >= args.pages);
  if (ballot(refused) == 0) return;
  if (lane_index() == 0) fetch_add(block.refused(), 1u);
  if (reports) refuse(args, block, waits, refused, kSitePage, args.pages - 1, page);
  if (refused) page = kNoPage;
}

/// K or V: what a loading warp copies.
enum class Operand : std::uint8_t { kKeys, kValues };

/// [warp] One operand of the stages, by tensor copies: a box for each lane. Divisions are done once: a warp has about
/// one microsecond for a stage, and its instructions wait for each other.
template <class Block>
class BoxLoader {
 public:
  FARWARP_DEVICE BoxLoader(const Args& args, Operand operand)
      : map_(operand == Operand::kKeys ? args.k : args.v),
        page_shift_(highest_bit(static_cast<std::uint64_t>(args.page_size))) {
    const int box_rows = args.page_size < kStageKeys ? args.page_size : kStageKeys;
    const int boxes = kStageKeys / box_rows;  // of a panel
    const int lane = lane_index();
    box_ = lane % boxes;
    panel_ = lane / boxes;
    offset_ = static_cast<int>(operand) * kBytes + panel_ * kPanelBytes + box_ * (kBytes / kPanels / boxes);
    if (lane == 0) tensor_prefetch(map_);
  }

  FARWARP_DEVICE void load(const Args& args, const Block& block, BlockWaits& waits, bool reports, int kv_head, int key,
                           PageIndices& pages, int stage) const {
    const int lowest = key >> page_shift_;
    int page = pages.at(lowest, lowest + box_);
    check_pages(args, block, waits, reports, page);
    if (lane_index() == 0) mbarrier_arrive_expect(block.full(stage), kBytes);
    warp_sync();
    if (panel_ >= kPanels) return;
    tensor_load(block.keys(stage) + offset_, map_, GridIndex{kv_head, page == kNoPage ? -1 : page},
                key & (args.page_size - 1), panel_ * 64, block.full(stage));
  }

 private:
  static constexpr int kPanels = Block::kFp8 ? 1 : Block::kPanels;  ///< fp8: a box has the whole row
  static constexpr int kBytes = Block::kShared.stage_bytes() / 2;   ///< of one operand

  const TensorMap& map_;
  int page_shift_, box_, panel_, offset_;
};

/// [warp] The same if a page is one key: rows, one by one. Rows that no token sees are not copied.
template <class Block>
class RowLoader {
 public:
  FARWARP_DEVICE RowLoader(const Args& args, Operand operand)
      : pages_(static_cast<const std::byte*>(operand == Operand::kKeys ? args.k_pages : args.v_pages)),
        offset_(static_cast<int>(operand) * Block::kShared.stage_bytes() / 2) {}

  FARWARP_DEVICE void load(const Args& args, const Block& block, BlockWaits& waits, bool reports, int kv_head, int key,
                           PageIndices& pages, int stage) const {
    constexpr int kElement = Block::kFp8 ? 1 : 2, kWarp = Target::kWarpSize;
    int page[kStageKeys / kWarp], rows = 0;
#pragma unroll
    for (int i = 0; i < kStageKeys / kWarp; ++i) {
      page[i] = pages.at(key + i * kWarp, key + i * kWarp + lane_index());
      check_pages(args, block, waits, reports, page[i]);
      rows += count_bits(ballot(page[i] != kNoPage));
    }
    const int bytes = args.head_dim * kElement;
    if (lane_index() == 0) mbarrier_arrive_expect(block.full(stage), rows * bytes);
    warp_sync();
#pragma unroll
    for (int i = 0; i < kStageKeys / kWarp; ++i) {
      if (page[i] == kNoPage) continue;
      const std::int64_t from = (page[i] * args.page_pitch + kv_head * args.head_pitch) * kElement;
      bulk_load(block.keys(stage) + (offset_ + (i * kWarp + lane_index()) * Block::kShared.row_pitch()),
                Global<const std::byte>(pages_) + from, bytes, block.full(stage));
    }
  }

 private:
  const std::byte* pages_;
  int offset_;
};

/// [warp] The role of a loading warp. The one of keys reports what is not allowed.
template <class Block>
FARWARP_DEVICE void load_role(const Args& args, const Block& block, WorkCursor& cursor, BlockWaits& waits,
                              Operand operand) {
  using Loader = std::conditional_t<Block::kSource == Source::kRows, RowLoader<Block>, BoxLoader<Block>>;
  const Loader loader(args, operand);
  const bool reports = operand == Operand::kKeys;
  std::uint32_t loaded[kMultipliers] = {};  // stages of each multiplier
  Work work{}, next_work{};
  PageIndices pages, next_pages;
  bool next_found = false;
  for (int number = block_index();; number += num_blocks()) {
    const bool found = next_found;
    work = next_work;
    pages = next_pages;
    next_found = cursor.find(number, next_work);
    if (next_found) next_pages.begin(args, next_work);  // its indices are loaded while this work's stages are
    if (!next_found && !found) return;
    if (!found) continue;  // nothing precedes the first work
    if (reports && work.item == 0 && work.number == 0)
      refuse(args, block, waits, work.refused, kSiteLength, args.max_pages * args.page_size, work.given);
    const int kv_head = kv_head_of(args, work.item);
    const TraceStart start = trace_start();
    for (int i = 0, in_split = 0; i < work.stages; ++i, ++in_split) {
      if (in_split == work.chunk) in_split = 0;
      const int multiplier = in_split % kMultipliers;
      Turn<Block::kRing> turn;
#pragma unroll
      for (int of = 0; of < kMultipliers; ++of) {
        if (of == multiplier) turn.count = loaded[of]++;
      }
      const int stage = Block::stage_at(turn, multiplier);
      if (!wait_together(waits, args.view, block.empty(stage), turn.parity() ^ 1)) return;
      loader.load(args, block, waits, reports, kv_head, (work.first + i) * kStageKeys, pages, stage);
    }
    trace_warp(start, TraceWork::kLoad, number - num_blocks());
  }
}

/// [warp] Loads the rows of q of each work, a work ahead of the multipliers.
template <class Block>
FARWARP_DEVICE void query_role(const Args& args, const Block& block, WorkCursor& cursor, BlockWaits& waits) {
  using T = typename Block::T;
  constexpr int kVectors = Block::kDim / 8;
  Turn<kQueryBuffers> turn;
  Work work;
  for (int number = block_index(); cursor.find(number, work); number += num_blocks(), ++turn.count) {
    if (!wait_together(waits, args.view, block.queries_empty(turn.place()), turn.parity() ^ 1)) return;
    const int item = item_number(args, work), rows = rows_of(args, item);
    const Shared<std::byte> to = block.queries(turn.place());
#pragma unroll 4
    for (int i = lane_index(); i < rows * kVectors; i += Target::kWarpSize) {
      const int row = i / kVectors, vector = i % kVectors;
      const Global<const T> from =
          Global<const T>(static_cast<const T*>(args.q)) + (place_of(args, item, row).row * args.head_dim + vector * 8);
      const bool exists = vector * 8 < args.head_dim;
      store_query<Block>(to, row, vector,
                         exists ? load(Global<const Vec16>(reinterpret_cast<const Vec16*>(from.raw))) : Vec16{0, 0});
    }
    proxy_fence();
    warp_sync();
    if (lane_index() == 0) mbarrier_arrive(block.queries_full(turn.place()));
  }
}

/// [thread] Joins the call for its block, publishes it, and leaves it at once: as in gemm, what the block does later in
/// the call depends on the epoch that has been read, not on the cells.
template <class Block>
FARWARP_DEVICE void publish_call(const Args& args, const Block& block) {
  std::uint32_t phase = 0;
  Call call = read_call(args.view, args.slot, phase);
  block.publish(call);
  if (!call.live) return;
  if (block_index() == 0) claim_call(call);
  leave_call(call, 0);
}

/// [warp] Publishes the call. Then counts the block's works and lists the items whose last work has arrived: a warp of
/// its own does so, because the fence and the fetch_add take microseconds while copies load memory. It merges at once
/// the items that the list has no room for.
template <class Block>
FARWARP_DEVICE void count_role(const Args& args, const Block& block, WorkCursor& cursor, BlockWaits& waits) {
  if (lane_index() == 0) publish_call(args, block);
  warp_sync();
  const Call call = block.await_call(args, waits);
  Turn<1> turn;
  int listed = 0;
  Work work;
  for (int number = block_index(); cursor.find(number, work); number += num_blocks()) {
    if (goes_to_out(args, work)) continue;
    // Together: all lanes have then seen this phase, and the next one may complete once multipliers know of the count.
    if (!wait_together(waits, args.view, block.stored(), turn.parity())) break;
    ++turn.count;
    const bool arrived_last = lane_index() == 0 && arrives_last(args, call, work, block.refused());
    if (lane_index() == 0) mbarrier_arrive(block.counted());
    if (ballot(arrived_last) == 0) continue;
    const CountedItem item = CountedItem::of(args, work);
    if (listed < kMaxListed) {
      if (lane_index() == 0) store(block.listed(listed), item.packed());
      ++listed;
    } else {
      warp_sync();
      merge_item<typename Block::T, Block::kDim>(args, call, item, 0, 1);
    }
  }
  if (lane_index() != 0) return;
  store(block.list_length(), static_cast<std::uint32_t>(listed));
  mbarrier_arrive(block.all_counted());
}

}  // namespace farwarp::FARWARP_TARGET::decode
