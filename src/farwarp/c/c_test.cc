// libfarwarp.so as a C program sees it. examples/products.c calls a product of several ranks.
#include "farwarp/c/c_test.h"

#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>

namespace farwarp_c_test {
namespace {

/// Gathers over a socket of two processes.
int gather_over_socket(void* context, const void* mine, std::size_t bytes, void* all) {
  const auto& [socket, rank] = *static_cast<const std::pair<int, int>*>(context);
  std::byte* const places = static_cast<std::byte*>(all);
  if (write(socket, mine, bytes) != static_cast<ssize_t>(bytes)) return 1;
  if (recv(socket, places + static_cast<std::size_t>(1 - rank) * bytes, bytes, MSG_WAITALL) !=
      static_cast<ssize_t>(bytes))
    return 2;
  std::memcpy(places + static_cast<std::size_t>(rank) * bytes, mine, bytes);
  return 0;
}

/// The first test, because a program with threads should not fork.
TEST(CApi, ProcessesMeetByTheCallersAllgather) {
  int sockets[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets), 0);
  pid_t children[2];
  for (int rank = 0; rank < 2; ++rank) {
    children[rank] = fork();
    if (children[rank] != 0) continue;
    std::pair<int, int> context{sockets[rank], rank};
    farwarp_world_desc desc;
    farwarp_world_desc_init(&desc);
    desc.heap_bytes = 16 << 20;
    farwarp_world* world = nullptr;
    const farwarp_code code = farwarp_world_from_allgather(rank, 2, gather_over_socket, &context, &desc, &world);
    if (code != FARWARP_OK) std::fprintf(stderr, "rank %d: %s\n", rank, farwarp_message());
    const bool right = farwarp_world_rank(world) == rank && farwarp_world_size(world) == 2;
    farwarp_world_destroy(world);
    _exit(code == FARWARP_OK && right ? 0 : 1);
  }
  for (const pid_t child : children) {
    int status = -1;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
}

TEST(CApi, ExportsNothingElse) {
  FILE* const symbols = popen("nm -D --defined-only " FARWARP_LIBRARY, "r");
  ASSERT_NE(symbols, nullptr);
  char name[4096];
  int count = 0;
  while (std::fscanf(symbols, "%*s %*s %4095s", name) == 1) {
    EXPECT_EQ(std::strncmp(name, "farwarp_", 8), 0) << name;
    ++count;
  }
  EXPECT_EQ(pclose(symbols), 0);
  EXPECT_GT(count, 40);
}

TEST(CApi, MessagesAreOfTheThread) {
  EXPECT_EQ(farwarp_c_version(), FARWARP_C_VERSION);
  farwarp_threads* threads = nullptr;
  EXPECT_EQ(farwarp_threads_create(9, &threads), FARWARP_INVALID_ARGUMENT);
  EXPECT_STREQ(farwarp_message(), "size is 9; allowed: 1 to 8");
  std::thread([] { EXPECT_STREQ(farwarp_message(), "no call of this thread has failed"); }).join();
  EXPECT_STREQ(farwarp_code_name(FARWARP_DEADLINE), "deadline");
  EXPECT_STREQ(farwarp_code_name(static_cast<farwarp_code>(99)), "unknown");
}

TEST(CApi, GemmMultiplies) {
  run_ranks(1, [](Rank& rank, int) {
    constexpr int kM = 8, kN = 16, kK = 64;
    farwarp_gemm_desc desc;
    farwarp_gemm_desc_init(&desc);
    desc.m = kM;
    desc.n = kN;
    desc.k = kK;
    farwarp_gemm* gemm = nullptr;
    ASSERT_EQ(farwarp_gemm_create(rank.world, &desc, &gemm), FARWARP_OK) << farwarp_message();
    std::vector<std::uint16_t> ones(kN * kK, bf16(1)), rows;
    for (int i = 0; i < kM * kK; ++i) rows.push_back(bf16(static_cast<float>(i / kK)));
    DLTensor* const x = rank.tensor(kBf16, {kM, kK}, rows);
    DLTensor* const w = rank.tensor(kBf16, {kN, kK}, ones);
    DLTensor* const y = rank.empty(kBf16, {kM, kN});
    ASSERT_EQ(farwarp_gemm_call(gemm, x, w, nullptr, y, rank.stream), FARWARP_OK) << farwarp_message();
    EXPECT_EQ(farwarp_synchronize(rank.world, rank.stream, 10'000), FARWARP_OK) << farwarp_message();
    const auto got = rank.numbers<std::uint16_t>(y, kM * kN);
    for (int i = 0; i < kM * kN; ++i) ASSERT_EQ(float_of(got[i]), kK * (i / kN)) << i;

    // Tensors that the call does not take.
    const auto refused = [&](const DLTensor* given, const DLTensor* bias = nullptr) {
      EXPECT_EQ(farwarp_gemm_call(gemm, given, w, bias, y, rank.stream), FARWARP_INVALID_ARGUMENT);
      return std::string(farwarp_message());
    };
    EXPECT_EQ(refused(nullptr), "x is NULL; allowed: a pointer");
    EXPECT_EQ(refused(w), "x has shape [16, 64]; allowed: [8, 64]");
    EXPECT_EQ(refused(x, w), "bias is given; allowed: NULL, as the descriptor says");
    DLTensor other = *x;
    other.dtype = kFloat32;
    EXPECT_EQ(refused(&other), "x is of float32; allowed: bfloat16");
    other = *x;
    other.device = {kDLCUDA, 1};
    EXPECT_EQ(refused(&other), "x is on DLPack device (2, 1); allowed: (1, 0), that of the world");
    other = *x;
    std::int64_t strides[] = {2 * kK, 1};
    other.strides = strides;
    EXPECT_EQ(refused(&other), "x has stride 128 in dimension 0; allowed: 64, a contiguous tensor");
    EXPECT_EQ(farwarp_gemm_close(gemm), FARWARP_OK) << farwarp_message();
  });
}

TEST(CApi, DescriptorsOfOtherVersionsAreToldApart) {
  run_ranks(1, [](Rank& rank, int) {
    farwarp_gemm_desc desc;
    farwarp_gemm_desc_init(&desc);
    farwarp_gemm* gemm = nullptr;
    desc.bytes = sizeof desc + 8;
    EXPECT_EQ(farwarp_gemm_create(rank.world, &desc, &gemm), FARWARP_INVALID_ARGUMENT);
    EXPECT_NE(std::string(farwarp_message()).find("desc.bytes is "), std::string::npos) << farwarp_message();
    EXPECT_EQ(gemm, nullptr);
    farwarp_gemm_desc_init(&desc);
    desc.m = desc.n = desc.k = 8;
    desc.bytes = offsetof(farwarp_gemm_desc, has_bias);  // of a program that knows fewer fields
    EXPECT_EQ(farwarp_gemm_create(rank.world, &desc, &gemm), FARWARP_OK) << farwarp_message();
    EXPECT_EQ(farwarp_gemm_close(gemm), FARWARP_OK);
  });
}

/// All ranks are told at once; none waits for its deadline.
TEST(CApi, OneRanksWrongDescriptorFailsAll) {
  run_ranks(2, [](Rank& rank, int number) {
    farwarp_product_desc desc;
    farwarp_product_desc_init(&desc);
    desc.m = desc.n = desc.k = 64;
    desc.has_bias = number == 1 ? 7 : 0;
    farwarp_product* product = nullptr;
    EXPECT_EQ(farwarp_product_create(rank.world, &desc, &product), FARWARP_INVALID_ARGUMENT);
    EXPECT_NE(std::string(farwarp_message()).find("desc.has_bias is 7; allowed: 0, 1"), std::string::npos)
        << farwarp_message();
    desc.has_bias = 0;
    desc.path = FARWARP_OWN;
    EXPECT_EQ(farwarp_product_create(rank.world, &desc, &product), FARWARP_OK) << farwarp_message();
    EXPECT_EQ(farwarp_product_close(product), FARWARP_OK);
  });
}

TEST(CApi, AllReduceAdds) {
  run_ranks(2, [](Rank& rank, int number) {
    farwarp_all_reduce_desc desc;
    farwarp_all_reduce_desc_init(&desc);
    desc.max_elements = 2000;
    desc.dtype = kFloat32;
    for (const std::int32_t mode : {FARWARP_ALL_REDUCE_AUTO, FARWARP_ALL_REDUCE_TWO_SHOT}) {
      desc.mode = mode;
      farwarp_all_reduce* all_reduce = nullptr;
      ASSERT_EQ(farwarp_all_reduce_create(rank.world, &desc, &all_reduce), FARWARP_OK) << farwarp_message();
      std::vector<float> numbers(999);
      for (std::size_t i = 0; i < numbers.size(); ++i)
        numbers[i] = static_cast<float>(i + 1) * (number == 0 ? 1.0f : 0.5f);
      DLTensor* const in = rank.tensor(kFloat32, {3, 333}, numbers);
      DLTensor* const out = rank.empty(kFloat32, {999});
      ASSERT_EQ(farwarp_all_reduce_call(all_reduce, in, out, rank.stream), FARWARP_OK) << farwarp_message();
      ASSERT_EQ(farwarp_all_reduce_call(all_reduce, in, in, rank.stream), FARWARP_OK) << farwarp_message();
      EXPECT_EQ(farwarp_synchronize(rank.world, rank.stream, 10'000), FARWARP_OK) << farwarp_message();
      for (const DLTensor* result : {out, in}) {
        const auto got = rank.numbers<float>(result, numbers.size());
        for (std::size_t i = 0; i < got.size(); ++i) ASSERT_EQ(got[i], 1.5f * static_cast<float>(i + 1)) << i;
      }
      EXPECT_EQ(farwarp_all_reduce_close(all_reduce), FARWARP_OK) << farwarp_message();
    }
  });
}

TEST(CApi, AllReduceRefusesByName) {
  run_ranks(1, [](Rank& rank, int) {
    const auto refused = [](farwarp_code code, const char* why) {
      EXPECT_EQ(code, FARWARP_INVALID_ARGUMENT);
      EXPECT_NE(std::string(farwarp_message()).find(why), std::string::npos) << farwarp_message();
    };
    farwarp_all_reduce_desc desc;
    farwarp_all_reduce_desc_init(&desc);
    farwarp_all_reduce* all_reduce = nullptr;
    refused(farwarp_all_reduce_create(rank.world, &desc, &all_reduce), "max_elements is 0; allowed: 1 to");
    desc.max_elements = 100;
    desc.mode = 3;
    refused(farwarp_all_reduce_create(rank.world, &desc, &all_reduce), "desc.mode is 3; allowed: 0, 1, 2");
    desc.mode = FARWARP_ALL_REDUCE_AUTO;
    desc.dtype = kInt32;
    refused(farwarp_all_reduce_create(rank.world, &desc, &all_reduce),
            "desc.dtype is int32; allowed: bfloat16, float16");
    farwarp_all_reduce_desc_init(&desc);
    desc.max_elements = 100;
    ASSERT_EQ(farwarp_all_reduce_create(rank.world, &desc, &all_reduce), FARWARP_OK) << farwarp_message();
    DLTensor* const fits = rank.empty(kBf16, {10, 10});
    refused(farwarp_all_reduce_call(all_reduce, fits, rank.empty(kBf16, {99}), rank.stream),
            "out has 99 elements; allowed: 100, as many as x");
    refused(farwarp_all_reduce_call(all_reduce, rank.empty(kBf16, {101}), fits, rank.stream),
            "x has shape [101]; allowed: 0 to 100 elements");
    refused(farwarp_all_reduce_call(all_reduce, fits, rank.empty(kFloat32, {100}), rank.stream),
            "out is of float32; allowed: bfloat16");
    refused(farwarp_all_reduce_call(all_reduce, nullptr, fits, rank.stream), "x is NULL");
    EXPECT_EQ(farwarp_all_reduce_close(all_reduce), FARWARP_OK) << farwarp_message();
  });
}

/// Rank 1 never makes its call. If it did not leave, rank 0 would wait for its deadline of ten seconds.
TEST(CApi, ARankThatLeavesEndsTheWaitsOfOthers) {
  const auto start = std::chrono::steady_clock::now();
  run_ranks(2, [](Rank& rank, int number) {
    farwarp_product_desc desc;
    farwarp_product_desc_init(&desc);
    desc.kind = FARWARP_GEMM_ALL_REDUCE;
    desc.m = desc.n = desc.k = 64;
    farwarp_product* product = nullptr;
    ASSERT_EQ(farwarp_product_create(rank.world, &desc, &product), FARWARP_OK) << farwarp_message();
    if (number == 1) {
      farwarp_world_leave(rank.world);
      EXPECT_EQ(farwarp_world_status(rank.world), FARWARP_ABORTED);
    } else {
      DLTensor* const x = rank.empty(kBf16, {64, 32});
      DLTensor* const y = rank.empty(kBf16, {64, 64});
      EXPECT_EQ(farwarp_product_call(product, x, x, nullptr, y, nullptr, rank.stream), FARWARP_OK);
      EXPECT_EQ(farwarp_synchronize(rank.world, rank.stream, 10'000), FARWARP_ABORTED) << farwarp_message();
    }
    EXPECT_EQ(farwarp_product_close(product), FARWARP_PEER_LOST);
    EXPECT_STREQ(farwarp_message(), number == 1 ? "this rank has left its group" : "rank 1 left the group");
    EXPECT_EQ(farwarp_world_recover(rank.world, &rank.stream, 1), FARWARP_PEER_LOST);
  });
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
}

TEST(CApi, CollectiveCallsEndWhenAWorldIsDestroyed) {
  farwarp_threads* threads = nullptr;
  ASSERT_EQ(farwarp_threads_create(2, &threads), FARWARP_OK);
  const auto start = std::chrono::steady_clock::now();
  std::vector<std::thread> started;
  for (int number = 0; number < 2; ++number) {
    started.emplace_back([&, number] {
      farwarp_world_desc options;
      farwarp_world_desc_init(&options);
      options.heap_bytes = 16 << 20;
      farwarp_world* world = nullptr;
      ASSERT_EQ(farwarp_world_from_threads(threads, number, &options, &world), FARWARP_OK) << farwarp_message();
      farwarp_world* second = nullptr;
      EXPECT_EQ(farwarp_world_from_threads(threads, number, &options, &second), FARWARP_MISUSE);
      if (number == 0) {
        farwarp_gemm_desc desc;
        farwarp_gemm_desc_init(&desc);
        desc.m = desc.n = desc.k = 8;
        farwarp_gemm* gemm = nullptr;
        EXPECT_EQ(farwarp_gemm_create(world, &desc, &gemm), FARWARP_PEER_LOST);
        EXPECT_STREQ(farwarp_message(), "rank 1 left the group");
      }
      farwarp_world_destroy(world);
    });
  }
  for (std::thread& thread : started) thread.join();
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
  farwarp_threads_destroy(threads);
}

TEST(CApi, SeesRanksInTheEnvironment) {
  unsetenv("RANK");
  unsetenv("WORLD_SIZE");
  EXPECT_EQ(farwarp_environment_has_ranks(), 0);
  std::int32_t place = -1, ranks = -1;
  EXPECT_EQ(farwarp_environment_ranks(&place, &ranks), FARWARP_OK);
  EXPECT_TRUE(place == 0 && ranks == 1);
  setenv("WORLD_SIZE", "2", 1);
  EXPECT_EQ(farwarp_environment_has_ranks(), 1);
  EXPECT_EQ(farwarp_environment_ranks(&place, &ranks), FARWARP_INVALID_ARGUMENT);
  EXPECT_STREQ(farwarp_message(), "RANK is not set; allowed: 0 to 1");
  setenv("RANK", "1", 1);
  EXPECT_EQ(farwarp_environment_ranks(&place, &ranks), FARWARP_OK) << farwarp_message();
  EXPECT_TRUE(place == 1 && ranks == 2);
  EXPECT_EQ(farwarp_environment_ranks(nullptr, &ranks), FARWARP_INVALID_ARGUMENT);
  unsetenv("RANK");
  unsetenv("WORLD_SIZE");
}

TEST(CApi, CountsDevices) {
  EXPECT_EQ(farwarp_device_count(FARWARP_EMU_SM90), 8);
  EXPECT_EQ(farwarp_device_count(FARWARP_EMU_GFX942), 8);
  EXPECT_EQ(farwarp_device_count(-1), 0);
  EXPECT_EQ(farwarp_device_count(4), 0);
}

/// Experts that return what they get: with weights 1 the tokens come back.
TEST(CApi, MoeTokensComeBack) {
  run_ranks(2, [](Rank& rank, int number) {
    constexpr int kTokens = 5, kHidden = 128, kExperts = 4;
    farwarp_moe_desc desc;
    farwarp_moe_desc_init(&desc);
    desc.num_experts = kExperts;
    desc.experts_per_token = 1;
    desc.hidden = kHidden;
    desc.max_tokens = 8;
    farwarp_moe* moe = nullptr;
    ASSERT_EQ(farwarp_moe_create(rank.world, &desc, &moe), FARWARP_OK) << farwarp_message();
    const std::int64_t rows = farwarp_moe_recv_rows(moe);
    ASSERT_EQ(farwarp_moe_local_experts(moe), kExperts / 2);
    std::vector<std::uint16_t> tokens;
    std::vector<std::int32_t> experts;
    for (int i = 0; i < kTokens * kHidden; ++i) tokens.push_back(bf16(static_cast<float>((i + number) % 64)));
    for (int i = 0; i < kTokens; ++i) experts.push_back((i + number) % kExperts);
    DLTensor* const x = rank.tensor(kBf16, {kTokens, kHidden}, tokens);
    DLTensor* const indices = rank.tensor(kInt32, {kTokens, 1}, experts);
    DLTensor* const weights = rank.tensor(kFloat32, {kTokens, 1}, std::vector<float>(kTokens, 1.0f));
    DLTensor* const recv_x = rank.empty(kBf16, {rows, kHidden});
    DLTensor* const counts = rank.empty(kInt32, {kExperts / 2});
    DLTensor* const offsets = rank.empty(kInt32, {kExperts / 2 + 1});
    DLTensor* const origins = rank.empty(kInt64, {rows});
    DLTensor* const out = rank.empty(kBf16, {kTokens, kHidden});
    EXPECT_EQ(farwarp_moe_combine(moe, recv_x, out, rank.stream), FARWARP_MISUSE);
    ASSERT_EQ(farwarp_moe_dispatch(moe, x, indices, weights, recv_x, counts, offsets, origins, nullptr, rank.stream),
              FARWARP_OK)
        << farwarp_message();
    ASSERT_EQ(farwarp_moe_combine(moe, recv_x, out, rank.stream), FARWARP_OK) << farwarp_message();
    EXPECT_EQ(farwarp_synchronize(rank.world, rank.stream, 10'000), FARWARP_OK) << farwarp_message();
    EXPECT_EQ(rank.numbers<std::uint16_t>(out, tokens.size()), tokens);
    int received = 0;
    for (int expert = 0; expert < kExperts; ++expert) {
      if (expert / 2 != number) continue;
      for (int source = 0; source < 2; ++source) {
        for (int i = 0; i < kTokens; ++i) received += (i + source) % kExperts == expert;
      }
    }
    const auto got = rank.numbers<std::int32_t>(counts, kExperts / 2);
    EXPECT_EQ(got[0] + got[1], received);
    EXPECT_EQ(farwarp_moe_close(moe), FARWARP_OK) << farwarp_message();
  });
}

/// Queries that score all keys alike get the mean of the values that they see.
TEST(CApi, AttentionAverages) {
  run_ranks(1, [](Rank& rank, int) {
    constexpr int kRows = 8, kHeads = 2, kDim = 64, kRow = kHeads * kDim;
    std::vector<std::uint16_t> values;
    for (int i = 0; i < kRows * kRow; ++i) values.push_back(bf16(static_cast<float>(2 * (i / kRow))));
    const std::vector<std::uint16_t> zeros(values.size(), 0);

    farwarp_attention_desc desc;
    farwarp_attention_desc_init(&desc);
    desc.batch = 1;
    desc.heads = desc.kv_heads = kHeads;
    desc.head_dim = kDim;
    desc.queries = desc.keys = kRows;
    desc.causal = 1;
    farwarp_attention* attention = nullptr;
    ASSERT_EQ(farwarp_attention_create(rank.world, &desc, &attention), FARWARP_OK) << farwarp_message();
    DLTensor* const q = rank.tensor(kBf16, {1, kRows, kHeads, kDim}, zeros);
    DLTensor* const v = rank.tensor(kBf16, {1, kRows, kHeads, kDim}, values);
    DLTensor* const out = rank.empty(kBf16, {1, kRows, kHeads, kDim});
    ASSERT_EQ(farwarp_attention_call(attention, q, q, v, out, nullptr, rank.stream), FARWARP_OK) << farwarp_message();
    EXPECT_EQ(farwarp_synchronize(rank.world, rank.stream, 10'000), FARWARP_OK) << farwarp_message();
    const auto got = rank.numbers<std::uint16_t>(out, values.size());
    for (std::size_t i = 0; i < got.size(); ++i) ASSERT_EQ(float_of(got[i]), static_cast<float>(i / kRow)) << i;
    EXPECT_EQ(farwarp_attention_close(attention), FARWARP_OK) << farwarp_message();
  });
}

TEST(CApi, DecodeAverages) {
  run_ranks(1, [](Rank& rank, int) {
    constexpr int kHeads = 2, kDim = 64, kPage = 16, kPages = 2;
    farwarp_decode_desc desc;
    farwarp_decode_desc_init(&desc);
    desc.batch = 1;
    desc.query_heads = desc.kv_heads = kHeads;
    desc.head_dim = kDim;
    desc.pages = desc.max_pages = kPages;
    farwarp_decode* decode = nullptr;
    ASSERT_EQ(farwarp_decode_create(rank.world, &desc, &decode), FARWARP_OK) << farwarp_message();
    const std::vector<std::uint16_t> zeros(kHeads * kDim, 0);
    std::vector<std::uint16_t> values;  // key i has the value i
    for (int i = 0; i < kPages * kPage * kHeads * kDim; ++i)
      values.push_back(bf16(static_cast<float>(i / (kHeads * kDim))));
    DLTensor* const q = rank.tensor(kBf16, {1, 1, kHeads, kDim}, zeros);
    DLTensor* const cache = rank.tensor(kBf16, {kPages, kPage, kHeads, kDim}, values);
    DLTensor* const table = rank.tensor(kInt32, {1, kPages}, std::vector<std::int32_t>{0, 1});
    DLTensor* const lengths = rank.tensor(kInt32, {1}, std::vector<std::int32_t>{17});
    DLTensor* const out = rank.empty(kBf16, {1, 1, kHeads, kDim});
    ASSERT_EQ(farwarp_decode_call(decode, q, cache, cache, table, lengths, nullptr, nullptr, out, nullptr, rank.stream),
              FARWARP_OK)
        << farwarp_message();
    EXPECT_EQ(farwarp_synchronize(rank.world, rank.stream, 10'000), FARWARP_OK) << farwarp_message();
    for (const std::uint16_t number : rank.numbers<std::uint16_t>(out, kHeads * kDim)) ASSERT_EQ(float_of(number), 8);
    EXPECT_EQ(farwarp_decode_close(decode), FARWARP_OK) << farwarp_message();
  });
}

}  // namespace
}  // namespace farwarp_c_test
