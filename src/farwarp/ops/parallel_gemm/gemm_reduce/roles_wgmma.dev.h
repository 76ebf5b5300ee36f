// The roles of a block of gemm-rs and gemm-ar on Hopper. It is gemm's block, but the two multipliers give their sums to
// store warps, which send them to owners. During the multiplication the reduce warp adds up what other ranks send;
// after it the multipliers do, too. (swap_ab with words: the multipliers send and add up, words_wgmma.dev.h.)
#pragma once

#include "farwarp/ops/parallel_gemm/gemm_reduce/exchange.dev.h"
#include "farwarp/ops/parallel_gemm/gemm_reduce/store_warp_wgmma.dev.h"
#include "farwarp/ops/parallel_gemm/gemm_reduce/words_wgmma.dev.h"
#include "farwarp/tile/gemm/epilogue_wgmma.dev.h"
#include "farwarp/tile/gemm/mainloop_wgmma.dev.h"

namespace farwarp::FARWARP_TARGET::gemm_reduce {

using namespace farwarp::gemm_reduce;

// How many vectors of y a lane adds up at a time with eight sources, all loads under way: as many as registers allow.
// They divide a chunk. With fewer sources: reduce_chunk_for_ranks().
inline constexpr int kReduceWarpVectors = 1;
template <int columns>
inline constexpr int kMultiplierWarpVectors = columns == 192  ? 3
                                              : columns == 64 ? 2
                                                              : 4;

/// [warp] The chunks of y that the block adds up. Each of its warps takes the next one. Chunks are in the order of
/// chunk_at(), and are distributed over blocks in turn, so that each block's first chunks are ready early.
class TakenChunks {
 public:
  FARWARP_DEVICE explicit TakenChunks(Shared<std::uint32_t> taken) : taken_(taken) {}
  FARWARP_DEVICE std::int64_t operator()() const {
    std::uint32_t number = 0;  // of the chunk among the block's
    if (lane_index() == 0) number = fetch_add(taken_, 1u);
    return block_index() + std::int64_t{shuffle(number, 0)} * num_blocks();
  }

 private:
  Shared<std::uint32_t> taken_;
};

/// [warp] Returns a function that waits for bands. It reads the block's call from shared memory for each wait, so that
/// the call occupies no registers between waits.
template <class Block, class WaitBarrier>
FARWARP_DEVICE auto band_waiter(const Args& args, const Block& block, const WaitBarrier& wait) {
  return [&](BandRange bands) {
    Call call = block.await_call(args.view, args.slot, wait);
    return await_bands<Failure::inlined>(call, args, bands);
  };
}

/// [warpgroup] Multiplies 64 rows of each tile. `fill(work, row, column, sums)` gets the sums of the tile whose first
/// rows are `row` of A and `column` of B; `skip()` is called for a work whose tile another block finishes. If K is
/// split, blocks add up their sums through the workspace.
template <class Block, class WaitBarrier, class Fill, class Skip>
FARWARP_DEVICE void multiply_works(const Args& args, const Block& block, int multiplier, Turns turns,
                                   const WaitBarrier& wait, const Fill& fill, const Skip& skip) {
  using Tile = typename Block::Tile;
  const std::uint32_t epoch = args.grid.splits > 1 ? block.await_call(args.view, args.slot, wait).epoch : 0;
  const tile::SplitSpace space{own_address<Vec16>(args.view, args.offsets.partials),
                               own_address<std::uint32_t>(args.view, args.offsets.counters), args.grid.splits, epoch};
  const auto finish = [&](const Work& work, const float(&sums)[Tile::kSums]) {
    fill(work, args.order.at(work.at.row) * Tile::kRows, work.at.column * Tile::kColumns, sums);
  };
  tile::multiply_role(block.tile(), multiplier, args.grid, turns, space, block.arrived_last(multiplier), wait, finish,
                      skip);
}

/// [warpgroup] Multiplies and gives the sums to the store warp in boxes. `copied`: it sends them by tensor copies.
/// `swap_ab`: A is w, and the tile is stored transposed.
template <bool swap_ab, bool copied = true, class Block, class WaitBarrier>
FARWARP_DEVICE void multiply_for_store_warp(const Args& args, const Block& block, int multiplier, Turns turns,
                                            const WaitBarrier& wait) {
  using Tile = typename Block::Tile;
  const Global<const typename Tile::Element> bias(static_cast<const typename Tile::Element*>(args.bias));
  BoxProducer<copied, typename Block::Boxes, WaitBarrier> producer(block.boxes_of(multiplier), args.grid.splits > 1,
                                                                   wait);
  const auto fill = [&](const Work&, int row, int column, const float(&sums)[Tile::kSums]) {
    const auto send_box = [](int, int, Shared<std::byte>) {};  // nothing: the store warp sends
    tile::fill_multiplier_boxes<Tile, swap_ab>(producer, send_box, multiplier, row, column, bias, args.n, sums);
  };
  multiply_works(args, block, multiplier, turns, wait, fill, [&] { producer.skip(); });
}

/// [thread] Leaves the call for the block, if it was joined, once all arrivals at block.done() have been made.
template <class Block, class WaitBarrier>
FARWARP_DEVICE void leave_when_done(const Args& args, const Block& block, const WaitBarrier& wait) {
  wait(block.done(), 0);
  const Call call = block.await_call(args.view, args.slot, wait);
  if (call.live) leave_call(call, 0);
}

/// [warp] Joins the call for the block, publishes it, and runs `background()`. With boxes it also stores this rank's
/// ready cells at its peers, and leaves the call at its end. With words a block leaves the call before it has added up.
/// With straight tiles the reduce warp is then still adding up, so the loader leaves.
template <bool by_words, class Block, class WaitBarrier, class Background>
FARWARP_DEVICE void reduce_warp_role(const Args& args, const Block& block, const WaitBarrier& wait,
                                     const Background& background) {
  std::uint32_t phase = 0;
  Call call = read_call(args.view, args.slot, phase);
  call.live = ballot(!call.live) == 0;
  if (lane_index() == 0) block.publish(call);
  if (call.live && block_index() == 0) {
    if constexpr (!by_words) announce_ready(call, args.offsets.ready_cells);
    if (lane_index() == 0) claim_call(call);
  }
  if constexpr (by_words) {
    if (lane_index() == 0) mbarrier_arrive(block.done());  // after the claim
  }
  background();
  if constexpr (!by_words) {
    if (lane_index() == 0) leave_when_done(args, block, wait);
  }
}

/// [thread] The loader's role: tile::load_role() once the multipliers have started.
template <class Block, class Load, class WaitBarrier>
FARWARP_DEVICE void load_when_started(const Args& args, const Block& block, Turns turns, int loaded, const Load& load,
                                      const WaitBarrier& wait) {
  // As in gemm: the multipliers fetch their instructions before the copies of all stages fill the memory system.
  wait(block.multipliers_started(), 0);
  tile::load_role(block.tile(), args.grid, turns, loaded, load, wait);
}

FARWARP_DEVICE Turns turns_of_block() { return {block_index(), num_blocks()}; }

/// [block] Runs all roles of a block. `Roles` has
///   Block                                           its shared memory: a SendingBlock
///   kRegisters                                      of a thread: a RegisterBudget
///   kByWords                                        sums are sent as words: no ready cells
///   kClusters                                       splits of K add up in a cluster
///   send(block, multiplier, turns, wait)            a store warp
///   reduce(block, wait)                             the reduce warp
///   run_multiplier(block, multiplier, turns, wait)  a multiplier, a warpgroup, until the block may leave the call.
///                                                   With boxes it also adds up chunks after its last box, so that a
///                                                   second kernel, a misuse, still finds the operator busy
///   after_done(block, wait)                         the multipliers afterwards; the block may leave the call before
///                                                   this ends. With words they add up here: vectors of the next call
///                                                   are in the other half of the inbox
template <class Roles>
FARWARP_DEVICE void run_block(const Args& args, const Roles& roles) {
  using Block = typename Roles::Block;
  using Tile = typename Block::Tile;
  const Block block{block_shared()};
  const auto load = [&](const Work& work, int step, int stage) {
    const int row = args.order.at(work.at.row) * Tile::kRows;
    const bool last = row == args.last.row;
    tile::load_step(block.tile(), last ? args.a_last : args.a, args.b, row, work.at.column * Tile::kColumns,
                    work.steps.first + step, stage,
                    last ? Tile::kBBytes + args.last.rows * kSwizzleRowBytes : Tile::kStageBytes);
  };
  if (thread_index() == 0) block.initialise(Roles::kByWords ? 1 : 0);  // 1: the reduce warp
  block_sync();
  int loaded = 0;
  if (thread_index() == 0) loaded = tile::load_first<Tile, 1>(args.grid, turns_of_block(), load);
  const bool clusters = Roles::kClusters && args.grid.splits > 1;
  if (clusters) cluster_arrive<Order::relaxed>();
  const auto attend = [&] {
    if (clusters) tile::attend_cluster_sum();
  };
  BlockWaits waits;
  const auto wait = [&](Shared<Mbarrier> barrier, std::uint32_t parity) {
    return wait_mbarrier(waits, args.view, barrier, parity);
  };
  const int warpgroup = thread_index() / 128;
  if (warpgroup == 0) {
    lower_registers<Roles::kRegisters.loading>();
    if (warp_index() == kLoadWarp) {
      if (lane_index() == 0) load_when_started(args, block, turns_of_block(), loaded, load, wait);
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
      roles.send(block, warp_index() - kFirstStoreWarp, turns_of_block(), wait);
      attend();
      if (lane_index() == 0) mbarrier_arrive(block.done());
    }
  } else {
    raise_registers<Roles::kRegisters.multiplying>();
    if (lane_index() == 0) mbarrier_arrive(block.multipliers_started());
    roles.run_multiplier(block, warpgroup - 1, turns_of_block(), wait);
    warp_sync();
    if (lane_index() == 0) mbarrier_arrive(block.done());
    roles.after_done(block, wait);
  }
  report_expired(waits, args.view, args.slot, kSiteBlock);
}

/// Roles whose store warps send boxes to owners; `run_multiplier` and `reduce` are the operator's.
template <class T, int columns, bool swap_ab>
struct ByBoxes {
  using Block = SendingBlock<T, columns>;
  static constexpr bool kByWords = false, kClusters = false;
  static constexpr RegisterBudget kRegisters{88, 208};
  static constexpr int kBandColumns = swap_ab ? 64 : columns;  ///< args.bands.columns: bands_of() in plan.cc

  const Args& args;

  template <class WaitBarrier>
  FARWARP_DEVICE void send(const Block& block, int multiplier, Turns turns, const WaitBarrier& wait) const {
    if (lane_index() < args.view.size) tensor_prefetch(args.inbox_maps[lane_index()]);
    Call call = block.await_call(args.view, args.slot, wait);
    store_role<swap_ab>(call, args, block, multiplier, turns, wait);
  }
  template <class WaitBarrier>
  FARWARP_DEVICE void after_done(const Block&, const WaitBarrier&) const {}
};

/// Roles whose store warps send words, with straight tiles.
template <class T, int columns>
struct StraightByWords {
  using Block = SendingBlock<T, columns>;
  static constexpr bool kByWords = true, kClusters = false;
  static constexpr RegisterBudget kRegisters{120, 192};  // with 88 and 208, ptxas spills

  const Args& args;

  template <class WaitBarrier>
  FARWARP_DEVICE void send(const Block& block, int multiplier, Turns turns, const WaitBarrier& wait) const {
    send_words_role(block.await_call(args.view, args.slot, wait), args, block, multiplier, turns, wait);
  }
  template <class WaitBarrier>
  FARWARP_DEVICE void run_multiplier(const Block& block, int multiplier, Turns turns, const WaitBarrier& wait) const {
    multiply_for_store_warp<false, false>(args, block, multiplier, turns, wait);
  }
  template <class WaitBarrier>
  FARWARP_DEVICE void reduce(const Block& block, const WaitBarrier& wait) const {
    Call call = block.await_call(args.view, args.slot, wait);
    if (!call.live) return;
    for_each_vector_of_chunks(
        call, args.word_inbox, args.word_inbox.rows, TakenChunks(block.taken()),
        [&](int row, int vector) { reduce_vector<T, Failure::inlined>(call, args, row, vector, IntoY{args}); });
  }
  template <class WaitBarrier>
  FARWARP_DEVICE void after_done(const Block& block, const WaitBarrier& wait) const {
    reduce(block, wait);
  }
};

}  // namespace farwarp::FARWARP_TARGET::gemm_reduce
