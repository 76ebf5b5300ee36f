// gemm on Hopper: persistent blocks of three warpgroups, one that loads and two that multiply and store.
#pragma once

#include "farwarp/ops/gemm/args.h"
#include "farwarp/tile/gemm/epilogue_wgmma.dev.h"
#include "farwarp/tile/gemm/loader_wgmma.dev.h"
#include "farwarp/world/device/wait.dev.h"

namespace farwarp::FARWARP_TARGET::gemm {

using farwarp::gemm::Args;
using farwarp::tile::Turns;
using farwarp::tile::Work;

/// [warpgroup] Multiplies 64 rows of each tile and stores them. `swapped`: A is w, and the tile is stored transposed.
template <bool swapped, class Block, class Wait>
FARWARP_DEVICE void multiply_and_store(const Call& call, const Args& args, const Block& block, int multiplier,
                                       const Wait& wait) {
  using Tile = typename Block::Tile;
  using T = typename Tile::Element;
  tile::BoxWriter<Block::kBuffers> writer(block.boxes(multiplier), 1 + multiplier);
  const Global<const T> bias(static_cast<const T*>(args.bias));
  const auto carry = [&](int row, int column, Shared<std::byte> box) { tile::carry_to(args.out, row, column, box); };
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
  using Tile = typename tile::WgmmaBlock<T, columns>::Tile;
  const auto load = [&](const Work& work, int step, int stage) {
    tile::load_step(tile, args.a, args.b, work.at.row * Tile::kRows, work.at.column * Tile::kColumns,
                    work.steps.first + step, stage);
  };
  const Turns turns{block_index(), num_blocks()};
  int loaded = 0;
  if (thread_index() == 0) {
    tile.ring.initialise(tile.kReadingWarps);
    loaded = tile::load_first<Tile>(args.grid, turns,
                                    load);  // under way while join_call() reads its cells, which takes a microsecond
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
      tile::load_role(tile, args.grid, turns, loaded, load, wait);
      leave_call(call, 0);
    }
  } else {
    raise_registers<232>();
    multiply_and_store<swapped>(call, args, block, warpgroup - 1, wait);
  }
}

}  // namespace farwarp::FARWARP_TARGET::gemm
