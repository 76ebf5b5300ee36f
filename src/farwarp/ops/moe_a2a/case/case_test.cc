// moe-a2a through the harness, on both emulated targets: uses every parameter value at least once, and every fault is
// found.
#include <gtest/gtest.h>

#include "farwarp/harness/params.h"
#include "farwarp/harness/runner.h"

namespace farwarp::harness {
namespace {

class MoeCases : public testing::TestWithParam<TargetKind> {
 protected:
  // Two calls each unless said otherwise, so that both parities of the buffers are used.
  CaseResult run(const std::string& settings, const std::string& fault = "", int ranks = 4, int calls = 2) {
    CaseRequest request;
    request.op = find_operator("moe-a2a");
    request.params = {{"num_experts", "16"}, {"experts_per_token", "3"}, {"hidden_dim", "64"}, {"max_num_tokens", "6"}};
    if (!settings.empty() && !add_settings(settings, request.params).ok()) ADD_FAILURE() << settings;
    request.options.target = GetParam();
    request.options.ranks = ranks;
    request.options.seed = 5;
    request.options.calls = calls;
    if (!fault.empty()) request.options.fault = *parse_fault(fault, ranks);
    return run_case(request, nullptr, [](int) {});
  }
  void expect_pass(const std::string& settings) {
    const CaseResult result = run(settings);
    EXPECT_TRUE(result.outcome.pass) << settings << ": " << result.outcome.detail;
  }
};

INSTANTIATE_TEST_SUITE_P(Targets, MoeCases, testing::Values(TargetKind::kEmuSm90, TargetKind::kEmuGfx942),
                         [](const auto& info) { return std::string(name_of(info.param)); });

TEST_P(MoeCases, EveryFormAndMode) {
  for (const char* form : {"fused", "split"}) {
    for (const char* mode : {"words", "bulk"}) {
      for (const char* dtype : {"fp16", "bf16"}) {
        for (const char* expert : {"table", "rank_scale"}) {
          expect_pass(std::string("form=") + form + ",mode=" + mode + ",dtype=" + dtype + ",expert=" + expert);
        }
      }
    }
  }
}

TEST_P(MoeCases, EveryRouting) {
  for (const char* routing : {"uniform", "zipf", "repeated", "one_expert", "one_rank", "skipped", "partial"}) {
    for (const char* mode : {"words", "bulk"}) {
      expect_pass(std::string("form=split,routing=") + routing + ",mode=" + mode);
      expect_pass(std::string("form=fused,routing=") + routing + ",mode=" + mode);
    }
  }
}

TEST_P(MoeCases, TokenCounts) {
  for (const char* tokens : {"full", "empty_ranks"}) {
    expect_pass(std::string("form=split,tokens=") + tokens);
    for (const char* mode : {"words", "bulk"}) expect_pass(std::string("tokens=") + tokens + ",mode=" + mode);
  }
  for (const char* most : {"1", "31", "32", "33", "64", "65"}) {  // around the bits of one bitmap, and of two
    expect_pass(std::string("hidden_dim=8,max_num_tokens=") + most);
    expect_pass(std::string("hidden_dim=8,tokens=full,routing=partial,max_num_tokens=") + most);
  }
  expect_pass("count=device,index=int64");
  expect_pass("count=device,form=split");
}

TEST_P(MoeCases, OneRank) {
  for (const char* settings :
       {"form=fused", "form=split", "form=split,dtype=bf16,dispatch_dtype=fp8", "graph=1,tokens=full"}) {
    for (const char* mode : {",mode=words", ",mode=bulk"}) {
      const CaseResult result = run(std::string(settings) + mode, "", 1);
      EXPECT_TRUE(result.outcome.pass) << settings << mode << ": " << result.outcome.detail;
    }
  }
  EXPECT_FALSE(run("tokens=full", "drop_put:2", 1).outcome.pass);
}

TEST_P(MoeCases, Layouts) {
  expect_pass("form=split,row_alignment=8");
  expect_pass("form=split,layout=masked");
  expect_pass("form=split,layout=masked,num_experts=280");  // several warps lay out a rank's experts
  expect_pass("form=split,recv_rows=0");
  expect_pass("form=split,layout=masked,recv_rows=0,num_experts=6");
}

// What engines ask for: the same room for each expert, scales by columns, and weights that only combine is given.
TEST_P(MoeCases, BatchedLayoutAndWeightsAtCombine) {
  const std::string fp8 = "dtype=bf16,dispatch_dtype=fp8,scales=columns,";
  for (const std::string mode : {"words", "bulk"}) {
    const std::string batched = "form=split,layout=masked,recv_rows=0,mode=" + mode;
    for (const std::string halves : {",halves=0", ",halves=1"}) {
      expect_pass(fp8 + batched + halves);
      expect_pass(fp8 + batched + halves + ",weights=combine,hidden_dim=1160,segments=2,num_experts=7");
      for (const std::string dtype : {",dtype=fp16", ",dtype=bf16"})
        expect_pass(batched + halves + dtype + ",weights=combine,expert=rank_scale");
    }
    for (const char* routing : {"repeated", "one_expert", "one_rank", "skipped", "partial"})
      expect_pass("form=split,weights=combine,mode=" + mode + ",routing=" + routing);
    expect_pass("form=split,weights=combine,count=device,index=int64,tokens=empty_ranks,mode=" + mode);
    expect_pass("form=split,weights=combine,num_experts=40,experts_per_token=32,max_num_tokens=40,mode=" + mode);
    expect_pass("form=split,weights=combine,graph=1,tokens=full,max_sms=2,delay_us=20,mode=" + mode);
  }
}

// An expert in several k-slots of a token gets one row, so the default room is that of the worst case.
TEST_P(MoeCases, BatchedLayoutWithRepeatedExperts) {
  for (const std::string mode : {"words", "bulk"}) {
    const std::string batched = "form=split,layout=masked,recv_rows=0,routing=repeated,tokens=full,mode=" + mode;
    // Tokens of a warp's lanes with gaps between them, and without.
    for (const auto& [k, experts] : {std::pair("1", "4"), std::pair("3", "4"), std::pair("5", "7"), std::pair("8", "8"),
                                     std::pair("20", "20"), std::pair("32", "32")}) {
      const std::string both = std::string(",experts_per_token=") + k + ",num_experts=" + experts;
      expect_pass(batched + both + ",max_num_tokens=9");
      expect_pass(batched + both + ",weights=combine,halves=1,max_sms=2");
    }
    // More tokens than a block numbers at a time, more entries than its threads load ahead.
    expect_pass(batched + ",num_experts=6,max_num_tokens=200,hidden_dim=8,experts_per_token=6,max_sms=1,index=int64");
    expect_pass(batched + ",dtype=bf16,dispatch_dtype=fp8,scales=columns,num_experts=4");
  }
}

// A row once for each rank that it is sent to.
TEST_P(MoeCases, RowsOncePerRank) {
  for (const std::string mode : {"words", "bulk"}) {
    for (const std::string halves : {",halves=0", ",halves=1"}) {
      const std::string rows = "form=split,layout=rows,mode=" + mode + halves;
      for (const char* routing : {"uniform", "repeated", "one_expert", "one_rank", "skipped", "partial"})
        expect_pass(rows + ",routing=" + routing);
      expect_pass(rows + ",dtype=bf16,index=int64,expert=rank_scale,recv_rows=0");
      expect_pass(rows + ",count=device,tokens=empty_ranks,num_experts=7,hidden_dim=1160,segments=2");
      // More bitmaps than a warp has lanes; more tokens than a block counts at a time.
      expect_pass(rows + ",max_num_tokens=600,hidden_dim=8,routing=partial,max_sms=3");
      expect_pass(rows + ",graph=1,tokens=full,in_flight=2,delay_us=20");
      const CaseResult few = run(rows + ",tokens=full,recv_rows=2");
      EXPECT_EQ(few.outcome.status.code(), StatusCode::kCapacity) << few.outcome.detail;
    }
  }
  expect_pass("form=split,layout=rows,mode=bulk,send_only_blocks=2,hidden_dim=1160");
  EXPECT_EQ(run("form=split,layout=rows,tokens=full", "mismatch:1").outcome.status.code(), StatusCode::kMismatch);
}

// Two calls, each by an operator of its own, are dispatched before the first of them is combined.
TEST_P(MoeCases, TwoCallsInFlight) {
  for (const std::string mode : {"words", "bulk"}) {
    for (const std::string halves : {",halves=0", ",halves=1"}) {
      for (const std::string weights : {",weights=dispatch", ",weights=combine"}) {
        const CaseResult result =
            run("form=split,in_flight=2,layout=masked,delay_us=20,mode=" + mode + halves + weights, "", 4, 5);
        EXPECT_TRUE(result.outcome.pass) << mode << halves << weights << ": " << result.outcome.detail;
      }
    }
  }
}

TEST_P(MoeCases, UnevenExpertsAndSmallRows) {
  expect_pass("num_experts=7,form=split");
  expect_pass("num_experts=4,experts_per_token=4,hidden_dim=8");
  expect_pass("num_experts=9,experts_per_token=1,hidden_dim=72,max_sms=3");
}

TEST_P(MoeCases, BatchesAndPieces) {
  for (const std::string mode : {"words", "bulk"}) {
    // More tokens than a block routes at a time.
    expect_pass("max_sms=1,max_num_tokens=150,tokens=full,hidden_dim=8,form=split,mode=" + mode);
    expect_pass("max_sms=1,max_num_tokens=150,tokens=full,hidden_dim=8,mode=" + mode);
    expect_pass("max_num_tokens=600,hidden_dim=8,routing=partial,mode=" + mode);  // more bitmaps than a warp has lanes
    expect_pass("segments=3,hidden_dim=1000,form=split,mode=" + mode);
    expect_pass("segments=3,hidden_dim=1000,mode=" + mode);
    // 32 routes for a row, as many as a warp has lanes.
    expect_pass("num_experts=40,experts_per_token=32,form=split,mode=" + mode);
  }
}

TEST_P(MoeCases, Fp8Dispatch) {
  const std::string fp8 = "dtype=bf16,dispatch_dtype=fp8,";
  for (const std::string form : {"fused", "split"}) {
    for (const std::string mode : {"words", "bulk"}) {
      const std::string way = fp8 + "form=" + form + ",mode=" + mode;
      expect_pass(way);
      expect_pass(way + ",expert=rank_scale,hidden_dim=8");
      expect_pass(way + ",hidden_dim=1160,segments=2,routing=repeated");  // a last group of 8, scales that need padding
      expect_pass(way + ",routing=one_expert,count=device");
    }
  }
  expect_pass(fp8 +
              "mode=bulk,hidden_dim=16400,max_num_tokens=2,segments=1");  // more than fits into the staging buffer
  expect_pass(fp8 + "form=split,layout=masked,mode=bulk");
  expect_pass(fp8 + "form=split,mode=bulk,send_only_blocks=2,hidden_dim=1160");
  EXPECT_FALSE(run(fp8 + "mode=bulk,tokens=full", "drop_put:2").outcome.pass);
  EXPECT_FALSE(run(fp8 + "mode=words,tokens=full", "drop_put:2").outcome.pass);
}

TEST_P(MoeCases, SendersAndReceivers) {
  const std::string send_only_blocks = "form=split,mode=bulk,send_only_blocks=";
  expect_pass(send_only_blocks + "1");
  expect_pass(send_only_blocks +
              "1,max_sms=2,max_num_tokens=300,tokens=full,hidden_dim=8");  // more than a block routes at a time
  expect_pass(send_only_blocks + "2,segments=3,hidden_dim=1000,routing=zipf");
  expect_pass(send_only_blocks + "2,tokens=empty_ranks,routing=partial,row_alignment=4");
  expect_pass(send_only_blocks + "2,graph=1,count=device");
  expect_pass(send_only_blocks + "-1");
  EXPECT_FALSE(run(send_only_blocks + "2,tokens=full", "drop_put:2").outcome.pass);
  EXPECT_EQ(run(send_only_blocks + "2,tokens=full", "mismatch:1").outcome.status.code(), StatusCode::kMismatch);
  EXPECT_EQ(run(send_only_blocks + "2,tokens=full,recv_rows=2").outcome.status.code(), StatusCode::kCapacity);
  EXPECT_EQ(exit_code(run(send_only_blocks + "2,tokens=full", "kill:3")), 4);
}

TEST_P(MoeCases, GraphsAndDelays) {
  expect_pass("graph=1,count=device");
  expect_pass("graph=1,count=device,form=split");
  expect_pass("graph=1,tokens=full");
  expect_pass("delay_us=500");
}

TEST_P(MoeCases, TooFewReceiveRowsEndInCapacity) {
  const CaseResult result = run("form=split,tokens=full,recv_rows=2");
  EXPECT_FALSE(result.outcome.pass);
  EXPECT_EQ(result.outcome.status.code(), StatusCode::kCapacity) << result.outcome.detail;
  // Every rank has an expert whose own room, a row, is too small; the message has recv_rows as they were given.
  const CaseResult masked = run("form=split,tokens=full,layout=masked,recv_rows=4");
  EXPECT_EQ(masked.outcome.status.code(), StatusCode::kCapacity) << masked.outcome.detail;
  EXPECT_NE(masked.outcome.detail.find("there is room for 4, needed are "), std::string::npos) << masked.outcome.detail;
  const CaseResult many = run("form=split,tokens=full,layout=masked,num_experts=280,recv_rows=70");
  EXPECT_EQ(many.outcome.status.code(), StatusCode::kCapacity) << many.outcome.detail;
  // Only the rank that receives all rows has too little room; dispatch on the others is right.
  for (const char* layout : {"expert_major", "masked"}) {
    const CaseResult one = run(std::string("form=split,tokens=full,routing=one_rank,recv_rows=8,layout=") + layout);
    EXPECT_EQ(one.outcome.status.code(), StatusCode::kCapacity) << layout << ": " << one.outcome.detail;
  }
}

TEST_P(MoeCases, FaultsAreNoticed) {
  for (const char* mode : {"mode=words,tokens=full", "mode=bulk,tokens=full", "mode=words,form=split,tokens=full"}) {
    const CaseResult dropped = run(mode, "drop_put:2");
    EXPECT_FALSE(dropped.outcome.pass) << mode;
    const CaseResult mismatched = run(mode, "mismatch:1");
    EXPECT_EQ(mismatched.outcome.status.code(), StatusCode::kMismatch) << mode << mismatched.outcome.detail;
    const CaseResult killed = run(mode, "kill:3");
    EXPECT_EQ(exit_code(killed), 4) << mode << killed.outcome.detail;
    EXPECT_NE(killed.outcome.detail.find("rank 3"), std::string::npos) << killed.outcome.detail;
  }
  EXPECT_TRUE(run("", "delay:2:100").outcome.pass);
  EXPECT_EQ(run("", "delay:2:60000").outcome.status.code(), StatusCode::kDeadline);
}

TEST(MoeCase, WrongParametersAreNamed) {
  const auto error_of = [](const Params& params) {
    const auto made = find_operator("moe-a2a")->make(params);
    return made.ok() ? "" : made.status().message();
  };
  EXPECT_EQ(error_of({{"hidden_dim", "60"}}), "parameter hidden_dim is '60': allowed is a multiple of 8");
  EXPECT_EQ(error_of({{"routing", "random"}}),
            "parameter routing is 'random': allowed is uniform|zipf|repeated|one_expert|one_rank|skipped|partial");
  EXPECT_EQ(error_of({{"row_alignment", "3"}}), "parameter row_alignment is '3': allowed is a power of two");
  EXPECT_EQ(error_of({{"num_experts", "4"}, {"experts_per_token", "5"}}),
            "parameter experts_per_token is '5': allowed is 1..num_experts");
  EXPECT_EQ(error_of({{"dispatch_dtype", "fp8"}}),
            "parameter dispatch_dtype is 'fp8': allowed is same, or fp8 with dtype=bf16");
  EXPECT_EQ(
      error_of({{"scales", "columns"}, {"form", "split"}}),
      "parameter scales is 'columns': allowed is rows, or columns with dispatch_dtype=fp8, layout=masked, form=split");
  EXPECT_EQ(error_of({{"weights", "combine"}}),
            "parameter weights is 'combine': allowed is dispatch, or combine with form=split");
  EXPECT_EQ(error_of({{"halves", "1"}}), "parameter halves is '1': allowed is 0, or 1 with form=split");
  EXPECT_EQ(error_of({{"in_flight", "2"}}), "parameter in_flight is '2': allowed is 1, or 2 with form=split");
  EXPECT_NE(error_of({{"send_only_blocks", "-2"}}), "");
  EXPECT_NE(error_of({{"graph", "1"}}), "");
  EXPECT_EQ(error_of({}), "");
}

}  // namespace
}  // namespace farwarp::harness
