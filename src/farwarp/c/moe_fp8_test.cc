// Rows in e4m3 and their scales, as c.h takes them: of DLPack's types, and column by column in two forms.
#include <array>

#include "farwarp/c/c_test.h"

namespace farwarp_c_test {
namespace {

constexpr int kHidden = 1024, kTopK = 2, kExperts = 2, kTokens = 3, kGroups = kHidden / 128;
constexpr DLDataType kUint8 = {kDLUInt, 8, 1}, kE4m3 = {10, 8, 1}, kE4m3Fnuz = {11, 8, 1};

/// One rank, and what its dispatches have received.
struct Fp8 {
  Fp8(Rank& on, bool exponents) : rank(on) {
    farwarp_moe_desc desc;
    farwarp_moe_desc_init(&desc);
    desc.num_experts = kExperts;
    desc.experts_per_token = kTopK;
    desc.hidden = kHidden;
    desc.max_tokens = kTokens;
    desc.fp8_dispatch = desc.masked = desc.scale_columns = 1;
    desc.powers_of_two = desc.scale_exponents = exponents ? 1 : 0;
    EXPECT_EQ(farwarp_moe_create(rank.world, &desc, &moe), FARWARP_OK) << farwarp_message();
    room = farwarp_moe_recv_rows(moe) / kExperts;
    std::vector<std::uint16_t> values(kTokens * kHidden);
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = bf16(static_cast<float>(1 + i * 7 % 31) * (1 + i / 128 % 5));
    x = rank.tensor(kBf16, {kTokens, kHidden}, values);
    indices = rank.tensor(kInt32, {kTokens, kTopK}, std::vector<std::int32_t>{0, 1, 1, -1, 0, 1});
    weights = rank.tensor(kFloat32, {kTokens, kTopK}, std::vector<float>(kTokens * kTopK, 1));
    counts = rank.empty(kInt32, {kExperts});
    offsets = rank.empty(kInt32, {kExperts + 1});
    out = rank.empty(kBf16, {kTokens, kHidden});
  }
  ~Fp8() { EXPECT_EQ(farwarp_moe_close(moe), FARWARP_OK) << farwarp_message(); }

  farwarp_code dispatch(DLTensor* recv_x, DLTensor* scales) {
    const farwarp_code code =
        farwarp_moe_dispatch(moe, x, indices, weights, recv_x, counts, offsets, nullptr, scales, rank.stream);
    if (code != FARWARP_OK) return code;
    return farwarp_moe_combine(moe, rank.empty(kBf16, {kExperts * room, kHidden}), out, rank.stream);
  }
  DLTensor* rows(DLDataType type) {
    DLTensor* const made = rank.empty(kUint8, {kExperts, room, kHidden});
    made->dtype = type;
    return made;
  }
  /// The rows that are valid, of e4m3.
  std::vector<std::uint8_t> valid(const DLTensor* recv_x) {
    const auto all = rank.numbers<std::uint8_t>(recv_x, static_cast<std::size_t>(kExperts * room * kHidden));
    const auto row = [&](std::int64_t at) { return all.begin() + at * kHidden; };
    std::vector<std::uint8_t> found(row(0), row(2));
    found.insert(found.end(), row(room), row(room + 3));
    return found;
  }

  Rank& rank;
  farwarp_moe* moe = nullptr;
  std::int64_t room = 0;
  DLTensor *x, *indices, *weights, *counts, *offsets, *out;
};

std::string refused(farwarp_code code) {
  EXPECT_EQ(code, FARWARP_INVALID_ARGUMENT);
  return farwarp_message();
}

TEST(CMoeFp8, RowsAreBytesOrTheDevicesE4m3) {
  run_ranks(1, [](Rank& rank, int) {
    Fp8 fp8(rank, false);
    DLTensor* const scales = rank.empty(kFloat32, {kExperts, kGroups, fp8.room});
    DLTensor *const bytes = fp8.rows(kUint8), *const numbers = fp8.rows(kE4m3);
    ASSERT_EQ(fp8.dispatch(bytes, scales), FARWARP_OK) << farwarp_message();
    ASSERT_EQ(fp8.dispatch(numbers, scales), FARWARP_OK) << farwarp_message();
    EXPECT_EQ(fp8.valid(bytes), fp8.valid(numbers));
    EXPECT_NE(fp8.valid(bytes), std::vector<std::uint8_t>(5 * kHidden, fp8.valid(bytes)[0]));
    EXPECT_EQ(refused(fp8.dispatch(fp8.rows(kE4m3Fnuz), scales)),
              "recv_x is of float8_e4m3fnuz; allowed: uint8, float8_e4m3fn");
    EXPECT_EQ(refused(fp8.dispatch(fp8.rows({kDLInt, 8, 1}), scales)),
              "recv_x is of int8; allowed: uint8, float8_e4m3fn");
  });
}

/// [experts, rows, columns] of the same memory as `of`, which is [experts, columns, rows].
struct Transposed {
  Transposed(const DLTensor& of, DLDataType type)
      : shape{of.shape[0], of.shape[2], of.shape[1]}, strides{of.shape[1] * of.shape[2], 1, of.shape[2]}, tensor(of) {
    tensor.dtype = type;
    tensor.ndim = 3;
    tensor.shape = shape.data();
    tensor.strides = strides.data();
  }
  std::array<std::int64_t, 3> shape, strides;
  DLTensor tensor;
};

TEST(CMoeFp8, ScalesAreColumnsInTwoForms) {
  for (const bool exponents : {false, true}) {
    run_ranks(1, [&](Rank& rank, int) {
      Fp8 fp8(rank, exponents);
      const auto make = [&] {
        DLTensor* const made = exponents ? rank.empty(kUint8, {kExperts, kGroups / 4, fp8.room, 4})
                                         : rank.empty(kFloat32, {kExperts, kGroups, fp8.room});
        const auto bytes = static_cast<std::size_t>(kExperts * kGroups * fp8.room) * (exponents ? 1 : 4);
        EXPECT_EQ(
            farwarp_copy_in(rank.world, made->data, std::vector<std::uint8_t>(bytes, 0xee).data(), bytes, rank.stream),
            FARWARP_OK);
        return made;
      };
      const auto bits = [&](const DLTensor* of) {
        return rank.numbers<std::uint8_t>(
            of, static_cast<std::size_t>(kExperts * kGroups * fp8.room) * (exponents ? 1 : 4));
      };
      const DLDataType type = exponents ? kInt32 : kFloat32;
      DLTensor *const plain = make(), *const columns = make(), *const recv_x = fp8.rows(kUint8);
      Transposed transposed(*columns, type);
      ASSERT_EQ(fp8.dispatch(recv_x, plain), FARWARP_OK) << farwarp_message();
      ASSERT_EQ(fp8.dispatch(recv_x, &transposed.tensor), FARWARP_OK) << farwarp_message();
      EXPECT_EQ(bits(plain), bits(columns));
      EXPECT_NE(bits(plain), bits(make()));
      // Row by row, or of another type, it is no tensor of columns.
      Transposed wrong(*columns, type);
      wrong.strides = {wrong.shape[1] * wrong.shape[2], wrong.shape[2], 1};
      EXPECT_EQ(refused(fp8.dispatch(recv_x, &wrong.tensor)).find("scales "), 0u) << farwarp_message();
      Transposed typed(*columns, exponents ? kFloat32 : kInt32);
      EXPECT_EQ(refused(fp8.dispatch(recv_x, &typed.tensor)).find("scales is of "), 0u) << farwarp_message();
    });
  }
}

}  // namespace
}  // namespace farwarp_c_test
