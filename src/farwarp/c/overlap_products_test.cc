// Results of the products of c.h that share memory with another tensor of their call.
#include "farwarp/c/overlap_test.h"

namespace farwarp_c_test {
namespace {

TEST(COverlap, Gemm) {
  run_ranks(1, [](Rank& rank, int) {
    farwarp_gemm_desc desc;
    farwarp_gemm_desc_init(&desc);
    desc.m = 64;
    desc.n = desc.k = 128;
    desc.has_bias = 1;
    farwarp_gemm* gemm = nullptr;
    ASSERT_EQ(farwarp_gemm_create(rank.world, &desc, &gemm), FARWARP_OK) << farwarp_message();
    DLTensor *const x = rank.empty(kBf16, {64, 128}), *const w = rank.empty(kBf16, {128, 128}),
                    *const bias = rank.empty(kBf16, {128}), *const y = rank.empty(kBf16, {64, 128});
    expect_apart({{"x", x}, {"w", w}, {"bias", bias}}, {{"y", y}},
                 [&] { return farwarp_gemm_call(gemm, x, w, bias, y, rank.stream); });
    // Beside each other without a hole: taken.
    DLTensor *const both = rank.empty(kBf16, {2, 64, 128}), first = *x, second = *y;
    first.data = both->data;
    second.data = static_cast<char*>(both->data) + bytes_of(first);
    EXPECT_EQ(farwarp_gemm_call(gemm, &first, w, bias, &second, rank.stream), FARWARP_OK) << farwarp_message();
    second.data = static_cast<char*>(second.data) - 16;
    EXPECT_EQ(farwarp_gemm_call(gemm, &first, w, bias, &second, rank.stream), FARWARP_INVALID_ARGUMENT);
    expect_idle(rank);
    EXPECT_EQ(farwarp_gemm_close(gemm), FARWARP_OK) << farwarp_message();
  });
}

TEST(COverlap, GemmOfE4m3) {
  run_ranks(1, [](Rank& rank, int) {
    farwarp_gemm_desc desc;
    farwarp_gemm_desc_init(&desc);
    desc.m = 64;
    desc.n = desc.k = 256;
    desc.scaling = FARWARP_SCALE_BLOCKS;
    farwarp_gemm* gemm = nullptr;
    ASSERT_EQ(farwarp_gemm_create(rank.world, &desc, &gemm), FARWARP_OK) << farwarp_message();
    constexpr DLDataType kUint8 = {kDLUInt, 8, 1};
    DLTensor *const x = rank.empty(kUint8, {64, 256}), *const w = rank.empty(kUint8, {256, 256}),
                    *const x_scale = rank.empty(kFloat32, {64, 2}), *const w_scale = rank.empty(kFloat32, {2, 2}),
                    *const y = rank.empty(kBf16, {64, 256});
    expect_apart({{"x", x}, {"w", w}, {"x_scale", x_scale}, {"w_scale", w_scale}}, {{"y", y}},
                 [&] { return farwarp_gemm_call_scaled(gemm, x, w, x_scale, w_scale, nullptr, y, rank.stream); });
    expect_idle(rank);
    EXPECT_EQ(farwarp_gemm_close(gemm), FARWARP_OK) << farwarp_message();
  });
}

TEST(COverlap, GroupedGemm) {
  run_ranks(1, [](Rank& rank, int) {
    farwarp_grouped_gemm_desc desc;
    farwarp_grouped_gemm_desc_init(&desc);
    desc.groups = 2;
    desc.max_rows = desc.n = desc.k = 256;
    desc.scaling = FARWARP_SCALE_BLOCKS;
    desc.has_bias = 1;
    farwarp_grouped_gemm* gemm = nullptr;
    ASSERT_EQ(farwarp_grouped_gemm_create(rank.world, &desc, &gemm), FARWARP_OK) << farwarp_message();
    constexpr DLDataType kUint8 = {kDLUInt, 8, 1};
    DLTensor *const x = rank.empty(kUint8, {256, 256}), *const w = rank.empty(kUint8, {2, 256, 256}),
                    *const x_scale = rank.empty(kFloat32, {256, 2}), *const w_scale = rank.empty(kFloat32, {2, 2, 2}),
                    *const rows = rank.tensor(kInt32, {3}, integers({0, 100, 256})),
                    *const bias = rank.empty(kBf16, {2, 256}), *const y = rank.empty(kBf16, {256, 256});
    expect_apart({{"x", x}, {"w", w}, {"x_scale", x_scale}, {"w_scale", w_scale}, {"rows", rows}, {"bias", bias}},
                 {{"y", y}},
                 [&] { return farwarp_grouped_gemm_call(gemm, x, w, x_scale, w_scale, rows, bias, y, rank.stream); });
    expect_idle(rank);
    EXPECT_EQ(farwarp_grouped_gemm_close(gemm), FARWARP_OK) << farwarp_message();
  });
}

TEST(COverlap, ProductsOfTensorParallelism) {
  run_ranks(1, [](Rank& rank, int) {
    for (const std::int32_t kind : {FARWARP_ALL_GATHER_GEMM, FARWARP_GEMM_REDUCE_SCATTER, FARWARP_GEMM_ALL_REDUCE}) {
      farwarp_product_desc desc;
      farwarp_product_desc_init(&desc);
      desc.kind = kind;
      desc.m = 64;
      desc.n = desc.k = 128;
      desc.has_bias = 1;
      desc.path = FARWARP_OWN;
      desc.return_x = kind == FARWARP_ALL_GATHER_GEMM;
      farwarp_product* product = nullptr;
      ASSERT_EQ(farwarp_product_create(rank.world, &desc, &product), FARWARP_OK) << farwarp_message();
      DLTensor *const x = rank.empty(kBf16, {64, 128}), *const w = rank.empty(kBf16, {128, 128}),
                      *const bias = rank.empty(kBf16, {128}), *const y = rank.empty(kBf16, {64, 128}),
                      *const all_x = desc.return_x ? rank.empty(kBf16, {64, 128}) : nullptr;
      expect_apart({{"x", x}, {"w", w}, {"bias", bias}}, {{"y", y}, {"all_x", all_x}},
                   [&] { return farwarp_product_call(product, x, w, bias, y, all_x, rank.stream); });
      expect_idle(rank);
      EXPECT_EQ(farwarp_product_close(product), FARWARP_OK) << farwarp_message();
    }
  });
}

}  // namespace
}  // namespace farwarp_c_test
