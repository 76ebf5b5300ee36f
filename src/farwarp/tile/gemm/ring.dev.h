// A ring of stages in shared memory between one thread that fills them by copies and warps that read them.
#pragma once

#include "farwarp/substrate/device.h"

namespace farwarp::FARWARP_TARGET::tile {

/// Counts through the stages; each side has its own.
template <int stages>
struct RingPosition {
  int stage = 0;
  std::uint32_t parity = 0;

  FARWARP_DEVICE void advance() {
    if (++stage < stages) return;
    stage = 0;
    parity ^= 1;
  }
  /// The same `count` times, at most `stages`.
  FARWARP_DEVICE void advance(int count) {
    stage += count;
    if (stage < stages) return;
    stage -= stages;
    parity ^= 1;
  }
};

/// `stages` pairs of mbarriers, 16 * stages bytes. full: the filling thread's arrival and the bytes of its copies, and an arrival of each
/// warp that fills beside it by stores. empty: one arrival of each reading warp.
template <int stages>
class Ring {
 public:
  static constexpr int kBytes = stages * 2 * static_cast<int>(sizeof(Mbarrier));

  FARWARP_DEVICE explicit Ring(Shared<std::byte> memory) : barriers_(reinterpret_cast<Mbarrier*>(memory.raw)) {}

  /// [thread] One thread; a block_sync() must follow before anybody else uses the ring.
  FARWARP_DEVICE void initialise(int readers, int fillers = 1) const {
    for (int stage = 0; stage < stages; ++stage) {
      mbarrier_init(full(stage), fillers);
      mbarrier_init(empty(stage), readers);
    }
    mbarrier_init_fence();
  }

  FARWARP_DEVICE Shared<Mbarrier> full(int stage) const { return barriers_ + stage; }
  FARWARP_DEVICE Shared<Mbarrier> empty(int stage) const { return barriers_ + stages + stage; }

 private:
  Shared<Mbarrier> barriers_;
};

}  // namespace farwarp::FARWARP_TARGET::tile
