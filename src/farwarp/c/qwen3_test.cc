// Qwen3 as a C program decodes it.
#include <algorithm>
#include <cstddef>

#include "farwarp/c/c_test.h"

namespace farwarp_c_test {
namespace {

/// The choices are those of the logits, and the same when the sequence is decoded anew after a prefill.
TEST(CApi, Qwen3Decodes) {
  run_ranks(1, [](Rank& rank, int) {
    constexpr int kTokens = 3;
    farwarp_qwen3_desc desc;
    farwarp_qwen3_desc_init(&desc);
    farwarp_qwen3* qwen3 = nullptr;
    EXPECT_EQ(farwarp_qwen3_create(rank.world, &desc, &qwen3), FARWARP_INVALID_ARGUMENT);
    EXPECT_STREQ(farwarp_message(), "rank 0: desc.model is NULL; allowed: a pointer");
    desc.model = "/no/such/folder";
    EXPECT_NE(farwarp_qwen3_create(rank.world, &desc, &qwen3), FARWARP_OK);
    EXPECT_NE(std::string(farwarp_message()).find("/no/such/folder"), std::string::npos) << farwarp_message();
    desc.model = "random:nano";
    desc.positions = 32;
    desc.max_sms = 2;
    desc.prefill_tokens = 16;
    desc.vectors = 3;
    EXPECT_EQ(farwarp_qwen3_create(rank.world, &desc, &qwen3), FARWARP_INVALID_ARGUMENT);
    EXPECT_STREQ(farwarp_message(), "rank 0: desc.vectors is 3; allowed: 0 to 2, farwarp_qwen3_vectors");
    desc.vectors = FARWARP_QWEN3_STREAMED;
    ASSERT_EQ(farwarp_qwen3_create(rank.world, &desc, &qwen3), FARWARP_OK) << farwarp_message();
    EXPECT_EQ(farwarp_qwen3_columns(qwen3), 16);
    EXPECT_EQ(farwarp_qwen3_close(qwen3), FARWARP_OK) << farwarp_message();
    desc.vectors = FARWARP_QWEN3_FASTER;
    std::int64_t bytes = 0;
    ASSERT_EQ(farwarp_qwen3_heap_bytes(&desc, FARWARP_EMU_SM90, 0, 1, &bytes), FARWARP_OK) << farwarp_message();
    EXPECT_GT(bytes, 0);
    ASSERT_EQ(farwarp_qwen3_create(rank.world, &desc, &qwen3), FARWARP_OK) << farwarp_message();
    const int vocabulary = farwarp_qwen3_vocabulary(qwen3);
    ASSERT_EQ(farwarp_qwen3_columns(qwen3), 1);
    DLTensor* const sampled = rank.empty(kInt32, {1, kTokens});
    DLTensor* const logits = rank.empty(kFloat32, {kTokens, 1, vocabulary});
    std::vector<std::int32_t> first;
    for (int round = 0; round < 2; ++round) {
      const std::int32_t prompt[] = {5, 6};
      ASSERT_EQ(farwarp_qwen3_start(qwen3, 0, prompt, 2, nullptr, rank.stream), FARWARP_OK) << farwarp_message();
      ASSERT_EQ(farwarp_qwen3_decode(qwen3, kTokens, -1, sampled, logits, rank.stream), FARWARP_OK)
          << farwarp_message();
      EXPECT_EQ(farwarp_synchronize(rank.world, rank.stream, 20'000), FARWARP_OK) << farwarp_message();
      const auto tokens = rank.numbers<std::int32_t>(sampled, kTokens);
      const auto scores = rank.numbers<float>(logits, static_cast<std::size_t>(kTokens) * vocabulary);
      for (int i = 0; i < kTokens; ++i) {
        const auto begin = scores.begin() + std::ptrdiff_t{i} * vocabulary;
        EXPECT_EQ(tokens[i], std::max_element(begin, begin + vocabulary) - begin) << i;
      }
      if (round == 0) first = tokens;
      EXPECT_EQ(tokens, first);
    }
    // Of several end tokens any ends the sequence; where it has ended nothing is written.
    const std::int32_t prompt_again[] = {5, 6}, ends[] = {vocabulary - 1 - (first[1] == vocabulary - 1), first[1]};
    for (int count : {2, 0}) {  // `sampled` begins as `first`
      ASSERT_EQ(farwarp_qwen3_start(qwen3, 0, prompt_again, 2, nullptr, rank.stream), FARWARP_OK);
      for (int launch = 0; launch < 2; ++launch) {
        ASSERT_EQ(farwarp_qwen3_decode_until(qwen3, kTokens, ends, count, sampled, nullptr, rank.stream), FARWARP_OK)
            << farwarp_message();
      }
      EXPECT_EQ(farwarp_synchronize(rank.world, rank.stream, 20'000), FARWARP_OK) << farwarp_message();
      EXPECT_EQ(rank.numbers<std::int32_t>(sampled, kTokens) == first, count == 2);
    }
    EXPECT_EQ(farwarp_qwen3_decode_until(qwen3, kTokens, ends, 9, sampled, nullptr, rank.stream),
              FARWARP_INVALID_ARGUMENT);
    EXPECT_STREQ(farwarp_message(), "end_token_count is 9; allowed: 0 to 8");
    EXPECT_EQ(farwarp_qwen3_decode_until(qwen3, kTokens, nullptr, 1, sampled, nullptr, rank.stream),
              FARWARP_INVALID_ARGUMENT);
    EXPECT_EQ(farwarp_qwen3_decode_until(qwen3, kTokens, &vocabulary, 1, sampled, nullptr, rank.stream),
              FARWARP_INVALID_ARGUMENT);
    EXPECT_NE(std::string(farwarp_message()).find("end_tokens[0] is "), std::string::npos) << farwarp_message();
    std::int32_t asked[FARWARP_MOST_END_TOKENS], asked_count = -1;
    farwarp_sampling asked_sampling;
    farwarp_sampling_init(&asked_sampling);
    EXPECT_EQ(farwarp_qwen3_generation(qwen3, asked, &asked_count, &asked_sampling), FARWARP_OK) << farwarp_message();
    EXPECT_EQ(asked_count, 0);
    EXPECT_EQ(asked_sampling.temperature, 0);
    EXPECT_EQ(farwarp_qwen3_generation(qwen3, nullptr, &asked_count, &asked_sampling), FARWARP_INVALID_ARGUMENT);
    const std::int32_t outside[] = {vocabulary};
    EXPECT_EQ(farwarp_qwen3_start(qwen3, 0, outside, 1, nullptr, rank.stream), FARWARP_INVALID_ARGUMENT);
    EXPECT_NE(std::string(farwarp_message()).find("prompt[0] is "), std::string::npos) << farwarp_message();
    farwarp_sampling sampling;
    farwarp_sampling_init(&sampling);
    sampling.temperature = 1;
    sampling.top_k = 5;
    const std::int32_t prompt[] = {5};
    EXPECT_EQ(farwarp_qwen3_start(qwen3, 0, prompt, 1, &sampling, rank.stream), FARWARP_INVALID_ARGUMENT);
    EXPECT_EQ(farwarp_qwen3_close(qwen3), FARWARP_OK) << farwarp_message();
  });
}

}  // namespace
}  // namespace farwarp_c_test
