// What a block computes: a work's sequence, read from device memory and checked, and its keys.
#pragma once

#include "farwarp/ops/attention/sequence.h"
#include "farwarp/substrate/device.h"

namespace farwarp::FARWARP_TARGET::attention {

using namespace farwarp::attention;

/// What is wrong with a sequence's numbers in device memory; kSites: nothing.
struct BadInput {
  Site site = kSites;
  std::uint64_t allowed = 0, found = 0;
};

/// [thread] The rows of sequence `batch`. Numbers that are not allowed make it empty, and `bad` says why; all threads
/// get the same.
FARWARP_DEVICE Sequence sequence_of(const Args& args, int batch, BadInput& bad) {
  Sequence sequence{batch, 0, args.max_queries, batch, 0, args.max_keys};
  const auto number = [](const std::int32_t* numbers, int index) {
    return load(Global<const std::int32_t>(numbers + index));
  };
  // The number of the caller's that is wrong, which is `next` unless `first` is negative.
  const auto refuse = [&](Site site, int most, int found) {
    bad = {site, static_cast<std::uint64_t>(most), static_cast<std::uint64_t>(std::int64_t{found})};
    return false;
  };
  const auto check_starts = [&](Site site, int first, int next, int most, int total) {
    if (first >= 0 && next >= first && next - first <= most && next <= total) return true;
    return refuse(site, first >= 0 && first <= total - most ? first + most : total, first < 0 ? first : next);
  };
  bool allowed = true;
  if (args.query_starts != nullptr) {
    sequence.query_batch = 0;
    sequence.first_query = number(args.query_starts, batch);
    const int next = number(args.query_starts, batch + 1);
    allowed = check_starts(kSiteQueryStarts, sequence.first_query, next, args.max_queries, args.total_queries);
    sequence.queries = allowed ? next - sequence.first_query : 0;
  }
  if (args.key_starts != nullptr) {
    sequence.key_batch = 0;
    sequence.first_key = number(args.key_starts, batch);
    const int next = number(args.key_starts, batch + 1);
    allowed &= check_starts(kSiteKeyStarts, sequence.first_key, next, args.max_keys, args.total_keys);
    sequence.keys = allowed ? next - sequence.first_key : 0;
  }
  if (args.key_counts != nullptr) {
    const int most = sequence.keys;
    sequence.keys = number(args.key_counts, batch);
    if (allowed && (sequence.keys < 0 || sequence.keys > most)) allowed = refuse(kSiteKeyCounts, most, sequence.keys);
  }
  if (!allowed) sequence.queries = sequence.keys = 0;
  return sequence;
}

/// One block of queries of a head.
struct BlockWork {
  WorkPlace place;
  Sequence sequence;
  int row;  ///< the first query, in the sequence
  int kv_head;
  KeyRange keys;
};

/// [thread] `rows`: queries of a block.
FARWARP_DEVICE BlockWork work_of(const Args& args, int number, int rows, BadInput& bad) {
  BlockWork work;
  work.place = place_of(args.grid, number);
  work.sequence = sequence_of(args, work.place.batch, bad);
  work.row = work.place.query_block * rows;
  work.kv_head = args.by_group.quotient(work.place.head);
  work.keys = work.row < work.sequence.queries ? keys_of(args, work.sequence, work.row, rows) : KeyRange{0, 0};
  return work;
}

}  // namespace farwarp::FARWARP_TARGET::attention
