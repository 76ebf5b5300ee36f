// Ragged and paged attention, windows and sinks of c.h, against sums in double.
#include <algorithm>
#include <cmath>
#include <limits>

#include "farwarp/c/c_test.h"

namespace farwarp_c_test {
namespace {

constexpr int kBatch = 2, kHeads = 4, kKvHeads = 2, kDim = 64;
const double kScale = 1 / std::sqrt(double{kDim});

/// Numbers that bf16 holds exactly, of either sign.
std::vector<std::uint16_t> some_numbers(int count, int seed) {
  std::vector<std::uint16_t> numbers;
  std::uint32_t state = static_cast<std::uint32_t>(seed);
  for (int i = 0; i < count; ++i) {
    state = state * 1664525u + 1013904223u;
    numbers.push_back(bf16(static_cast<float>(static_cast<int>(state >> 24) - 128) / 64));
  }
  return numbers;
}

/// Attention of one query to keys whose rows of one head begin at `keys` (k and v alike); without a sink it is minus
/// infinity.
struct Expected {
  std::vector<double> out = std::vector<double>(kDim, 0.0);
  double lse = 0;
};
Expected attend(const std::uint16_t* q, const std::vector<std::pair<const std::uint16_t*, const std::uint16_t*>>& keys,
                double sink) {
  std::vector<double> logits;
  double most = sink;
  for (const auto& [k, v] : keys) {
    double logit = 0;
    for (int i = 0; i < kDim; ++i) logit += double{float_of(q[i])} * float_of(k[i]);
    logits.push_back(logit * kScale);
    most = std::max(most, logits.back());
  }
  double sum = std::isinf(sink) ? 0 : std::exp(sink - most);
  Expected expected;
  for (std::size_t key = 0; key < keys.size(); ++key) {
    const double factor = std::exp(logits[key] - most);
    sum += factor;
    for (int i = 0; i < kDim; ++i) expected.out[static_cast<std::size_t>(i)] += factor * float_of(keys[key].second[i]);
  }
  for (double& number : expected.out) number /= sum;
  expected.lse = most + std::log(sum);
  return expected;
}

void expect_row(const std::uint16_t* got, const Expected& expected, int query) {
  for (int i = 0; i < kDim; ++i)
    ASSERT_NEAR(float_of(got[i]), expected.out[static_cast<std::size_t>(i)], 0.02) << "query " << query << ", " << i;
}

constexpr double kNone = -std::numeric_limits<double>::infinity();
const std::vector<float> kSinks = {0.5f, -1.0f, 2.0f, 0.0f};

TEST(CAttention, RaggedSequencesInAWindow) {
  run_ranks(1, [](Rank& rank, int) {
    const std::vector<std::int32_t> query_starts = {0, 5, 14}, key_starts = {0, 20, 29};
    constexpr int kLeft = 6, kRight = 2, kQueries = 14, kKeys = 29;
    farwarp_attention_desc desc;
    farwarp_attention_desc_init(&desc);
    desc.batch = kBatch;
    desc.heads = kHeads;
    desc.kv_heads = kKvHeads;
    desc.head_dim = kDim;
    desc.queries = 9;
    desc.keys = 20;
    desc.ragged_queries = desc.ragged_keys = 1;
    desc.total_queries = kQueries;
    desc.total_keys = kKeys;
    desc.window_left = kLeft;
    desc.window_right = kRight;
    desc.has_lse = 1;
    farwarp_attention* attention = nullptr;
    ASSERT_EQ(farwarp_attention_create(rank.world, &desc, &attention), FARWARP_OK) << farwarp_message();
    const auto queries = some_numbers(kQueries * kHeads * kDim, 1), keys = some_numbers(kKeys * kKvHeads * kDim, 2),
               values = some_numbers(kKeys * kKvHeads * kDim, 3);
    farwarp_attention_tensors all;
    farwarp_attention_tensors_init(&all);
    all.q = rank.tensor(kBf16, {kQueries, kHeads, kDim}, queries);
    all.k = rank.tensor(kBf16, {kKeys, kKvHeads, kDim}, keys);
    all.v = rank.tensor(kBf16, {kKeys, kKvHeads, kDim}, values);
    all.out = rank.empty(kBf16, {kQueries, kHeads, kDim});
    all.lse = rank.empty(kFloat32, {kHeads, kQueries});
    all.query_starts = rank.tensor(kInt32, {kBatch + 1}, query_starts);
    all.key_starts = rank.tensor(kInt32, {kBatch + 1}, key_starts);
    ASSERT_EQ(farwarp_attention_call_tensors(attention, &all, rank.stream), FARWARP_OK) << farwarp_message();
    EXPECT_EQ(farwarp_synchronize(rank.world, rank.stream, 10'000), FARWARP_OK) << farwarp_message();
    const auto out = rank.numbers<std::uint16_t>(all.out, queries.size());
    const auto lse = rank.numbers<float>(all.lse, kHeads * kQueries);
    for (int row = 0; row < kQueries * kHeads; ++row) {
      const int query = row / kHeads, head = row % kHeads, sequence = query < query_starts[1] ? 0 : 1;
      const int first = query_starts[sequence], begin = key_starts[sequence], end = key_starts[sequence + 1];
      const int own = begin + query - first + (end - begin) - (query_starts[sequence + 1] - first);
      std::vector<std::pair<const std::uint16_t*, const std::uint16_t*>> seen;
      for (int key = std::max(begin, own - kLeft); key < std::min(end, own + kRight + 1); ++key) {
        const int at = (key * kKvHeads + head / (kHeads / kKvHeads)) * kDim;
        seen.push_back({&keys[at], &values[at]});
      }
      const Expected expected = attend(&queries[row * kDim], seen, kNone);
      expect_row(&out[row * kDim], expected, query);
      ASSERT_NEAR(lse[head * kQueries + query], expected.lse, 0.01) << query;
    }

    // Tensors that the call does not take.
    const auto refused = [&](const farwarp_attention_tensors& given) {
      EXPECT_EQ(farwarp_attention_call_tensors(attention, &given, rank.stream), FARWARP_INVALID_ARGUMENT);
      return std::string(farwarp_message());
    };
    farwarp_attention_tensors other = all;
    other.query_starts = nullptr;
    EXPECT_EQ(refused(other), "query_starts is NULL; allowed: a pointer");
    other = all;
    other.key_starts = all.lse;
    EXPECT_EQ(refused(other), "key_starts is of float32; allowed: int32");
    other = all;
    other.sinks = all.lse;
    EXPECT_EQ(refused(other), "sinks is given; allowed: NULL, as the descriptor says");
    other = all;
    other.q = all.k;
    EXPECT_EQ(refused(other), "q has shape [29, 2, 64]; allowed: [14, 4, 64]");
    other = all;
    other.bytes = sizeof other + 8;
    EXPECT_EQ(refused(other).find("tensors.bytes is "), 0u) << farwarp_message();
    EXPECT_EQ(farwarp_attention_close(attention), FARWARP_OK) << farwarp_message();
  });
}

/// Pages in an order of their own; sequences with fewer keys than there is room for, one without any.
TEST(CAttention, PagedKeysWithSinks) {
  run_ranks(1, [](Rank& rank, int) {
    constexpr int kQueries = 4, kPage = 16, kMaxKeys = 40, kPages = 6, kTable = 3;
    const std::vector<std::int32_t> counts = {35, 0}, table = {4, 1, 5, 0, 2, 3};
    farwarp_attention_desc desc;
    farwarp_attention_desc_init(&desc);
    desc.batch = kBatch;
    desc.heads = kHeads;
    desc.kv_heads = kKvHeads;
    desc.head_dim = kDim;
    desc.queries = kQueries;
    desc.keys = kMaxKeys;
    desc.causal = 1;
    desc.has_sinks = 1;
    desc.page_size = kPage;
    desc.pages = kPages;
    farwarp_attention* attention = nullptr;
    ASSERT_EQ(farwarp_attention_create(rank.world, &desc, &attention), FARWARP_OK) << farwarp_message();
    constexpr int kCache = kPages * kPage * kKvHeads * kDim;
    const auto queries = some_numbers(kBatch * kQueries * kHeads * kDim, 4), keys = some_numbers(kCache, 5),
               values = some_numbers(kCache, 6);
    farwarp_attention_tensors all;
    farwarp_attention_tensors_init(&all);
    all.q = rank.tensor(kBf16, {kBatch, kQueries, kHeads, kDim}, queries);
    all.k = rank.tensor(kBf16, {kPages, kPage, kKvHeads, kDim}, keys);
    all.v = rank.tensor(kBf16, {kPages, kPage, kKvHeads, kDim}, values);
    all.out = rank.empty(kBf16, {kBatch, kQueries, kHeads, kDim});
    all.sinks = rank.tensor(kFloat32, {kHeads}, kSinks);
    all.key_counts = rank.tensor(kInt32, {kBatch}, counts);
    all.block_table = rank.tensor(kInt32, {kBatch, kTable}, table);
    ASSERT_EQ(farwarp_attention_call_tensors(attention, &all, rank.stream), FARWARP_OK) << farwarp_message();
    EXPECT_EQ(farwarp_synchronize(rank.world, rank.stream, 10'000), FARWARP_OK) << farwarp_message();
    const auto out = rank.numbers<std::uint16_t>(all.out, queries.size());
    for (int row = 0; row < kBatch * kQueries * kHeads; ++row) {
      const int sequence = row / (kQueries * kHeads), query = row / kHeads % kQueries, head = row % kHeads;
      std::vector<std::pair<const std::uint16_t*, const std::uint16_t*>> seen;
      for (int key = 0; key <= query + counts[sequence] - kQueries; ++key) {
        const int page = table[sequence * kTable + key / kPage];
        const int at = ((page * kPage + key % kPage) * kKvHeads + head / (kHeads / kKvHeads)) * kDim;
        seen.push_back({&keys[at], &values[at]});
      }
      expect_row(&out[row * kDim], attend(&queries[row * kDim], seen, kSinks[head]), row);
    }
    // The short form has none of these tensors.
    EXPECT_EQ(farwarp_attention_call(attention, all.q, all.k, all.v, all.out, nullptr, rank.stream),
              FARWARP_INVALID_ARGUMENT);
    EXPECT_STREQ(farwarp_message(), "sinks is NULL; allowed: a pointer");
    farwarp_attention_tensors other = all;
    other.block_table = all.key_counts;
    EXPECT_EQ(farwarp_attention_call_tensors(attention, &other, rank.stream), FARWARP_INVALID_ARGUMENT);
    EXPECT_STREQ(farwarp_message(), "block_table has shape [2]; allowed: [2, 3]");
    // A page that there is not.
    other = all;
    other.block_table = rank.tensor(kInt32, {kBatch, kTable}, std::vector<std::int32_t>{4, kPages, 5, 0, 2, 3});
    EXPECT_EQ(farwarp_attention_call_tensors(attention, &other, rank.stream), FARWARP_OK) << farwarp_message();
    EXPECT_EQ(farwarp_synchronize(rank.world, rank.stream, 10'000), FARWARP_BAD_INPUT) << farwarp_message();
    void* const streams[] = {rank.stream};
    EXPECT_EQ(farwarp_world_recover(rank.world, streams, 1), FARWARP_OK) << farwarp_message();
    EXPECT_EQ(farwarp_attention_close(attention), FARWARP_OK) << farwarp_message();
  });
}

TEST(CAttention, DecodeWithSinks) {
  run_ranks(1, [](Rank& rank, int) {
    constexpr int kPage = 16, kPages = 4, kTable = 2;
    const std::vector<std::int32_t> lengths = {21, 7}, table = {3, 0, 1, 2};
    farwarp_decode_desc desc;
    farwarp_decode_desc_init(&desc);
    desc.batch = kBatch;
    desc.query_heads = kHeads;
    desc.kv_heads = kKvHeads;
    desc.head_dim = kDim;
    desc.pages = kPages;
    desc.max_pages = kTable;
    desc.has_sinks = 1;
    desc.split_keys = 64;
    desc.work = FARWARP_DECODE_WORK_SPLIT;
    farwarp_decode* decode = nullptr;
    ASSERT_EQ(farwarp_decode_create(rank.world, &desc, &decode), FARWARP_OK) << farwarp_message();
    constexpr int kCache = kPages * kPage * kKvHeads * kDim;
    const auto queries = some_numbers(kBatch * kHeads * kDim, 7), keys = some_numbers(kCache, 8),
               values = some_numbers(kCache, 9);
    DLTensor* const q = rank.tensor(kBf16, {kBatch, 1, kHeads, kDim}, queries);
    DLTensor* const k = rank.tensor(kBf16, {kPages, kPage, kKvHeads, kDim}, keys);
    DLTensor* const v = rank.tensor(kBf16, {kPages, kPage, kKvHeads, kDim}, values);
    DLTensor* const pages = rank.tensor(kInt32, {kBatch, kTable}, table);
    DLTensor* const counts = rank.tensor(kInt32, {kBatch}, lengths);
    DLTensor* const sinks = rank.tensor(kFloat32, {kHeads}, kSinks);
    DLTensor* const out = rank.empty(kBf16, {kBatch, 1, kHeads, kDim});
    DLTensor* const lse = rank.empty(kFloat32, {kBatch, 1, kHeads});
    const auto call = [&](const DLTensor* given) {
      return farwarp_decode_call_sinks(decode, q, k, v, pages, counts, nullptr, nullptr, given, out, lse, rank.stream);
    };
    ASSERT_EQ(call(sinks), FARWARP_OK) << farwarp_message();
    EXPECT_EQ(farwarp_synchronize(rank.world, rank.stream, 10'000), FARWARP_OK) << farwarp_message();
    const auto got = rank.numbers<std::uint16_t>(out, queries.size());
    const auto logarithms = rank.numbers<float>(lse, kBatch * kHeads);
    for (int row = 0; row < kBatch * kHeads; ++row) {
      const int sequence = row / kHeads, head = row % kHeads;
      std::vector<std::pair<const std::uint16_t*, const std::uint16_t*>> seen;
      for (int key = 0; key < lengths[sequence]; ++key) {
        const int page = table[sequence * kTable + key / kPage];
        const int at = ((page * kPage + key % kPage) * kKvHeads + head / (kHeads / kKvHeads)) * kDim;
        seen.push_back({&keys[at], &values[at]});
      }
      const Expected expected = attend(&queries[row * kDim], seen, kSinks[head]);
      expect_row(&got[row * kDim], expected, row);
      ASSERT_NEAR(logarithms[row], expected.lse, 0.01) << row;
    }
    EXPECT_EQ(call(nullptr), FARWARP_INVALID_ARGUMENT);
    EXPECT_STREQ(farwarp_message(), "sinks is NULL; allowed: a pointer");
    EXPECT_EQ(call(lse), FARWARP_INVALID_ARGUMENT);
    EXPECT_STREQ(farwarp_message(), "sinks has shape [2, 1, 4]; allowed: [4]");
    EXPECT_EQ(farwarp_decode_close(decode), FARWARP_OK) << farwarp_message();
  });
}

TEST(CAttention, DescriptorsAreChecked) {
  run_ranks(1, [](Rank& rank, int) {
    const auto expect_text = [](const char* text) {
      EXPECT_NE(std::string(farwarp_message()).find(text), std::string::npos) << farwarp_message();
    };
    farwarp_attention_desc desc;
    farwarp_attention_desc_init(&desc);
    farwarp_attention* attention = nullptr;
    desc.ragged_keys = 2;
    EXPECT_EQ(farwarp_attention_create(rank.world, &desc, &attention), FARWARP_INVALID_ARGUMENT);
    expect_text("desc.ragged_keys is 2; allowed: 0, 1");
    desc.ragged_keys = 0;
    desc.batch = desc.heads = desc.kv_heads = desc.queries = desc.keys = 1;
    desc.head_dim = kDim;
    desc.page_size = 24;
    EXPECT_EQ(farwarp_attention_create(rank.world, &desc, &attention), FARWARP_INVALID_ARGUMENT);
    expect_text("page_size is 24; allowed: 0 (not paged), 16, 32, 64");
    farwarp_decode_desc decode_desc;
    farwarp_decode_desc_init(&decode_desc);
    farwarp_decode* decode = nullptr;
    decode_desc.work = 4;
    EXPECT_EQ(farwarp_decode_create(rank.world, &decode_desc, &decode), FARWARP_INVALID_ARGUMENT);
    expect_text("desc.work is 4; allowed: 0 to 3");
    decode_desc.work = 0;
    decode_desc.exchange = -1;
    EXPECT_EQ(farwarp_decode_create(rank.world, &decode_desc, &decode), FARWARP_INVALID_ARGUMENT);
    expect_text("desc.exchange is -1; allowed: 0 to 2");
  });
}

/// Messages have the names of c.h.
TEST(CNames, FieldsAreNamedAsTheStructHasThem) {
  run_ranks(1, [](Rank& rank, int) {
    farwarp_moe_desc desc;
    farwarp_moe_desc_init(&desc);
    desc.num_experts = 4;
    desc.experts_per_token = 2;
    desc.hidden = 128;
    desc.max_tokens = 8;
    const auto refused = [&](const farwarp_moe_desc& wrong) {
      farwarp_moe* moe = nullptr;
      EXPECT_EQ(farwarp_moe_create(rank.world, &wrong, &moe), FARWARP_INVALID_ARGUMENT);
      return std::string(farwarp_message());
    };
    farwarp_moe_desc wrong = desc;
    wrong.hidden = 12;
    EXPECT_EQ(refused(wrong), "desc.hidden is 12; allowed: a multiple of 8 from 8 to 1048576");
    wrong = desc;
    wrong.rows = wrong.weights_at_combine = 1;
    EXPECT_EQ(refused(wrong).find("desc.rows is 1; allowed: 1 without fp8_dispatch"), 0u) << refused(wrong);
    wrong = desc;
    wrong.scale_columns = 1;
    EXPECT_EQ(refused(wrong), "desc.scale_columns is 1; allowed: 0, or 1 with fp8_dispatch and masked");
    farwarp_attention_desc attention;
    farwarp_attention_desc_init(&attention);
    attention.batch = attention.heads = attention.kv_heads = attention.queries = 1;
    attention.head_dim = 64;
    farwarp_attention* none = nullptr;
    EXPECT_EQ(farwarp_attention_create(rank.world, &attention, &none), FARWARP_INVALID_ARGUMENT);
    EXPECT_EQ(std::string(farwarp_message()).find("desc.keys is 0; allowed: 1 to "), 0u) << farwarp_message();
  });
}

}  // namespace
}  // namespace farwarp_c_test
