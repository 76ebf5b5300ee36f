// A ring of stages in shared memory: a loader fills them by asynchronous copies or stores, other warps use and free
// them. Only if Target::kHasBulkCopy.
//
//   loader   wait empty[s] (parity ^ 1: the first round does not wait) -> expect bytes, start copies -> full[s]
//   reader   wait full[s] -> use the stage -> arrive at empty[s]
#pragma once

#include "farwarp/substrate/device.h"

namespace farwarp::FARWARP_TARGET::tile {

/// A position in the ring. The loader and each multiplier have their own.
template <int stages>
struct RingPosition {
  int stage = 0;
  std::uint32_t parity = 0;

  FARWARP_DEVICE void advance() {
    if (++stage < stages) return;
    stage = 0;
    parity ^= 1;
  }
  /// Advances `count` times; `count` is at most `stages`.
  FARWARP_DEVICE void advance(int count) {
    stage += count;
    if (stage < stages) return;
    stage -= stages;
    parity ^= 1;
  }
};

/// `stages` pairs of mbarriers, 16 * stages bytes. `full` waits for the arrival of the thread that starts the copies,
/// for the bytes of those copies, and for one arrival of each warp that also fills the stage, by stores. `empty` waits
/// for as many arrivals as initialise() is told, mostly one of each reading warp.
template <int stages>
class Ring {
 public:
  static constexpr int kBytes = stages * 2 * static_cast<int>(sizeof(Mbarrier));

  FARWARP_DEVICE explicit Ring(Shared<std::byte> memory) : barriers_(reinterpret_cast<Mbarrier*>(memory.raw)) {}

  /// [thread] One thread calls it. A block_sync() must follow before any other thread uses the ring. `readers`:
  /// arrivals at `empty`; `fillers`: arrivals at `full`.
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
