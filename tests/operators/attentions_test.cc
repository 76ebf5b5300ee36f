// Prefill and decode on the same paged caches, against float64: logits of any finite size, and keys that nobody sees.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "farwarp/harness/device_buffer_test_values.h"
#include "farwarp/harness/inputs.h"
#include "farwarp/ops/attention/attention.h"
#include "farwarp/ops/attention/reference.h"
#include "farwarp/ops/flash_decode/flash_decode.h"
#include "farwarp/world/host/world_test_fixture.h"

namespace farwarp {
namespace {

using harness::buffer_of;
using harness::DeviceBuffer;
using Bits = std::vector<std::uint16_t>;

constexpr int kHeads = 4, kKvHeads = 2, kPages = 128;
constexpr std::uint16_t kNan = 0x7fff;

std::size_t size(std::int64_t value) { return static_cast<std::size_t>(value); }

/// Token t of a sequence of length L sees the keys up to L - queries + t, `window` of them if that is not 0. The block
/// table has room for `room` keys at least.
struct Problem {
  DType dtype = DType::kBf16;
  int dim = 64, queries = 1, page_size = 16, window = 0, room = 0;
  std::vector<int> lengths = {300};
  float scale = 0;
  std::vector<float> sinks = {};  ///< of the heads, or empty
  std::function<float(int token, int column)> q;
  std::function<float(int key, int column)> k, v;
  std::int32_t unseen_page = -1;  ///< what the block table has for pages that no token sees
  int lost_page = -1;             ///< has this, too, though tokens see it: of the first sequence

  int batch() const { return static_cast<int>(lengths.size()); }
  int table_pitch() const { return std::max(*std::ranges::max_element(lengths), room) / page_size + 2; }
  int first_seen(int b, int token) const {
    const int end = lengths[size(b)] - queries + token + 1;
    return window == 0 ? 0 : std::max(0, end - window);
  }
  float number(float value) const { return harness::decode(dtype, harness::encode(dtype, value)); }
};

/// The operands in memory. What no token sees is NaN, and its pages have no number.
struct Operands {
  Bits q, k, v;
  std::vector<std::int32_t> table, lengths;

  explicit Operands(const Problem& of)
      : table(size(of.batch()) * size(of.table_pitch()), of.unseen_page),
        lengths(of.lengths.begin(), of.lengths.end()) {
    for (int b = 0; b < of.batch(); ++b) {
      for (int token = 0; token < of.queries; ++token) {
        for (int i = 0; i < kHeads * of.dim; ++i) q.push_back(harness::encode(of.dtype, of.q(token, i % of.dim)));
      }
    }
    const std::size_t row = size(kKvHeads) * size(of.dim);
    k.assign(size(kPages) * size(of.page_size) * row, kNan);
    v = k;
    for (int b = 0, taken = 0; b < of.batch(); ++b) {
      for (int key = of.first_seen(b, 0); key < of.lengths[size(b)]; ++key) {
        std::int32_t& page = table[size(b) * size(of.table_pitch()) + size(key / of.page_size)];
        if (page == of.unseen_page) page = (taken++ * 5 + 3) % kPages;
        const std::size_t first = (size(page) * size(of.page_size) + size(key % of.page_size)) * row;
        for (std::size_t i = 0; i < row; ++i) {
          const int column = static_cast<int>(i) % of.dim;
          k[first + i] = harness::encode(of.dtype, of.k(key, column));
          v[first + i] = harness::encode(of.dtype, of.v(key, column));
        }
      }
    }
    if (of.lost_page >= 0) table[size(of.lost_page)] = of.unseen_page;
  }
};

struct Results {
  Status status;
  std::vector<float> out, lse;  ///< [batch][token][head][dim], [batch][token][head]
};

template <class T>
DeviceBuffer buffer_with(Device& device, Stream stream, const std::vector<T>& values) {
  DeviceBuffer buffer = buffer_of(device, std::max<std::size_t>(values.size() * sizeof(T), 16));
  EXPECT_TRUE(buffer.upload(values.data(), values.size() * sizeof(T), stream).ok());
  return buffer;
}

struct Buffers {
  DeviceBuffer q, k, v, table, lengths, sinks, out, lse;

  Buffers(Device& device, Stream stream, const Problem& problem, const Operands& of)
      : q(buffer_with(device, stream, of.q)),
        k(buffer_with(device, stream, of.k)),
        v(buffer_with(device, stream, of.v)),
        table(buffer_with(device, stream, of.table)),
        lengths(buffer_with(device, stream, of.lengths)),
        sinks(buffer_with(device, stream, problem.sinks)),
        out(buffer_of(device, q.bytes())),
        lse(buffer_of(device, q.bytes() / size(problem.dim) * 2)) {}
};

/// `called`: what the call gave.
Results read(World& world, Stream stream, const Problem& problem, const Buffers& from, const Status& called) {
  Results results;
  EXPECT_TRUE(world.device().synchronize(stream, 60'000'000'000).ok());
  results.status = called.ok() ? world.status() : called;
  for (const std::uint16_t bits : harness::bits_in(from.out, stream))
    results.out.push_back(harness::decode(problem.dtype, bits));
  results.lse.resize(results.out.size() / size(problem.dim));
  EXPECT_TRUE(from.lse.download(results.lse.data(), results.lse.size() * 4, stream).ok());
  return results;
}

Results prefill(World& world, Stream stream, const Problem& problem) {
  auto op = Attention::create(world, {.batch = problem.batch(),
                                      .heads = kHeads,
                                      .kv_heads = kKvHeads,
                                      .head_dim = problem.dim,
                                      .max_queries = problem.queries,
                                      .max_keys = problem.table_pitch() * problem.page_size,
                                      .dtype = problem.dtype,
                                      .causal = true,
                                      .window_left = problem.window - 1,
                                      .scale = problem.scale,
                                      .has_sinks = !problem.sinks.empty(),
                                      .has_lse = true,
                                      .page_size = problem.page_size,
                                      .pages = kPages});
  if (!op.ok()) return {op.status(), {}, {}};
  const Buffers on_device(world.device(), stream, problem, Operands(problem));
  const AttentionTensors tensors{.q = on_device.q.get(),
                                 .k = on_device.k.get(),
                                 .v = on_device.v.get(),
                                 .out = on_device.out.get(),
                                 .lse = on_device.lse.as<float>(),
                                 .sinks = problem.sinks.empty() ? nullptr : on_device.sinks.as<float>(),
                                 .key_counts = on_device.lengths.as<std::int32_t>(),
                                 .block_table = on_device.table.as<std::int32_t>()};
  Results results = read(world, stream, problem, on_device, (*op)(tensors, stream));
  EXPECT_TRUE(!results.status.ok() || op->close().ok());
  const std::vector<float> by_head = results.lse;  // [batch][head][token]
  for (std::size_t i = 0; i < by_head.size(); ++i) {
    const std::size_t token = i % size(problem.queries), rest = i / size(problem.queries);
    results.lse[(rest / kHeads * size(problem.queries) + token) * kHeads + rest % kHeads] = by_head[i];
  }
  return results;
}

/// `problem`: this rank's keys. Ranks that share a sequence have the same queries.
Results decode(World& world, Stream stream, const Problem& problem, DecodeExchange exchange = DecodeExchange::kBest,
               DecodeWork work = DecodeWork::kBest) {
  auto op = FlashDecode::create(world, {.batch = problem.batch(),
                                        .query_tokens = problem.queries,
                                        .query_heads = kHeads,
                                        .kv_heads = kKvHeads,
                                        .head_dim = problem.dim,
                                        .page_size = problem.page_size,
                                        .pages = kPages,
                                        .max_pages = problem.table_pitch(),
                                        .dtype = problem.dtype,
                                        .window = problem.window,
                                        .sinks = !problem.sinks.empty(),
                                        .scale = problem.scale,
                                        .kv_shards = world.size(),
                                        .exchange = exchange,
                                        .split_keys = 64,
                                        .work = work});
  if (!op.ok()) return {op.status(), {}, {}};
  const Buffers on_device(world.device(), stream, problem, Operands(problem));
  const FlashDecodeTensors tensors{.q = on_device.q.get(),
                                   .k = on_device.k.get(),
                                   .v = on_device.v.get(),
                                   .block_table = on_device.table.as<std::int32_t>(),
                                   .lengths = on_device.lengths.as<std::int32_t>(),
                                   .sinks = problem.sinks.empty() ? nullptr : on_device.sinks.as<float>(),
                                   .out = on_device.out.get(),
                                   .lse = on_device.lse.as<float>()};
  Results results = read(world, stream, problem, on_device, (*op)(tensors, stream));
  EXPECT_TRUE(!results.status.ok() || op->close().ok());
  return results;
}

/// Empty, or the first wrong number.
std::string difference(const Problem& problem, const Results& results) {
  if (!results.status.ok()) return results.status.to_string();
  const double unit = problem.dtype == DType::kBf16 ? 0x1p-7 : 0x1p-10;
  const double scale = problem.scale > 0 ? problem.scale : 1 / std::sqrt(static_cast<float>(problem.dim));
  std::vector<double> query(size(problem.dim)), key(query.size()), value(query.size());
  for (std::size_t row = 0; row < results.lse.size(); ++row) {
    const int head = static_cast<int>(row % kHeads), token = static_cast<int>(row / kHeads % size(problem.queries));
    const int b = static_cast<int>(row / kHeads / size(problem.queries));
    const auto numbers = [&](const auto& from, int index, std::vector<double>& to) {
      for (std::size_t i = 0; i < to.size(); ++i) to[i] = problem.number(from(index, static_cast<int>(i)));
      return std::span<const double>(to);
    };
    numbers(problem.q, token, query);
    const double sink = problem.sinks.empty() ? 0 : problem.sinks[size(head)];
    const attention::ReferenceResult right = attention::reference_row(
        {query, [&](int j) { return numbers(problem.k, j, key); }, [&](int j) { return numbers(problem.v, j, value); },
         problem.first_seen(b, token), problem.lengths[size(b)] - problem.queries + token + 1, scale,
         problem.sinks.empty() ? nullptr : &sink});
    const std::string at = fmt::format("batch {}, token {}, head {}: ", b, token, head);
    if (results.lse[row] != right.lse &&
        !(std::abs(results.lse[row] - right.lse) <= 0x1p-22 * std::abs(right.lse) + 1e-4))
      return at + fmt::format("lse is {}, expected {}", results.lse[row], right.lse);
    for (std::size_t i = 0; i < query.size(); ++i) {
      const double got = results.out[row * query.size() + i];
      if (!(std::abs(got - right.out[i]) <= unit * right.magnitude[i]))
        return at + fmt::format("out is {}, expected {}", got, right.out[i]);
    }
  }
  return {};
}

class Attentions : public WorldTestOf<std::tuple<TargetKind, DType, int>> {
 protected:
  static Problem problem() {
    Problem problem;
    problem.dtype = std::get<DType>(GetParam());
    problem.dim = std::get<int>(GetParam());
    return problem;
  }
  static void on_streams(int ranks, const std::function<void(World&, Stream)>& body) {
    WorldOptions with_room = options();
    with_room.heap_bytes = 16 << 20;
    WorldTestOf::on_streams(ranks, with_room, body);
  }
  /// Prefill, decode, decode by each kind of work, and, if there is one query, decode whose keys are spread over two
  /// ranks.
  static void expect_right(const Problem& problem) {
    on_streams(1, [&](World& world, Stream stream) {
      if (problem.page_size > 1) {
        EXPECT_EQ(difference(problem, prefill(world, stream, problem)), "") << "prefill";
      }
      const bool wgmma = world.device().shape().traits.matrix_unit == MatrixUnit::kWgmma;
      for (const DecodeWork work : {DecodeWork::kSplit, DecodeWork::kGroup, DecodeWork::kAll}) {
        if (!wgmma && work != DecodeWork::kSplit) continue;
        EXPECT_EQ(difference(problem, decode(world, stream, problem, DecodeExchange::kBest, work)), "")
            << "decode, work " << name_of(work);
      }
    });
    if (problem.queries > 1 || problem.window > 0 || problem.batch() > 1) return;
    for (const DecodeExchange exchange : {DecodeExchange::kOneShot, DecodeExchange::kTwoShot}) {
      on_streams(2, [&](World& world, Stream stream) {
        const int all = problem.lengths[0], first = (all + 1) / 2;
        Problem mine = problem;
        mine.room = all;
        mine.lengths = {world.rank() == 0 ? first : all - first};
        if (world.rank() == 1) {
          mine.k = [&](int key, int column) { return problem.k(first + key, column); };
          mine.v = [&](int key, int column) { return problem.v(first + key, column); };
        }
        EXPECT_EQ(difference(problem, decode(world, stream, mine, exchange)), "") << "of two ranks";
      });
    }
  }
};
INSTANTIATE_TEST_SUITE_P(Targets, Attentions,
                         testing::Combine(testing::ValuesIn(kAllTargets), testing::Values(DType::kBf16, DType::kF16),
                                          testing::Values(64, 128)),
                         [](const auto& of) {
                           return fmt::format("{}_{}_{}", name_of(std::get<0>(of.param)),
                                              name_of(std::get<1>(of.param)), std::get<2>(of.param));
                         });

/// Scores -j * unit + 2^24 * unit of fp32, exact: logits 2^24 - j. Their maximum rises, and falls.
void set_ladder(Problem& problem, float unit) {
  const float root = std::exp2(std::floor(std::log2(unit) / 2));
  problem.scale = 1 / unit;
  problem.q = [=](int, int column) { return column == 0 ? 0x1p12f * root : column == 1 ? unit / root : 0; };
  problem.k = [=](int key, int column) {
    const float size = 0x1p12f * (unit / root);
    return column == 0 ? size : column == 1 ? -root * static_cast<float>(std::abs(key - 150) / 64) : 0;
  };
  problem.v = [](int key, int column) { return static_cast<float>((key * 7 + column * 3) % 31 - 9); };
}

TEST_P(Attentions, OneKeyOfALargeLogit) {
  for (const float number : {3000.0f, 21888.0f, 60032.0f, -60032.0f}) {
    Problem of = problem();
    of.lengths = {1};
    of.q = [=](int, int) { return number; };
    of.k = [](int, int) { return 21888.0f; };
    of.v = [](int, int) { return 3.0f; };
    expect_right(of);
  }
}
TEST_P(Attentions, ManyKeysOfTheSameLargeLogit) {
  Problem of = problem();
  const float number = of.dtype == DType::kBf16 ? 133120 : 61440;
  of.q = of.k = of.v = [=](int, int) { return number; };
  expect_right(of);
  of.q = [=](int, int) { return -number; };
  expect_right(of);
}
// Probabilities that differ, where the logits' distance in fp32 is 1.
TEST_P(Attentions, ALadderOfLargeLogits) {
  for (const int length : {300, 129, 1}) {
    Problem of = problem();
    of.lengths = {length};
    set_ladder(of, 1);
    expect_right(of);
  }
}
TEST_P(Attentions, ALadderSeenByWindowsAndTokens) {
  Problem of = problem();
  of.queries = 5;
  of.window = 170;
  of.lengths = {300, 77, 5};
  set_ladder(of, 1);
  expect_right(of);
}
TEST_P(Attentions, ALadderAndSinks) {
  Problem of = problem();
  set_ladder(of, 1);
  of.sinks = {0x1p24f, 0x1p24f - 2, 0x1p24f + 2, -0x1p24f};
  expect_right(of);
  of.sinks = {1e30f, -1e30f, 0, 3e38f};
  expect_right(of);
}
TEST_P(Attentions, LargeAndSmallScales) {
  Problem of = problem();
  for (const float unit : of.dtype == DType::kBf16 ? std::vector<float>{0x1p-100f, 0x1p-40f, 0x1p96f}
                                                   : std::vector<float>{0x1p-16f, 0x1p4f}) {
    set_ladder(of, unit);
    expect_right(of);
  }
}
// The scores' distance is no fp32 number, the logits' is.
TEST_P(Attentions, ScoresThatAreFarApart) {
  Problem of = problem();
  of.dtype = DType::kBf16;  // fp16 has no such scores
  of.scale = 1e-38f;
  of.q = [](int, int column) { return column == 0 ? 0x1p63f : 0; };
  of.k = [](int key, int column) { return column == 0 ? (key % 3 == 0 ? 0x1.8p64f : -0x1.8p64f) : 0; };
  of.v = [](int key, int) { return static_cast<float>(key % 3); };
  expect_right(of);
}
// A probability above 1, as a rounding of the exponent gives it, would make infinity of it.
TEST_P(Attentions, TheLargestValueIsNotInfinity) {
  Problem of = problem();
  const float most = of.dtype == DType::kBf16 ? 0x1.fep127f : 65504.0f;
  of.lengths = {1};
  for (const float number : {37.0f, 300.0f, 1000.0f, 20480.0f, 50176.0f}) {
    of.q = of.k = [=](int, int) { return number; };
    of.v = [=](int, int) { return most; };
    expect_right(of);
  }
}

TEST_P(Attentions, WhatNobodySeesIsNotRead) {
  for (const auto& [queries, window, page_size, lengths] : {std::tuple{1, 4, 16, std::vector{32}},
                                                            {1, 4, 16, std::vector{31, 300, 1, 0}},
                                                            {5, 40, 64, std::vector{700, 90}},
                                                            {3, 200, 16, std::vector{900, 205}},
                                                            {1, 1, 128, std::vector{129, 513}},
                                                            {1, 40, 1, std::vector{90, 300}}}) {
    for (const std::int32_t unseen : {-1, kPages, std::numeric_limits<std::int32_t>::min()}) {
      Problem of = problem();
      of.queries = queries;
      of.window = window;
      of.page_size = page_size;
      of.lengths = lengths;
      of.unseen_page = unseen;
      of.q = [](int token, int column) { return static_cast<float>((token * 5 + column * 3) % 7 - 3) / 4; };
      of.k = [](int key, int column) { return static_cast<float>((key * 5 + column) % 11 - 5) / 4; };
      of.v = [](int key, int column) { return static_cast<float>((key * 3 + column) % 13); };
      expect_right(of);
    }
  }
}

TEST_P(Attentions, APageThatIsSeenMustExist) {
  for (const int lost : {1, 2}) {
    Problem of = problem();
    of.lengths = {40};
    of.window = 20;  // keys 20 to 39
    of.lost_page = lost;
    of.q = of.k = of.v = [](int, int) { return 1.0f; };
    const auto expect_refused = [](const Results& results) {
      EXPECT_EQ(results.status.code(), StatusCode::kBadInput) << results.status.to_string();
      EXPECT_TRUE(contains(results.status.message(), "'block_table': found -1")) << results.status.to_string();
    };
    on_streams(1, [&](World& world, Stream stream) { expect_refused(prefill(world, stream, of)); });
    on_streams(1, [&](World& world, Stream stream) { expect_refused(decode(world, stream, of)); });
  }
}

}  // namespace
}  // namespace farwarp
