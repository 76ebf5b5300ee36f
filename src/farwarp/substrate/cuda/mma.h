// Warpgroup matrix multiply. PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions".
#pragma once

#include <utility>

#include "farwarp/base/fp8.h"
#include "farwarp/substrate/cuda/memory.h"

namespace farwarp::FARWARP_TARGET {

namespace ptx {

/// PTX ISA, "Matrix Descriptor". Bits 0-13: the address; 16-29: the leading offset (unused by swizzled K-major tiles);
/// 32-45: the distance from 8 rows to the next 8; all in units of 16 bytes. Bits 62-63: the swizzle, 1 for 128 bytes.
FARWARP_DEVICE std::uint64_t matrix_descriptor(Shared<const std::byte> tile, int byte) {
  constexpr std::uint64_t kLayout = std::uint64_t{1} << 62 | std::uint64_t{1024 / 16} << 32 | std::uint64_t{1} << 16;
  return kLayout | ((shared_address(tile.raw) >> 4) + static_cast<std::uint32_t>(byte) / 16);
}

/// Of a tile whose rows are k. Bits 16-29: the distance from 64 columns to the next 64; 32-45: from 8 rows to the next
/// 8.
FARWARP_DEVICE std::uint64_t matrix_descriptor_rows(Shared<const std::byte> tile, int panel_bytes, int k) {
  constexpr std::uint64_t kLayout = std::uint64_t{1} << 62 | std::uint64_t{1024 / 16} << 32;
  const auto address = (shared_address(tile.raw) >> 4) + static_cast<std::uint32_t>(k) * 128 / 16;
  return kLayout | static_cast<std::uint64_t>(panel_bytes / 16) << 16 | address;
}

/// One specialisation for each number of columns, because the register list is part of the instruction's text.
template <class T, int columns>
struct Wgmma;
template <class T, int columns>
struct WgmmaMn;
template <class T, int columns>
struct WgmmaRs;
template <class T, int columns>
struct WgmmaRsRows;

// clang-format off
#define FARWARP_TEN(t) \
  "%" #t "0, %" #t "1, %" #t "2, %" #t "3, %" #t "4, %" #t "5, %" #t "6, %" #t "7, %" #t "8, %" #t "9, "
#define FARWARP_LIST_4 "%0, %1, %2, %3"
#define FARWARP_LIST_8 "%0, %1, %2, %3, %4, %5, %6, %7"
#define FARWARP_LIST_16 FARWARP_TEN() "%10, %11, %12, %13, %14, %15"
#define FARWARP_LIST_24 FARWARP_TEN() FARWARP_TEN(1) "%20, %21, %22, %23"
#define FARWARP_LIST_32 FARWARP_TEN() FARWARP_TEN(1) FARWARP_TEN(2) "%30, %31"
#define FARWARP_LIST_40 FARWARP_TEN() FARWARP_TEN(1) FARWARP_TEN(2) \
  "%30, %31, %32, %33, %34, %35, %36, %37, %38, %39"
#define FARWARP_LIST_48 FARWARP_TEN() FARWARP_TEN(1) FARWARP_TEN(2) FARWARP_TEN(3) \
  "%40, %41, %42, %43, %44, %45, %46, %47"
#define FARWARP_FIRST_50 FARWARP_TEN() FARWARP_TEN(1) FARWARP_TEN(2) FARWARP_TEN(3) FARWARP_TEN(4)
#define FARWARP_LIST_52 FARWARP_FIRST_50 "%50, %51"
#define FARWARP_LIST_56 FARWARP_FIRST_50 "%50, %51, %52, %53, %54, %55"
#define FARWARP_LIST_64 FARWARP_TEN() FARWARP_TEN(1) FARWARP_TEN(2) FARWARP_TEN(3) FARWARP_TEN(4) FARWARP_TEN(5) \
  "%60, %61, %62, %63"
#define FARWARP_LIST_76 FARWARP_FIRST_50 FARWARP_TEN(5) FARWARP_TEN(6) "%70, %71, %72, %73, %74, %75"
#define FARWARP_FIRST_80 FARWARP_TEN() FARWARP_TEN(1) FARWARP_TEN(2) FARWARP_TEN(3) FARWARP_TEN(4) FARWARP_TEN(5) \
  FARWARP_TEN(6) FARWARP_TEN(7)
#define FARWARP_LIST_80 FARWARP_TEN() FARWARP_TEN(1) FARWARP_TEN(2) FARWARP_TEN(3) FARWARP_TEN(4) FARWARP_TEN(5) \
  FARWARP_TEN(6) "%70, %71, %72, %73, %74, %75, %76, %77, %78, %79"
#define FARWARP_LIST_88 FARWARP_FIRST_80 "%80, %81, %82, %83, %84, %85, %86, %87"
#define FARWARP_LIST_96 FARWARP_FIRST_80 FARWARP_TEN(8) "%90, %91, %92, %93, %94, %95"
#define FARWARP_LIST_112 FARWARP_FIRST_80 FARWARP_TEN(8) FARWARP_TEN(9) FARWARP_TEN(10) "%110, %111"
#define FARWARP_LIST_128 FARWARP_FIRST_80 FARWARP_TEN(8) FARWARP_TEN(9) FARWARP_TEN(10) FARWARP_TEN(11) \
  "%120, %121, %122, %123, %124, %125, %126, %127"
#define FARWARP_SUMS_4(d, i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define FARWARP_SUMS_8(d, i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), \
  "+f"(d[i + 5]), "+f"(d[i + 6]), "+f"(d[i + 7])
#define FARWARP_SUMS_16(d, i) FARWARP_SUMS_8(d, i), FARWARP_SUMS_8(d, i + 8)
#define FARWARP_SUMS_24(d, i) FARWARP_SUMS_16(d, i), FARWARP_SUMS_8(d, i + 16)
#define FARWARP_SUMS_32(d, i) FARWARP_SUMS_16(d, i), FARWARP_SUMS_16(d, i + 16)
#define FARWARP_SUMS_40(d, i) FARWARP_SUMS_32(d, i), FARWARP_SUMS_8(d, i + 32)
#define FARWARP_SUMS_48(d, i) FARWARP_SUMS_32(d, i), FARWARP_SUMS_16(d, i + 32)
#define FARWARP_SUMS_52(d, i) FARWARP_SUMS_48(d, i), FARWARP_SUMS_4(d, i + 48)
#define FARWARP_SUMS_56(d, i) FARWARP_SUMS_48(d, i), FARWARP_SUMS_8(d, i + 48)
#define FARWARP_SUMS_64(d, i) FARWARP_SUMS_32(d, i), FARWARP_SUMS_32(d, i + 32)
#define FARWARP_SUMS_76(d, i) FARWARP_SUMS_64(d, i), FARWARP_SUMS_8(d, i + 64), FARWARP_SUMS_4(d, i + 72)
#define FARWARP_SUMS_80(d, i) FARWARP_SUMS_64(d, i), FARWARP_SUMS_16(d, i + 64)
#define FARWARP_SUMS_88(d, i) FARWARP_SUMS_80(d, i), FARWARP_SUMS_8(d, i + 80)
#define FARWARP_SUMS_96(d, i) FARWARP_SUMS_64(d, i), FARWARP_SUMS_32(d, i + 64)
#define FARWARP_SUMS_112(d, i) FARWARP_SUMS_96(d, i), FARWARP_SUMS_16(d, i + 96)
#define FARWARP_SUMS_128(d, i) FARWARP_SUMS_64(d, i), FARWARP_SUMS_64(d, i + 64)

// The operands after the sums are descriptor A, descriptor B and whether to accumulate. Then come constants: 1, 1 (A
// and B are not negated) and two of `majors`: 0 if the tile is K-major, 1 if it is MN-major.
#define FARWARP_WGMMA(name, majors, T, type, columns, sums, a_number, b_number, accumulate_number)                     \
  template <>                                                                                                          \
  struct name<T, columns> {                                                                                            \
    static FARWARP_DEVICE void run(float (&d)[sums], std::uint64_t a, std::uint64_t b, std::uint32_t accumulate) {     \
      asm volatile("{\n\t.reg .pred accumulate;\n\tsetp.ne.b32 accumulate, %" #accumulate_number ", 0;\n\t"            \
                   "wgmma.mma_async.sync.aligned.m64n" #columns "k16.f32." type "." type " {" FARWARP_LIST_##sums      \
                   "}, %" #a_number ", %" #b_number ", accumulate, 1, 1, " majors ";\n\t}"                             \
                   : FARWARP_SUMS_##sums(d, 0) : "l"(a), "l"(b), "r"(accumulate));                                     \
    }                                                                                                                  \
  };
#define FARWARP_WGMMA_BOTH(columns, sums, a_number, b_number, accumulate_number)                                       \
  FARWARP_WGMMA(Wgmma, "0, 0", Half, "f16", columns, sums, a_number, b_number, accumulate_number)            \
  FARWARP_WGMMA(Wgmma, "0, 0", Bf16, "bf16", columns, sums, a_number, b_number, accumulate_number)
#define FARWARP_WGMMA_MN_BOTH(columns, sums, a_number, b_number, accumulate_number)                                    \
  FARWARP_WGMMA(WgmmaMn, "1, 0", Half, "f16", columns, sums, a_number, b_number, accumulate_number)          \
  FARWARP_WGMMA(WgmmaMn, "1, 0", Bf16, "bf16", columns, sums, a_number, b_number, accumulate_number)
FARWARP_WGMMA_BOTH(8, 4, 4, 5, 6)
FARWARP_WGMMA_BOTH(16, 8, 8, 9, 10)
FARWARP_WGMMA_BOTH(32, 16, 16, 17, 18)
FARWARP_WGMMA_BOTH(48, 24, 24, 25, 26)
FARWARP_WGMMA_BOTH(64, 32, 32, 33, 34)
FARWARP_WGMMA_BOTH(80, 40, 40, 41, 42)
FARWARP_WGMMA_BOTH(96, 48, 48, 49, 50)
FARWARP_WGMMA_BOTH(104, 52, 52, 53, 54)
FARWARP_WGMMA_BOTH(112, 56, 56, 57, 58)
FARWARP_WGMMA_BOTH(128, 64, 64, 65, 66)
FARWARP_WGMMA_BOTH(152, 76, 76, 77, 78)
FARWARP_WGMMA_BOTH(160, 80, 80, 81, 82)
FARWARP_WGMMA_BOTH(176, 88, 88, 89, 90)
FARWARP_WGMMA_BOTH(192, 96, 96, 97, 98)
FARWARP_WGMMA_BOTH(224, 112, 112, 113, 114)
FARWARP_WGMMA_BOTH(256, 128, 128, 129, 130)
FARWARP_WGMMA_MN_BOTH(8, 4, 4, 5, 6)
FARWARP_WGMMA_MN_BOTH(16, 8, 8, 9, 10)
FARWARP_WGMMA_MN_BOTH(64, 32, 32, 33, 34)
// Of fp8 both tiles are K-major: there are no majors.
#define FARWARP_WGMMA_FP8(columns, sums, a_number, b_number, accumulate_number)                                        \
  template <>                                                                                                          \
  struct Wgmma<Fp8, columns> {                                                                                         \
    static FARWARP_DEVICE void run(float (&d)[sums], std::uint64_t a, std::uint64_t b, std::uint32_t accumulate) {     \
      asm volatile("{\n\t.reg .pred accumulate;\n\tsetp.ne.b32 accumulate, %" #accumulate_number ", 0;\n\t"            \
                   "wgmma.mma_async.sync.aligned.m64n" #columns "k32.f32.e4m3.e4m3 {" FARWARP_LIST_##sums              \
                   "}, %" #a_number ", %" #b_number ", accumulate, 1, 1;\n\t}"                                         \
                   : FARWARP_SUMS_##sums(d, 0) : "l"(a), "l"(b), "r"(accumulate));                                     \
    }                                                                                                                  \
  };
FARWARP_WGMMA_FP8(64, 32, 32, 33, 34)
FARWARP_WGMMA_FP8(128, 64, 64, 65, 66)
// After the sums: four words of A, descriptor B, whether to accumulate; 1, 1 as above; `major` of B.
#define FARWARP_WGMMA_RS(name, major, T, type, columns, sums, a0, a1, a2, a3, b_number, accumulate_number)             \
  template <>                                                                                                          \
  struct name<T, columns> {                                                                                            \
    static FARWARP_DEVICE void run(float (&d)[sums], const std::uint32_t (&a)[4], std::uint64_t b,                     \
                                   std::uint32_t accumulate) {                                                         \
      asm volatile("{\n\t.reg .pred accumulate;\n\tsetp.ne.b32 accumulate, %" #accumulate_number ", 0;\n\t"            \
                   "wgmma.mma_async.sync.aligned.m64n" #columns "k16.f32." type "." type " {" FARWARP_LIST_##sums      \
                   "}, {%" #a0 ", %" #a1 ", %" #a2 ", %" #a3 "}, %" #b_number ", accumulate, 1, 1, " major ";\n\t}"    \
                   : FARWARP_SUMS_##sums(d, 0)                                                                         \
                   : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate));                             \
    }                                                                                                                  \
  };
#define FARWARP_WGMMA_RS_BOTH(name, major, columns, sums, a0, a1, a2, a3, b_number, accumulate_number)               \
  FARWARP_WGMMA_RS(name, major, Half, "f16", columns, sums, a0, a1, a2, a3, b_number, accumulate_number)             \
  FARWARP_WGMMA_RS(name, major, Bf16, "bf16", columns, sums, a0, a1, a2, a3, b_number, accumulate_number)
FARWARP_WGMMA_RS_BOTH(WgmmaRs, "0", 8, 4, 4, 5, 6, 7, 8, 9)
FARWARP_WGMMA_RS_BOTH(WgmmaRs, "0", 16, 8, 8, 9, 10, 11, 12, 13)
FARWARP_WGMMA_RS_BOTH(WgmmaRs, "0", 32, 16, 16, 17, 18, 19, 20, 21)
FARWARP_WGMMA_RS_BOTH(WgmmaRs, "0", 64, 32, 32, 33, 34, 35, 36, 37)
FARWARP_WGMMA_RS_BOTH(WgmmaRsRows, "1", 64, 32, 32, 33, 34, 35, 36, 37)
FARWARP_WGMMA_RS_BOTH(WgmmaRsRows, "1", 128, 64, 64, 65, 66, 67, 68, 69)
FARWARP_WGMMA_RS_BOTH(WgmmaRsRows, "1", 256, 128, 128, 129, 130, 131, 132, 133)
#undef FARWARP_WGMMA_FP8
#undef FARWARP_WGMMA_RS_BOTH
#undef FARWARP_WGMMA_RS
#undef FARWARP_WGMMA_MN_BOTH
#undef FARWARP_WGMMA_BOTH
#undef FARWARP_WGMMA
#undef FARWARP_TEN
#undef FARWARP_FIRST_50
#undef FARWARP_FIRST_80
#undef FARWARP_LIST_4
#undef FARWARP_LIST_8
#undef FARWARP_LIST_16
#undef FARWARP_LIST_24
#undef FARWARP_LIST_32
#undef FARWARP_LIST_48
#undef FARWARP_LIST_64
#undef FARWARP_LIST_80
#undef FARWARP_LIST_88
#undef FARWARP_LIST_96
#undef FARWARP_LIST_40
#undef FARWARP_LIST_52
#undef FARWARP_LIST_56
#undef FARWARP_LIST_76
#undef FARWARP_LIST_112
#undef FARWARP_LIST_128
#undef FARWARP_SUMS_4
#undef FARWARP_SUMS_8
#undef FARWARP_SUMS_16
#undef FARWARP_SUMS_24
#undef FARWARP_SUMS_32
#undef FARWARP_SUMS_48
#undef FARWARP_SUMS_64
#undef FARWARP_SUMS_80
#undef FARWARP_SUMS_88
#undef FARWARP_SUMS_96
#undef FARWARP_SUMS_40
#undef FARWARP_SUMS_52
#undef FARWARP_SUMS_56
#undef FARWARP_SUMS_76
#undef FARWARP_SUMS_112
#undef FARWARP_SUMS_128
// clang-format on

}  // namespace ptx

FARWARP_DEVICE void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }

// ptxas 13.0 takes the lower half of a 64-bit register for both words of `a` that are loaded with it. After a
// permutation that changes nothing it no longer knows where the words come from.
template <int count>
FARWARP_DEVICE void wgmma_fence_loaded(std::uint32_t (&a)[count][4]) {
#pragma unroll
  for (int i = 0; i < count; ++i) {
#pragma unroll
    for (int word = 0; word < 4; ++word) asm volatile("prmt.b32 %0, %0, %0, 0x3210;" : "+r"(a[i][word]));
  }
  wgmma_fence();
}
FARWARP_DEVICE void load_operand(Shared<const Vec16> address, std::uint32_t (&a)[4]) {
  asm volatile("ld.weak.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(a[0]), "=r"(a[1]), "=r"(a[2]), "=r"(a[3])
               : "r"(ptx::shared_address(address.raw)));
}

template <class T, int columns>
FARWARP_DEVICE void wgmma(float (&sums)[columns / 2], Shared<const std::byte> a, Shared<const std::byte> b, int k,
                          bool accumulate) {
  constexpr int kBytes = sizeof(T);
  ptx::Wgmma<T, columns>::run(sums, ptx::matrix_descriptor(a, k * kBytes), ptx::matrix_descriptor(b, k * kBytes),
                              accumulate);
}

template <class T, int columns>
FARWARP_DEVICE void wgmma_mn(float (&sums)[columns / 2], Shared<const std::byte> a, Shared<const std::byte> b, int k,
                             bool accumulate) {
  // One panel has all 64 rows of A, so the distance to the next is not used.
  ptx::WgmmaMn<T, columns>::run(sums, ptx::matrix_descriptor_rows(a, 0, k), ptx::matrix_descriptor(b, k * 2),
                                accumulate);
}

template <class T, int columns>
FARWARP_DEVICE void wgmma_rs(float (&sums)[columns / 2], const std::uint32_t (&a)[4], Shared<const std::byte> b, int k,
                             bool accumulate) {
  ptx::WgmmaRs<T, columns>::run(sums, a, ptx::matrix_descriptor(b, k * 2), accumulate);
}

template <class T, int columns>
FARWARP_DEVICE void wgmma_rs(float (&sums)[columns / 2], const std::uint32_t (&a)[4], Shared<const std::byte> b,
                             int panel_bytes, int k, bool accumulate) {
  ptx::WgmmaRsRows<T, columns>::run(sums, a, ptx::matrix_descriptor_rows(b, panel_bytes, k), accumulate);
}

FARWARP_DEVICE void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

template <int pending>
FARWARP_DEVICE void wgmma_wait_read() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(pending) : "memory");
}

// The empty asm makes the sums depend on the wait. For the compiler they are ready when wgmma() returns, so it could
// read them before the wait.
template <int pending, int count>
FARWARP_DEVICE void wgmma_wait_sums(float (&sums)[count]) {
  wgmma_wait_read<pending>();
#pragma unroll
  for (int i = 0; i < count; ++i) asm volatile("" : "+f"(sums[i])::"memory");
}
template <int count>
FARWARP_DEVICE void wgmma_wait_all(float (&sums)[count]) {
  wgmma_wait_sums<0>(sums);
}

template <int count>
FARWARP_DEVICE void lower_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(count));
}
template <int count>
FARWARP_DEVICE void raise_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(count));
}

template <class T>
FARWARP_DEVICE void mma(float (&sums)[4], const std::uint64_t (&a)[2], std::uint64_t b) {
  const auto lo = [](std::uint64_t four) { return static_cast<std::uint32_t>(four); };
  const auto hi = [](std::uint64_t four) { return static_cast<std::uint32_t>(four >> 32); };
  if constexpr (std::is_same_v<T, Bf16>) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, "
        "%2, %3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(lo(a[0])), "r"(lo(a[1])), "r"(hi(a[0])), "r"(hi(a[1])), "r"(lo(b)), "r"(hi(b)));
  } else {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, "
        "%3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(lo(a[0])), "r"(lo(a[1])), "r"(hi(a[0])), "r"(hi(a[1])), "r"(lo(b)), "r"(hi(b)));
  }
}

}  // namespace farwarp::FARWARP_TARGET
