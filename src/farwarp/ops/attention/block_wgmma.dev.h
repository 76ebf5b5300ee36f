// A block's shared memory: the queries of a work, rings of steps of keys and of values, and their barriers.
#pragma once

#include "farwarp/ops/attention/shape_wgmma.h"
#include "farwarp/tile/gemm/mainloop_wgmma.dev.h"

namespace farwarp::FARWARP_TARGET::attention {

using namespace farwarp::attention;

using Position = tile::RingPosition<kWgmmaStages>;

/// `head_dim`: 64 or 128. `keys`: of a step.
template <class T, int head_dim, int keys>
struct Block {
  using Element = T;
  static constexpr WgmmaShared kShared{head_dim, keys};
  static constexpr int kHeadDim = head_dim;
  static constexpr int kKeys = keys;
  static constexpr int kPanels = kShared.panels();
  static constexpr int kPanelBytes = kShared.panel_bytes();
  static constexpr int kStageBytes = kShared.stage_bytes();
  static constexpr int kQPanelBytes = kShared.q_panel_bytes();
  static constexpr int kFirstKStage = kShared.k_stage(0), kFirstVStage = kShared.v_stage(0);
  static constexpr int kBarriers = kShared.barriers();
  static constexpr int kReadingWarps = 8;
  using Ring = tile::Ring<kWgmmaStages>;

  Shared<std::byte> memory;

  FARWARP_DEVICE Shared<std::byte> q(int panel, int warpgroup = 0) const {
    return memory + (panel * kQPanelBytes + warpgroup * 64 * 128);
  }
  FARWARP_DEVICE Shared<std::byte> k(int stage, int panel) const {
    return memory + (kFirstKStage + stage * kStageBytes + panel * kPanelBytes);
  }
  FARWARP_DEVICE Shared<std::byte> v(int stage, int panel = 0) const {
    return memory + (kFirstVStage + stage * kStageBytes + panel * kPanelBytes);
  }
  FARWARP_DEVICE Ring k_ring() const { return Ring(memory + kBarriers); }
  FARWARP_DEVICE Ring v_ring() const { return Ring(memory + (kBarriers + Ring::kBytes)); }
  /// Guard q and the number of its work. `empty`: all warps have read both.
  FARWARP_DEVICE Shared<Mbarrier> q_full() const { return barrier(0); }
  FARWARP_DEVICE Shared<Mbarrier> q_empty() const { return barrier(1); }
  /// The work whose queries are in q; negative: no more.
  FARWARP_DEVICE Shared<std::int32_t> number() const {
    return Shared<std::int32_t>(reinterpret_cast<std::int32_t*>(barrier(2).raw));
  }

  /// [thread] One thread calls it, before a block_sync().
  FARWARP_DEVICE void initialise() const {
    mbarrier_init(q_full(), 1);
    mbarrier_init(q_empty(), kReadingWarps);
    k_ring().initialise(kReadingWarps);
    v_ring().initialise(kReadingWarps);
  }

 private:
  FARWARP_DEVICE Shared<Mbarrier> barrier(int index) const {
    return Shared<Mbarrier>(reinterpret_cast<Mbarrier*>((memory + (kBarriers + 2 * Ring::kBytes + 8 * index)).raw));
  }
};

}  // namespace farwarp::FARWARP_TARGET::attention
