// gemm on Hopper: persistent blocks of three warpgroups, one that loads and two that multiply and store.
#pragma once

#include "farwarp/ops/gemm/args.h"
#include "farwarp/tile/gemm/block_wgmma.dev.h"
#include "farwarp/tile/gemm/epilogue_wgmma.dev.h"
#include "farwarp/world/device/wait.dev.h"

namespace farwarp::FARWARP_TARGET::gemm {

using farwarp::gemm::Args;
using farwarp::tile::Work;
using farwarp::tile::work_at;

/// [thread] Starts the copies of a step of a work into a free stage.
template <class Tile>
FARWARP_DEVICE void load(const Args& args, const Tile& tile, const Work& work, int step, int stage) {
  tile::load_step(tile, args.a, args.b, work.at.row * Tile::kRows, work.at.column * Tile::kColumns,
                  work.steps.first + step, stage);
}

/// [thread] Starts the block's first copies, as many as there are stages, and returns their number.
template <class Tile>
FARWARP_DEVICE int load_first(const Args& args, const Tile& tile) {
  const Work work = work_at(args.grid, block_index());
  const int count = work.steps.count < Tile::kStages ? work.steps.count : Tile::kStages;
  for (int i = 0; i < count; ++i) load(args, tile, work, i, i);
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
  for (int number = block_index(); number < args.grid.works(); number += num_blocks()) {
    const Work work = work_at(args.grid, number);
    for (int i = loaded; i < work.steps.count; ++i) {
      if (!wait(tile.ring.empty(at.stage), at.parity ^ 1)) return;  // the first turn finds every stage empty
      load(args, tile, work, i, at.stage);
      last = at;
      at.advance();
    }
    loaded = 0;
  }
  wait(tile.ring.empty(last.stage), last.parity);
}

/// [warpgroup] Multiplies 64 rows of each tile and stores them. `swapped`: A is w, and the tile is stored transposed.
template <bool swapped, class Block, class Wait>
FARWARP_DEVICE void multiply_and_store(const Call& call, const Args& args, const Block& block, int multiplier,
                                       const Wait& wait) {
  using Tile = typename Block::Tile;
  using T = typename Tile::Element;
  tile::BoxWriter writer(block.boxes(multiplier), 1 + multiplier);
  const Global<const T> bias(static_cast<const T*>(args.bias));
  const auto carry = [&](int row, int column, Shared<std::byte> box) { tensor_store(args.out, row, column, box); };
  const auto store_tile = [&](const Work& work, const float(&values)[Tile::kSums]) {
    tile::store_half_tile<Tile, swapped>(writer, carry, multiplier, work.at.row * Tile::kRows,
                                         work.at.column * Tile::kColumns, bias, args.n, values);
  };
  const tile::SplitSpace space{own_address<Vec16>(args.view, args.partials),
                               own_address<std::uint32_t>(args.view, args.counters), args.grid.splits, call.epoch};
  tile::multiply_role(block.tile(), multiplier, args.grid, {block_index(), num_blocks()}, space,
                      block.last_word(multiplier), wait, store_tile);
  writer.finish();
}

template <class T, int columns, bool swapped>
FARWARP_DEVICE void gemm_wgmma(const Args& args) {
  const tile::WgmmaBlock<T, columns> block{block_shared()};
  const auto tile = block.tile();
  int loaded = 0;
  if (thread_index() == 0) {
    tile.ring.initialise(tile.kReadingWarps);
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
    multiply_and_store<swapped>(call, args, block, warpgroup - 1, wait);
  }
}

}  // namespace farwarp::FARWARP_TARGET::gemm
