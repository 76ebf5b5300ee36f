#include "farwarp/ops/parallel_gemm/desc.h"

#include <gtest/gtest.h>

#include <set>

namespace farwarp::parallel_gemm {
namespace {

ParallelGemmDesc desc(int m, int n, int k) {
  ParallelGemmDesc made;
  made.m = m;
  made.n = n;
  made.k = k;
  return made;
}

std::string error_of(Kind kind, const ParallelGemmDesc& wrong, int ranks = 8) {
  const Status status = check(kind, wrong, ranks);
  EXPECT_TRUE(status.ok() || status.code() == StatusCode::kInvalidArgument);
  return status.message();
}

TEST(ParallelGemmDesc, SizesOfARank) {
  const LocalShape gathered = local_shape(Kind::kAllGather, desc(64, 2880, 136), 8);
  EXPECT_EQ(gathered.x_rows, 8);
  EXPECT_EQ(gathered.w_rows, 360);
  EXPECT_EQ(gathered.k, 136);
  EXPECT_EQ(gathered.y_rows, 64);
  EXPECT_EQ(gathered.y_columns, 360);
  const LocalShape scattered = local_shape(Kind::kReduceScatter, desc(64, 136, 2880), 8);
  EXPECT_EQ(scattered.x_rows, 64);
  EXPECT_EQ(scattered.w_rows, 136);
  EXPECT_EQ(scattered.k, 360);
  EXPECT_EQ(scattered.y_rows, 8);
  EXPECT_EQ(scattered.y_columns, 136);
  const LocalShape reduced = local_shape(Kind::kAllReduce, desc(3, 136, 2880), 8);
  EXPECT_EQ(reduced.x_rows, 3);
  EXPECT_EQ(reduced.k, 360);
  EXPECT_EQ(reduced.y_rows, 3);
}

TEST(ParallelGemmDesc, ErrorsNameTheField) {
  EXPECT_EQ(error_of(Kind::kAllGather, desc(64, 64, 20)),
            "ParallelGemmDesc.k is 20; allowed: a multiple of 8 up to 16777216");
  EXPECT_EQ(error_of(Kind::kAllGather, desc(64, 72, 24)),
            "ParallelGemmDesc.n is 72; allowed: a multiple of 64 up to 16777216");
  EXPECT_EQ(error_of(Kind::kReduceScatter, desc(64, 72, 72)),
            "ParallelGemmDesc.k is 72; allowed: a multiple of 64 up to 16777216");
  EXPECT_EQ(error_of(Kind::kReduceScatter, desc(63, 72, 64)),
            "ParallelGemmDesc.m is 63; allowed: a multiple of 8 up to 16777216");
  EXPECT_EQ(error_of(Kind::kAllReduce, desc(0, 72, 64)), "ParallelGemmDesc.m is 0; allowed: 1 to 16777216");
  EXPECT_EQ(error_of(Kind::kAllReduce, desc(1, 72, 64), 9), "ranks is 9; allowed: 1 to 8");
  ParallelGemmDesc to_all = desc(64, 64, 64);
  to_all.exchange = ParallelGemmExchange::kOneShotWords;
  EXPECT_EQ(error_of(Kind::kAllReduce, to_all), "");
  for (const Kind kind : {Kind::kAllGather, Kind::kReduceScatter})
    EXPECT_EQ(error_of(kind, to_all), "ParallelGemmDesc.exchange is one_shot_words; allowed: auto, boxes or words");
  for (const Kind kind : {Kind::kAllGather, Kind::kReduceScatter, Kind::kAllReduce}) {
    EXPECT_EQ(error_of(kind, desc(64, 64, 64)), "");
    EXPECT_NE(error_of(kind, desc(0, 64, 64)), "");
    EXPECT_NE(error_of(kind, desc(64, 0, 64)), "");
    EXPECT_NE(error_of(kind, desc(64, 64, 1 << 25)), "");
    EXPECT_NE(error_of(kind, desc(64, -64, 64)), "");
  }
  EXPECT_EQ(error_of(Kind::kAllReduce, desc(1, 72, 64)), "");
}

TEST(ParallelGemmDesc, OptionsAreBounded) {
  ParallelGemmDesc wrong = desc(64, 64, 64);
  wrong.splits = 17;
  EXPECT_EQ(error_of(Kind::kAllReduce, wrong), "ParallelGemmDesc.splits is 17; allowed: 0 (the plan's choice) to 16");
  wrong = desc(64, 64, 64);
  wrong.dtype = DType::kF32;
  EXPECT_EQ(error_of(Kind::kAllReduce, wrong), "ParallelGemmDesc.dtype is fp32; allowed: bf16, fp16");
  wrong.dtype = static_cast<DType>(99);
  EXPECT_EQ(error_of(Kind::kAllReduce, wrong), "ParallelGemmDesc.dtype is 99; allowed: bf16, fp16");
  wrong.dtype = DType::kBf16;
  wrong.exchange = static_cast<ParallelGemmExchange>(99);
  EXPECT_EQ(error_of(Kind::kAllReduce, wrong),
            "ParallelGemmDesc.exchange is 99; allowed: auto, boxes, words, one_shot_words, fetch");
  wrong.exchange = ParallelGemmExchange::kAuto;
  EXPECT_EQ(error_of(static_cast<Kind>(99), wrong), "Kind is 99; allowed: kAllGather, kReduceScatter, kAllReduce");
  wrong = desc(64, 64, 64);
  wrong.return_x = true;
  EXPECT_EQ(error_of(Kind::kAllGather, wrong), "");
  EXPECT_EQ(error_of(Kind::kReduceScatter, wrong), "ParallelGemmDesc.return_x is 1; allowed: 0, but in an all-gather");
  for (int ParallelGemmDesc::*field : {&ParallelGemmDesc::max_sms, &ParallelGemmDesc::tile_columns,
                                       &ParallelGemmDesc::splits, &ParallelGemmDesc::comm_blocks}) {
    wrong = desc(64, 64, 64);
    wrong.*field = -1;
    EXPECT_NE(error_of(Kind::kAllGather, wrong), "");
  }
}

// A rank whose arguments differ in any field must be detected.
TEST(ParallelGemmDesc, EveryFieldIsInTheConfiguration) {
  const ParallelGemmDesc same = desc(64, 64, 64);
  std::set<std::uint64_t> seen = {configuration_of(Kind::kAllGather, same, 8)};
  EXPECT_EQ(seen.count(configuration_of(Kind::kAllGather, desc(64, 64, 64), 8)), 1u);
  for (int ParallelGemmDesc::*field :
       {&ParallelGemmDesc::m, &ParallelGemmDesc::n, &ParallelGemmDesc::k, &ParallelGemmDesc::max_sms,
        &ParallelGemmDesc::tile_columns, &ParallelGemmDesc::splits, &ParallelGemmDesc::comm_blocks}) {
    ParallelGemmDesc other = same;
    other.*field += 8;
    EXPECT_TRUE(seen.insert(configuration_of(Kind::kAllGather, other, 8)).second);
  }
  ParallelGemmDesc other = same;
  other.has_bias = true;
  EXPECT_TRUE(seen.insert(configuration_of(Kind::kAllGather, other, 8)).second);
  other = same;
  other.return_x = true;
  EXPECT_TRUE(seen.insert(configuration_of(Kind::kAllGather, other, 8)).second);
  other = same;
  other.dtype = DType::kF16;
  EXPECT_TRUE(seen.insert(configuration_of(Kind::kAllGather, other, 8)).second);
  EXPECT_TRUE(seen.insert(configuration_of(Kind::kAllReduce, same, 8)).second);
  EXPECT_TRUE(seen.insert(configuration_of(Kind::kAllGather, same, 4)).second);
}

}  // namespace
}  // namespace farwarp::parallel_gemm
