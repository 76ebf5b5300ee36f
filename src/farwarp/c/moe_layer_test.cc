// The MoE layer of c.h.
#include "farwarp/c/overlap_test.h"

namespace farwarp_c_test {
namespace {

constexpr int kRanks = 2, kMost = 8, kHidden = 64, kInter = 64, kExperts = 4, kTopK = 2, kLocal = kExperts / kRanks;

farwarp_moe_layer_desc small_desc() {
  farwarp_moe_layer_desc desc;
  farwarp_moe_layer_desc_init(&desc);
  desc.num_experts = kExperts;
  desc.experts_per_token = kTopK;
  desc.hidden = kHidden;
  desc.intermediate = kInter;
  desc.max_tokens = kMost;
  return desc;
}

/// A token's row is 1 or 2 throughout, the gate 64 times that, so that silu changes nothing; of up and h one number
/// counts, and every sum is exact.
struct Layer {
  Layer(Rank& of_rank, int of_number, farwarp_moe_layer_desc desc = small_desc()) : rank(of_rank), number(of_number) {
    EXPECT_EQ(farwarp_moe_layer_create(rank.world, &desc, &layer), FARWARP_OK) << farwarp_message();
    biased = desc.has_bias != 0;
    std::vector<std::uint16_t> rows, first(kLocal * 2 * kInter * kHidden), second(kLocal * kHidden * kInter),
        up(kLocal * 2 * kInter), constant(kLocal * kHidden, bf16(2));
    std::vector<std::int32_t> experts;
    std::vector<float> factors;
    for (int i = 0; i < kMost * kHidden; ++i) rows.push_back(bf16(token_number(i / kHidden)));
    for (int i = 0; i < kMost * kTopK; ++i) {
      experts.push_back(expert_of(i / kTopK, i % kTopK));
      factors.push_back(i % kTopK == 0 ? 1.0f : 0.5f);
    }
    for (int local = 0; local < kLocal; ++local) {
      const auto gates = first.begin() + local * 2 * kInter * kHidden;
      std::fill(gates, gates + kInter * kHidden, bf16(1));
      gates[kInter * kHidden] = bf16(factor_of(number * kLocal + local));
      up[static_cast<std::size_t>((2 * local + 1) * kInter)] = bf16(factor_of(number * kLocal + local));
      for (int column = 0; column < kHidden; ++column)
        second[static_cast<std::size_t>((local * kHidden + column) * kInter)] = bf16(column_factor(column) / 64);
    }
    x = rank.tensor(kBf16, {kMost, kHidden}, rows);
    indices = rank.tensor(kInt32, {kMost, kTopK}, experts);
    weights = rank.tensor(kFloat32, {kMost, kTopK}, factors);
    w1 = rank.tensor(kBf16, {kLocal, 2 * kInter, kHidden}, first);
    w2 = rank.tensor(kBf16, {kLocal, kHidden, kInter}, second);
    bias1 = biased ? rank.tensor(kBf16, {kLocal, 2 * kInter}, up) : nullptr;
    bias2 = biased ? rank.tensor(kBf16, {kLocal, kHidden}, constant) : nullptr;
    out = rank.tensor(kBf16, {kMost, kHidden}, std::vector<std::uint16_t>(kMost * kHidden, bf16(-1)));
  }
  ~Layer() { EXPECT_EQ(farwarp_moe_layer_close(layer), FARWARP_OK) << farwarp_message(); }

  float token_number(int token) const { return static_cast<float>((token + number) % 2 + 1); }
  int expert_of(int token, int slot) const { return (token + slot + number) % kExperts; }
  static float factor_of(int expert) { return static_cast<float>(expert + 1); }
  static float column_factor(int column) { return static_cast<float>(column % 3 + 1); }

  farwarp_code call(const DLTensor* count = nullptr) {
    return farwarp_moe_layer_call(layer, x, indices, weights, count, w1, w2, bias1, bias2, out, rank.stream);
  }
  /// Rows from `tokens` on are as before.
  void expect_out(int tokens) {
    expect_idle(rank);
    const auto got = rank.numbers<std::uint16_t>(out, kMost * kHidden);
    for (int token = 0; token < kMost; ++token) {
      for (int column = 0; column < kHidden; ++column) {
        const float number_of_token = token_number(token);
        float sum = token < tokens ? 0.0f : -1.0f;
        for (int slot = 0; slot < kTopK && token < tokens; ++slot) {
          const float product =
              number_of_token * factor_of(expert_of(token, slot)) * (number_of_token + (biased ? 1.0f : 0.0f));
          sum += (slot == 0 ? 1.0f : 0.5f) * (column_factor(column) * product + (biased ? 2.0f : 0.0f));
        }
        ASSERT_EQ(float_of(got[static_cast<std::size_t>(token * kHidden + column)]), sum)
            << "token " << token << ", column " << column;
      }
    }
  }

  Rank& rank;
  int number;
  bool biased;
  farwarp_moe_layer* layer = nullptr;
  DLTensor *x, *indices, *weights, *w1, *w2, *bias1, *bias2, *out;
};

TEST(CMoeLayer, TokensGetTheSumsOfTheirExperts) {
  run_ranks(kRanks, [](Rank& rank, int number) {
    for (const bool biased : {false, true}) {
      farwarp_moe_layer_desc desc = small_desc();
      desc.has_bias = biased;
      Layer layer(rank, number, desc);
      DLTensor* const count = rank.tensor(kInt32, {1}, integers({number == 0 ? 3 : 0}));
      ASSERT_EQ(layer.call(count), FARWARP_OK) << farwarp_message();
      layer.expect_out(number == 0 ? 3 : 0);
      ASSERT_EQ(layer.call(), FARWARP_OK) << farwarp_message();
      layer.expect_out(kMost);
    }
  });
}

TEST(CMoeLayer, WhatAKernelFindsIsTold) {
  run_ranks(1, [](Rank& rank, int) {
    farwarp_moe_layer_desc desc = small_desc();
    desc.num_experts = kLocal;  // of one rank
    desc.max_rows = 3;
    Layer layer(rank, 0, desc);
    layer.indices = rank.tensor(kInt32, {kMost, kTopK}, std::vector<std::int32_t>(kMost * kTopK, 1));
    ASSERT_EQ(layer.call(), FARWARP_OK) << farwarp_message();
    EXPECT_EQ(farwarp_synchronize(rank.world, rank.stream, 20'000), FARWARP_CAPACITY);
    EXPECT_NE(std::string(farwarp_message()).find("max_rows"), std::string::npos) << farwarp_message();
    EXPECT_EQ(farwarp_world_recover(rank.world, &rank.stream, 1), FARWARP_OK) << farwarp_message();
    ASSERT_EQ(layer.call(rank.tensor(kInt32, {1}, integers({kMost + 1}))), FARWARP_OK) << farwarp_message();
    EXPECT_EQ(farwarp_synchronize(rank.world, rank.stream, 20'000), FARWARP_BAD_INPUT);
    EXPECT_NE(std::string(farwarp_message()).find("token count"), std::string::npos) << farwarp_message();
    EXPECT_EQ(farwarp_world_recover(rank.world, &rank.stream, 1), FARWARP_OK) << farwarp_message();
  });
}

TEST(CMoeLayer, WrongDescriptorsAreRefused) {
  run_ranks(1, [](Rank& rank, int) {
    const auto refused = [&rank](std::int32_t farwarp_moe_layer_desc::*field, std::int32_t value) {
      farwarp_moe_layer_desc desc = small_desc();
      desc.*field = value;
      farwarp_moe_layer* layer = nullptr;
      EXPECT_EQ(farwarp_moe_layer_create(rank.world, &desc, &layer), FARWARP_INVALID_ARGUMENT);
      return std::string(farwarp_message());
    };
    using Desc = farwarp_moe_layer_desc;
    EXPECT_EQ(refused(&Desc::activation, FARWARP_NO_ACTIVATION),
              "rank 0: desc.activation is 0; allowed: FARWARP_SWIGLU (1), FARWARP_CLAMPED_SWIGLU (2)");
    EXPECT_EQ(refused(&Desc::has_bias, 2), "rank 0: desc.has_bias is 2; allowed: 0, 1");
    EXPECT_EQ(refused(&Desc::intermediate, 60), "desc.intermediate is 60; allowed: a multiple of 8 up to 1048576");
    EXPECT_EQ(refused(&Desc::num_experts, 385), "desc.num_experts is 385; allowed: 1 (ranks) to 384");
    EXPECT_EQ(refused(&Desc::max_rows, 17), "desc.max_rows is 17; allowed: 0 (the worst case) to 16");
    EXPECT_EQ(refused(&Desc::tile_rows, 32), "desc.tile_rows is 32; allowed: 0 (the plan's choice), 64, 128");
  });
}

TEST(CMoeLayer, WrongTensorsAreRefused) {
  run_ranks(kRanks, [](Rank& rank, int number) {
    Layer layer(rank, number);
    const auto refused = [&](DLTensor* Layer::*tensor, DLTensor* given) {
      std::swap(layer.*tensor, given);
      EXPECT_EQ(layer.call(), FARWARP_INVALID_ARGUMENT);
      std::swap(layer.*tensor, given);
      return std::string(farwarp_message());
    };
    EXPECT_EQ(refused(&Layer::w1, nullptr), "w1 is NULL; allowed: a pointer");
    EXPECT_EQ(refused(&Layer::w1, layer.w2), "w1 has shape [2, 64, 64]; allowed: [2, 128, 64]");
    EXPECT_EQ(refused(&Layer::bias2, layer.x), "bias2 is given; allowed: NULL, as the descriptor says");
    EXPECT_EQ(refused(&Layer::indices, layer.weights), "indices is of float32; allowed: int32");
    EXPECT_EQ(refused(&Layer::x, rank.empty(kBf16, {kMost + 1, kHidden})), "x has shape [9, 64]; allowed: 0 to 8 rows");
    EXPECT_EQ(refused(&Layer::out, rank.empty(kBf16, {kMost - 1, kHidden})), "out has shape [7, 64]; allowed: [8, 64]");
    DLTensor odd = *layer.indices;
    odd.byte_offset = 2;
    EXPECT_EQ(refused(&Layer::indices, &odd).find("indices is 0x"), 0u) << farwarp_message();
    EXPECT_EQ(layer.call(layer.indices), FARWARP_INVALID_ARGUMENT);
    EXPECT_STREQ(farwarp_message(), "count has shape [8, 2]; allowed: [1]");
    EXPECT_EQ(farwarp_moe_layer_call(nullptr, layer.x, layer.indices, layer.weights, nullptr, layer.w1, layer.w2,
                                     nullptr, nullptr, layer.out, rank.stream),
              FARWARP_INVALID_ARGUMENT);
  });
}

TEST(COverlap, MoeLayer) {
  run_ranks(1, [](Rank& rank, int) {
    farwarp_moe_layer_desc desc = small_desc();
    desc.num_experts = kLocal;
    desc.has_bias = 1;
    Layer layer(rank, 0, desc);
    layer.indices = rank.tensor(kInt32, {kMost, kTopK}, std::vector<std::int32_t>(kMost * kTopK, 1));
    DLTensor* const count = rank.tensor(kInt32, {1}, integers({kMost}));
    expect_apart({{"x", layer.x},
                  {"indices", layer.indices},
                  {"weights", layer.weights},
                  {"count", count},
                  {"w1", layer.w1},
                  {"w2", layer.w2},
                  {"bias1", layer.bias1},
                  {"bias2", layer.bias2}},
                 {{"out", layer.out}}, [&] { return layer.call(count); });
    expect_idle(rank);
  });
}

}  // namespace
}  // namespace farwarp_c_test
