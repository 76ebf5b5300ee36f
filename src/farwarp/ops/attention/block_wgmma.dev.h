// A block's shared memory: rings of works' queries, of steps of keys and of values, and their barriers.
#pragma once

#include "farwarp/ops/attention/shape_wgmma.h"
#include "farwarp/tile/gemm/mainloop_wgmma.dev.h"

namespace farwarp::FARWARP_TARGET::attention {

using namespace farwarp::attention;

using Position = tile::RingPosition<kWgmmaStages>;

/// `head_dim`: 64, 128 or 256. `keys`: of a step. `warpgroups`: that attend.
template <class T, int head_dim, int keys, int warpgroups>
struct Block {
  using Element = T;
  static constexpr WgmmaShared kShared{head_dim, keys, warpgroups};
  static constexpr int kWarpgroups = warpgroups, kQueries = wgmma_queries(warpgroups);
  static constexpr int kAttendingThreads = 128 * warpgroups;
  static constexpr int kHeadDim = head_dim;
  static constexpr int kKeys = keys;
  static constexpr int kPanels = kShared.panels();
  static constexpr int kPanelBytes = kShared.panel_bytes();
  static constexpr int kStageBytes = kShared.stage_bytes();
  static constexpr int kQPanelBytes = kShared.q_panel_bytes(), kQBytes = kShared.q_bytes();
  static constexpr int kFirstKStage = kShared.k_stage(0), kFirstVStage = kShared.v_stage(0);
  static constexpr int kBarriers = kShared.barriers();
  static constexpr int kReadingWarps = 4 * warpgroups;
  static constexpr int kQStages = kShared.q_stages();
  using Ring = tile::Ring<kWgmmaStages>;
  using QRing = tile::Ring<kQStages>;
  using QPosition = tile::RingPosition<kQStages>;

  Shared<std::byte> memory;

  FARWARP_DEVICE Shared<std::byte> q(int stage, int panel, int warpgroup = 0) const {
    return memory + (stage * kQBytes + panel * kQPanelBytes + warpgroup * 64 * 128);
  }
  FARWARP_DEVICE Shared<std::byte> k(int stage, int panel) const {
    return memory + (kFirstKStage + stage * kStageBytes + panel * kPanelBytes);
  }
  FARWARP_DEVICE Shared<std::byte> v(int stage, int panel = 0) const {
    return memory + (kFirstVStage + stage * kStageBytes + panel * kPanelBytes);
  }
  FARWARP_DEVICE Ring k_ring() const { return Ring(memory + kBarriers); }
  FARWARP_DEVICE Ring v_ring() const { return Ring(memory + (kBarriers + Ring::kBytes)); }
  /// Guards stages of q and the numbers of their works.
  FARWARP_DEVICE QRing q_ring() const { return QRing(memory + (kBarriers + 2 * Ring::kBytes)); }
  /// The work whose queries are in a stage of q; negative: no more.
  FARWARP_DEVICE Shared<std::int32_t> number(int stage) const {
    return Shared<std::int32_t>(
        reinterpret_cast<std::int32_t*>((memory + (kBarriers + 2 * Ring::kBytes + QRing::kBytes + 4 * stage)).raw));
  }

  /// [thread] One thread calls it, before a block_sync().
  FARWARP_DEVICE void initialise() const {
    q_ring().initialise(kReadingWarps);
    k_ring().initialise(kReadingWarps);
    v_ring().initialise(kReadingWarps);
  }
};

}  // namespace farwarp::FARWARP_TARGET::attention
