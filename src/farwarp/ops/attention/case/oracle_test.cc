// The oracle of attention's check: it accepts what arithmetic of a kernel's precision makes, and finds errors of one
// key.
#include "farwarp/ops/attention/case/oracle.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <vector>

#include "farwarp/base/sizes.h"
#include "farwarp/harness/inputs.h"
#include "farwarp/ops/attention/reference.h"

namespace farwarp::attention {
namespace {

AttentionDesc desc_of(int heads, int kv_heads, int head_dim, int rows) {
  AttentionDesc desc;
  desc.batch = 1;
  desc.heads = heads;
  desc.kv_heads = kv_heads;
  desc.head_dim = head_dim;
  desc.max_queries = desc.max_keys = rows;
  desc.has_lse = true;
  return desc;
}

/// A call whose results are the reference's, rounded once. The bug changes what a query sees, or its results.
struct Bugs {
  std::function<void(int query, ReferenceRow&)> in_row = [](int, ReferenceRow&) {};
  std::function<void(int query, ReferenceResult&)> in_result = [](int, ReferenceResult&) {};
};

struct Results {
  std::vector<std::uint16_t> out;
  std::vector<float> lse;
};

Results results_of(const Inputs& inputs, const Bugs& bugs) {
  const AttentionDesc& desc = inputs.sequences().desc();
  const auto columns = size(desc.head_dim);
  Results results;
  results.out.resize(size(desc.max_queries) * size(desc.heads) * columns);
  results.lse.resize(size(desc.max_queries) * size(desc.heads));
  std::vector<std::uint16_t> bits(columns);
  std::vector<double> query(columns), key(columns), value(columns);
  const auto decoded = [&](std::span<const std::uint16_t> from, std::vector<double>& to) {
    for (std::size_t i = 0; i < columns; ++i) to[i] = harness::decode(desc.dtype, from[i]);
    return std::span<const double>(to);
  };
  for (int head = 0; head < desc.heads; ++head) {
    const int kv_head = head / inputs.heads_of_kv_head();
    for (int i = 0; i < desc.max_queries; ++i) {
      inputs.query(0, head, i, bits);
      const Seen seen = inputs.sequences().seen(0, i);
      ReferenceRow row{decoded(bits, query), {}, {}, seen.first, seen.end, 1 / std::sqrt(desc.head_dim), nullptr};
      const double sink = inputs.sink(head);
      if (desc.has_sinks) row.sink = &sink;
      row.softcap = desc.softcap;
      row.key = [&](int j) {
        std::vector<std::uint16_t> of_key(columns);
        inputs.key(0, kv_head, j, of_key);
        return decoded(of_key, key);
      };
      row.value = [&](int j) { return decoded(inputs.value(0, kv_head, j), value); };
      bugs.in_row(i, row);
      ReferenceResult result = reference_row(row);
      for (double& number : result.out)
        number = std::abs(number) < 1e-12 ? 0 : number;  // the kernel's sum of integers is exact
      bugs.in_result(i, result);
      for (std::size_t c = 0; c < columns; ++c)
        results.out[(size(i) * size(desc.heads) + size(head)) * columns + c] =
            harness::encode(desc.dtype, static_cast<float>(result.out[c]));
      results.lse[size(head) * size(desc.max_queries) + size(i)] = static_cast<float>(result.lse);
    }
  }
  return results;
}

/// Empty, or what the check says.
std::string judged(const AttentionDesc& desc, InputKind kind, const Bugs& bugs = {}) {
  const Inputs inputs(Sequences(desc, Lengths::kWhole, 5, 0), kind, 5, 0);
  const Results results = results_of(inputs, bugs);
  const Output output{results.out, std::int64_t{desc.heads} * desc.head_dim, results.lse};
  if (kind == InputKind::kMean || kind == InputKind::kNeedle) return exact_difference(inputs, output, 0);
  harness::Comparison comparison(desc.dtype, 128, desc.head_dim);
  comparison.begin_call(0);
  const std::string wrong = compare_rows(inputs, output, 0, comparison);
  return wrong.empty() ? comparison.verdict().detail : wrong;
}

constexpr InputKind kKinds[] = {InputKind::kNormal, InputKind::kSpread, InputKind::kLarge, InputKind::kMean,
                                InputKind::kNeedle};

TEST(AttentionOracle, AcceptsTheReference) {
  for (const InputKind kind : kKinds) {
    AttentionDesc desc = desc_of(2, 1, 64, 150);
    EXPECT_EQ(judged(desc, kind), "");
    desc.causal = desc.has_sinks = true;
    desc.dtype = DType::kF16;
    EXPECT_EQ(judged(desc, kind), "");
  }
}

TEST(AttentionOracle, FindsAKeyTooManyOrTooFew) {
  for (const DType dtype : {DType::kBf16, DType::kF16}) {
    AttentionDesc desc = desc_of(1, 1, 64, 300);
    desc.causal = true;
    desc.dtype = dtype;
    EXPECT_NE(
        judged(desc, InputKind::kMean, {.in_row = [](int query, ReferenceRow& row) { row.end_key -= query > 0; }}), "");
    EXPECT_NE(
        judged(desc, InputKind::kMean, {.in_row = [](int query, ReferenceRow& row) { row.end_key += query == 250; }}),
        "");
    EXPECT_NE(judged(desc, InputKind::kNeedle, {.in_row = [](int, ReferenceRow& row) { row.first_key += 128; }}), "");
  }
}

TEST(AttentionOracle, FindsRowsOfAnother) {
  const AttentionDesc desc = desc_of(1, 1, 64, 140);
  for (const InputKind kind : kKinds) {
    ReferenceResult before;
    EXPECT_NE(judged(desc, kind,
                     {.in_result =
                          [&](int query, ReferenceResult& result) {
                            if (query == 139 && kind != InputKind::kMean) result = before;
                            if (query == 139 && kind == InputKind::kMean) result.out[3] += 0.01;
                            before = result;
                          }}),
              "");
  }
}

TEST(AttentionOracle, FindsWrongLogarithms) {
  const AttentionDesc desc = desc_of(1, 1, 64, 140);
  for (const InputKind kind : kKinds) {
    EXPECT_NE(judged(desc, kind,
                     {.in_result =
                          [](int query, ReferenceResult& result) {
                            if (query == 70) result.lse += 0.05 + 1e-5 * std::abs(result.lse);
                          }})
                  .find("lse of batch 0, head 0, query 70"),
              std::string::npos);
  }
}

TEST(AttentionOracle, FindsErrorsOfThreePerMille) {
  const AttentionDesc desc = desc_of(1, 1, 64, 256);
  EXPECT_NE(judged(desc, InputKind::kNormal,
                   {.in_result =
                        [](int, ReferenceResult& result) {
                          for (double& value : result.out) value *= 1.003;
                        }}),
            "");
}

TEST(AttentionSequences, HaveZeroLengthsAndDistinctRows) {
  AttentionDesc desc = desc_of(1, 1, 64, 100);
  desc.batch = 4;
  desc.page_size = 16;
  for (int call = 0; call < 4; ++call) {
    const Sequences sequences(desc, Lengths::kRagged, 3, call);
    EXPECT_EQ(sequences.desc().pages, Sequences(desc, Lengths::kRagged, 3, 0).desc().pages);
    int without_queries = 0, without_keys = 0;
    std::int64_t owned = 0, keys = 0;
    for (int b = 0; b < 4; ++b) {
      without_queries += sequences.queries(b) == 0;
      without_keys += sequences.keys(b) == 0;
      keys += sequences.queries(b) == 0 ? 0 : sequences.keys(b);  // keys that nobody sees have no row
    }
    EXPECT_GT(without_queries, 0);
    EXPECT_GT(without_keys, 0);
    for (const auto& owner : sequences.key_owners()) owned += owner.b >= 0;
    EXPECT_EQ(owned, keys) << "two keys have one row";
  }
}

TEST(AttentionSequences, SeeWhatWindowsSay) {
  AttentionDesc desc = desc_of(1, 1, 64, 10);
  desc.max_keys = 15;
  const auto seen = [&](int query) {
    const Seen range = Sequences(desc, Lengths::kWhole, 1, 0).seen(0, query);
    return std::pair(range.first, range.end);
  };
  EXPECT_EQ(seen(0), std::pair(0, 15));
  desc.causal = true;
  EXPECT_EQ(seen(0), std::pair(0, 6)) << "the last query is at the last key's place";
  EXPECT_EQ(seen(9), std::pair(0, 15));
  desc.window_left = 2;
  EXPECT_EQ(seen(9), std::pair(12, 15));
  desc.causal = false;
  desc.window_right = 1;
  EXPECT_EQ(seen(0), std::pair(3, 7));
}

}  // namespace
}  // namespace farwarp::attention
