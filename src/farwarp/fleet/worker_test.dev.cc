// The kernels of worker_test.cc.
#include "farwarp/fleet/worker_test.h"

#include "farwarp/fleet/stream.dev.h"

namespace farwarp::FARWARP_TARGET::fleet {

template <int stages>
FARWARP_DEVICE void free_stages(const WorldView& view, const tile::Ring<stages>& ring, int count) {
  BlockWaits waits;
  tile::RingPosition<stages> position;
  for (int i = 0; i < count; ++i, position.advance()) {
    wait_mbarrier(waits, view, ring.full(position.stage), position.parity);
    mbarrier_arrive(ring.empty(position.stage));
  }
}

FARWARP_KERNEL(fleet_test_load_vector, LoaderTestArgs, kLoaderTestThreads) {
  const Shared<std::byte> memory = block_shared();
  const auto ring = vector_ring<kLoaderTestColumns>(memory);
  if (thread_index() == 0) ring.initialise(1);
  block_sync();
  if (thread_index() == 0) {
    const std::byte* const heap = args.view.heap[args.view.rank];
    VectorLoader<kLoaderTestColumns> loader(args.view, memory, StreamWorker{heap, args.data});
    const int loaded = loader.load(args.task) ? 1 : 0;
    loader.drain();
    store(Global<std::int32_t>(args.loaded), loaded);
  } else if (thread_index() == Target::kWarpSize) {
    free_stages(args.view, ring, args.freed);
  }
}

FARWARP_KERNEL(fleet_test_load_weights, LoaderTestArgs, kLoaderTestThreads) {
  const Shared<std::byte> memory = block_shared();
  const auto ring = weight_ring<kLoaderTestColumns>(memory);
  if (thread_index() == 0) ring.initialise(1);
  block_sync();
  if (thread_index() == 0) {
    WeightLoader<kLoaderTestColumns> loader(args.view, memory, Global<const std::byte>(args.data));
    const int loaded = loader.load(args.task) ? 1 : 0;
    loader.drain();
    store(Global<std::int32_t>(args.loaded), loaded);
  } else if (thread_index() == Target::kWarpSize) {
    free_stages(args.view, ring, args.freed);
  }
}

FARWARP_KERNEL(fleet_test_inverses, InversesTestArgs, kWorkerThreads) {
  constexpr int kColumns = kInversesTestColumns;
  using Layout = ProjectShared<kColumns, true>;
  const Shared<std::byte> memory = block_shared();
  const Call call{args.view, 0, 0, 0, 0, 0, true};
  const StreamWorker worker{args.view.heap[args.view.rank], args.vector};
  store_inverses<kColumns>(call, worker, Task{}, InputNorm{true, args.rows, args.epsilon}, memory);
  constexpr int kSums = kColumns * kTileRows;  // of a warp: of its tile of a unit
  const Shared<float> sums = SharedSums<kColumns>{memory}.floats(Layout::partials(0, warp_index() / kUnitTiles)) +
                             warp_index() % kUnitTiles * kSums;
  for (int i = lane_index(); i < kSums; i += Target::kWarpSize) store(sums + i, 1e30f);
  sync_warps();
  if (thread_index() < kColumns)
    store(Global<float>(args.inverses) + thread_index(), load(inverses<kColumns>(memory) + thread_index()));
}

}  // namespace farwarp::FARWARP_TARGET::fleet
