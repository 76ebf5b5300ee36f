#pragma once

#include "farwarp/substrate/device.h"

namespace farwarp::FARWARP_TARGET {

FARWARP_DEVICE void mbarrier_init(Shared<Mbarrier> barrier, int arrivals) { emu::mbarrier_init(barrier.raw, arrivals); }
FARWARP_DEVICE void mbarrier_init_fence() { emu::mbarrier_init_fence(); }
FARWARP_DEVICE void mbarrier_arrive_expect(Shared<Mbarrier> barrier, int bytes) {
  emu::mbarrier_arrive_expect(barrier.raw, bytes);
}
FARWARP_DEVICE void mbarrier_arrive(Shared<Mbarrier> barrier) { emu::mbarrier_arrive_expect(barrier.raw, 0); }
FARWARP_DEVICE bool mbarrier_test(Shared<Mbarrier> barrier, std::uint32_t parity) {
  return emu::mbarrier_test(barrier.raw, parity);
}

template <Cache>
FARWARP_DEVICE void bulk_load(Shared<std::byte> destination, Global<const std::byte> source, int bytes,
                              Shared<Mbarrier> barrier) {
  emu::bulk_load(destination.raw, source.raw, bytes, barrier.raw);
}
FARWARP_DEVICE void bulk_store(Peer<std::byte> destination, Shared<const std::byte> source, int bytes) {
  emu::bulk_store(destination.raw, source.raw, bytes);
}
FARWARP_DEVICE void bulk_commit() { emu::bulk_commit(); }
template <int pending>
FARWARP_DEVICE void bulk_wait_read() {
  emu::bulk_wait_read(pending);
}
template <int pending>
FARWARP_DEVICE void bulk_wait_all() {
  emu::bulk_wait_all(pending);
}
FARWARP_DEVICE void proxy_fence() { emu::proxy_fence(); }

FARWARP_DEVICE void tensor_prefetch(const TensorMap&) {}
FARWARP_DEVICE void tensor_load(Shared<std::byte> destination, const TensorMap& map, int row, int column,
                                Shared<Mbarrier> barrier) {
  emu::tensor_load(destination.raw, map, {}, row, column, barrier.raw);
}
FARWARP_DEVICE void tensor_load(Shared<std::byte> destination, const TensorMap& map, GridIndex matrix, int row,
                                int column, Shared<Mbarrier> barrier) {
  emu::tensor_load(destination.raw, map, matrix, row, column, barrier.raw);
}
FARWARP_DEVICE void tensor_store(const TensorMap& map, int row, int column, Shared<const std::byte> source) {
  emu::tensor_store(map, row, column, source.raw);
}

}  // namespace farwarp::FARWARP_TARGET
