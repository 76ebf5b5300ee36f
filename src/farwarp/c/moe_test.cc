// The halves, the fused form and counts on the device of the all-to-all of c.h.
#include "farwarp/c/c_test.h"

namespace farwarp_c_test {
namespace {

constexpr int kRanks = 2, kMost = 8, kHidden = 128, kExperts = 4, kTopK = 2, kLocal = kExperts / kRanks;

/// One rank's operator and tensors. Entries choose experts (token + slot + rank) % 4; weights are powers of two, so
/// that sums are exact.
struct Moe {
  Moe(Rank& of_rank, int of_number, std::int32_t mode = FARWARP_MOE_AUTO, bool batched = false)
      : rank(of_rank), number(of_number) {
    farwarp_moe_desc desc;
    farwarp_moe_desc_init(&desc);
    desc.num_experts = kExperts;
    desc.experts_per_token = kTopK;
    desc.hidden = kHidden;
    desc.max_tokens = kMost;
    desc.mode = mode;
    desc.masked = desc.weights_at_combine = batched;
    EXPECT_EQ(farwarp_moe_create(rank.world, &desc, &moe), FARWARP_OK) << farwarp_message();
    rows = farwarp_moe_recv_rows(moe);
    std::vector<std::uint16_t> numbers;
    std::vector<std::int32_t> experts;
    std::vector<float> factors;
    for (int i = 0; i < kMost * kHidden; ++i) numbers.push_back(bf16(token_number(i / kHidden, i % kHidden)));
    for (int i = 0; i < kMost * kTopK; ++i) {
      experts.push_back(expert_of(i / kTopK, i % kTopK));
      factors.push_back(i % kTopK == 0 ? 1.0f : 0.5f);
    }
    x = rank.tensor(kBf16, {kMost, kHidden}, numbers);
    indices = rank.tensor(kInt32, {kMost, kTopK}, experts);
    weights = rank.tensor(kFloat32, {kMost, kTopK}, factors);
    recv_x = rank.empty(kBf16, {rows, kHidden});
    counts = rank.empty(kInt32, {kLocal});
    offsets = rank.empty(kInt32, {kLocal + 1});
    out = rank.tensor(kBf16, {kMost, kHidden}, std::vector<std::uint16_t>(kMost * kHidden, bf16(-1)));
  }
  ~Moe() { EXPECT_EQ(farwarp_moe_close(moe), FARWARP_OK) << farwarp_message(); }

  float token_number(int token, int column) const { return static_cast<float>((token + column + number) % 8); }
  int expert_of(int token, int slot) const { return (token + slot + number) % kExperts; }
  DLTensor* count_of(std::int32_t tokens) { return rank.tensor(kInt32, {1}, std::vector<std::int32_t>{tokens}); }

  farwarp_code send(const DLTensor* count = nullptr) {
    return farwarp_moe_dispatch_send(moe, x, indices, weights, count, rank.stream);
  }
  farwarp_code receive() {
    return farwarp_moe_dispatch_recv(moe, recv_x, counts, offsets, nullptr, nullptr, rank.stream);
  }
  farwarp_code fused(std::int32_t expert, const DLTensor* table, const DLTensor* count = nullptr) {
    return farwarp_moe_fused(moe, x, indices, weights, count, expert, table, out, rank.stream);
  }

  /// `tokens` rows are what scale(expert) * x + shift(expert) gives, the others as before.
  template <class Scale, class Shift>
  void expect_out(int tokens, const Scale& scale, const Shift& shift) {
    EXPECT_EQ(farwarp_synchronize(rank.world, rank.stream, 10'000), FARWARP_OK) << farwarp_message();
    const auto got = rank.numbers<std::uint16_t>(out, kMost * kHidden);
    for (int token = 0; token < kMost; ++token) {
      for (int column = 0; column < kHidden; ++column) {
        float sum = token < tokens ? 0.0f : -1.0f;
        for (int slot = 0; slot < kTopK && token < tokens; ++slot) {
          const int expert = expert_of(token, slot);
          sum += (slot == 0 ? 1.0f : 0.5f) * (scale(expert) * token_number(token, column) + shift(expert));
        }
        ASSERT_EQ(float_of(got[static_cast<std::size_t>(token * kHidden + column)]), sum)
            << "token " << token << ", column " << column;
      }
    }
  }
  /// `tokens` of each rank have arrived.
  void expect_counts(int tokens) {
    const auto got = rank.numbers<std::int32_t>(counts, kLocal);
    for (int expert = 0; expert < kLocal; ++expert) {
      int expected = 0;
      for (int entry = 0; entry < kRanks * tokens * kTopK; ++entry) {
        const int source = entry / (tokens * kTopK), token = entry / kTopK % tokens, slot = entry % kTopK;
        expected += (token + slot + source) % kExperts == number * kLocal + expert;
      }
      EXPECT_EQ(got[static_cast<std::size_t>(expert)], expected) << expert;
    }
  }

  Rank& rank;
  int number;
  farwarp_moe* moe = nullptr;
  std::int64_t rows = 0;
  DLTensor *x, *indices, *weights, *recv_x, *counts, *offsets, *out;
};

float one(int) { return 1; }
float zero(int) { return 0; }

/// As frameworks describe a slice: the strides of its tensor.
TEST(CMoe, TensorsOfNoTokensHaveAnyStrides) {
  run_ranks(kRanks, [](Rank& rank, int number) {
    Moe moe(rank, number);
    std::int64_t shape[] = {0, kTopK}, strides[] = {4 * kTopK, 1}, of_rows[] = {0, kHidden};
    for (DLTensor* tensor : {moe.indices, moe.weights}) {
      tensor->shape = shape;
      tensor->strides = strides;
    }
    moe.x->shape = moe.out->shape = of_rows;
    ASSERT_EQ(moe.send(), FARWARP_OK) << farwarp_message();
    ASSERT_EQ(moe.receive(), FARWARP_OK) << farwarp_message();
    ASSERT_EQ(farwarp_moe_combine(moe.moe, moe.recv_x, moe.out, rank.stream), FARWARP_OK) << farwarp_message();
    EXPECT_EQ(farwarp_synchronize(rank.world, rank.stream, 10'000), FARWARP_OK) << farwarp_message();
    moe.expect_counts(0);
  });
}

TEST(CMoe, HalvesAreTheCall) {
  run_ranks(kRanks, [](Rank& rank, int number) {
    Moe moe(rank, number);
    for (const bool counted : {false, true, false}) {
      const int tokens = counted ? 3 : kMost;
      const std::vector<std::uint16_t> before(kMost * kHidden, bf16(-1));
      EXPECT_EQ(farwarp_copy_in(rank.world, moe.out->data, before.data(), 2 * before.size(), rank.stream), FARWARP_OK);
      ASSERT_EQ(moe.send(counted ? moe.count_of(tokens) : nullptr), FARWARP_OK) << farwarp_message();
      ASSERT_EQ(moe.receive(), FARWARP_OK) << farwarp_message();
      ASSERT_EQ(farwarp_moe_combine_send(moe.moe, moe.recv_x, rank.stream), FARWARP_OK) << farwarp_message();
      ASSERT_EQ(farwarp_moe_combine_recv(moe.moe, moe.out, rank.stream), FARWARP_OK) << farwarp_message();
      moe.expect_out(tokens, one, zero);
      moe.expect_counts(tokens);
    }
  });
}

TEST(CMoe, CountsMayBeOnTheDevice) {
  run_ranks(kRanks, [](Rank& rank, int number) {
    Moe moe(rank, number);
    ASSERT_EQ(farwarp_moe_dispatch_counted(moe.moe, moe.x, moe.indices, moe.weights, moe.count_of(5), moe.recv_x,
                                           moe.counts, moe.offsets, nullptr, nullptr, rank.stream),
              FARWARP_OK)
        << farwarp_message();
    ASSERT_EQ(farwarp_moe_combine(moe.moe, moe.recv_x, moe.out, rank.stream), FARWARP_OK) << farwarp_message();
    moe.expect_out(5, one, zero);
    moe.expect_counts(5);
  });
}

TEST(CMoe, FusedRunsTheExperts) {
  run_ranks(kRanks, [](Rank& rank, int number) {
    Moe moe(rank, number);
    ASSERT_EQ(moe.fused(FARWARP_MOE_RANK_SCALE, nullptr), FARWARP_OK) << farwarp_message();
    moe.expect_out(
        kMost, [](int expert) { return static_cast<float>(1 + expert / kLocal); }, zero);
    const auto scale = [](int expert) { return static_cast<float>(expert); };
    const auto shift = [](int expert) { return static_cast<float>(2 * expert + 1); };
    std::vector<float> numbers;
    for (int expert = number * kLocal; expert < (number + 1) * kLocal; ++expert) {
      numbers.push_back(scale(expert));
      numbers.push_back(shift(expert));
    }
    DLTensor* const table = rank.tensor(kFloat32, {kLocal, 2}, numbers);
    ASSERT_EQ(moe.fused(FARWARP_MOE_TABLE, table, moe.count_of(kMost)), FARWARP_OK) << farwarp_message();
    moe.expect_out(kMost, scale, shift);
  });
}

TEST(CMoe, ModesGiveTheSame) {
  run_ranks(kRanks, [](Rank& rank, int number) {
    for (const std::int32_t mode : {FARWARP_MOE_WORDS, FARWARP_MOE_BULK}) {
      Moe moe(rank, number, mode);
      ASSERT_EQ(moe.fused(FARWARP_MOE_RANK_SCALE, nullptr), FARWARP_OK) << farwarp_message();
      moe.expect_out(
          kMost, [](int expert) { return static_cast<float>(1 + expert / kLocal); }, zero);
    }
  });
}

/// The layout [local experts, room, hidden], and weights that are given to combine alone.
TEST(CMoe, BatchedLayoutAndWeightsAtCombine) {
  run_ranks(kRanks, [](Rank& rank, int number) {
    constexpr std::int64_t kRoom = kRanks * kMost;
    Moe moe(rank, number, FARWARP_MOE_AUTO, true);
    ASSERT_EQ(moe.rows, kLocal * kRoom);
    moe.recv_x = rank.empty(kBf16, {kLocal, kRoom, kHidden});
    DLTensor *const given = moe.weights, *const wrong = rank.empty(kFloat32, {kMost, kTopK + 1});
    for (const bool halves : {false, true}) {
      moe.weights = given;
      EXPECT_EQ(moe.send(), FARWARP_INVALID_ARGUMENT);
      EXPECT_NE(std::string(farwarp_message()).find("weights"), std::string::npos) << farwarp_message();
      moe.weights = nullptr;
      ASSERT_EQ(moe.send(), FARWARP_OK) << farwarp_message();
      ASSERT_EQ(moe.receive(), FARWARP_OK) << farwarp_message();
      EXPECT_EQ(farwarp_moe_combine(moe.moe, moe.recv_x, moe.out, rank.stream), FARWARP_INVALID_ARGUMENT);
      EXPECT_EQ(farwarp_moe_combine_weighted(moe.moe, moe.recv_x, wrong, moe.out, rank.stream),
                FARWARP_INVALID_ARGUMENT);
      EXPECT_EQ(std::string(farwarp_message()), "weights has shape [8, 3]; allowed: [8, 2]");
      if (halves) {
        ASSERT_EQ(farwarp_moe_combine_send_weighted(moe.moe, moe.recv_x, given, rank.stream), FARWARP_OK);
        ASSERT_EQ(farwarp_moe_combine_recv(moe.moe, moe.out, rank.stream), FARWARP_OK) << farwarp_message();
      } else {
        ASSERT_EQ(farwarp_moe_combine_weighted(moe.moe, moe.recv_x, given, moe.out, rank.stream), FARWARP_OK);
      }
      moe.expect_out(kMost, one, zero);
      moe.expect_counts(kMost);
    }
    moe.weights = nullptr;
    EXPECT_EQ(moe.fused(FARWARP_MOE_RANK_SCALE, nullptr), FARWARP_INVALID_ARGUMENT);
  });
}

/// All entries are one expert, which gets each row once: room for the worst case suffices.
TEST(CMoe, OneExpertInSeveralSlotsOfTheBatchedLayout) {
  run_ranks(kRanks, [](Rank& rank, int number) {
    Moe moe(rank, number, FARWARP_MOE_AUTO, true);
    DLTensor* const weights = moe.weights;
    moe.weights = nullptr;
    moe.indices = rank.tensor(kInt32, {kMost, kTopK}, std::vector<std::int32_t>(kMost * kTopK, 1));
    ASSERT_EQ(moe.send(), FARWARP_OK) << farwarp_message();
    ASSERT_EQ(moe.receive(), FARWARP_OK) << farwarp_message();
    ASSERT_EQ(farwarp_moe_combine_weighted(moe.moe, moe.recv_x, weights, moe.out, rank.stream), FARWARP_OK);
    moe.expect_out(kMost, one, zero);  // as if both experts gave their row back
    const auto counts = rank.numbers<std::int32_t>(moe.counts, kLocal);
    EXPECT_EQ(counts[1], number == 0 ? kRanks * kMost : 0);
  });
}

/// A row once for each rank. y is what a rank's experts make of a row together: here its sum of weights times the row.
TEST(CMoe, RowsOncePerRank) {
  run_ranks(kRanks, [](Rank& rank, int number) {
    Moe moe(rank, number);
    farwarp_moe_desc desc;
    farwarp_moe_desc_init(&desc);
    desc.num_experts = kExperts;
    desc.experts_per_token = kTopK;
    desc.hidden = kHidden;
    desc.max_tokens = kMost;
    desc.rows = 1;
    farwarp_moe* by_rows = nullptr;
    ASSERT_EQ(farwarp_moe_create(rank.world, &desc, &by_rows), FARWARP_OK) << farwarp_message();
    ASSERT_EQ(farwarp_moe_recv_rows(by_rows), kRanks * kMost);
    EXPECT_EQ(farwarp_moe_dispatch(by_rows, moe.x, moe.indices, moe.weights, moe.recv_x, moe.counts, moe.offsets,
                                   nullptr, nullptr, rank.stream),
              FARWARP_MISUSE);
    EXPECT_EQ(
        farwarp_moe_dispatch_rows_send(moe.moe, moe.x, moe.indices, moe.weights, moe.counts, moe.offsets, rank.stream),
        FARWARP_MISUSE);
    DLTensor* const offsets = rank.empty(kInt32, {kRanks + 1});
    for (const bool halves : {false, true}) {
      std::int64_t rows = kRanks * kMost;
      if (halves) {
        ASSERT_EQ(
            farwarp_moe_dispatch_rows_send(by_rows, moe.x, moe.indices, moe.weights, moe.counts, offsets, rank.stream),
            FARWARP_OK)
            << farwarp_message();
        rows = rank.numbers<std::int32_t>(offsets, kRanks + 1)[kRanks];
      }
      DLTensor *const recv_x = rank.empty(kBf16, {rows, kHidden}),
                      *const recv_indices = rank.empty(kInt32, {rows, kTopK}),
                      *const recv_weights = rank.empty(kFloat32, {rows, kTopK});
      const auto code = halves
                            ? farwarp_moe_dispatch_rows_recv(by_rows, recv_x, recv_indices, recv_weights, rank.stream)
                            : farwarp_moe_dispatch_rows(by_rows, moe.x, moe.indices, moe.weights, recv_x, recv_indices,
                                                        recv_weights, moe.counts, offsets, rank.stream);
      ASSERT_EQ(code, FARWARP_OK) << farwarp_message();
      auto y = rank.numbers<std::uint16_t>(recv_x, static_cast<std::size_t>(rows * kHidden));
      const auto entries = static_cast<std::size_t>(rows * kTopK);
      const auto experts = rank.numbers<std::int32_t>(recv_indices, entries);
      const auto factors = rank.numbers<float>(recv_weights, entries);
      const int end = rank.numbers<std::int32_t>(offsets, kRanks + 1)[kRanks];
      EXPECT_TRUE(!halves || end == rows);
      for (int row = 0; row < end; ++row) {
        float factor = 0;
        for (std::size_t entry = static_cast<std::size_t>(row) * kTopK;
             entry < static_cast<std::size_t>(row + 1) * kTopK; ++entry)
          factor += experts[entry] >= 0 ? factors[entry] : 0;
        for (int column = 0; column < kHidden; ++column) {
          std::uint16_t& value = y[static_cast<std::size_t>(row * kHidden + column)];
          value = bf16(factor * float_of(value));
        }
      }
      ASSERT_EQ(farwarp_moe_combine(by_rows, rank.tensor(kBf16, {rows, kHidden}, y), moe.out, rank.stream), FARWARP_OK)
          << farwarp_message();
      moe.expect_out(kMost, one, zero);
      moe.expect_counts(kMost);
    }
    EXPECT_EQ(farwarp_moe_close(by_rows), FARWARP_OK) << farwarp_message();
  });
}

TEST(CMoe, HeapBytesAreWhatAnOperatorTakes) {
  run_ranks(kRanks, [](Rank& rank, int) {
    farwarp_moe_desc desc;
    farwarp_moe_desc_init(&desc);
    desc.num_experts = kExperts;
    desc.experts_per_token = kTopK;
    desc.hidden = 1024;
    desc.max_tokens = 256;
    std::int64_t bytes = 0;
    EXPECT_EQ(farwarp_moe_heap_bytes(&desc, 4, 0, kRanks, &bytes), FARWARP_INVALID_ARGUMENT);
    ASSERT_EQ(farwarp_moe_heap_bytes(&desc, FARWARP_EMU_SM90, 0, kRanks, &bytes), FARWARP_OK) << farwarp_message();
    std::vector<farwarp_moe*> all;
    farwarp_moe* moe = nullptr;
    while (farwarp_moe_create(rank.world, &desc, &moe) == FARWARP_OK) all.push_back(moe);
    const std::int64_t taken = static_cast<std::int64_t>(all.size()) * bytes;  // of 16 MiB, the world's part included
    EXPECT_GT(taken, (15 << 20) - bytes);
    EXPECT_LE(taken, 16 << 20);
    for (farwarp_moe* const each : all) EXPECT_EQ(farwarp_moe_close(each), FARWARP_OK) << farwarp_message();
  });
}

TEST(CMoe, BadInputIsNamed) {
  run_ranks(kRanks, [](Rank& rank, int number) {
    Moe moe(rank, number);
    const auto refused = [](farwarp_code code, farwarp_code expected = FARWARP_INVALID_ARGUMENT) {
      EXPECT_EQ(code, expected);
      return std::string(farwarp_message());
    };
    EXPECT_EQ(refused(moe.fused(2, nullptr)), "expert is 2; allowed: 0 to 1");
    EXPECT_EQ(refused(moe.fused(FARWARP_MOE_TABLE, nullptr)), "expert_table is NULL; allowed: a pointer");
    EXPECT_EQ(refused(moe.fused(FARWARP_MOE_RANK_SCALE, moe.weights)),
              "expert_table is given; allowed: NULL, as expert is FARWARP_MOE_RANK_SCALE");
    EXPECT_EQ(refused(moe.fused(FARWARP_MOE_TABLE, moe.weights)), "expert_table has shape [8, 2]; allowed: [2, 2]");
    EXPECT_EQ(refused(moe.send(moe.counts)), "count has shape [2]; allowed: [1]");
    EXPECT_EQ(refused(farwarp_moe_dispatch_counted(moe.moe, moe.x, moe.indices, moe.weights, nullptr, moe.recv_x,
                                                   moe.counts, moe.offsets, nullptr, nullptr, rank.stream)),
              "count is NULL; allowed: a pointer");
    DLTensor* const few = rank.empty(kBf16, {3, kHidden});
    EXPECT_EQ(refused(farwarp_moe_dispatch_send(moe.moe, few, moe.indices, moe.weights, moe.count_of(3), rank.stream)),
              "x has shape [3, 128]; allowed: [8, 128]");
    EXPECT_EQ(
        refused(farwarp_moe_dispatch_recv(nullptr, moe.recv_x, moe.counts, moe.offsets, nullptr, nullptr, nullptr)),
        "moe is NULL; allowed: a pointer");
    // Halves in another order.
    EXPECT_EQ(refused(farwarp_moe_combine_recv(moe.moe, moe.out, rank.stream), FARWARP_MISUSE),
              "farwarp_moe_combine_recv() has no call: a dispatch comes first");
    refused(moe.receive(), FARWARP_MISUSE);
    ASSERT_EQ(moe.send(), FARWARP_OK) << farwarp_message();
    refused(moe.send(), FARWARP_MISUSE);
    refused(moe.fused(FARWARP_MOE_RANK_SCALE, nullptr), FARWARP_MISUSE);
    refused(farwarp_moe_combine_send(moe.moe, moe.recv_x, rank.stream), FARWARP_MISUSE);
    ASSERT_EQ(moe.receive(), FARWARP_OK) << farwarp_message();
    EXPECT_EQ(refused(farwarp_moe_combine(moe.moe, moe.recv_x, few, rank.stream)),
              "out has shape [3, 128]; allowed: [8, 128]");
    ASSERT_EQ(farwarp_moe_combine(moe.moe, moe.recv_x, moe.out, rank.stream), FARWARP_OK) << farwarp_message();
    moe.expect_out(kMost, one, zero);
    // A mode that there is not.
    farwarp_moe_desc desc;
    farwarp_moe_desc_init(&desc);
    desc.mode = 3;
    farwarp_moe* none = nullptr;
    const std::string message = refused(farwarp_moe_create(rank.world, &desc, &none));
    EXPECT_NE(message.find("desc.mode is 3; allowed: 0 to 2"), std::string::npos) << message;
  });
}

/// A count on the device that is not allowed; after recovery the half-made call is dropped, and the next one works.
TEST(CMoe, ForgetsACallAfterRecovery) {
  run_ranks(kRanks, [](Rank& rank, int number) {
    Moe moe(rank, number);
    ASSERT_EQ(moe.send(moe.count_of(kMost + 1)), FARWARP_OK) << farwarp_message();
    EXPECT_NE(farwarp_synchronize(rank.world, rank.stream, 10'000), FARWARP_OK);
    void* const streams[] = {rank.stream};
    ASSERT_EQ(farwarp_world_recover(rank.world, streams, 1), FARWARP_OK) << farwarp_message();
    EXPECT_EQ(farwarp_moe_forget(nullptr), FARWARP_INVALID_ARGUMENT);
    ASSERT_EQ(farwarp_moe_forget(moe.moe), FARWARP_OK);
    EXPECT_EQ(farwarp_moe_combine_recv(moe.moe, moe.out, rank.stream), FARWARP_MISUSE);
    ASSERT_EQ(moe.fused(FARWARP_MOE_RANK_SCALE, nullptr), FARWARP_OK) << farwarp_message();
    moe.expect_out(
        kMost, [](int expert) { return static_cast<float>(1 + expert / kLocal); }, zero);
  });
}

}  // namespace
}  // namespace farwarp_c_test
