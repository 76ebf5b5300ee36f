// The vocabulary of matrix units, defined in the files mma.h. Part of device.h, which includes it.
#pragma once

#include <cstdint>

#include "farwarp/base/attributes.h"
#include "farwarp/base/pointers.h"

namespace farwarp::FARWARP_TARGET {

// T is Half or Bf16, of wgmma() also Fp8; sums are fp32. base/fragments.h says which thread holds which elements.

// Only if Target::kMatrixUnit is kWgmma. A warpgroup is four consecutive warps; the number of the first is divisible by
// 4. All 128 threads call each [warpgroup] function together. The operands are K-major tiles in shared memory: rows of
// 128 bytes (64 elements; 128 of Fp8), swizzled, 1024-byte aligned. The async proxy reads them at any time between
// wgmma() and a wait that covers it.

/// [warpgroup] Orders register accesses. Call it before the first wgmma() and again after each wait.
FARWARP_DEVICE void wgmma_fence();
/// [warpgroup] The same before wgmma_rs() whose operands `a` were loaded as words of 8 or 16 bytes.
template <int count>
FARWARP_DEVICE void wgmma_fence_loaded(std::uint32_t (&a)[count][4]);
/// [thread] Loads `a` for wgmma_rs() into registers of 4 bytes, for which wgmma_fence() suffices.
FARWARP_DEVICE void load_operand(Shared<const Vec16> address, std::uint32_t (&a)[4]);
/// [warpgroup] sums[64 x columns] (+)= A[64 x 16] * B[columns x 16]^T, with the 16 columns of the tiles that begin at
/// element `k` of each row; k is 0, 16, 32 or 48. If `accumulate` is false, the old `sums` are ignored. Each thread's
/// `sums` are its fragment. They must not be read or written before a wait for sums.
/// With Fp8 it multiplies 32 columns, and k is 0, 32, 64 or 96. Then sums keep about 14 bits: cut_sum() in
/// base/fp8_sum.h. Add them to sums of your own every 128 of K, as DeepSeek-V3 (arXiv 2412.19437, section 3.3.2) does.
template <class T, int columns>
FARWARP_DEVICE void wgmma(float (&sums)[columns / 2], Shared<const std::byte> a, Shared<const std::byte> b, int k,
                          bool accumulate);
/// [warpgroup] As wgmma(), but A is MN-major: its 64 rows are the columns of the tile, k the tile's rows `k` to `k` +
/// 15.
template <class T, int columns>
FARWARP_DEVICE void wgmma_mn(float (&sums)[columns / 2], Shared<const std::byte> a, Shared<const std::byte> b, int k,
                             bool accumulate);
/// [warpgroup] As wgmma(), but A is in registers: `a` is the thread's fragment (wgmma_a()). It must not be written
/// before a wait that covers the call.
template <class T, int columns>
FARWARP_DEVICE void wgmma_rs(float (&sums)[columns / 2], const std::uint32_t (&a)[4], Shared<const std::byte> b, int k,
                             bool accumulate);
/// [warpgroup] As the other wgmma_rs(), but B is MN-major: rows `k` to `k` + 15 of swizzled tiles of 64 columns in
/// shared memory, which follow each other at distances of `panel_bytes` and are 1024-byte aligned. `k` is a multiple of
/// 16.
template <class T, int columns>
FARWARP_DEVICE void wgmma_rs(float (&sums)[columns / 2], const std::uint32_t (&a)[4], Shared<const std::byte> b,
                             int panel_bytes, int k, bool accumulate);
/// [warpgroup] Makes a group of the wgmma() calls since the last commit.
FARWARP_DEVICE void wgmma_commit();
/// [warpgroup] Waits until all committed groups but the newest `pending` have *read their operands*. Their shared
/// memory may be reused when all four warps have returned from this wait. Their sums must not be accessed yet.
template <int pending>
FARWARP_DEVICE void wgmma_wait_read();
/// [warpgroup] Waits until all committed groups but the newest `pending` are complete. `sums` must be the accumulators
/// of one of the complete groups, and of none that is pending; they may then be read and written. Their operands may be
/// reused, as after wgmma_wait_read().
template <int pending, int count>
FARWARP_DEVICE void wgmma_wait_sums(float (&sums)[count]);
/// [warpgroup] Waits until all committed groups are complete. `sums` must be the accumulators of all these groups; they
/// may then be read and written.
template <int count>
FARWARP_DEVICE void wgmma_wait_all(float (&sums)[count]);
/// [warpgroup] Sets the number of registers of each thread of the warpgroup; `count` is a multiple of 8.
/// raise_registers() blocks until other warpgroups of the block have given up enough registers with lower_registers().
template <int count>
FARWARP_DEVICE void lower_registers();
template <int count>
FARWARP_DEVICE void raise_registers();

/// [warp] sums[16 x 8] += A[16 x 16] * B[8 x 16]^T. Each thread gives four consecutive elements of two rows of A (`a`)
/// and of a row of B (`b`):
/// mma_operand(), mma_sum(). Needs no fence and no wait.
template <class T>
FARWARP_DEVICE void mma(float (&sums)[4], const std::uint64_t (&a)[2], std::uint64_t b);

// Only if Target::kMatrixUnit is kMfma.

/// [warp] sums[16 x 16] += A[16 x 16] * B[16 x 16]^T. Each thread gives four consecutive elements of a row of A (`a`)
/// and of B (`b`).
template <class T>
FARWARP_DEVICE void mfma(float (&sums)[4], std::uint64_t a, std::uint64_t b);
/// [warp] sums[16 x 16] += A[16 x 32] * B[16 x 32]^T. Each thread gives eight elements of a row of A and the same eight
/// of B. One instruction on gfx950, two on gfx942.
template <class T>
FARWARP_DEVICE void mfma(float (&sums)[4], Vec16 a, Vec16 b);
/// [warp] The same two. MfmaSums are four floats, indexed 0 to 3, that the compiler keeps in consecutive registers all
/// the time. With arrays it copies sums that several loops accumulate.
template <class T>
FARWARP_DEVICE void mfma(MfmaSums& sums, std::uint64_t a, std::uint64_t b);
template <class T>
FARWARP_DEVICE void mfma(MfmaSums& sums, Vec16 a, Vec16 b);
/// [warp] sums[32 x 32] += A[32 x 16] * B[32 x 16]^T. Each thread gives eight consecutive elements of a row of A (`a`)
/// and of B (`b`): mfma32_operand(), mfma32_sum(). One instruction on gfx950, two on gfx942. Per multiplication it
/// takes as long as mfma(), with half of the instructions, and on gfx950 half as long.
template <class T>
FARWARP_DEVICE void mfma32(Mfma32Sums& sums, Vec16 a, Vec16 b);

}  // namespace farwarp::FARWARP_TARGET
