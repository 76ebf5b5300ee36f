#include "farwarp/ops/attention/case/oracle.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "farwarp/base/sizes.h"
#include "farwarp/harness/inputs.h"
#include "farwarp/ops/attention/case/row_oracle.h"

namespace farwarp::attention {
namespace {

using harness::RandomStream;

std::string place(int b, int head, int query) { return fmt::format("batch {}, head {}, query {}", b, head, query); }

std::span<const std::uint16_t> row_of(const Inputs& inputs, const Output& output, int b, int head, int query) {
  const AttentionDesc& desc = inputs.sequences().desc();
  const std::int64_t first = inputs.sequences().query_row(b, query) * output.pitch + head * desc.head_dim;
  return output.out.subspan(size(first), size(desc.head_dim));
}

float lse_of(const Inputs& inputs, const Output& output, int b, int head, int query) {
  const Sequences& sequences = inputs.sequences();
  const AttentionDesc& desc = sequences.desc();
  if (desc.ragged_queries)
    return output.lse[size(head * std::int64_t{desc.total_queries} + sequences.query_row(b, query))];
  return output.lse[size((std::int64_t{b} * desc.heads + head) * desc.max_queries + query)];
}

std::string lse_difference(const Inputs& inputs, const Output& output, int b, int head, int query, double right,
                           double error) {
  if (output.lse.empty()) return {};
  const double got = lse_of(inputs, output, b, head, query);
  if (std::isinf(right) ? got == right : std::abs(got - right) <= error) return {};
  return fmt::format("lse of {} is {:.8g}, expected {:.8g}, allowed is an error of {:.3g}", place(b, head, query), got,
                     right, error);
}

/// kMean: compares all rows of a head. `before[j]` is the sum of the values of the keys before key j.
class MeanHead {
 public:
  explicit MeanHead(const Inputs& inputs)
      : inputs_(inputs), desc_(inputs.sequences().desc()), columns_(size(desc_.head_dim)) {}

  std::string difference(int b, int head, const Output& output) {
    add_up(b, head / inputs_.heads_of_kv_head());
    for (int query = 0; query < inputs_.sequences().queries(b); ++query) {
      std::string wrong = row_difference(b, head, query, output);
      if (!wrong.empty()) return wrong;
    }
    return {};
  }

 private:
  void add_up(int b, int kv_head) {
    const int keys = inputs_.sequences().keys(b);
    before_.assign(size(keys + 1) * columns_, 0);
    for (int key = 0; key < keys; ++key) {
      const auto values = inputs_.value(b, kv_head, key);
      const std::int32_t* const from = &before_[size(key) * columns_];
      std::int32_t* const to = &before_[size(key + 1) * columns_];
      for (std::size_t i = 0; i < columns_; ++i)
        to[i] = from[i] + static_cast<std::int32_t>(harness::decode(desc_.dtype, values[i]));
    }
  }

  /// All logits are 0, and all probabilities 1 unless a sink is larger. Sums of integers are exact.
  std::string row_difference(int b, int head, int query, const Output& output) const {
    constexpr double kArithmetic = 0x1p-20;
    const Seen seen = inputs_.sequences().seen(b, query);
    const double denominator = seen.count() + (desc_.has_sinks ? std::exp(double{inputs_.sink(head)}) : 0);
    const double factor = seen.count() == 0 ? 0 : 1 / denominator;
    const std::int32_t* const end = &before_[size(seen.first + seen.count()) * columns_];
    const std::int32_t* const first = &before_[size(seen.first) * columns_];
    const auto got = row_of(inputs_, output, b, head, query);
    for (std::size_t i = 0; i < columns_; ++i) {
      const double right = (end[i] - first[i]) * factor, value = harness::decode(desc_.dtype, got[i]);
      const double error = std::abs(value - right), arithmetic = kArithmetic * std::abs(right);
      if (error <= arithmetic || error <= arithmetic + harness::half_ulp(desc_.dtype, std::abs(right) + arithmetic))
        continue;
      return fmt::format("out of {}, column {} is {}, expected {:.6g}, the mean of {} values", place(b, head, query), i,
                         value, right, seen.count());
    }
    const double lse = std::log(denominator);
    return lse_difference(inputs_, output, b, head, query, lse, logarithm_error(lse, kArithmetic));
  }

  const Inputs& inputs_;
  const AttentionDesc& desc_;
  std::size_t columns_;
  std::vector<std::int32_t> before_;
};

std::string mean_difference(const Inputs& inputs, const Output& output, int call, const Effort& effort) {
  const Sequences& sequences = inputs.sequences();
  const AttentionDesc& desc = sequences.desc();
  const double of_head = static_cast<double>(sequences.query_rows()) * desc.head_dim;
  const int heads = static_cast<int>(std::clamp(effort.mean_elements / of_head, 1.0, 1.0 * desc.heads));
  MeanHead compared(inputs);
  for (int i = 0; i < heads; ++i) {
    // Evenly over all heads, and others in the next call.
    const int head = static_cast<int>((std::int64_t{i} * desc.heads / heads + call) % desc.heads);
    for (int b = 0; b < desc.batch; ++b) {
      std::string wrong = compared.difference(b, head, output);
      if (!wrong.empty()) return wrong;
    }
  }
  return {};
}

/// The needle's logit is a product of signs, and exact in fp32.
double needle_logit(const Inputs& inputs, int b, int head, int query) {
  const AttentionDesc& desc = inputs.sequences().desc();
  std::vector<std::uint16_t> row(size(desc.head_dim));
  inputs.query(b, head, query, row);
  const double factor = std::abs(harness::decode(desc.dtype, row[0]));
  return factor * desc.head_dim * (desc.scale > 0 ? desc.scale : 1 / std::sqrt(desc.head_dim));
}

std::string needle_row_difference(const Inputs& inputs, const Output& output, int b, int head, int query) {
  constexpr double kNoMore = 1e-10;  // what all other keys together may add
  const AttentionDesc& desc = inputs.sequences().desc();
  const int key = inputs.needle(b, head, query);
  const auto got = row_of(inputs, output, b, head, query);
  const std::vector<std::uint16_t> zeros(key < 0 ? got.size() : 0);
  const auto right = key < 0 ? std::span(zeros) : inputs.value(b, head / inputs.heads_of_kv_head(), key);
  if (std::memcmp(got.data(), right.data(), got.size_bytes()) != 0) {
    for (std::size_t i = 0; i < got.size(); ++i) {
      const double value = harness::decode(desc.dtype, got[i]), wanted = harness::decode(desc.dtype, right[i]);
      if (!(std::abs(value - wanted) <= kNoMore))
        return fmt::format("out of {}, column {} is {}, expected {}, {}", place(b, head, query), i, value, wanted,
                           key < 0 ? "as it sees no key" : fmt::format("the value of key {}", key));
    }
  }
  if (output.lse.empty()) return {};
  const double none = desc.has_sinks ? inputs.sink(head) : -std::numeric_limits<double>::infinity();
  const double lse = key < 0 ? none : needle_logit(inputs, b, head, query);
  return lse_difference(inputs, output, b, head, query, lse, logarithm_error(lse, 0));
}

std::string needle_difference(const Inputs& inputs, const Output& output) {
  const Sequences& sequences = inputs.sequences();
  for (int b = 0; b < sequences.desc().batch; ++b) {
    for (int head = 0; head < sequences.desc().heads; ++head) {
      for (int query = 0; query < sequences.queries(b); ++query) {
        std::string wrong = needle_row_difference(inputs, output, b, head, query);
        if (!wrong.empty()) return wrong;
      }
    }
  }
  return {};
}

}  // namespace

std::string exact_difference(const Inputs& inputs, const Output& output, int call, const Effort& effort) {
  return inputs.kind() == InputKind::kMean ? mean_difference(inputs, output, call, effort)
                                           : needle_difference(inputs, output);
}

std::string compare_rows(const Inputs& inputs, const Output& output, int call, harness::Comparison& comparison,
                         const Effort& effort) {
  const Sequences& sequences = inputs.sequences();
  const AttentionDesc& desc = sequences.desc();
  const double of_head = 2 * sequences.pairs() * desc.head_dim;
  RowOracle oracle(inputs);
  // Every `stride`-th row of all heads, from another first row in each call; the heads take turns.
  auto stride = static_cast<std::int64_t>(std::max(1.0, std::ceil(of_head * desc.heads / effort.products)));
  while (stride > 1 && std::gcd(stride, desc.heads) != 1) ++stride;
  const auto compare = [&](int b, int head, int query) {
    const auto number = static_cast<int>(sequences.query_row(b, query));
    const auto after = static_cast<int>(sequences.query_rows() - number / kTileRows * kTileRows);
    // An eighth of them: with a causal mask the first rows have most of the error.
    const RightRow& right = oracle.row(b, head, query, stride == 1 ? std::max(1, std::min(kTileRows, after) / 8) : 1);
    comparison.add(number, head * desc.head_dim, row_of(inputs, output, b, head, query), right.out);
    return lse_difference(inputs, output, b, head, query, right.lse, right.lse_error);
  };
  const RandomStream stream(static_cast<std::uint64_t>(call), {0xa7a});
  std::int64_t next = static_cast<std::int64_t>(stream.below(0, static_cast<std::uint64_t>(stride)));
  std::int64_t number = 0;
  for (int b = 0; b < desc.batch; ++b) {
    for (int query = 0; query < sequences.queries(b); ++query) {
      for (int head = 0; head < desc.heads; ++head, ++number) {
        if (number != next) continue;
        next += stride;
        std::string wrong = compare(b, head, query);
        if (!wrong.empty()) return wrong;
      }
    }
  }
  return {};
}

}  // namespace farwarp::attention
