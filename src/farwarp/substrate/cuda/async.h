// Bulk copies (the TMA unit without tensors), tensor copies and mbarriers. PTX ISA, "Data Movement and Conversion
// Instructions: Bulk copy" and "Parallel Synchronization: mbarrier".
#pragma once

#include "farwarp/substrate/cuda/memory.h"

namespace farwarp::FARWARP_TARGET {

FARWARP_DEVICE void mbarrier_init(Shared<Mbarrier> barrier, int arrivals) {
  const std::uint32_t address = ptx::shared_address(barrier.raw);
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(address), "r"(arrivals) : "memory");
}

FARWARP_DEVICE void mbarrier_init_fence() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }

FARWARP_DEVICE void mbarrier_arrive_expect(Shared<Mbarrier> barrier, int bytes) {
  const std::uint32_t address = ptx::shared_address(barrier.raw);
  asm volatile("mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 _, [%0], %1;" ::"r"(address), "r"(bytes)
               : "memory");
}

FARWARP_DEVICE void mbarrier_arrive(Shared<Mbarrier> barrier) {
  const std::uint32_t address = ptx::shared_address(barrier.raw);
  asm volatile("mbarrier.arrive.release.cta.shared::cta.b64 _, [%0];" ::"r"(address) : "memory");
}

// try_wait instead of test_wait: the hardware suspends the thread for a short, bounded time, and other warps get its
// issue slots.
FARWARP_DEVICE bool mbarrier_test(Shared<Mbarrier> barrier, std::uint32_t parity) {
  const std::uint32_t address = ptx::shared_address(barrier.raw);
  std::uint32_t done;
  asm volatile(
      "{\n\t"
      ".reg .pred done;\n\t"
      "mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 done, [%1], %2;\n\t"
      "selp.u32 %0, 1, 0, done;\n\t"
      "}"
      : "=r"(done)
      : "r"(address), "r"(parity)
      : "memory");
  return done != 0;
}

// PTX before 8.6 has only shared::cluster for the destination. An address of the own block is valid in that window.
template <Cache cache>
FARWARP_DEVICE void bulk_load(Shared<std::byte> destination, Global<const std::byte> source, int bytes,
                              Shared<Mbarrier> barrier) {
  static_assert(cache == Cache::normal || cache == Cache::streaming);
  const std::uint32_t to = ptx::shared_address(destination.raw);
  const std::uint64_t from = ptx::global_address(source.raw);
  const std::uint32_t completes = ptx::shared_address(barrier.raw);
  if constexpr (cache == Cache::streaming) {
    std::uint64_t evict_first;
    asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(evict_first));
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], %4;" ::
            "r"(to),
        "l"(from), "r"(bytes), "r"(completes), "l"(evict_first)
        : "memory");
  } else {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
                 "l"(from), "r"(bytes), "r"(completes)
                 : "memory");
  }
}

FARWARP_DEVICE void bulk_store(Peer<std::byte> destination, Shared<const std::byte> source, int bytes) {
  const std::uint64_t to = ptx::global_address(destination.raw);
  const std::uint32_t from = ptx::shared_address(source.raw);
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to), "r"(from), "r"(bytes)
               : "memory");
}

FARWARP_DEVICE void bulk_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
template <int pending>
FARWARP_DEVICE void bulk_wait_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(pending) : "memory");
}
template <int pending>
FARWARP_DEVICE void bulk_wait_all() {
  asm volatile("cp.async.bulk.wait_group %0;" ::"n"(pending) : "memory");
}

// One fence for each state space that copies read: bulk loads read global memory, bulk stores read shared memory. The
// two take 14 cycles on an H200. The form for all spaces takes 146, or 479 with 8 stores of the warp in flight, because
// ptxas puts a MEMBAR.GPU before it.
FARWARP_DEVICE void proxy_fence() {
  asm volatile("fence.proxy.async.shared::cta;\n\tfence.proxy.async.global;" ::: "memory");
}

FARWARP_DEVICE void tensor_prefetch(const TensorMap& map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

FARWARP_DEVICE void tensor_load(Shared<std::byte> destination, const TensorMap& map, int row, int column,
                                Shared<Mbarrier> barrier) {
  const std::uint32_t to = ptx::shared_address(destination.raw);
  const std::uint32_t completes = ptx::shared_address(barrier.raw);
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::
          "r"(to),
      "l"(&map), "r"(column), "r"(row), "r"(completes)
      : "memory");
}

FARWARP_DEVICE void tensor_load(Shared<std::byte> destination, const TensorMap& map, GridIndex matrix, int row,
                                int column, Shared<Mbarrier> barrier) {
  const std::uint32_t to = ptx::shared_address(destination.raw);
  const std::uint32_t completes = ptx::shared_address(barrier.raw);
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%2, %3, %4, %5}], [%6];" ::"r"(to),
      "l"(&map), "r"(column), "r"(row), "r"(matrix.i), "r"(matrix.j), "r"(completes)
      : "memory");
}

FARWARP_DEVICE void tensor_store(const TensorMap& map, int row, int column, Shared<const std::byte> source) {
  const std::uint32_t from = ptx::shared_address(source.raw);
  asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%1, %2}], [%3];" ::"l"(&map),
               "r"(column), "r"(row), "r"(from)
               : "memory");
}

}  // namespace farwarp::FARWARP_TARGET
