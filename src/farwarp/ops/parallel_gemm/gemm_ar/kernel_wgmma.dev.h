// gemm-ar on Hopper: gemm-rs's blocks, whose owners hand out what they have added up; or for very few rows, packets to all.
#pragma once

#include "farwarp/ops/parallel_gemm/gemm_ar/share.dev.h"
#include "farwarp/ops/parallel_gemm/gemm_rs/kernel_wgmma.dev.h"

namespace farwarp::FARWARP_TARGET::gemm_ar {

using farwarp::tile::Turns;
using farwarp::tile::Work;

/// The roles of a block that sends its partial sums to all ranks, in packets: those who sum write them. Storers have nothing to do.
template <class T, int columns>
struct PacketsToAll {
  using Block = gemm_rs::SendingBlock<T, columns>;

  const Args& args;

  template <class Wait>
  FARWARP_DEVICE void store(const Block&, int, Turns, const Wait&) const {}
  template <class Wait>
  FARWARP_DEVICE void reduce(const Block&, const Wait&) const {}

  template <class Wait>
  FARWARP_DEVICE void multiply(const Block& block, int multiplier, Turns turns, const Wait& wait) const {
    using Tile = typename Block::Tile;
    const Global<const T> bias(static_cast<const T*>(args.rs.bias));
    tile::BoxWriter<Block::kBuffers> writer(block.boxes(multiplier), 1 + multiplier);
    const auto send_tile = [&](const Work& work, int row, int column, const float(&sums)[Tile::kSums]) {
      const Call call = block.call(args.rs.view, args.rs.slot, wait);  // there long since
      const bool dropped = static_cast<std::uint32_t>(work.tile) + 1 == args.rs.drop_tile || !call.live;
      const auto carry = [&](int at, int to, Shared<std::byte> box) {
        if (!dropped) send_box(call, at, to, box);
      };
      tile::store_half_tile<Tile, true>(writer, carry, multiplier, row, column, bias, args.rs.n, sums);
    };
    gemm_rs::multiply(args.rs, block, multiplier, turns, wait, send_tile, [] {});
    Call call = block.call(args.rs.view, args.rs.slot, wait);
    reduce_packets<T, Failure::in_place>(call, args, 256 * block_index() + thread_index() - 128, 256 * num_blocks());
  }

 private:
  /// [warpgroup] A box of `columns` x 64.
  FARWARP_DEVICE void send_box(const Call& call, int row, int column, Shared<std::byte> box) const {
    for (int i = thread_index() % 128; i < columns * 16; i += 128) {
      const int at = row + i / 16, to = column + i % 16 * 4;
      if (at >= args.rows || to >= args.rs.n) continue;
      const Shared<std::byte> from = box + swizzled_offset(i / 16, i % 16 * 8);
      send_packet(call, args, at, to / 4,
                  load(Shared<const std::uint64_t>(reinterpret_cast<const std::uint64_t*>(from.raw))));
    }
  }
};

/// The roles of a block whose owners hand out what they have added up.
template <class T, int columns, bool swapped>
struct OwnersToAll : gemm_rs::ToOwners<T, columns, swapped> {
  using Base = gemm_rs::ToOwners<T, columns, swapped>;
  using typename Base::Block;

  const Args& all;

  template <class Wait>
  FARWARP_DEVICE void reduce(const Block& block, const Wait& wait) const {
    reduce_and_share<gemm_rs::kKeeperVectors>(block, wait);
  }
  template <class Wait>
  FARWARP_DEVICE void multiply(const Block& block, int multiplier, Turns turns, const Wait& wait) const {
    gemm_rs::multiply_for_storer<swapped>(all.rs, block, multiplier, turns, wait);
    reduce_and_share<gemm_rs::kMultiplierVectors<Base::kBandColumns>>(block, wait);
    Call call = block.call(all.rs.view, all.rs.slot, wait);
    collect<Base::kBandColumns, Failure::in_place>(call, all, 8 * block_index() + warp_index() - 4, 8 * num_blocks());
  }

 private:
  template <int vectors, class Wait>
  FARWARP_DEVICE void reduce_and_share(const Block& block, const Wait& wait) const {
    gemm_ar::reduce_and_share<T, Base::kBandColumns, vectors>(all, gemm_rs::TakenUnits(block.taken()),
                                                              block.call(all.rs.view, all.rs.slot, wait).epoch,
                                                              gemm_rs::awaiting(all.rs, block, wait));
  }
};

template <class T, int columns, bool swapped>
FARWARP_DEVICE void gemm_ar_wgmma(const Args& args) {
  if constexpr (swapped && columns <= farwarp::gemm_ar::kMostOneShotRows) {
    gemm_rs::run_block(args.rs, PacketsToAll<T, columns>{args});
  } else {
    gemm_rs::run_block(args.rs, OwnersToAll<T, columns, swapped>{{args.rs}, args});
  }
}

}  // namespace farwarp::FARWARP_TARGET::gemm_ar
