#include "farwarp/substrate/emu/tiles_test.h"

#include "farwarp/base/fragments.h"
#include "farwarp/base/swizzle.h"
#include "farwarp/substrate/device.h"
#include "farwarp/substrate/emu/litmus_test.h"

namespace farwarp::FARWARP_TARGET {

constexpr int kTileBytes = 64 * kSwizzleRowBytes;

FARWARP_DEVICE void wait_for(Shared<Mbarrier> barrier, std::uint32_t parity) {
  const void* const addresses[] = {barrier.raw};
  const std::uint64_t deadline = nanoseconds() + 100'000'000;
  for (std::uint32_t tries = 0; !mbarrier_test(barrier, parity) && nanoseconds() < deadline; ++tries)
    park(addresses, 1, deadline, tries);
}

/// The only stage; all steps use it.
struct Stage {
  Shared<std::byte> a, b, result;
  Shared<Mbarrier> full, empty;
};

FARWARP_DEVICE void load_tiles(const TileArgs& args, const Stage& stage) {
  for (int step = 0; step < args.steps; ++step) {
    wait_for(stage.empty, static_cast<std::uint32_t>(step + 1) & 1);
    mbarrier_arrive_expect(stage.full, args.variant == kTileFewBytes ? kTileBytes : 2 * kTileBytes);
    tensor_load(stage.a, args.a, args.row, 64 * step, stage.full);
    tensor_load(stage.b, args.b, args.column, 64 * step, stage.full);
  }
}

FARWARP_DEVICE void multiply_tiles(const TileArgs& args, const Stage& stage, float (&sums)[32]) {
  for (int step = 0; step < args.steps; ++step) {
    wait_for(stage.full, static_cast<std::uint32_t>(step) & 1);
    if (args.variant != kTileNoWgmmaFence) wgmma_fence();
    for (int k = 0; k < 64; k += 16) wgmma<Bf16, 64>(sums, stage.a, stage.b, k, step > 0 || k > 0);
    wgmma_commit();
    const bool last = step + 1 == args.steps;
    if (args.variant == kTileReadEarly && !last) {
      if (thread_index() % 32 == 0) mbarrier_arrive(stage.empty);
    } else if (!last) {
      wgmma_wait_read<0>();
      if (thread_index() % 32 == 0) mbarrier_arrive(stage.empty);
    }
  }
}

FARWARP_DEVICE void store_tile(const TileArgs& args, const Stage& stage, const float (&sums)[32]) {
  for (int i = 0; i < 32; i += 2) {
    const MatrixIndex at = wgmma_sum(thread_index() % 128, i);
    const std::uint32_t pair =
        static_cast<std::uint32_t>(round_to<Bf16>(sums[i + 1]).bits) << 16 | round_to<Bf16>(sums[i]).bits;
    store(Shared<std::uint32_t>(
              reinterpret_cast<std::uint32_t*>((stage.result + swizzled_offset(at.row, 2 * at.column)).raw)),
          pair);
  }
  if (args.variant != kTileNoProxyFence) proxy_fence();
  if (args.variant != kTileNoGroupSync) group_sync(3, 128);
  if (thread_index() % 128 != 0) return;
  tensor_store(args.out, args.out_row, args.out_column, stage.result);
  bulk_commit();
  bulk_wait_all();
}

FARWARP_KERNEL(litmus_tile, TileArgs, kTileThreads) {
  const Shared<std::byte> memory = block_shared();
  const Shared<Mbarrier> barriers(reinterpret_cast<Mbarrier*>((memory + 3 * kTileBytes).raw));
  const Stage stage{memory, memory + kTileBytes, memory + 2 * kTileBytes, barriers, barriers + 1};
  if (thread_index() == 0) {
    mbarrier_init(stage.full, 1);
    mbarrier_init(stage.empty, 4);
    mbarrier_init_fence();
  }
  block_sync();
  if (thread_index() == 0) load_tiles(args, stage);
  if (thread_index() < 128) return;
  float sums[32];
  multiply_tiles(args, stage, sums);
  if (args.variant == kTileNoWait) return;
  if (args.variant != kTileSumsEarly) wgmma_wait_all(sums);
  store_tile(args, stage, sums);
  if (args.variant == kTileSumsEarly) wgmma_wait_all(sums);
}

/// [block] Initialises `full` and starts the copies that complete its first phase.
FARWARP_DEVICE void copy_operands(const LitmusRsArgs& args, Shared<std::byte> q, Shared<std::byte> k,
                                  Shared<std::byte> v, Shared<Mbarrier> full) {
  if (thread_index() == 0) {
    mbarrier_init(full, 1);
    mbarrier_init_fence();
  }
  block_sync();
  if (thread_index() == 0) {
    const GridIndex matrix{args.matrix, args.matrix};
    mbarrier_arrive_expect(full, 4 * kRsPanelBytes);
    tensor_load(q, args.q, matrix, 0, 0, full);
    tensor_load(k, args.k, matrix, 0, 0, full);
    for (int panel = 0; panel < 2; ++panel) tensor_load(v + panel * kRsPanelBytes, args.v, matrix, 0, 64 * panel, full);
  }
}

FARWARP_KERNEL(litmus_rs, LitmusRsArgs, kTileThreads) {
  const Shared<std::byte> q = block_shared(), k = q + kRsPanelBytes, v = q + 2 * kRsPanelBytes;
  const Shared<Mbarrier> full(reinterpret_cast<Mbarrier*>((q + 4 * kRsPanelBytes).raw));
  const Shared<float> factor(reinterpret_cast<float*>((q + (4 * kRsPanelBytes + 64)).raw));
  copy_operands(args, q, k, v, full);
  if (thread_index() < 128) {
    if (args.variant == kRsArriveBefore) group_arrive(2, 256);
    if (thread_index() == 0) store(factor, 2.0f);
    if (args.variant != kRsArriveBefore) group_arrive(2, 256);
    return;
  }
  wait_for(full, 0);
  float scores[32], sums[64];
  wgmma_fence();
  for (int i = 0; i < 64; i += 16) wgmma<Bf16, 64>(scores, q, k, i, i > 0);
  wgmma_commit();
  wgmma_wait_sums<0>(scores);
  std::uint32_t a[4][4];
  for (int i = 0; i < 16; ++i) a[i / 4][i % 4] = round_pair<Bf16>(scores[2 * i], scores[2 * i + 1]);
  wgmma_fence();
  for (int i = 0; i < 4; ++i) {
    wgmma_rs<Bf16, 128>(sums, a[i], v, kRsPanelBytes, 16 * i, i > 0);
    if (i % 2 == 1) wgmma_commit();
  }
  if (args.variant == kRsWriteEarly) a[3][3] = 0x40004000;
  if (args.variant == kRsSumsEarly) {
    wgmma_wait_sums<1>(sums);
  } else {
    wgmma_wait_sums<0>(sums);
  }
  if (args.variant != kRsNoArrive) group_sync(2, 256);
  const float times = load(factor);
  for (int i = 0; i < 64; ++i) {
    const MatrixIndex at = wgmma_sum(thread_index() - 128, i);
    store(Global<float>(args.out + (at.row * 128 + at.column)), multiply(sums[i], times));
  }
  if (args.variant == kRsNoArrive) group_sync(2, 256);
  wgmma_wait_all(sums);
}

/// k * q^T, with k from shared memory or through the thread's registers.
FARWARP_DEVICE void multiply_keys(const LitmusRsArgs& args, Shared<std::byte> k, Shared<std::byte> q,
                                  float (&scores)[32]) {
  std::uint32_t a[4][4];
  for (int i = 0; i < 16; ++i) {
    const MatrixIndex at = wgmma_a(thread_index(), 2 * (i % 4));
    const int offset = swizzled_offset(at.row, 2 * (16 * (i / 4) + at.column));
    a[i / 4][i % 4] = load(Shared<std::uint32_t>(reinterpret_cast<std::uint32_t*>((k + offset).raw)));
  }
  wgmma_fence();
  for (int i = 0; i < 4; ++i) {
    if (args.variant == kMnFromRegisters) {
      wgmma_rs<Bf16, 64>(scores, a[i], q, 16 * i, i > 0);
    } else {
      wgmma<Bf16, 64>(scores, k, q, 16 * i, i > 0);
    }
  }
  wgmma_commit();
  wgmma_wait_all(scores);
}

FARWARP_KERNEL(litmus_mn, LitmusRsArgs, 128) {
  const Shared<std::byte> q = block_shared(), k = q + kRsPanelBytes, v = q + 2 * kRsPanelBytes;
  const Shared<Mbarrier> full(reinterpret_cast<Mbarrier*>((q + 4 * kRsPanelBytes).raw));
  copy_operands(args, q, k, v, full);
  wait_for(full, 0);
  float scores[32], sums[2][32];
  multiply_keys(args, k, q, scores);
  group_sync(1, 128);  // all warps have read q
  for (int i = 0; i < 32; ++i) {
    const MatrixIndex at = wgmma_sum(thread_index(), i);  // (key, row of q)
    store(Shared<std::uint16_t>(reinterpret_cast<std::uint16_t*>((q + swizzled_offset(at.column, 2 * at.row)).raw)),
          round_to<Bf16>(scores[i]).bits);
  }
  if (args.variant != kMnNoProxyFence) proxy_fence();
  group_sync(1, 128);
  wgmma_fence();
  for (int panel = 0; panel < 2; ++panel) {
    for (int i = 0; i < 64; i += 16) wgmma_mn<Bf16, 64>(sums[panel], v + panel * kRsPanelBytes, q, i, i > 0);
  }
  wgmma_commit();
  wgmma_wait_all(sums[0]);
  wgmma_wait_all(sums[1]);
  for (int i = 0; i < 64; ++i) {
    const MatrixIndex at = wgmma_sum(thread_index(), i % 32);
    store(Global<float>(args.out + (at.column * 128 + i / 32 * 64 + at.row)), 2 * sums[i / 32][i % 32]);
  }
}

FARWARP_KERNEL(litmus_cluster, LitmusArgs, 64) {
  const Shared<std::uint32_t> words(reinterpret_cast<std::uint32_t*>(block_shared().raw));
  const int me = cluster_rank(), thread = thread_index();
  if (args.variant != kNoBarrier) {
    cluster_arrive<Order::relaxed>();
    cluster_wait();
  }
  if (thread < kClusterBlocks) store_at(words + me, thread, static_cast<std::uint32_t>(10 * me + thread));
  if (args.variant == kNoRelease) {
    cluster_arrive<Order::relaxed>();
  } else {
    cluster_arrive<Order::release>();
  }
  if (args.variant != kNoWait) cluster_wait();
  if (thread < kClusterBlocks) {
    const Global<std::uint64_t> result(reinterpret_cast<std::uint64_t*>(args.memory[0] + kLitmusResult));
    store(result + (block_index() * kClusterBlocks + thread), std::uint64_t{load(words + thread)});
  }
  if (args.variant == kNoWait) cluster_wait();
}

}  // namespace farwarp::FARWARP_TARGET
