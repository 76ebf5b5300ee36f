// Results of every operator of c.h that share memory with another tensor of their call.
#include "farwarp/c/overlap_test.h"

namespace farwarp_c_test {
namespace {

TEST(COverlap, AllReduceIsAllowedInPlaceAlone) {
  run_ranks(1, [](Rank& rank, int) {
    farwarp_all_reduce_desc desc;
    farwarp_all_reduce_desc_init(&desc);
    desc.max_elements = 1024;
    farwarp_all_reduce* reduce = nullptr;
    ASSERT_EQ(farwarp_all_reduce_create(rank.world, &desc, &reduce), FARWARP_OK) << farwarp_message();
    DLTensor *const in = rank.empty(kBf16, {1024}), out = *in;
    EXPECT_EQ(farwarp_all_reduce_call(reduce, in, &out, rank.stream), FARWARP_OK) << farwarp_message();
    out.data = static_cast<char*>(in->data) + 1024;
    EXPECT_EQ(farwarp_all_reduce_call(reduce, in, &out, rank.stream), FARWARP_INVALID_ARGUMENT);
    EXPECT_EQ(std::string(farwarp_message()).find("out begins 1024 bytes from x; allowed: 0 (in place)"), 0u);
    expect_idle(rank);
    EXPECT_EQ(farwarp_all_reduce_close(reduce), FARWARP_OK) << farwarp_message();
  });
}

TEST(COverlap, Attention) {
  run_ranks(1, [](Rank& rank, int) {
    constexpr int kQueries = 14, kHeads = 4, kKvHeads = 2, kDim = 64;
    for (const bool paged : {false, true}) {
      farwarp_attention_desc desc;
      farwarp_attention_desc_init(&desc);
      desc.batch = 2;
      desc.heads = kHeads;
      desc.kv_heads = kKvHeads;
      desc.head_dim = kDim;
      desc.queries = 9;
      desc.keys = 20;
      desc.ragged_queries = desc.has_lse = desc.has_sinks = 1;
      desc.total_queries = kQueries;
      desc.has_key_counts = paged;
      desc.page_size = paged ? 16 : 0;
      desc.pages = paged ? 4 : 0;
      desc.ragged_keys = !paged;
      desc.total_keys = paged ? 0 : 29;
      farwarp_attention* attention = nullptr;
      ASSERT_EQ(farwarp_attention_create(rank.world, &desc, &attention), FARWARP_OK) << farwarp_message();
      const std::vector<std::int64_t> keys =
          paged ? std::vector<std::int64_t>{4, 16, kKvHeads, kDim} : std::vector<std::int64_t>{29, kKvHeads, kDim};
      DLTensor *const q = rank.empty(kBf16, {kQueries, kHeads, kDim}), *const k = rank.empty(kBf16, keys),
                      *const v = rank.empty(kBf16, keys), *const out = rank.empty(kBf16, {kQueries, kHeads, kDim}),
                      *const lse = rank.empty(kFloat32, {kHeads, kQueries}),
                      *const sinks = rank.empty(kFloat32, {kHeads}),
                      *const query_starts = rank.tensor(kInt32, {3}, integers({0, 5, kQueries})),
                      *const key_starts = paged ? nullptr : rank.tensor(kInt32, {3}, integers({0, 20, 29})),
                      *const counts = paged ? rank.tensor(kInt32, {2}, integers({20, 9})) : nullptr,
                      *const table = paged ? rank.tensor(kInt32, {2, 2}, integers({0, 1, 2, 3})) : nullptr;
      farwarp_attention_tensors all;
      farwarp_attention_tensors_init(&all);
      all.q = q;
      all.k = k;
      all.v = v;
      all.out = out;
      all.lse = lse;
      all.sinks = sinks;
      all.query_starts = query_starts;
      all.key_starts = key_starts;
      all.key_counts = counts;
      all.block_table = table;
      expect_apart({{"q", q},
                    {"k", k},
                    {"v", v},
                    {"sinks", sinks},
                    {"query_starts", query_starts},
                    {"key_starts", key_starts},
                    {"key_counts", counts},
                    {"block_table", table}},
                   {{"out", out}, {"lse", lse}},
                   [&] { return farwarp_attention_call_tensors(attention, &all, rank.stream); });
      expect_idle(rank);
      EXPECT_EQ(farwarp_attention_close(attention), FARWARP_OK) << farwarp_message();
    }
  });
}

TEST(COverlap, Decode) {
  run_ranks(1, [](Rank& rank, int) {
    farwarp_decode_desc desc;
    farwarp_decode_desc_init(&desc);
    desc.batch = 3;
    desc.query_heads = 4;
    desc.kv_heads = 2;
    desc.head_dim = 64;
    desc.page_size = 16;
    desc.pages = 12;
    desc.max_pages = 3;
    desc.fp8_cache = desc.has_sinks = 1;
    farwarp_decode* decode = nullptr;
    ASSERT_EQ(farwarp_decode_create(rank.world, &desc, &decode), FARWARP_OK) << farwarp_message();
    constexpr DLDataType kBytes = {kDLUInt, 8, 1};
    const std::vector<std::uint8_t> zeros(12 * 16 * 2 * 64);
    DLTensor *const q = rank.empty(kBf16, {3, 1, 4, 64}), *const k = rank.tensor(kBytes, {12, 16, 2, 64}, zeros),
                    *const v = rank.tensor(kBytes, {12, 16, 2, 64}, zeros),
                    *const table = rank.tensor(kInt32, {3, 3}, integers({0, 1, 2, 3, 4, 5, 6, 7, 8})),
                    *const lengths = rank.tensor(kInt32, {3}, integers({17, 40, 1})),
                    *const k_scale = rank.empty(kFloat32, {2}), *const v_scale = rank.empty(kFloat32, {2}),
                    *const sinks = rank.empty(kFloat32, {4}), *const out = rank.empty(kBf16, {3, 1, 4, 64}),
                    *const lse = rank.empty(kFloat32, {3, 1, 4});
    expect_apart({{"q", q},
                  {"k", k},
                  {"v", v},
                  {"block_table", table},
                  {"lengths", lengths},
                  {"k_scale", k_scale},
                  {"v_scale", v_scale},
                  {"sinks", sinks}},
                 {{"out", out}, {"lse", lse}}, [&] {
                   return farwarp_decode_call_sinks(decode, q, k, v, table, lengths, k_scale, v_scale, sinks, out, lse,
                                                    rank.stream);
                 });
    expect_idle(rank);
    EXPECT_EQ(farwarp_decode_close(decode), FARWARP_OK) << farwarp_message();
  });
}

struct MoeTensors {
  MoeTensors(Rank& rank, const farwarp_moe_desc& desc, std::int64_t rows) {
    const std::int64_t tokens = desc.max_tokens, k = desc.experts_per_token, hidden = desc.hidden;
    const std::int64_t groups = (hidden + 127) / 128;
    std::vector<std::int32_t> experts;
    for (int i = 0; i < tokens * k; ++i) experts.push_back(i % desc.num_experts);
    x = rank.tensor(kBf16, {tokens, hidden}, std::vector<std::uint16_t>(tokens * hidden, bf16(1)));
    indices = rank.tensor(kInt32, {tokens, k}, experts);
    weights = rank.tensor(kFloat32, {tokens, k}, std::vector<float>(tokens * k, 1));
    count = rank.tensor(kInt32, {1}, integers({static_cast<std::int32_t>(tokens)}));
    recv_x = rank.empty(desc.fp8_dispatch ? DLDataType{kDLUInt, 8, 1} : kBf16, {rows, hidden});
    counts = rank.empty(kInt32, {desc.num_experts});
    offsets = rank.empty(kInt32, {desc.rows ? 2 : desc.num_experts + 1});
    origins = rank.empty(kInt64, {rows});
    scales = desc.fp8_dispatch ? rank.empty(kFloat32, {rows, groups}) : nullptr;
    recv_indices = rank.empty(kInt32, {rows, k});
    recv_weights = rank.empty(kFloat32, {rows, k});
    y = rank.tensor(kBf16, {rows, hidden}, std::vector<std::uint16_t>(static_cast<std::size_t>(rows * hidden)));
    out = rank.empty(kBf16, {tokens, hidden});
  }
  DLTensor *x, *indices, *weights, *count, *recv_x, *counts, *offsets, *origins, *scales, *recv_indices, *recv_weights,
      *y, *out;
};

farwarp_moe_desc moe_desc() {
  farwarp_moe_desc desc;
  farwarp_moe_desc_init(&desc);
  desc.num_experts = 4;
  desc.experts_per_token = 2;
  desc.hidden = 256;
  desc.max_tokens = 8;
  return desc;
}

TEST(COverlap, MoeInOneLaunchOfEach) {
  run_ranks(1, [](Rank& rank, int) {
    for (const bool fp8 : {false, true}) {
      farwarp_moe_desc desc = moe_desc();
      desc.fp8_dispatch = fp8;
      farwarp_moe* moe = nullptr;
      ASSERT_EQ(farwarp_moe_create(rank.world, &desc, &moe), FARWARP_OK) << farwarp_message();
      const MoeTensors t(rank, desc, farwarp_moe_recv_rows(moe));
      expect_apart({{"x", t.x}, {"indices", t.indices}, {"weights", t.weights}, {"count", t.count}},
                   {{"recv_x", t.recv_x},
                    {"counts", t.counts},
                    {"offsets", t.offsets},
                    {"origins", t.origins},
                    {"scales", t.scales}},
                   [&] {
                     return farwarp_moe_dispatch_counted(moe, t.x, t.indices, t.weights, t.count, t.recv_x, t.counts,
                                                         t.offsets, t.origins, t.scales, rank.stream);
                   });
      expect_apart({{"y", t.y}, {"indices", t.indices}, {"count", t.count}}, {{"out", t.out}},
                   [&] { return farwarp_moe_combine(moe, t.y, t.out, rank.stream); });
      DLTensor* const table = rank.empty(kFloat32, {4, 2});
      expect_apart({{"x", t.x}, {"indices", t.indices}, {"weights", t.weights}, {"expert_table", table}},
                   {{"out", t.out}}, [&] {
                     return farwarp_moe_fused(moe, t.x, t.indices, t.weights, nullptr, FARWARP_MOE_TABLE, table, t.out,
                                              rank.stream);
                   });
      expect_idle(rank);
      EXPECT_EQ(farwarp_moe_close(moe), FARWARP_OK) << farwarp_message();
    }
  });
}

TEST(COverlap, MoeInHalves) {
  run_ranks(1, [](Rank& rank, int) {
    farwarp_moe_desc desc = moe_desc();
    desc.weights_at_combine = 1;
    farwarp_moe* moe = nullptr;
    ASSERT_EQ(farwarp_moe_create(rank.world, &desc, &moe), FARWARP_OK) << farwarp_message();
    const MoeTensors t(rank, desc, farwarp_moe_recv_rows(moe));
    for (int round = 0; round < 2; ++round) {
      ASSERT_EQ(farwarp_moe_dispatch_send(moe, t.x, t.indices, nullptr, t.count, rank.stream), FARWARP_OK);
      expect_apart({{"indices", t.indices}, {"count", t.count}},
                   {{"recv_x", t.recv_x}, {"counts", t.counts}, {"offsets", t.offsets}, {"origins", t.origins}}, [&] {
                     return farwarp_moe_dispatch_recv(moe, t.recv_x, t.counts, t.offsets, t.origins, nullptr,
                                                      rank.stream);
                   });
      if (round == 0) {
        expect_apart({{"y", t.y}, {"indices", t.indices}, {"weights", t.weights}}, {{"out", t.out}},
                     [&] { return farwarp_moe_combine_weighted(moe, t.y, t.weights, t.out, rank.stream); });
      } else {
        ASSERT_EQ(farwarp_moe_combine_send_weighted(moe, t.y, t.weights, rank.stream), FARWARP_OK);
        expect_apart({{"indices", t.indices}, {"count", t.count}}, {{"out", t.out}},
                     [&] { return farwarp_moe_combine_recv(moe, t.out, rank.stream); });
      }
    }
    expect_idle(rank);
    EXPECT_EQ(farwarp_moe_close(moe), FARWARP_OK) << farwarp_message();
  });
}

TEST(COverlap, MoeByRows) {
  run_ranks(1, [](Rank& rank, int) {
    farwarp_moe_desc desc = moe_desc();
    desc.rows = 1;
    farwarp_moe* moe = nullptr;
    ASSERT_EQ(farwarp_moe_create(rank.world, &desc, &moe), FARWARP_OK) << farwarp_message();
    const MoeTensors t(rank, desc, farwarp_moe_recv_rows(moe));
    expect_apart({{"x", t.x}, {"indices", t.indices}, {"weights", t.weights}},
                 {{"counts", t.counts}, {"offsets", t.offsets}}, [&] {
                   return farwarp_moe_dispatch_rows_send(moe, t.x, t.indices, t.weights, t.counts, t.offsets,
                                                         rank.stream);
                 });
    expect_apart({{"indices", t.indices}},
                 {{"recv_x", t.recv_x}, {"recv_indices", t.recv_indices}, {"recv_weights", t.recv_weights}}, [&] {
                   return farwarp_moe_dispatch_rows_recv(moe, t.recv_x, t.recv_indices, t.recv_weights, rank.stream);
                 });
    expect_apart({{"y", t.y}, {"indices", t.indices}}, {{"out", t.out}},
                 [&] { return farwarp_moe_combine(moe, t.y, t.out, rank.stream); });
    expect_idle(rank);
    EXPECT_EQ(farwarp_moe_close(moe), FARWARP_OK) << farwarp_message();
  });
}

TEST(COverlap, Qwen3) {
  run_ranks(1, [](Rank& rank, int) {
    farwarp_qwen3_desc desc;
    farwarp_qwen3_desc_init(&desc);
    desc.model = "random:nano";
    desc.positions = 32;
    desc.max_sms = 2;
    farwarp_qwen3* qwen3 = nullptr;
    ASSERT_EQ(farwarp_qwen3_create(rank.world, &desc, &qwen3), FARWARP_OK) << farwarp_message();
    const std::int32_t prompt[] = {5, 6};
    ASSERT_EQ(farwarp_qwen3_start(qwen3, 0, prompt, 2, nullptr, rank.stream), FARWARP_OK) << farwarp_message();
    DLTensor *const sampled = rank.empty(kInt32, {1, 1}), *const logits = rank.empty(
                                                              kFloat32, {1, 1, farwarp_qwen3_vocabulary(qwen3)});
    expect_apart({}, {{"sampled", sampled}, {"logits", logits}},
                 [&] { return farwarp_qwen3_decode(qwen3, 1, -1, sampled, logits, rank.stream); });
    expect_idle(rank);
    EXPECT_EQ(farwarp_qwen3_close(qwen3), FARWARP_OK) << farwarp_message();
  });
}

}  // namespace
}  // namespace farwarp_c_test
