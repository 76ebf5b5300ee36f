// The kernels of worker_test.cc.
#include "farwarp/fleet/worker_test.h"

#include "farwarp/fleet/multiply_wgmma.dev.h"

namespace farwarp::FARWARP_TARGET::fleet {

template <int slots>
FARWARP_DEVICE void free_slots(const WorldView& view, const tile::Ring<slots>& ring, int count) {
  BlockWaits waits;
  tile::RingPosition<slots> position;
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
    VectorLoader<kLoaderTestColumns> loader(args.view, memory, {args.data});
    const int loaded = loader.load(args.task, false) ? 1 : 0;
    loader.drain();
    store(Global<std::int32_t>(args.loaded), loaded);
  } else if (thread_index() == Target::kWarpSize) {
    free_slots(args.view, ring, args.freed);
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
    free_slots(args.view, ring, args.freed);
  }
}

FARWARP_KERNEL(fleet_test_squares, SquaresTestArgs, kSquaresTestThreads) {
  constexpr int kColumns = kSquaresTestColumns;
  const Shared<std::byte> slots = block_shared(), memory = slots + ring_bytes(kColumns, true);
  if (thread_index() == 0) {
    weight_ring<kColumns>(slots).initialise(kWarps);
    vector_ring<kColumns>(memory).initialise(kWarps / 2);
  }
  block_sync();
  const Worker<kColumns> worker{block_index(), {args.vector}};
  if (thread_index() < kComputingThreads) {
    Call call{args.view, 0, 0, 0, 0, 0, true};
    WeightReader<kColumns> weights(args.view, slots, {}, worker);
    WgmmaMultiplier<kColumns> multiplier(memory, weights);
    WgmmaMultiplier<kColumns>::PortionSums sums[WgmmaMultiplier<kColumns>::kPortions] = {};
    const InputNorm norm{true, args.task.matrix.slices * kSliceDepth, args.epsilon};
    multiplier.begin_task(worker, args.task, norm);
    multiplier.multiply(call, worker, args.task, 0, 0, sums);
    sync_warps();
    if (thread_index() < kColumns)
      store(Global<float>(args.inverses) + thread_index(),
            inverse_root_of_column<kColumns>(memory, norm, thread_index()));
  } else if (thread_index() == kComputingThreads) {
    VectorLoader<kColumns> loader(args.view, memory, worker.buffers);
    loader.load(args.task, true);
    loader.drain();
  } else if (thread_index() == kComputingThreads + Target::kWarpSize) {
    WeightLoader<kColumns> loader(args.view, slots, Global<const std::byte>(args.weights));
    loader.load_pairs(args.task);
    loader.drain();
  }
}

}  // namespace farwarp::FARWARP_TARGET::fleet
