// The part of a sequence that a block computes, and which keys it needs. Host and device.
#pragma once

#include <cstdint>

#include "farwarp/ops/attention/args.h"

namespace farwarp::attention {

/// A sequence's rows in the tensors.
struct Sequence {
  int query_batch;  ///< of q and out; 0 if they are ragged
  int first_query;  ///< row of q
  int queries;
  int key_batch;  ///< of k and v; 0 if they are ragged, without meaning if they are paged
  int first_key;  ///< row of k; 0 if paged
  int keys;
};

/// The queries `row` .. `row` + `rows` - 1 of a sequence attend to the keys first .. end - 1 at most. Query i is
/// aligned with key i + keys - queries: the last query with the last key.
struct KeyRange {
  int first, end;
};
constexpr int first_key_of(const Args& args, const Sequence& sequence, int query) {
  const int first = query + sequence.keys - sequence.queries - args.window_left;
  return first > 0 ? first : 0;
}
constexpr int end_key_of(const Args& args, const Sequence& sequence, int query) {
  const int end = query + sequence.keys - sequence.queries + args.window_right + 1;
  return end < sequence.keys ? end : sequence.keys;
}
constexpr KeyRange keys_of(const Args& args, const Sequence& sequence, int row, int rows) {
  const int last = (row + rows < sequence.queries ? row + rows : sequence.queries) - 1;
  const int first = first_key_of(args, sequence, row), end = end_key_of(args, sequence, last);
  return {first, end > first ? end : first};
}

}  // namespace farwarp::attention
