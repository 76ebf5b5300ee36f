// What a C program gets wrong about tensors, memory and streams: it is told.
#include "farwarp/c/c_test.h"

namespace farwarp_c_test {
namespace {

TEST(CMisuse, TensorsWithoutAForm) {
  run_ranks(1, [](Rank& rank, int) {
    farwarp_all_reduce_desc desc;
    farwarp_all_reduce_desc_init(&desc);
    desc.max_elements = 64;
    farwarp_all_reduce* reduce = nullptr;
    ASSERT_EQ(farwarp_all_reduce_create(rank.world, &desc, &reduce), FARWARP_OK) << farwarp_message();
    farwarp_moe_desc of_moe;
    farwarp_moe_desc_init(&of_moe);
    of_moe.num_experts = 4;
    of_moe.experts_per_token = 2;
    of_moe.hidden = 128;
    of_moe.max_tokens = 8;
    farwarp_moe* moe = nullptr;
    ASSERT_EQ(farwarp_moe_create(rank.world, &of_moe, &moe), FARWARP_OK) << farwarp_message();
    farwarp_gemm_desc of_gemm;
    farwarp_gemm_desc_init(&of_gemm);
    of_gemm.m = of_gemm.n = of_gemm.k = 8;
    farwarp_gemm* gemm = nullptr;
    ASSERT_EQ(farwarp_gemm_create(rank.world, &of_gemm, &gemm), FARWARP_OK) << farwarp_message();
    DLTensor *const x = rank.empty(kBf16, {8, 8}), *const y = rank.empty(kBf16, {8, 8}), wrong = *x;
    // By each of the ways in which tensors are read: a given shape, any shape, rows of a shape.
    const auto messages = [&]() -> std::vector<std::string> {
      std::vector<std::string> all;
      EXPECT_EQ(farwarp_gemm_call(gemm, &wrong, x, nullptr, y, rank.stream), FARWARP_INVALID_ARGUMENT);
      all.emplace_back(farwarp_message());
      EXPECT_EQ(farwarp_all_reduce_call(reduce, x, &wrong, rank.stream), FARWARP_INVALID_ARGUMENT);
      all.emplace_back(farwarp_message());
      EXPECT_EQ(farwarp_moe_dispatch_send(moe, &wrong, x, x, nullptr, rank.stream), FARWARP_INVALID_ARGUMENT);
      all.emplace_back(farwarp_message());
      return all;
    };
    wrong.ndim = -1;
    EXPECT_EQ(messages(),
              (std::vector<std::string>{"x.ndim is -1; allowed: 0 or more", "out.ndim is -1; allowed: 0 or more",
                                        "x.ndim is -1; allowed: 0 or more"}));
    wrong = *x;
    wrong.shape = nullptr;
    EXPECT_EQ(messages(),
              (std::vector<std::string>{"x.shape is NULL; allowed: a pointer", "out.shape is NULL; allowed: a pointer",
                                        "x.shape is NULL; allowed: a pointer"}));
    wrong = *x;
    wrong.data = nullptr;
    wrong.byte_offset = 256;  // no address
    EXPECT_EQ(farwarp_gemm_call(gemm, &wrong, x, nullptr, y, rank.stream), FARWARP_INVALID_ARGUMENT);
    EXPECT_EQ(std::string(farwarp_message()).find("x is null"), 0u) << farwarp_message();
    EXPECT_EQ(farwarp_gemm_close(gemm), FARWARP_OK);
    EXPECT_EQ(farwarp_moe_close(moe), FARWARP_OK);
    EXPECT_EQ(farwarp_all_reduce_close(reduce), FARWARP_OK);
  });
}

TEST(CMisuse, CopiesStayInsideTheirAllocations) {
  run_ranks(1, [](Rank& rank, int) {
    std::vector<char> host(256, 7);
    char* memory = nullptr;
    ASSERT_EQ(farwarp_allocate(rank.world, 64, reinterpret_cast<void**>(&memory)), FARWARP_OK);
    const auto in = [&](void* to, const void* from, std::size_t bytes) {
      return farwarp_copy_in(rank.world, to, from, bytes, rank.stream) == FARWARP_OK ? "ok"
                                                                                     : std::string(farwarp_message());
    };
    const auto out = [&](void* to, const void* from, std::size_t bytes) {
      return farwarp_copy_out(rank.world, to, from, bytes, rank.stream) == FARWARP_OK ? "ok"
                                                                                      : std::string(farwarp_message());
    };
    EXPECT_EQ(in(memory, host.data(), 64), "ok");
    EXPECT_EQ(in(memory + 60, host.data(), 4), "ok");
    EXPECT_EQ(in(memory, nullptr, 0), "ok") << "nothing";
    EXPECT_EQ(in(memory, nullptr, 1), "from_host is NULL; allowed: a pointer");
    EXPECT_EQ(in(nullptr, host.data(), 1), "to is NULL; allowed: a pointer");
    EXPECT_EQ(in(memory, host.data(), 65), "bytes is 65; allowed: up to 64, what the allocation has from to on");
    EXPECT_EQ(in(memory + 60, host.data(), 5), "bytes is 5; allowed: up to 4, what the allocation has from to on");
    EXPECT_EQ(in(memory, host.data(), ~std::size_t{0}).find("bytes is 18446744073709551615; allowed: up to 64"), 0u);
    EXPECT_NE(in(memory + 64, host.data(), 1).find("allowed: memory of farwarp_allocate()"), std::string::npos);
    EXPECT_NE(in(host.data(), host.data(), 1).find("allowed: memory of farwarp_allocate()"), std::string::npos);
    EXPECT_EQ(out(host.data(), memory, 64), "ok");
    EXPECT_EQ(out(nullptr, memory, 1), "to_host is NULL; allowed: a pointer");
    EXPECT_EQ(out(host.data(), nullptr, 1), "from is NULL; allowed: a pointer");
    EXPECT_EQ(out(host.data(), memory, 65), "bytes is 65; allowed: up to 64, what the allocation has from from on");
    farwarp_release(rank.world, host.data());  // not ours: ignored
    farwarp_release(rank.world, memory);
    farwarp_release(rank.world, memory);
    EXPECT_NE(in(memory, host.data(), 1).find("allowed: memory of farwarp_allocate()"), std::string::npos);
  });
}

TEST(CMisuse, AllocationsThatNoMachineHas) {
  run_ranks(1, [](Rank& rank, int) {
    for (const std::size_t bytes : {~std::size_t{0}, std::size_t{1} << 63, std::size_t{1} << 62}) {
      void* memory = &memory;
      EXPECT_EQ(farwarp_allocate(rank.world, bytes, &memory), FARWARP_OUT_OF_MEMORY) << bytes;
      EXPECT_EQ(memory, nullptr);
    }
  });
}

/// Release waits for copies and kernels that are still to come.
TEST(CMisuse, ReleaseWaitsForWhatIsPending) {
  run_ranks(1, [](Rank& rank, int) {
    const std::vector<char> host(1 << 20, 7);
    farwarp_gemm_desc desc;
    farwarp_gemm_desc_init(&desc);
    desc.m = desc.n = desc.k = 128;
    farwarp_gemm* gemm = nullptr;
    ASSERT_EQ(farwarp_gemm_create(rank.world, &desc, &gemm), FARWARP_OK) << farwarp_message();
    for (void* const stream : {rank.stream, static_cast<void*>(nullptr)}) {
      void* memory = nullptr;
      ASSERT_EQ(farwarp_allocate(rank.world, host.size(), &memory), FARWARP_OK);
      ASSERT_EQ(farwarp_copy_in(rank.world, memory, host.data(), host.size(), stream), FARWARP_OK);
      farwarp_release(rank.world, memory);
      ASSERT_EQ(farwarp_allocate(rank.world, host.size(), &memory), FARWARP_OK);
      DLTensor* const x = rank.tensor(kBf16, {128, 128}, std::vector<std::uint16_t>(128 * 128, bf16(1)));
      DLTensor y = *x;
      y.data = memory;
      ASSERT_EQ(farwarp_gemm_call(gemm, x, x, nullptr, &y, stream), FARWARP_OK) << farwarp_message();
      farwarp_release(rank.world, memory);
      EXPECT_EQ(farwarp_synchronize(rank.world, stream, 20'000), FARWARP_OK) << farwarp_message();
    }
    EXPECT_EQ(farwarp_gemm_close(gemm), FARWARP_OK);
  });
}

TEST(CMisuse, StreamsThatThereAreNot) {
  run_ranks(1, [](Rank& rank, int) {
    DLTensor* const memory = rank.empty(kBf16, {8, 8});
    farwarp_gemm_desc desc;
    farwarp_gemm_desc_init(&desc);
    desc.m = desc.n = desc.k = 8;
    farwarp_gemm* gemm = nullptr;
    ASSERT_EQ(farwarp_gemm_create(rank.world, &desc, &gemm), FARWARP_OK) << farwarp_message();
    DLTensor* const y = rank.empty(kBf16, {8, 8});
    char byte = 0;
    for (const std::uintptr_t handle : {std::uintptr_t{4711}, std::uintptr_t{1} << 32}) {
      void* const stream = reinterpret_cast<void*>(handle);
      EXPECT_EQ(farwarp_copy_in(rank.world, memory->data, &byte, 1, stream), FARWARP_INVALID_ARGUMENT);
      EXPECT_EQ(farwarp_copy_out(rank.world, &byte, memory->data, 1, stream), FARWARP_INVALID_ARGUMENT);
      EXPECT_EQ(farwarp_gemm_call(gemm, memory, memory, nullptr, y, stream), FARWARP_INVALID_ARGUMENT);
      EXPECT_NE(std::string(farwarp_message()).find("which does not exist on device 0"), std::string::npos)
          << farwarp_message();
    }
    void* gone = nullptr;
    ASSERT_EQ(farwarp_stream_create(rank.world, &gone), FARWARP_OK);
    farwarp_stream_destroy(rank.world, gone);
    farwarp_stream_destroy(rank.world, gone);
    EXPECT_EQ(farwarp_copy_in(rank.world, memory->data, &byte, 1, gone), FARWARP_INVALID_ARGUMENT);
    EXPECT_EQ(farwarp_gemm_close(gemm), FARWARP_OK);
  });
}

TEST(CMisuse, DurationsAndDevicesOutOfRange) {
  farwarp_threads* threads = nullptr;
  ASSERT_EQ(farwarp_threads_create(1, &threads), FARWARP_OK);
  farwarp_world_desc desc;
  farwarp_world_desc_init(&desc);
  farwarp_world* world = nullptr;
  desc.device = -5;
  EXPECT_EQ(farwarp_world_from_threads(threads, 0, &desc, &world), FARWARP_INVALID_ARGUMENT);
  EXPECT_STREQ(farwarp_message(), "desc.device is -5; allowed: -1 (the rank) or more");
  farwarp_threads_destroy(threads);
  for (const std::int64_t wrong : {std::int64_t{0}, std::int64_t{1} << 62, std::int64_t{9223372036854775807}}) {
    ASSERT_EQ(farwarp_threads_create(1, &threads), FARWARP_OK);
    farwarp_world_desc_init(&desc);
    desc.deadline_ms = wrong;
    EXPECT_EQ(farwarp_world_from_threads(threads, 0, &desc, &world), FARWARP_INVALID_ARGUMENT);
    EXPECT_NE(std::string(farwarp_message()).find("; allowed: 1 to 1000000000000"), std::string::npos)
        << farwarp_message();
    farwarp_threads_destroy(threads);
  }
  run_ranks(1, [](Rank& rank, int) {
    EXPECT_EQ(farwarp_synchronize(rank.world, rank.stream, std::int64_t{1} << 62), FARWARP_INVALID_ARGUMENT);
    EXPECT_STREQ(farwarp_message(), "timeout_ms is 4611686018427387904; allowed: 1 to 1000000000000");
  });
}

}  // namespace
}  // namespace farwarp_c_test
