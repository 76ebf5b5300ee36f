// A block of the Hopper main loop: its shared memory, and the role of the warpgroups that multiply.
#pragma once

#include "farwarp/tile/gemm/mainloop_wgmma.dev.h"
#include "farwarp/tile/gemm/shape_wgmma.h"
#include "farwarp/tile/gemm/split.dev.h"

namespace farwarp::FARWARP_TARGET::tile {

using farwarp::tile::TileGrid;
using farwarp::tile::Turns;
using farwarp::tile::WgmmaShared;
using farwarp::tile::Work;

template <class T, int columns, int buffers = 2, int rows = farwarp::tile::kWgmmaRows>
struct WgmmaBlock {
  static constexpr WgmmaShared kShared{rows, columns, buffers};
  static constexpr int kBuffers = buffers;
  static constexpr int kStages = kShared.stages();
  using Tile = WgmmaTile<T, columns, kStages, rows>;
  static_assert(Tile::kStageBytes == kShared.stage_bytes() && Ring<kStages>::kBytes <= WgmmaShared::kBeside);

  Shared<std::byte> memory;

  FARWARP_DEVICE Tile tile() const { return {memory, Ring<kStages>(barriers())}; }
  /// The buffers of the multiplier's BoxWriter.
  FARWARP_DEVICE Shared<std::byte> boxes(int multiplier) const {
    return memory + (kShared.boxes() + multiplier * buffers * WgmmaShared::kBoxBytes);
  }
  /// Where the multipliers' eight warps arrive once and the loader's thread waits.
  FARWARP_DEVICE Shared<Mbarrier> meeting() const {
    return Shared<Mbarrier>(reinterpret_cast<Mbarrier*>((barriers() + WgmmaShared::kMeeting).raw));
  }
  /// [thread] One thread, before a block_sync(): the ring, with `fillers` arrivals at a full stage, and the meeting.
  FARWARP_DEVICE void initialise(int fillers = 1) const {
    mbarrier_init(meeting(), Tile::kReadingWarps);
    tile().ring.initialise(Tile::kReadingWarps, fillers);
  }
  FARWARP_DEVICE Shared<std::uint32_t> last_word(int multiplier) const {
    return Shared<std::uint32_t>(
        reinterpret_cast<std::uint32_t*>((barriers() + WgmmaShared::kWords + 4 * multiplier).raw));
  }

 protected:
  FARWARP_DEVICE Shared<std::byte> barriers() const { return memory + kShared.barriers(); }
};

/// [warpgroup] Multiplies 64 rows of each tile of the block's and calls `finish(work, sums)`: for every work, or where K is split
/// in that block which comes last; in the others `pass()`. `last_word` is the warpgroup's own.
template <class Tile, class Wait, class Finish, class Pass>
FARWARP_DEVICE void multiply_role(const Tile& tile, int multiplier, const TileGrid& grid, Turns turns,
                                  const SplitSpace& space, Shared<std::uint32_t> last_word, const Wait& wait,
                                  const Finish& finish, const Pass& pass) {
  RingPosition<Tile::kStages> at;
  for (int number = turns.first; number < grid.works(); number += turns.stride) {
    const Work work = farwarp::tile::work_at(grid, number);
    static_assert(Tile::kBlocks == 1);
    float all[1][Tile::kSums];
    multiply_steps(tile, multiplier, work.steps.count, all, at, wait);
    const auto& sums = all[0];
    if constexpr (Tile::kColumns <= farwarp::tile::kMostSplitColumns) {
      if (grid.splits > 1) {
        float total[Tile::kSums];
        const SplitPart part{2 * work.tile + multiplier, work.split, thread_index() % 128, last_word};
        const auto meet = [&] { group_sync(1 + multiplier, 128); };
        if (sum_splits<128>(space, part, meet, sums, total)) {
          finish(work, total);
        } else {
          pass();
        }
        continue;
      }
    }
    finish(work, sums);
  }
}

}  // namespace farwarp::FARWARP_TARGET::tile
