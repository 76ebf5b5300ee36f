// ag-gemm on Hopper: blocks that send this rank's x to all ranks, and blocks as gemm's, whose loader waits for the rows it copies.
#pragma once

#include "farwarp/ops/parallel_gemm/ag_gemm/arrival.dev.h"
#include "farwarp/ops/parallel_gemm/ag_gemm/pieces.dev.h"
#include "farwarp/tile/gemm/block_wgmma.dev.h"
#include "farwarp/tile/gemm/epilogue_wgmma.dev.h"

namespace farwarp::FARWARP_TARGET::ag_gemm {

using farwarp::tile::Turns;
using farwarp::tile::Work;

/// Which works the block multiplies.
FARWARP_DEVICE Turns turns_of(const Args& args) {
  return {block_index() - args.communicators, num_blocks() - args.communicators};
}

/// A work's place in the operands.
struct Place {
  int x_row, x_end;  ///< of all ranks' x
  int w_row;
  bool own;  ///< all its rows of x are this rank's, and read from there
};

/// `swapped`: a tile's rows are w's.
template <class Tile, bool swapped>
FARWARP_DEVICE Place place_of(const Args& args, const Work& work) {
  const int x_rows = swapped ? Tile::kColumns : Tile::kRows;
  const int row = swapped ? work.at.column * Tile::kColumns : args.order.at(work.at.row) * Tile::kRows;
  const int end = row + x_rows < args.m ? row + x_rows : args.m;
  const int own_row = args.view.rank * args.shard_rows;
  const bool own = args.own_apart != 0 && row >= own_row && end <= own_row + args.shard_rows;
  return {row, end, swapped ? work.at.row * Tile::kRows : work.at.column * Tile::kColumns, own};
}

/// The copies of one step, in two halves: w is there from the start, x may have to come first.
template <class Tile, bool swapped>
struct Loader {
  const Args& args;
  Tile tile;

  /// [thread] Opens the stage and copies w into it.
  FARWARP_DEVICE void load_w(const Place& place, int step, int stage) const {
    mbarrier_arrive_expect(tile.ring.full(stage), Tile::kStageBytes);
    tensor_load(swapped ? tile.left(stage) : tile.right(stage), args.w, place.w_row, step * Tile::kStepDepth,
                tile.ring.full(stage));
  }
  /// [thread]
  FARWARP_DEVICE void load_x(const Place& place, int step, int stage) const {
    const Shared<std::byte> to = swapped ? tile.right(stage) : tile.left(stage);
    if (place.own) {
      const int row = place.x_row - args.view.rank * args.shard_rows;
      tensor_load(to, args.x, row, step * Tile::kStepDepth, tile.ring.full(stage));
    } else {
      tensor_load(to, args.gathered_x, place.x_row, step * Tile::kStepDepth, tile.ring.full(stage));
    }
  }
};

/// [thread] Starts what can be copied before the call is joined: w for as many steps as there are stages, and x where it is this
/// rank's own. Returns how many steps.
template <class Tile, bool swapped>
FARWARP_DEVICE int load_first(const Loader<Tile, swapped>& loader) {
  const Work work = farwarp::tile::work_at(loader.args.grid, turns_of(loader.args).first);
  const Place place = place_of<Tile, swapped>(loader.args, work);
  const int count = work.steps.count < Tile::kStages ? work.steps.count : Tile::kStages;
  for (int i = 0; i < count; ++i) {
    loader.load_w(place, work.steps.first + i, i);
    if (place.own) loader.load_x(place, work.steps.first + i, i);
  }
  return count;
}

/// [warp] The x of the `loaded` first steps whose w is under way.
template <class Tile, bool swapped, class Await>
FARWARP_DEVICE void load_first_x(const Loader<Tile, swapped>& loader, int loaded, const Await& await) {
  const Work work = farwarp::tile::work_at(loader.args.grid, turns_of(loader.args).first);
  const Place place = place_of<Tile, swapped>(loader.args, work);
  if (place.own) return;
  for (int i = 0; i < loaded; ++i) {
    await(work, place, work.steps.first + i);
    if (lane_index() == 0) loader.load_x(place, work.steps.first + i, i);
  }
}

/// [warp] Copies the operands of all this block's tiles, each step of x once `await(work, place, step)` returns. The last stage it filled,
/// when that has been multiplied, is the end.
template <class Tile, bool swapped, class Await, class Wait>
FARWARP_DEVICE void load_role(const Loader<Tile, swapped>& loader, int loaded, const Await& await, const Wait& wait) {
  const Args& args = loader.args;
  load_first_x(loader, loaded, await);
  tile::RingPosition<Tile::kStages> at, last;
  for (int i = 0; i < loaded; ++i) {
    last = at;
    at.advance();
  }
  const Turns turns = turns_of(args);
  for (int number = turns.first; number < args.grid.works(); number += turns.stride) {
    const Work work = farwarp::tile::work_at(args.grid, number);
    const Place place = place_of<Tile, swapped>(args, work);
    for (int i = loaded; i < work.steps.count; ++i) {
      const int step = work.steps.first + i;
      // One lane waits, the first turn finds every stage empty. Were all to, a slow one might miss a phase that the others have
      // seen, filled and got back.
      const int free = lane_index() != 0 || wait(loader.tile.ring.empty(at.stage), at.parity ^ 1) ? 1 : 0;
      if (shuffle(free, 0) == 0) return;
      if (lane_index() == 0) loader.load_w(place, step, at.stage);
      if (!place.own) await(work, place, step);
      if (lane_index() == 0) loader.load_x(place, step, at.stage);
      last = at;
      at.advance();
    }
    loaded = 0;
  }
  if (lane_index() == 0) wait(loader.tile.ring.empty(last.stage), last.parity);
}

/// [warpgroup] Multiplies 64 rows of each tile and stores them.
template <bool swapped, class Block, class Wait>
FARWARP_DEVICE void multiply_and_store(const Call& call, const Args& args, const Block& block, int multiplier,
                                       const Wait& wait) {
  using Tile = typename Block::Tile;
  using T = typename Tile::Element;
  tile::BoxWriter<Block::kBuffers> writer(block.boxes(multiplier), 1 + multiplier);
  const Global<const T> bias(static_cast<const T*>(args.bias));
  const auto carry = [&](int row, int column, Shared<std::byte> box) { tile::carry_to(args.out, row, column, box); };
  const auto store_tile = [&](const Work& work, const float(&values)[Tile::kSums]) {
    const Place place = place_of<Tile, swapped>(args, work);
    tile::store_half_tile<Tile, swapped>(writer, carry, multiplier, swapped ? place.w_row : place.x_row,
                                         swapped ? place.x_row : place.w_row, bias, args.n, values);
  };
  const tile::SplitSpace space{own_address<Vec16>(args.view, args.partials),
                               own_address<std::uint32_t>(args.view, args.counters), args.grid.splits, call.epoch};
  tile::multiply_role(block.tile(), multiplier, args.grid, turns_of(args), space, block.last_word(multiplier), wait,
                      store_tile);
  writer.finish();
}

/// [block] A block that multiplies.
template <class T, int columns, bool swapped>
FARWARP_DEVICE void multiply_block(const Args& args) {
  const tile::WgmmaBlock<T, columns> block{block_shared()};
  using Tile = typename tile::WgmmaBlock<T, columns>::Tile;
  const Loader<Tile, swapped> loader{args, block.tile()};
  int loaded = 0;
  if (thread_index() == 0) {
    loader.tile.ring.initialise(Tile::kReadingWarps);
    loaded = load_first(loader);  // under way while join_call() reads its cells, which takes a microsecond
    tensor_prefetch(args.out);
  }
  Call call = join_call(args.view, args.slot);  // its barrier shows the ring to all
  const auto wait = [&](Shared<Mbarrier> barrier, std::uint32_t parity) {
    return wait_mbarrier(call, barrier, parity, farwarp::ag_gemm::kSiteStage);
  };
  const int warpgroup = thread_index() / 128;
  if (!call.live) {  // copies must not outlive the block: those of x that still lack are made, of whatever is there
    if (warp_index() != 0) return;
    loaded = shuffle(loaded, 0);
    load_first_x(loader, loaded, [](const Work&, const Place&, int) {});
    for (int stage = 0; stage < loaded; ++stage) wait(loader.tile.ring.full(stage), 0);  // nobody reuses them
    return;
  }
  if (warpgroup == 0) {
    reduce_registers<56>();
    if (warp_index() != 0) return;
    if (args.communicators == 0 && thread_index() + block_index() == 0) claim_call(call);
    int row = -1, depth_come = 0;  // of these rows, all pieces of K before have come
    const auto await = [&](const Work& work, const Place& place, int step) {
      const int depth = step * Tile::kStepDepth / args.pieces.depth;
      if (row == place.x_row && depth < depth_come) return;
      row = place.x_row;
      const int last_step = work.steps.first + work.steps.count - 1;
      depth_come =
          await_rows(call, args, row, place.x_end, depth, last_step * Tile::kStepDepth / args.pieces.depth + 1);
    };
    load_role(loader, shuffle(loaded, 0), await, wait);
    if (lane_index() == 0) leave_call(call, 0);
  } else {
    raise_registers<224>();
    multiply_and_store<swapped>(call, args, block, warpgroup - 1, wait);
  }
}

template <class T, int columns, bool swapped>
FARWARP_DEVICE void ag_gemm_wgmma(const Args& args) {
  if (block_index() < args.communicators) {
    communicate(args);
  } else {
    multiply_block<T, columns, swapped>(args);
  }
}

}  // namespace farwarp::FARWARP_TARGET::ag_gemm
