#include "farwarp/substrate/fp8_products_test.h"

#include "farwarp/base/fragments.h"
#include "farwarp/base/swizzle.h"
#include "farwarp/substrate/device.h"

namespace farwarp::FARWARP_TARGET {

/// [block] Row `thread` of A, or of B in the threads after the first 64.
FARWARP_DEVICE void store_row(const Fp8ProductsArgs& args, Shared<std::byte> a, Shared<std::byte> b) {
  const int row = thread_index() % kFp8TestRows;
  const bool of_a = thread_index() < kFp8TestRows;
  const std::uint8_t* const from = (of_a ? args.a : args.b) + row * kFp8TestDepth;
  for (int byte = 0; byte < kFp8TestDepth; byte += 16) {
    const Vec16 value = load(Global<const Vec16>(reinterpret_cast<const Vec16*>(from + byte)));
    const Shared<std::byte> to = (of_a ? a : b) + swizzled_offset(row, byte);
    store(Shared<Vec16>(reinterpret_cast<Vec16*>(to.raw)), value);
  }
}

FARWARP_KERNEL(fp8_products, Fp8ProductsArgs, 128) {
  const Shared<std::byte> a = block_shared(), b = a + kFp8TestRows * kFp8TestDepth;
  store_row(args, a, b);
  proxy_fence();
  block_sync();
  float sums[32];
  for (int i = 0; i < 32; ++i) {
    const MatrixIndex at = wgmma_sum(thread_index(), i);
    sums[i] = load(Global<const float>(args.sums + at.row * kFp8TestRows + at.column));
  }
  wgmma_fence();
  for (int k = args.first_k; k <= args.last_k; k += 32) wgmma<Fp8, 64>(sums, a, b, k, true);
  wgmma_commit();
  wgmma_wait_all(sums);
  for (int i = 0; i < 32; ++i) {
    const MatrixIndex at = wgmma_sum(thread_index(), i);
    store(Global<float>(args.sums + at.row * kFp8TestRows + at.column), sums[i]);
  }
}

}  // namespace farwarp::FARWARP_TARGET
