// The sequences of a call of the check: how long they are, where their rows lie in the tensors, and what each query
// sees. Shares no code with the kernels.
#pragma once

#include <cstdint>
#include <vector>

#include "farwarp/ops/attention/plan.h"

namespace farwarp::attention {

enum class Lengths : std::uint8_t {
  kWhole,   ///< every sequence has max_queries queries and max_keys keys
  kRagged,  ///< random, some zero; sequences follow each other, except in pages
  kPadded,  ///< random keys, in tensors of max_keys rows each
  kGiven,   ///< GivenLengths; sequences follow each other, except in pages
};
struct GivenLengths {
  std::vector<int> queries, keys;  ///< of each sequence
};

/// The keys first .. end - 1; none if `end` is not larger.
struct Seen {
  int first, end;
  int count() const { return end > first ? end - first : 0; }
};

class Sequences {
 public:
  /// `desc` without totals and pages. A call has the same lengths as the one before, in another order, so totals do not
  /// depend on it.
  Sequences(const AttentionDesc& desc, Lengths lengths, std::uint64_t seed, int call, const GivenLengths& given = {});

  /// `desc` with what the lengths decide: ragged tensors, totals, pages.
  const AttentionDesc& desc() const { return desc_; }
  int queries(int b) const { return queries_[index(b)]; }
  int keys(int b) const { return keys_[index(b)]; }
  Seen seen(int b, int query) const;
  /// The first key that some query sees. Those before lie nowhere: their rows have no owner, their pages no number.
  int first_seen(int b) const { return queries(b) == 0 ? keys(b) : seen(b, 0).first; }
  /// Pairs of a query and a key that it sees, of one head.
  double pairs() const;

  // Rows of the tensors.
  std::int64_t query_rows() const;
  std::int64_t key_rows() const;
  std::int64_t query_row(int b, int query) const;
  std::int64_t key_row(int b, int key) const;

  /// Which row of which sequence a row of a tensor is; b is -1 if it belongs to none.
  struct Owner {
    int b = -1, row = 0;
  };
  std::vector<Owner> query_owners() const;
  std::vector<Owner> key_owners() const;

  // As the operator takes them; empty if it takes none.
  std::vector<std::int32_t> query_starts() const;
  std::vector<std::int32_t> key_starts() const;
  std::vector<std::int32_t> key_counts() const;
  const std::vector<std::int32_t>& block_table() const { return table_; }

 private:
  static std::size_t index(std::int64_t value) { return static_cast<std::size_t>(value); }
  int pages_of(int b) const { return (keys(b) + desc_.page_size - 1) / desc_.page_size; }
  int table_pitch() const { return (desc_.max_keys + desc_.page_size - 1) / desc_.page_size; }
  void place_in_pages(std::uint64_t seed, int call);

  AttentionDesc desc_;
  std::vector<int> queries_, keys_;
  std::vector<std::int32_t> query_starts_, key_starts_;
  std::vector<std::int32_t> table_;
};

}  // namespace farwarp::attention
