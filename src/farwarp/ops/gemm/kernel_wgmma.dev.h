// gemm on Hopper: persistent blocks of three warpgroups, one that loads and two that multiply and store.
#pragma once

#include "farwarp/ops/gemm/args.h"
#include "farwarp/ops/gemm/split.dev.h"
#include "farwarp/ops/gemm/work.dev.h"
#include "farwarp/tile/gemm/epilogue_wgmma.dev.h"
#include "farwarp/tile/gemm/mainloop_wgmma.dev.h"
#include "farwarp/world/device/wait.dev.h"

namespace farwarp::FARWARP_TARGET::gemm {

using farwarp::gemm::WgmmaShared;

/// [thread] Starts the block's first copies, as many as there are stages, and returns their number.
template <class Tile>
FARWARP_DEVICE int load_first(const Args& args, const Tile& tile) {
  const Work work = work_at<Tile>(args, block_index());
  const int count = work.steps.count < Tile::kStages ? work.steps.count : Tile::kStages;
  for (int i = 0; i < count; ++i) tile::load_step(tile, args.a, args.b, work.row, work.column, work.steps.first + i, i);
  return count;
}

/// [thread] Copies the operands of all this block's tiles but for the `loaded` first steps, as far ahead as there are stages, and
/// returns when the last of them has been multiplied.
template <class Tile, class Wait>
FARWARP_DEVICE void load_role(const Args& args, const Tile& tile, int loaded, const Wait& wait) {
  tile::RingPosition<Tile::kStages> at, last;
  for (int i = 0; i < loaded; ++i) {
    last = at;
    at.advance();
  }
  for (int number = block_index(); number < work_count(args); number += num_blocks()) {
    const Work work = work_at<Tile>(args, number);
    for (int i = loaded; i < work.steps.count; ++i) {
      if (!wait(tile.ring.empty(at.stage), at.parity ^ 1)) return;  // the first turn finds every stage empty
      tile::load_step(tile, args.a, args.b, work.row, work.column, work.steps.first + i, at.stage);
      last = at;
      at.advance();
    }
    loaded = 0;
  }
  wait(tile.ring.empty(last.stage), last.parity);
}

/// [warpgroup] Multiplies 64 rows of each tile and stores them. `swapped`: A is w, and the tile is stored transposed.
template <class Tile, bool swapped, class Wait>
FARWARP_DEVICE void multiply_role(const Call& call, const Args& args, const Tile& tile, int multiplier,
                                  tile::BoxWriter writer, Shared<std::uint32_t> last_word, const Wait& wait) {
  using T = typename Tile::Element;
  tile::RingPosition<Tile::kStages> at;
  const Global<const T> bias(static_cast<const T*>(args.bias));
  for (int number = block_index(); number < work_count(args); number += num_blocks()) {
    const Work work = work_at<Tile>(args, number);
    const auto store_tile = [&](const float(&values)[Tile::kSums]) {
      const int row = work.row + 64 * multiplier;
      if constexpr (swapped) {
        tile::store_sums_transposed<T, Tile::kColumns>(writer, args.out, work.column, row, bias, args.n, values);
      } else {
        tile::store_sums<T, Tile::kColumns>(writer, args.out, row, work.column, bias, args.n, values);
      }
    };
    float sums[Tile::kSums];
    tile::multiply_steps(tile, multiplier, work.steps.count, sums, at, wait);
    if constexpr (Tile::kColumns <= farwarp::gemm::kMostSplitColumns) {
      if (args.splits > 1) {
        float total[Tile::kSums];
        const SplitPart part{2 * work.tile + multiplier, work.split, thread_index() % 128, last_word};
        const auto meet = [&] { group_sync(1 + multiplier, 128); };
        if (sum_splits<128>(call, args, part, meet, sums, total)) store_tile(total);
        continue;
      }
    }
    store_tile(sums);
  }
  writer.finish();
}

template <class T, int columns, bool swapped>
FARWARP_DEVICE void gemm_wgmma(const Args& args) {
  constexpr int kStages = WgmmaShared::stages(columns);
  using Tile = tile::WgmmaTile<T, columns, kStages>;
  static_assert(Tile::kStageBytes == WgmmaShared::stage_bytes(columns) && tile::Ring<kStages>::kBytes < 960);
  const Shared<std::byte> memory = block_shared();
  const Shared<std::byte> barriers = memory + WgmmaShared::barriers(columns);
  const Tile tile{memory, tile::Ring<kStages>(barriers)};
  int loaded = 0;
  if (thread_index() == 0) {
    tile.ring.initialise(Tile::kReadingWarps);
    loaded = load_first(args, tile);  // under way while join_call() reads its cells, which takes a microsecond
    tensor_prefetch(args.out);
  }
  Call call = join_call(args.view, args.slot);  // its barrier shows the ring to all
  const auto wait = [&](Shared<Mbarrier> barrier, std::uint32_t parity) {
    return wait_mbarrier(call, barrier, parity, farwarp::gemm::kSiteStage);
  };
  if (!call.live) {
    for (int stage = 0; stage < loaded; ++stage) wait(tile.ring.full(stage), 0);  // copies must not outlive the block
    return;
  }
  const int warpgroup = thread_index() / 128;
  if (warpgroup == 0) {
    reduce_registers<40>();
    if (thread_index() == 0) {
      if (block_index() == 0) claim_call(call);
      load_role(args, tile, loaded, wait);
      leave_call(call, 0);
    }
  } else {
    raise_registers<232>();
    const int multiplier = warpgroup - 1;
    const Shared<std::byte> boxes =
        memory + (WgmmaShared::boxes(columns) + multiplier * tile::kBoxBuffers * tile::kBoxBytes);
    const Shared<std::uint32_t> last_word(reinterpret_cast<std::uint32_t*>((barriers + 960 + 4 * multiplier).raw));
    multiply_role<Tile, swapped>(call, args, tile, multiplier, tile::BoxWriter(boxes, 1 + multiplier), last_word, wait);
  }
}

}  // namespace farwarp::FARWARP_TARGET::gemm
