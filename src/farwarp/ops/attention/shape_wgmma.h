// The tile of the Hopper kernels and where it lies in shared memory.
#pragma once

namespace farwarp::attention {

inline constexpr int kWgmmaStages = 2;  ///< of keys and of values; of queries if they fit

/// Threads of a block: a warpgroup that loads, and those that attend.
constexpr int wgmma_threads(int warpgroups) { return 128 * (1 + warpgroups); }
/// Rows of q of a block: 64 for each attending warpgroup.
constexpr int wgmma_queries(int warpgroups) { return 64 * warpgroups; }

/// Every operand is stored in panels of 64 columns: rows of 128 swizzled bytes.
struct WgmmaShared {
  int head_dim;    ///< 64, 128 or 256: the columns that are computed
  int keys;        ///< of a step
  int warpgroups;  ///< that attend

  static constexpr int kLimit = 227 * 1024;
  static constexpr int kBarriers = 256;  ///< bytes: mbarriers and the works' numbers
  constexpr int panels() const { return head_dim / 64; }
  constexpr int q_panel_bytes() const { return wgmma_queries(warpgroups) * 128; }
  constexpr int panel_bytes() const { return keys * 128; }              ///< of keys, and of values
  constexpr int q_bytes() const { return panels() * q_panel_bytes(); }  ///< of a stage
  constexpr int stage_bytes() const { return panels() * panel_bytes(); }
  constexpr int q_stages() const {
    return 2 * q_bytes() + 2 * kWgmmaStages * stage_bytes() + kBarriers <= kLimit ? 2 : 1;
  }
  constexpr int k_stage(int number) const { return q_stages() * q_bytes() + number * stage_bytes(); }
  constexpr int v_stage(int number) const { return k_stage(kWgmmaStages + number); }
  constexpr int barriers() const { return k_stage(2 * kWgmmaStages); }
  constexpr int total() const { return barriers() + kBarriers; }
};

}  // namespace farwarp::attention
