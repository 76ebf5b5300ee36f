#include "farwarp/ops/attention/case/inputs.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "farwarp/harness/inputs.h"

namespace farwarp::attention {
namespace {

using harness::RandomStream;

constexpr std::size_t kTable = 1'000'003, kSmallTable = 20'011;
constexpr std::int64_t kSmall = 1 << 20;  // elements of k
constexpr double kLargeDeviation = 3000, kSpreadDeviation = 8;
constexpr std::uint64_t kOddConstant = 0x9e3779b97f4a7c15ull;
enum What : std::uint64_t { kQuery, kKey, kValue, kCode, kNeedleKey };

std::vector<std::uint16_t> normal_table(std::size_t size, std::uint64_t seed, DType dtype, double deviation) {
  std::vector<std::uint16_t> table(size);
  harness::fill_normal(RandomStream(seed, {0xa77}), 0, deviation, dtype, table);
  return table;
}

std::vector<std::uint16_t> integer_table(std::size_t size, std::uint64_t seed, DType dtype) {
  std::vector<std::uint16_t> table(size);
  const RandomStream stream(seed, {0xa78});
  for (std::size_t i = 0; i < table.size(); ++i)
    table[i] = harness::encode(dtype, static_cast<float>(stream.below(i, 9)) - 4);
  return table;
}

std::uint64_t mixed(std::uint64_t value) {
  value = (value ^ (value >> 31)) * 0x7fb5d329728ea185ull;
  value = (value ^ (value >> 27)) * 0x81dadef4bc2dd44dull;
  return value ^ (value >> 33);
}

}  // namespace

Inputs::Inputs(const Sequences& sequences, InputKind kind, std::uint64_t seed, std::uint64_t salt)
    : sequences_(sequences), kind_(kind), key_(RandomStream(seed, {0xa79}).bits(salt)) {
  const DType dtype = desc().dtype;
  const std::size_t size = sequences.key_rows() * desc().kv_heads * desc().head_dim > kSmall ? kTable : kSmallTable;
  normal_ = normal_table(size, seed, dtype, 1);
  if (kind == InputKind::kLarge) queries_ = normal_table(size, seed + 1, dtype, kLargeDeviation);
  if (kind == InputKind::kSpread) queries_ = normal_table(size, seed + 1, dtype, kSpreadDeviation);
  if (kind == InputKind::kMean) values_ = integer_table(size, seed, dtype);
}

std::uint64_t Inputs::hash(std::uint64_t what, int b, int head, int row) const {
  const auto place = (static_cast<std::uint64_t>(b) << 20 | static_cast<std::uint64_t>(head) << 4 | what) << 27 |
                     static_cast<std::uint64_t>(row);
  return mixed(key_ + (place + 1) * kOddConstant);
}

std::span<const std::uint16_t> Inputs::from_table(const std::vector<std::uint16_t>& table, std::uint64_t hash) const {
  const auto count = static_cast<std::size_t>(desc().head_dim);
  const auto first = static_cast<std::size_t>(((hash >> 32) * (table.size() - count)) >> 32);
  return std::span(table).subspan(first, count);
}

/// Signs times `one`. The first are the digits of the key's number, so that codes of a head differ; the others are
/// random.
void Inputs::code(int b, int kv_head, int key, std::uint16_t one, std::span<std::uint16_t> row) const {
  constexpr std::uint16_t kSign = 0x8000;
  const auto digits = static_cast<std::size_t>(std::bit_width(static_cast<unsigned>(desc().max_keys - 1)));
  const std::uint64_t flipped = hash(kCode, b, kv_head, 0);  // so that key 0 of every head has another code
  std::uint64_t random = 0;
  for (std::size_t i = 0; i < row.size(); ++i) {
    if (i % 64 == 0) random = mixed(hash(kCode, b, kv_head, key) + i);
    const std::uint64_t bit = i < digits ? (static_cast<std::uint64_t>(key) ^ flipped) >> i : random >> i % 64;
    row[i] = bit % 2 == 0 ? one : one ^ kSign;
  }
}

void Inputs::query(int b, int head, int query, std::span<std::uint16_t> row) const {
  if (kind_ == InputKind::kMean) {
    std::ranges::fill(row, std::uint16_t{0});
    return;
  }
  if (kind_ == InputKind::kNeedle) {
    // Codes that differ in one sign have logits that differ by 2 * factor / sqrt(head_dim), at least 32. A larger
    // factor would not do:
    // the rounding of the needle's exponent, which is in proportion, must not move a number of fp16.
    const double factor = std::exp2(std::ceil(std::log2(16 * std::sqrt(desc().head_dim))));
    const int key = std::max(0, needle(b, head, query));
    return code(b, head / heads_of_kv_head(), key, harness::encode(desc().dtype, static_cast<float>(factor)), row);
  }
  const bool from_queries = kind_ == InputKind::kLarge || (kind_ == InputKind::kSpread && query % 2 == 1);
  const auto& table = from_queries ? queries_ : normal_;
  std::ranges::copy(from_table(table, hash(kQuery, b, head, query)), row.begin());
}

void Inputs::key(int b, int kv_head, int key, std::span<std::uint16_t> row) const {
  if (kind_ == InputKind::kNeedle) return code(b, kv_head, key, harness::encode(desc().dtype, 1), row);
  std::ranges::copy(from_table(normal_, hash(kKey, b, kv_head, key)), row.begin());
}

std::span<const std::uint16_t> Inputs::value(int b, int kv_head, int key) const {
  return from_table(kind_ == InputKind::kMean ? values_ : normal_, hash(kValue, b, kv_head, key));
}

int Inputs::needle(int b, int head, int query) const {
  const Seen seen = sequences_.seen(b, query);
  if (seen.count() == 0) return -1;
  const std::uint64_t random = hash(kNeedleKey, b, head, query) >> 32;
  return seen.first + static_cast<int>((random * static_cast<std::uint64_t>(seen.count())) >> 32);
}

/// From nearly nothing to more than all keys of a normal row together.
float Inputs::sink(int head) const { return 3.0f * static_cast<float>((head + 1) % 4) - 2.0f; }

}  // namespace farwarp::attention
