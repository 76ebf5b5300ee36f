// Tests the check of parallel products with an operator that computes on the host: the check passes correct results and
// notices each kind of error that a kernel may make.
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>

#include "farwarp/harness/inputs.h"
#include "farwarp/harness/params.h"
#include "farwarp/harness/runner.h"
#include "farwarp/ops/parallel_gemm/case/operator.h"
#include "farwarp/ops/parallel_gemm/case/oracle.h"

namespace farwarp::parallel_gemm {
namespace {

using harness::CaseResult;

enum class Wrong : std::uint8_t {
  kNothing,
  kTile,       ///< rank 1's part of 64 x 64 elements is missing in rank 0's y
  kUnwritten,  ///< one element is not written
  kOwners,     ///< one owner's rows are in the place of another's
  kUnstable,   ///< the last bit of an element differs from call to call
  kBias,       ///< the bias is added once instead of on every rank
  kZero,       ///< all of y is zero; this operator can be captured as a graph
  kUnanimous,  ///< creation does not notice that ranks differ
};
std::atomic<Wrong> wrong{Wrong::kNothing};

constexpr std::uint64_t kPatience = 60'000'000'000;

/// The bootstraps of the operator's ranks. Not those of the check: after a rank is gone, its calls would be mixed up
/// with the operator's.
std::vector<std::shared_ptr<Bootstrap>> meeting;
std::chrono::milliseconds meeting_patience{60'000};

using Bits = std::vector<std::uint16_t>;

/// The operands of all ranks, gathered on the host, and their product.
struct Gathered {
  Problem problem;
  std::vector<Bits> x, w, bias;  // by rank

  float term(int rank, int x_row, int source, int w_row) const {
    const auto k = static_cast<std::size_t>(problem.local().k);
    const std::uint16_t* a = x[static_cast<std::size_t>(source)].data() + static_cast<std::size_t>(x_row) * k;
    const std::uint16_t* b = w[static_cast<std::size_t>(rank)].data() + static_cast<std::size_t>(w_row) * k;
    float sum = 0;
    for (std::size_t i = 0; i < k; ++i)
      sum += harness::decode(problem.desc.dtype, a[i]) * harness::decode(problem.desc.dtype, b[i]);
    return sum;
  }
  float bias_of(int rank, int column) const {
    if (!problem.desc.has_bias) return 0;
    return harness::decode(problem.desc.dtype, bias[static_cast<std::size_t>(rank)][static_cast<std::size_t>(column)]);
  }
  float element(int rank, int row, int column, bool without_tile, int shifted) const {
    const int owned = problem.desc.m / problem.ranks;
    const bool in_tile = without_tile && row % owned < 64 && column < 64;
    if (problem.kind == Kind::kAllGather) {
      const int source = (row / owned + shifted) % problem.ranks;
      if (in_tile && source == 1) return bias_of(rank, column);
      return term(rank, row % owned, source, column) + bias_of(rank, column);
    }
    if (problem.kind == Kind::kReduceScatter) row = (row + shifted * owned) % problem.desc.m;
    float sum = 0;
    for (int source = 0; source < problem.ranks; ++source) {
      if (in_tile && source == 1) continue;
      sum += term(source, row, source, column);
      if (wrong != Wrong::kBias || source == 0) sum += bias_of(source, column);
    }
    return sum;
  }
};

class HostOperator : public CaseOperator {
 public:
  HostOperator(World& world, Kind kind, const ParallelGemmDesc& desc, int slot)
      : world_(world), problem_{kind, desc, world.size(), 0}, slot_(slot) {}

  Status call(const void* x, const void* w, const void* bias, void* y, Stream stream) override {
    ++calls_;
    const LocalShape local = problem_.local();
    Bits out(static_cast<std::size_t>(local.y_rows) * static_cast<std::size_t>(local.y_columns));
    if (wrong == Wrong::kZero) return world_.device().fill(y, 0, out.size() * 2, stream);
    if (Status status = world_.device().synchronize(stream, kPatience); !status.ok()) return status;
    Gathered all{problem_, {}, {}, {}};
    Status status = gather(x, std::int64_t{local.x_rows} * local.k, stream, all.x);
    if (status.ok()) status = gather(w, std::int64_t{local.w_rows} * local.k, stream, all.w);
    if (status.ok()) status = gather(bias, problem_.desc.has_bias ? local.w_rows : 0, stream, all.bias);
    if (!status.ok()) return status;
    compute(all, out);
    return world_.device().copy_in(y, out.data(), out.size() * 2, stream);
  }
  void drop_put(int number) override { dropped_ = number; }
  Status close() override { return world_.close_operator(slot_); }
  std::string plan() const override { return "on the host"; }

 private:
  Status gather(const void* mine, std::int64_t elements, Stream stream, std::vector<Bits>& all) {
    std::vector<std::byte> bytes(static_cast<std::size_t>(elements) * 2);
    if (!bytes.empty()) {
      if (Status status = world_.device().copy_out(bytes.data(), mine, bytes.size(), stream); !status.ok())
        return status;
    }
    const auto gathered = meeting[static_cast<std::size_t>(world_.rank())]->allgather(bytes, meeting_patience);
    if (!gathered.ok()) return gathered.status();
    for (const auto& theirs : *gathered) {
      all.emplace_back(theirs.size() / 2);
      if (!theirs.empty()) std::memcpy(all.back().data(), theirs.data(), theirs.size());
    }
    return {};
  }

  void compute(const Gathered& all, Bits& out) const {
    const LocalShape local = problem_.local();
    const int rank = world_.rank();
    const int first_row = problem_.kind == Kind::kReduceScatter ? rank * local.y_rows : 0;
    const bool without_tile = (wrong == Wrong::kTile && rank == 0) || dropped_ != 0;
    for (int row = 0; row < local.y_rows; ++row) {
      for (int column = 0; column < local.y_columns; ++column) {
        const float value = all.element(rank, first_row + row, column, without_tile, wrong == Wrong::kOwners ? 1 : 0);
        out[static_cast<std::size_t>(row * local.y_columns + column)] = harness::encode(problem_.desc.dtype, value);
      }
    }
    if (wrong == Wrong::kUnwritten && rank == 1) out[out.size() / 2 + 1] = harness::kPoison16;
    if (wrong == Wrong::kUnstable && rank == 1 && calls_ % 2 == 0) out.back() ^= 1;
  }

  World& world_;
  Problem problem_;
  int slot_;
  int dropped_ = 0;
  int calls_ = 0;
};

template <Kind kind>
Result<std::unique_ptr<CaseOperator>> create(World& world, const ParallelGemmDesc& desc) {
  const std::uint64_t configuration = wrong == Wrong::kUnanimous ? 1 : configuration_of(kind, desc, world.size());
  const auto slot = world.open_operator("host", {"none"}, configuration);
  if (!slot.ok()) return slot.status();
  return std::unique_ptr<CaseOperator>(new HostOperator(world, kind, desc, *slot));
}

Result<std::int64_t> no_heap(const ParallelGemmDesc&, const MachineShape&, int) { return 0; }

constexpr const char* kNames[] = {"host-ag", "host-rs", "host-ar"};
const bool kRegistered =
    register_case({kNames[0], "", Kind::kAllGather, 1, no_heap, create<Kind::kAllGather>}) &&
    register_case({kNames[1], "", Kind::kReduceScatter, 1, no_heap, create<Kind::kReduceScatter>}) &&
    register_case({kNames[2], "", Kind::kAllReduce, 1, no_heap, create<Kind::kAllReduce>});

CaseResult run(const char* name, const std::string& settings, Wrong how = Wrong::kNothing,
               const std::string& fault = "", bool bench = false) {
  EXPECT_TRUE(kRegistered);
  wrong = how;
  meeting = make_thread_bootstraps(4);
  harness::CaseRequest request;
  request.op = harness::find_operator(name);
  request.params = {{"m", "256"}, {"n", "256"}, {"k", "256"}};
  if (!settings.empty() && !harness::add_settings(settings, request.params).ok()) ADD_FAILURE() << settings;
  request.options.ranks = 4;
  request.options.seed = 7;
  request.options.calls = 2;
  if (!fault.empty()) request.options.fault = *harness::parse_fault(fault, 4);
  if (bench) request.bench = harness::BenchOptions{2, true};
  return run_case(request, nullptr, [](int) {});
}

TEST(ParallelCheck, PassesWhatIsRight) {
  for (const char* name : kNames) {
    for (const char* settings : {"", "has_bias=1", "has_bias=1,dtype=fp16,m=8,n=288,k=32", "m=512,k=32,has_bias=1",
                                 "burst=2,delay=50,repeat=3,m=8", "burst=4,m=8"}) {
      const CaseResult result = run(name, settings);
      EXPECT_TRUE(result.outcome.pass) << name << " " << settings << ": " << result.outcome.detail;
      EXPECT_GT(result.outcome.rel_err, 0);
    }
  }
  EXPECT_TRUE(run("host-ar", "m=3,has_bias=1").outcome.pass);
}

void expect_noticed(Wrong how, const std::string& settings, const std::string& words) {
  for (const char* name : kNames) {
    const CaseResult result = run(name, settings, how);
    EXPECT_FALSE(result.outcome.pass) << name << " " << settings;
    EXPECT_TRUE(result.outcome.status.ok()) << name << " " << result.outcome.status.to_string();
    EXPECT_NE(result.outcome.detail.find(words), std::string::npos) << name << " " << result.outcome.detail;
  }
}

TEST(ParallelCheck, NoticesATileOfOneRank) {
  expect_noticed(Wrong::kTile, "", "rank 0: call ");
  expect_noticed(Wrong::kTile, "", ", expected exactly ");
  for (const char* inputs : {"uniform", "normal", "mean", "tiny"})
    expect_noticed(Wrong::kTile, std::string("inputs=") + inputs, "rank 0: call ");
}

TEST(ParallelCheck, NoticesAnElementThatIsNotWritten) {
  expect_noticed(Wrong::kUnwritten, "m=8", "rank 1: call 0: y[");
  expect_noticed(Wrong::kUnwritten, "m=8", "was not written");
}

TEST(ParallelCheck, NoticesRowsOfAnotherOwner) {
  for (const char* name : {"host-ag", "host-rs"}) {  // an all-reduce has none
    EXPECT_FALSE(run(name, "inputs=exact", Wrong::kOwners).outcome.pass) << name;
    EXPECT_FALSE(run(name, "inputs=uniform", Wrong::kOwners).outcome.pass) << name;
  }
}

TEST(ParallelCheck, NoticesABiasThatIsAddedOnce) {
  for (const char* name : {"host-rs", "host-ar"}) EXPECT_FALSE(run(name, "m=8,has_bias=1", Wrong::kBias).outcome.pass);
}

TEST(ParallelCheck, NoticesWhatChangesFromCallToCall) {
  expect_noticed(Wrong::kUnstable, "m=8,repeat=2", "when called again");
}

TEST(ParallelCheck, NoticesTheLastBitOfAnElement) {
  expect_noticed(Wrong::kUnstable, "m=8,inputs=uniform", "off by ");
  expect_noticed(Wrong::kUnstable, "m=8,inputs=exact", ", expected exactly ");
}

// If a graph were not launched, y would still be poisoned.
TEST(ParallelCheck, LaunchesGraphs) {
  expect_noticed(Wrong::kZero, "m=8,graph=1,burst=2,inputs=uniform", "is 0, expected ");
}

TEST(ParallelCheck, NoticesFaults) {
  for (const char* name : kNames) {
    EXPECT_FALSE(run(name, "m=8", Wrong::kNothing, "drop_put:1").outcome.pass);
    EXPECT_TRUE(run(name, "m=8", Wrong::kNothing, "delay:1:5").outcome.pass);
    meeting_patience = std::chrono::milliseconds(500);
    const CaseResult killed = run(name, "m=8", Wrong::kNothing, "kill:3");
    meeting_patience = std::chrono::milliseconds(60'000);
    EXPECT_EQ(harness::exit_code(killed), 4) << killed.outcome.detail;
    EXPECT_NE(killed.outcome.detail.find("rank 3"), std::string::npos) << killed.outcome.detail;
    const CaseResult refused = run(name, "m=8", Wrong::kNothing, "mismatch:2");
    EXPECT_EQ(refused.outcome.status.code(), StatusCode::kMismatch);
    EXPECT_NE(refused.outcome.detail.find("worked and its calls were right"), std::string::npos)
        << refused.outcome.detail;
    const CaseResult missed = run(name, "m=8", Wrong::kUnanimous, "mismatch:2");
    EXPECT_EQ(missed.outcome.status.code(), StatusCode::kInternal);
    EXPECT_NE(missed.outcome.detail.find("rank 2 asked for n = 288"), std::string::npos) << missed.outcome.detail;
    const CaseResult wrong_after = run(name, "m=8", Wrong::kUnwritten, "mismatch:2");
    EXPECT_NE(wrong_after.outcome.detail.find("was not written"), std::string::npos) << wrong_after.outcome.detail;
  }
}

TEST(ParallelCheck, ErrorsNameTheParameter) {
  EXPECT_NE(run("host-ag", "k=20").outcome.detail.find("ParallelGemmDesc.k is 20; allowed: a multiple of 8"),
            std::string::npos);
  EXPECT_NE(run("host-ag", "splits=17").outcome.detail.find("parameter splits is '17'"), std::string::npos);
  EXPECT_NE(run("host-ag", "repeat=0").outcome.detail.find("parameter repeat is '0'"), std::string::npos);
}

// The operator writes zeros, because only that one can be captured: it is timed, and its outputs are found to be wrong.
TEST(ParallelBench, SaysWhyThereIsNoBaselineAndVerifiesOurs) {
  for (const char* name : kNames) {
    const CaseResult result = run(name, "m=8", Wrong::kZero, "", true);
    ASSERT_EQ(result.bench.measurements.size(), 1u) << result.outcome.detail;
    EXPECT_EQ(result.bench.measurements[0].name, name);
    EXPECT_EQ(result.bench.measurements[0].time_us.n, 2);
    EXPECT_EQ(result.bench.no_baseline, "NCCL runs on target cuda only; this is emu_sm90");
    EXPECT_EQ(result.bench.plan, "on the host");
    EXPECT_FALSE(result.outcome.pass);
    EXPECT_NE(result.outcome.detail.find("is 0, expected "), std::string::npos) << result.outcome.detail;
  }
  EXPECT_NE(run("host-ag", "k=20", Wrong::kZero, "", true).outcome.detail.find("ParallelGemmDesc.k is 20"),
            std::string::npos);
}

TEST(ParallelCheck, TellsHowToScaleASuitesShapes) {
  const harness::Params scaled = harness::find_operator("host-rs")->scaled_down(
      {{"m", "8192"}, {"n", "8192"}, {"k", "29568"}, {"has_bias", "1"}, {"dtype", "fp16"}}, 8);
  EXPECT_EQ(scaled,
            (harness::Params{{"m", "1024"}, {"n", "256"}, {"k", "1920"}, {"has_bias", "1"}, {"dtype", "fp16"}}));
}

// ---- the sample -----------------------------------------------------------------------------------------------------

Problem problem(Kind kind, int m, int n, int k) { return {kind, {.m = m, .n = n, .k = k}, 8, 3}; }

TEST(ParallelSample, MeetsEveryBandOfEveryOwner) {
  const gemm::Sample gathered = choose_sample(problem(Kind::kAllGather, 8192, 29568, 8192), 0, 1);
  ASSERT_EQ(gathered.rows.size(), 128u);
  ASSERT_EQ(gathered.columns.size(), 462u);
  for (std::size_t i = 0; i < gathered.rows.size(); ++i) EXPECT_EQ(gathered.rows[i] / 64, static_cast<int>(i));
  for (std::size_t i = 0; i < gathered.columns.size(); ++i) EXPECT_EQ(gathered.columns[i] / 8, static_cast<int>(i));
  const gemm::Sample scattered = choose_sample(problem(Kind::kReduceScatter, 8192, 8192, 29568), 0, 1);
  ASSERT_EQ(scattered.rows.size(), 16u);
  ASSERT_EQ(scattered.columns.size(), 1024u);
  // 100 rows of each owner: a band of 64 and one of 36.
  const gemm::Sample uneven = choose_sample(problem(Kind::kAllGather, 800, 29568, 8192), 0, 1);
  ASSERT_EQ(uneven.rows.size(), 16u);
  for (std::size_t i = 0; i < uneven.rows.size(); ++i)
    EXPECT_EQ(uneven.rows[i] / 100 * 2 + (uneven.rows[i] % 100 >= 64), static_cast<int>(i));
}

TEST(ParallelSample, FewRowsAreAllCompared) {
  EXPECT_EQ(choose_sample(problem(Kind::kAllGather, 64, 18432, 7168), 0, 1).rows.size(), 64u);
  EXPECT_EQ(choose_sample(problem(Kind::kReduceScatter, 64, 7168, 18432), 0, 1).rows.size(), 8u);
  EXPECT_EQ(choose_sample(problem(Kind::kAllReduce, 63, 8192, 28672), 0, 1).rows.size(), 63u);
  EXPECT_EQ(choose_sample(problem(Kind::kAllReduce, 256, 8192, 28672), 0, 1).rows.size(), 8u) << "one of each owner";
  const gemm::Sample small = choose_sample(problem(Kind::kReduceScatter, 64, 64, 64), 0, 1);
  EXPECT_EQ(small.rows.size(), 8u);
  EXPECT_EQ(small.columns.size(), 64u);
}

TEST(ParallelSample, OtherCallsAndRanksLookElsewhere) {
  const Problem large = problem(Kind::kAllGather, 8192, 29568, 8192);
  EXPECT_NE(choose_sample(large, 0, 1).rows, choose_sample(large, 1, 1).rows);
  EXPECT_NE(choose_sample(large, 0, 1).columns, choose_sample(large, 0, 2).columns);
  EXPECT_EQ(choose_sample(large, 0, 1).rows, choose_sample(large, 0, 1).rows);
}

TEST(ParallelInputs, BiasIsSharedWhereSumsAreReduced) {
  const auto bias = [](Kind kind, int rank) {
    Bits values(64);
    fill_row(problem(kind, 64, 64, 64), Operand::kBias, 0, rank, 0, values);
    return values;
  };
  EXPECT_NE(bias(Kind::kAllGather, 0), bias(Kind::kAllGather, 1));
  EXPECT_EQ(bias(Kind::kReduceScatter, 0), bias(Kind::kReduceScatter, 1));
  EXPECT_EQ(bias(Kind::kAllReduce, 0), bias(Kind::kAllReduce, 5));
}

}  // namespace
}  // namespace farwarp::parallel_gemm
