#include "farwarp/ops/attention/case/sequences.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "farwarp/harness/inputs.h"

namespace farwarp::attention {
namespace {

constexpr int kSpareRows = 37;                 // of ragged k and v, after the last sequence
constexpr int kSparePages = 3;                 // that no sequence has
constexpr std::int32_t kNoPage = 0x7fff'fff0;  // entries of pages that no query sees

/// Sequence 0 is as long as allowed. Others have zero queries or zero keys in one of four cases; 1 and 2 in any case.
std::vector<int> random_lengths(int count, int most, std::uint64_t seed, std::uint64_t what) {
  std::vector<int> lengths(static_cast<std::size_t>(count), most);
  const harness::RandomStream stream(seed, {0x1e6, what});
  for (std::size_t b = 1; b < lengths.size(); ++b) {
    const bool none = b == 1 + what || stream.below(2 * b, 4) == 0;
    lengths[b] = none ? 0 : 1 + static_cast<int>(stream.below(2 * b + 1, static_cast<std::uint64_t>(most)));
  }
  return lengths;
}

std::vector<std::int32_t> starts_of(const std::vector<int>& counts) {
  std::vector<std::int32_t> starts{0};
  for (const int count : counts) starts.push_back(starts.back() + count);
  return starts;
}

}  // namespace

Sequences::Sequences(const AttentionDesc& desc, Lengths lengths, std::uint64_t seed, int call,
                     const GivenLengths& given)
    : desc_(desc) {
  queries_.assign(index(desc.batch), desc.max_queries);
  keys_.assign(index(desc.batch), desc.max_keys);
  const bool paged = desc.page_size > 0, ragged = lengths == Lengths::kRagged || lengths == Lengths::kGiven;
  if (lengths == Lengths::kGiven) {
    queries_ = given.queries;
    keys_ = given.keys;
  } else {
    if (ragged) queries_ = random_lengths(desc.batch, desc.max_queries, seed, 0);
    if (lengths != Lengths::kWhole) keys_ = random_lengths(desc.batch, desc.max_keys, seed, 1);
  }
  std::rotate(queries_.begin(), queries_.begin() + call % desc.batch, queries_.end());
  std::rotate(keys_.begin(), keys_.begin() + call % desc.batch, keys_.end());
  query_starts_ = starts_of(queries_);
  key_starts_ = starts_of(keys_);
  desc_.ragged_queries = ragged;
  desc_.ragged_keys = ragged && !paged;
  desc_.has_key_counts = lengths == Lengths::kPadded || paged;
  if (desc_.ragged_queries) desc_.total_queries = query_starts_.back();
  if (desc_.ragged_keys) desc_.total_keys = key_starts_.back() + kSpareRows;
  if (paged) place_in_pages(seed, call);
}

void Sequences::place_in_pages(std::uint64_t seed, int call) {
  desc_.pages = kSparePages;
  for (int b = 0; b < desc_.batch; ++b) desc_.pages += pages_of(b);
  std::vector<std::int32_t> pages(index(desc_.pages));
  std::iota(pages.begin(), pages.end(), 0);
  const harness::RandomStream stream(seed, {0x9a6e, static_cast<std::uint64_t>(call)});
  for (std::size_t i = pages.size(); i > 1; --i) std::swap(pages[i - 1], pages[stream.below(i, i)]);
  table_.assign(index(std::int64_t{desc_.batch} * table_pitch()), kNoPage);
  auto next = pages.begin();
  for (int b = 0; b < desc_.batch; ++b) {
    for (int page = first_seen(b) / desc_.page_size; page < pages_of(b); ++page)
      table_[index(std::int64_t{b} * table_pitch() + page)] = *next++;
  }
}

/// Query i is at the place of key i + keys - queries. It sees the keys from window_left before that place to
/// window_right after it.
Seen Sequences::seen(int b, int query) const {
  const std::int64_t place = std::int64_t{query} + keys(b) - queries(b);
  std::int64_t first = 0, last = std::int64_t{keys(b)} - 1;
  if (desc_.window_left >= 0) first = std::max(first, place - desc_.window_left);
  if (desc_.window_right >= 0) last = std::min(last, place + desc_.window_right);
  if (desc_.causal) last = std::min(last, place);
  return {static_cast<int>(first), static_cast<int>(std::max(first, last + 1))};
}

double Sequences::pairs() const {
  double pairs = 0;
  for (int b = 0; b < desc_.batch; ++b) {
    for (int query = 0; query < queries(b); ++query) pairs += seen(b, query).count();
  }
  return pairs;
}

std::int64_t Sequences::query_rows() const {
  return desc_.ragged_queries ? desc_.total_queries : std::int64_t{desc_.batch} * desc_.max_queries;
}
std::int64_t Sequences::key_rows() const {
  if (desc_.page_size > 0) return std::int64_t{desc_.pages} * desc_.page_size;
  return desc_.ragged_keys ? desc_.total_keys : std::int64_t{desc_.batch} * desc_.max_keys;
}
std::int64_t Sequences::query_row(int b, int query) const {
  return desc_.ragged_queries ? query_starts_[index(b)] + query : std::int64_t{b} * desc_.max_queries + query;
}
std::int64_t Sequences::key_row(int b, int key) const {
  if (desc_.page_size > 0) {
    const std::int32_t page = table_[index(std::int64_t{b} * table_pitch() + key / desc_.page_size)];
    return std::int64_t{page} * desc_.page_size + key % desc_.page_size;
  }
  return desc_.ragged_keys ? key_starts_[index(b)] + key : std::int64_t{b} * desc_.max_keys + key;
}

std::vector<Sequences::Owner> Sequences::query_owners() const {
  std::vector<Owner> owners(index(query_rows()));
  for (int b = 0; b < desc_.batch; ++b) {
    for (int query = 0; query < queries(b); ++query) owners[index(query_row(b, query))] = {b, query};
  }
  return owners;
}
std::vector<Sequences::Owner> Sequences::key_owners() const {
  std::vector<Owner> owners(index(key_rows()));
  for (int b = 0; b < desc_.batch; ++b) {
    for (int key = first_seen(b); key < keys(b); ++key) owners[index(key_row(b, key))] = {b, key};
  }
  return owners;
}

std::vector<std::int32_t> Sequences::query_starts() const {
  return desc_.ragged_queries ? query_starts_ : std::vector<std::int32_t>{};
}
std::vector<std::int32_t> Sequences::key_starts() const {
  return desc_.ragged_keys ? key_starts_ : std::vector<std::int32_t>{};
}
std::vector<std::int32_t> Sequences::key_counts() const {
  return desc_.has_key_counts ? std::vector<std::int32_t>(keys_.begin(), keys_.end()) : std::vector<std::int32_t>{};
}

}  // namespace farwarp::attention
