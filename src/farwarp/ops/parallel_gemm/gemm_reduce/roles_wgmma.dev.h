// A block of gemm-rs and gemm-ar on Hopper: gemm's block, whose two multiplying warpgroups pass their sums to store warps. The reduce warp
// adds up what other ranks send, during the multiplication. After it, the multiplying warps do so too.
#pragma once

#include "farwarp/ops/parallel_gemm/gemm_reduce/reduce.dev.h"
#include "farwarp/ops/parallel_gemm/gemm_reduce/store_warp_wgmma.dev.h"
#include "farwarp/ops/parallel_gemm/gemm_reduce/words_wgmma.dev.h"
#include "farwarp/tile/gemm/epilogue_wgmma.dev.h"
#include "farwarp/tile/gemm/mainloop_wgmma.dev.h"

namespace farwarp::FARWARP_TARGET::gemm_reduce {

using namespace farwarp::gemm_reduce;

// How many vectors a lane adds up at a time (reduce_unit_of()): limited by registers, and must divide its vectors of a chunk.
inline constexpr int kReduceWarpVectors = 1;
template <int columns>
inline constexpr int kMultiplierWarpVectors = columns == 192  ? 3
                                              : columns == 64 ? 2
                                                              : 4;

/// [warp] The chunks of y that a block adds up; its warps take one after another. Chunks are numbered in the order in which their bands
/// arrive and dealt to blocks in turn, so that every block's first ones are ready early.
class TakenChunks {
 public:
  FARWARP_DEVICE explicit TakenChunks(Shared<std::uint32_t> taken) : taken_(taken) {}
  FARWARP_DEVICE std::int64_t operator()() const {
    std::uint32_t turn = 0;
    if (lane_index() == 0) turn = fetch_add(taken_, 1u);
    return block_index() + std::int64_t{shuffle(turn, 0)} * num_blocks();
  }

 private:
  Shared<std::uint32_t> taken_;
};

/// [warp] How the block's warps wait for bands. Each wait loads the call from shared memory, so that it takes no registers between waits.
template <class Block, class Wait>
FARWARP_DEVICE auto awaiting(const Args& args, const Block& block, const Wait& wait) {
  return [&](Cover cover) {
    Call call = block.call(args.view, args.slot, wait);
    return await_bands<Failure::in_place>(call, args, cover);
  };
}

/// [warpgroup] Multiplies 64 rows of each tile. `store(work, row, column, sums)` gets the sums of the tile that begins at row `row` of A
/// and row `column` of B. `pass()` is called for a tile that another block finishes. Where K is split, sums go through global memory.
template <class Block, class Wait, class Store, class Pass>
FARWARP_DEVICE void multiply(const Args& args, const Block& block, int multiplier, Turns turns, const Wait& wait,
                             const Store& store, const Pass& pass) {
  using Tile = typename Block::Tile;
  const std::uint32_t epoch = args.grid.splits > 1 ? block.call(args.view, args.slot, wait).epoch : 0;
  const tile::SplitSpace space{own_address<Vec16>(args.view, args.at.partials),
                               own_address<std::uint32_t>(args.view, args.at.counters), args.grid.splits, epoch};
  const auto finish = [&](const Work& work, const float(&sums)[Tile::kSums]) {
    store(work, args.order.at(work.at.row) * Tile::kRows, work.at.column * Tile::kColumns, sums);
  };
  tile::multiply_role(block.tile(), multiplier, args.grid, turns, space, block.last_word(multiplier), wait, finish,
                      pass);
}

/// [warpgroup] multiply() for the store warp, which sends boxes by copies if `copied`. `swap_ab`: A is w, and the tile is stored
/// transposed.
template <bool swap_ab, bool copied = true, class Block, class Wait>
FARWARP_DEVICE void multiply_for_store_warp(const Args& args, const Block& block, int multiplier, Turns turns,
                                            const Wait& wait) {
  using Tile = typename Block::Tile;
  const Global<const typename Tile::Element> bias(static_cast<const typename Tile::Element*>(args.bias));
  BoxProducer<copied, typename Block::Boxes, Wait> producer(block.boxes_of(multiplier), args.grid.splits > 1, wait);
  const auto store = [&](const Work&, int row, int column, const float(&sums)[Tile::kSums]) {
    const auto carry = [](int, int, Shared<std::byte>) {};  // the store warp sends the boxes
    tile::store_half_tile<Tile, swap_ab>(producer, carry, multiplier, row, column, bias, args.n, sums);
  };
  multiply(args, block, multiplier, turns, wait, store, [&] { producer.pass(); });
}

/// [thread] Waits until the block neither makes nor sends sums any more, then leaves the call if it was joined.
template <class Block, class Wait>
FARWARP_DEVICE void leave_when_done(const Args& args, const Block& block, const Wait& wait) {
  wait(block.done(), 0);
  const Call call = block.call(args.view, args.slot, wait);
  if (call.live) leave_call(call, 0);
}

/// [warp] Reads the call's cells for the block and runs `background()`; in block 0, claims the call. By boxes, block 0 also announces this
/// rank to its peers, and this warp leaves the call. By words the loader leaves it, since background() ends last there.
template <bool by_words, class Block, class Wait, class Background>
FARWARP_DEVICE void reduce_warp_role(const Args& args, const Block& block, const Wait& wait,
                                     const Background& background) {
  std::uint32_t phase = 0;
  Call call = read_call(args.view, args.slot, phase);
  call.live = ballot(!call.live) == 0;
  if (lane_index() == 0) block.publish(call);
  if (call.live && block_index() == 0) {
    if constexpr (!by_words) announce_ready(call, args.at.ready_cells);
    if (lane_index() == 0) claim_call(call);
  }
  if constexpr (by_words) {
    if (lane_index() == 0) mbarrier_arrive(block.done());  // the call has been claimed
  }
  background();
  if constexpr (!by_words) {
    if (lane_index() == 0) leave_when_done(args, block, wait);
  }
}

/// [thread] The loader's role.
template <class Block, class Load, class Wait>
FARWARP_DEVICE void load_role(const Args& args, const Block& block, Turns turns, int loaded, const Load& load,
                              const Wait& wait) {
  // As in gemm: if all blocks began with copies for all stages, the multipliers' instructions would arrive microseconds later.
  wait(block.meeting(), 0);
  tile::load_role(block.tile(), args.grid, turns, loaded, load, wait);
}

FARWARP_DEVICE Turns turns_of_block() { return {block_index(), num_blocks()}; }

/// [block] Runs a block: the loader, and from `roles` `store(block, multiplier, turns, wait)` for each store warp, `reduce(block, wait)`
/// for the reduce warp, and `multiply(block, multiplier, turns, wait)`, then `collect(block, wait)`, for each multiplying warpgroup. The
/// block leaves the call without waiting for collect(). `kByWords`: there are no ready cells. `kClusters`: the splits of a tile are a
/// cluster's blocks.
template <class Roles>
FARWARP_DEVICE void run_block(const Args& args, const Roles& roles) {
  using Block = typename Roles::Block;
  using Tile = typename Block::Tile;
  const Block block{block_shared()};
  const auto load = [&](const Work& work, int step, int stage) {
    tile::load_step(block.tile(), args.a, args.b, args.order.at(work.at.row) * Tile::kRows,
                    work.at.column * Tile::kColumns, work.steps.first + step, stage);
  };
  if (thread_index() == 0) block.initialise(Roles::kByWords ? 1 : 0);  // 1: the reduce warp
  block_sync();
  int loaded = 0;
  if (thread_index() == 0) loaded = tile::load_first<Tile, 1>(args.grid, turns_of_block(), load);
  const bool clusters = Roles::kClusters && args.grid.splits > 1;
  if (clusters) cluster_arrive<Order::relaxed>();
  const auto attend = [&] {
    if (clusters) tile::attend_exchange();
  };
  OwnWaits waits;
  const auto wait = [&](Shared<Mbarrier> barrier, std::uint32_t parity) {
    return wait_mbarrier(waits, args.view, barrier, parity);
  };
  const int warpgroup = thread_index() / 128;
  if (warpgroup == 0) {
    reduce_registers<Roles::kRegisters.loading>();
    if (warp_index() == kLoadWarp) {
      if (lane_index() == 0) load_role(args, block, turns_of_block(), loaded, load, wait);
      attend();
      if constexpr (Roles::kByWords) {
        if (lane_index() == 0) leave_when_done(args, block, wait);
      }
    } else if (warp_index() == kReduceWarp) {
      reduce_warp_role<Roles::kByWords>(args, block, wait, [&] {
        attend();
        roles.reduce(block, wait);
      });
    } else {
      roles.store(block, warp_index() - kFirstStoreWarp, turns_of_block(), wait);
      attend();
      if (lane_index() == 0) mbarrier_arrive(block.done());
    }
  } else {
    raise_registers<Roles::kRegisters.multiplying>();
    if (lane_index() == 0) mbarrier_arrive(block.meeting());
    roles.multiply(block, warpgroup - 1, turns_of_block(), wait);
    warp_sync();
    if (lane_index() == 0) mbarrier_arrive(block.done());
    roles.collect(block, wait);
  }
  report(waits, args.view, args.slot, kSiteStage);
}

/// The roles of a block that sends boxes to owners, without reduce() and multiply().
template <class T, int columns, bool swap_ab>
struct ToOwners {
  using Block = SendingBlock<T, columns>;
  static constexpr bool kByWords = false, kClusters = false;
  static constexpr RegisterBudget kRegisters{88, 208};
  static constexpr int kBandColumns = swap_ab ? 64 : columns;

  const Args& args;

  template <class Wait>
  FARWARP_DEVICE void store(const Block& block, int multiplier, Turns turns, const Wait& wait) const {
    if (lane_index() < args.view.size) tensor_prefetch(args.inbox[lane_index()]);
    Call call = block.call(args.view, args.slot, wait);
    store_role<swap_ab>(call, args, block, multiplier, turns, wait);
  }
  template <class Wait>
  FARWARP_DEVICE void collect(const Block&, const Wait&) const {}
};

/// The roles of a block whose store warps send words.
template <class T, int columns>
struct StraightByWords {
  using Block = SendingBlock<T, columns>;
  static constexpr bool kByWords = true, kClusters = false;
  static constexpr RegisterBudget kRegisters{120, 192};  // with 88 and 208, ptxas spills

  const Args& args;

  template <class Wait>
  FARWARP_DEVICE void store(const Block& block, int multiplier, Turns turns, const Wait& wait) const {
    send_words_role(block.call(args.view, args.slot, wait), args, block, multiplier, turns, wait);
  }
  template <class Wait>
  FARWARP_DEVICE void multiply(const Block& block, int multiplier, Turns turns, const Wait& wait) const {
    multiply_for_store_warp<false, false>(args, block, multiplier, turns, wait);
  }
  template <class Wait>
  FARWARP_DEVICE void reduce(const Block& block, const Wait& wait) const {
    Call call = block.call(args.view, args.slot, wait);
    if (!call.live) return;
    for_each_vector_of_chunks(
        call, args.word_inbox, args.word_inbox.rows, TakenChunks(block.taken()),
        [&](int row, int vector) { reduce_vector<T, Failure::in_place>(call, args, row, vector, IntoY{args}); });
  }
  template <class Wait>
  FARWARP_DEVICE void collect(const Block& block, const Wait& wait) const {
    reduce(block, wait);
  }
};

}  // namespace farwarp::FARWARP_TARGET::gemm_reduce
