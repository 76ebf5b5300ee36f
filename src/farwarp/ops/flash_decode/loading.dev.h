// The loading warpgroup: one warp copies keys and values into the ring of stages, one loads rows of q, one joins the call.
#pragma once

#include "farwarp/ops/flash_decode/block.dev.h"

namespace farwarp::FARWARP_TARGET::decode {

inline constexpr std::int32_t kNoPage = -0x7fffffff - 1;  ///< no token sees a key of this page

/// Page indices of a sequence, as many as lanes at a time. The next ones are loaded while these are used.
class PageIndices {
 public:
  /// [warp] From page `first` of the sequence.
  FARWARP_DEVICE void begin(const Args& args, const Work& work, int first) {
    const int oldest = args.rule.window > 0 ? work.length - args.rule.query_tokens + 1 - args.rule.window : 0;
    first_visible_ = oldest > 0 ? oldest / args.page_size : 0;
    end_ = (work.length + args.page_size - 1) / args.page_size;
    row_ = Global<const std::int32_t>(args.block_table) + std::int64_t{work.sequence} * args.max_pages;
    first_ = first;
    these_ = load_from(first_);
    next_ = load_from(first_ + Target::kWarpSize);
  }
  /// [warp] The index of the lane's page, the `page`-th of the sequence. Pages of a call are `lowest` to `lowest` + boxes - 1. `lowest` does
  /// not decrease from call to call, and `lowest` - `first` is a multiple of the boxes, which divide the number of lanes.
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
    give_up(call, StatusCode::kBadInput, site, -1, static_cast<std::uint64_t>(allowed),
            static_cast<std::uint64_t>(seen));
}

/// [warp] Records pages that are not allowed, and replaces them by none.
template <class Block>
FARWARP_DEVICE void check_pages(const Args& args, const Block& block, BlockWaits& waits, int& page) {
  const bool refused = page != kNoPage && (page < 0 || page >= args.pages);
  if (ballot(refused) == 0) return;
  if (lane_index() == 0) fetch_add(block.refused(), 1u);
  refuse(args, block, waits, refused, kSitePage, args.pages - 1, page);
  if (refused) page = kNoPage;
}

/// [warp] Starts the copies of a stage: boxes of K and V, one lane each.
template <class Block>
FARWARP_DEVICE void load_boxes(const Args& args, const Block& block, BlockWaits& waits, const Work& work, int key,
                               PageIndices& pages, int stage) {
  constexpr int kPanels = Block::kFp8 ? 1 : Block::kPanels;  // fp8: a box has the whole row, and is not swizzled
  constexpr int kBytes = Block::kShared.stage_bytes();
  const int box_rows = args.page_size < kStageKeys ? args.page_size : kStageKeys;
  const int boxes = kStageKeys / box_rows;  // of one operand and panel
  const int lane = lane_index();
  const int box = lane % boxes, panel = lane / boxes % kPanels, operand = lane / (boxes * kPanels);
  const int lowest = key / args.page_size;
  int page = pages.at(lowest, lowest + box);
  check_pages(args, block, waits, page);
  if (lane == 0) mbarrier_arrive_expect(block.full(stage), kBytes);
  warp_sync();
  if (operand > 1) return;
  const auto to =
      block.stage(stage) + (operand * (kBytes / 2) + panel * kPanelBytes + box * (kBytes / 2 / kPanels / boxes));
  tensor_load(to, operand == 0 ? args.k : args.v, GridIndex{kv_head_of(args, work.item), page == kNoPage ? -1 : page},
              key % args.page_size, panel * 64, block.full(stage));
}

/// [warp] Starts the copies of a stage, if a page is one key: rows of K and V, one by one. Rows that no token sees are not copied.
template <class Block>
FARWARP_DEVICE void load_rows(const Args& args, const Block& block, BlockWaits& waits, const Work& work, int key,
                              PageIndices& pages, int stage) {
  constexpr int kElement = Block::kFp8 ? 1 : 2, kWarp = Target::kWarpSize;
  constexpr int kRowBytes = Block::kDim * kElement;
  int page[kStageKeys / kWarp], rows = 0;
#pragma unroll
  for (int i = 0; i < kStageKeys / kWarp; ++i) {
    page[i] = pages.at(key + i * kWarp, key + i * kWarp + lane_index());
    check_pages(args, block, waits, page[i]);
    rows += count_bits(ballot(page[i] != kNoPage));
  }
  const int bytes = args.head_dim * kElement;
  if (lane_index() == 0) mbarrier_arrive_expect(block.full(stage), 2 * rows * bytes);
  warp_sync();
#pragma unroll
  for (int i = 0; i < kStageKeys / kWarp; ++i) {
    if (page[i] == kNoPage) continue;
    const std::int64_t from = (page[i] * args.page_pitch + kv_head_of(args, work.item) * args.head_pitch) * kElement;
    const auto to = block.stage(stage) + (i * kWarp + lane_index()) * kRowBytes;
    bulk_load(to, Global<const std::byte>(static_cast<const std::byte*>(args.k_pages)) + from, bytes,
              block.full(stage));
    bulk_load(to + Block::kShared.stage_bytes() / 2,
              Global<const std::byte>(static_cast<const std::byte*>(args.v_pages)) + from, bytes, block.full(stage));
  }
}

/// [warp] The role of the loader.
template <class Block>
FARWARP_DEVICE void load_role(const Args& args, const Block& block, WorkCursor& cursor, BlockWaits& waits) {
  if (Block::kSource == Source::kTensor && lane_index() == 0) {
    tensor_prefetch(args.k);
    tensor_prefetch(args.v);
  }
  Turn<Block::kStages> turn;
  Work work;
  PageIndices pages;
  for (int number = block_index(); cursor.find(number, work); number += num_blocks()) {
    if (work.item == 0 && work.split == 0)
      refuse(args, block, waits, work.refused, kSiteLength, args.max_pages * args.page_size, work.given);
    if (work.stages > 0) pages.begin(args, work, work.first * kStageKeys / args.page_size);
    for (int i = 0; i < work.stages; ++i, ++turn.count) {
      if (!wait_mbarrier(waits, args.view, block.empty(turn.place()), turn.parity() ^ 1)) return;
      const int key = (work.first + i) * kStageKeys;
      if constexpr (Block::kSource == Source::kRows) {
        load_rows(args, block, waits, work, key, pages, turn.place());
      } else {
        load_boxes(args, block, waits, work, key, pages, turn.place());
      }
    }
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
    if (!wait_mbarrier(waits, args.view, block.queries_empty(turn.place()), turn.parity() ^ 1)) return;
    const int item = item_number(args, work), rows = rows_of(args, item);
    const Shared<std::byte> to = block.queries(turn.place());
#pragma unroll 4
    for (int i = lane_index(); i < rows * kVectors; i += Target::kWarpSize) {
      const int row = i / kVectors, vector = i % kVectors;
      if (vector * 8 >= args.head_dim) continue;  // those stay zero
      const Global<const T> from =
          Global<const T>(static_cast<const T*>(args.q)) + (place_of(args, item, row).row * args.head_dim + vector * 8);
      store(vector_of(to, row, vector), load(Global<const Vec16>(reinterpret_cast<const Vec16*>(from.raw))));
    }
    proxy_fence();
    warp_sync();
    if (lane_index() == 0) mbarrier_arrive(block.queries_full(turn.place()));
  }
}

/// [thread] Joins the call for its block, publishes it, and leaves it at once: as in gemm, what the block does later in the call depends on the
/// epoch that has been read, not on the cells.
template <class Block>
FARWARP_DEVICE void call_role(const Args& args, const Block& block) {
  std::uint32_t phase = 0;
  Call call = read_call(args.view, args.slot, phase);
  block.publish(call);
  if (!call.live) return;
  if (block_index() == 0) claim_call(call);
  leave_call(call, 0);
}

}  // namespace farwarp::FARWARP_TARGET::decode
