// gemm-ar on Hopper: gemm-rs's blocks, whose owners hand out what they have added up; or for very few rows, packets to all.
#pragma once

#include "farwarp/ops/parallel_gemm/gemm_ar/share.dev.h"
#include "farwarp/ops/parallel_gemm/gemm_rs/kernel_wgmma.dev.h"

namespace farwarp::FARWARP_TARGET::gemm_ar {

using farwarp::tile::Turns;

/// A warpgroup's way to all ranks, in packets.
class PacketSender {
 public:
  FARWARP_DEVICE PacketSender(Call& call, const Args& args) : call_(call), args_(args) {}

  FARWARP_DEVICE void open(int, int, bool dropped) { dropped_ = dropped; }

  /// [warpgroup] Sends a box of `rows` x 64.
  FARWARP_DEVICE void carry(int row, int column, int rows, Shared<std::byte> box) const {
    if (dropped_) return;
    for (int i = thread_index() % 128; i < rows * 16; i += 128) {
      const int at = row + i / 16, to = column + i % 16 * 4;
      if (at >= args_.rows || to >= args_.rs.n) continue;
      const Shared<std::byte> from = box + swizzled_offset(i / 16, i % 16 * 8);
      send_packet(call_, args_, at, to / 4,
                  load(Shared<const std::uint64_t>(reinterpret_cast<const std::uint64_t*>(from.raw))));
    }
  }

  FARWARP_DEVICE void tell() {}

 private:
  Call& call_;
  const Args& args_;
  bool dropped_ = false;
};

template <class T, int columns, bool swapped>
FARWARP_DEVICE void gemm_ar_wgmma(const Args& args) {
  constexpr bool kOneShot = swapped && columns <= farwarp::gemm_ar::kMostOneShotRows;
  gemm_rs::run_block<T, columns, swapped>(args.rs, [&](Call& call, const auto& block, int multiplier, Turns turns,
                                                       const auto& wait) {
    if constexpr (kOneShot) {
      PacketSender sender(call, args);
      gemm_rs::multiply_and_send<swapped>(call, args.rs, block, multiplier, turns, sender, wait);
      reduce_packets<T, Failure::in_place>(call, args, 256 * block_index() + thread_index() - 128, 256 * num_blocks());
    } else {
      gemm_rs::Sender sender(call, args.rs, block.leader_word(multiplier));
      gemm_rs::multiply_and_send<swapped>(call, args.rs, block, multiplier, turns, sender, wait);
      constexpr int kBandColumns = swapped ? 64 : columns;
      const Reducers mine{2 * block_index() + multiplier, 2 * num_blocks(), thread_index() % 128, 128};
      reduce_and_share<T, kBandColumns, Failure::in_place>(call, args, mine, [&] { group_sync(1 + multiplier, 128); });
      collect<kBandColumns, Failure::in_place>(call, args, 8 * block_index() + warp_index() - 4, 8 * num_blocks());
    }
  });
}

}  // namespace farwarp::FARWARP_TARGET::gemm_ar
