// By words. One-shot: partial sums are sent to all ranks, and each adds up all rows. The second half of two-shot:
// owners send the rows that they have added up to all ranks, which copy them to y.
#pragma once

#include "farwarp/ops/parallel_gemm/gemm_ar/args.h"
#include "farwarp/ops/parallel_gemm/gemm_reduce/exchange.dev.h"

namespace farwarp::FARWARP_TARGET::gemm_ar {

using namespace farwarp::gemm_ar;

/// Sends every row of partial sums to all ranks, this one too.
struct RowsToAllRanks {
  FARWARP_DEVICE static void send(const Call& call, const gemm_reduce::Args& args, int row, int vector, Vec16 eight) {
    for (int i = 1; i <= call.view.size; ++i)
      gemm_reduce::send_vector(call, args.word_inbox, (call.view.rank + i) % call.view.size, row, vector, eight);
  }
};

/// How many rows of y `owner` owns.
FARWARP_DEVICE int rows_of(const Args& args, int owner) {
  const int rows = args.rows - owner * args.reduce.bands.owned;
  return rows < 0 ? 0 : rows < args.reduce.bands.owned ? rows : args.reduce.bands.owned;
}

/// [thread] Adds up a vector of an owned row, stores it in y, and sends it to all peers. False: the call is over.
template <class T, Failure failure>
FARWARP_DEVICE bool reduce_and_send_vector(Call& call, const Args& args, int row, int vector) {
  const WorldView& view = args.reduce.view;
  return gemm_reduce::reduce_vector<T, failure>(call, args.reduce, row, vector, [&](int, int, Vec16 sums) {
    const Vec16 eight = sendable(sums);  // y has the bits that are sent
    for (int i = 1; i < view.size; ++i)
      gemm_reduce::send_vector(call, args.finished_inbox, (view.rank + i) % view.size, row, vector, eight);
    gemm_reduce::IntoY{args.reduce}(view.rank * args.reduce.bands.owned + row, vector, eight);
  });
}

/// [thread] Copies a vector of row `row` of every other owner that has such a row into y, and clears the words: the
/// call after the next one uses them again. False: the call is over.
template <Failure failure>
FARWARP_DEVICE bool collect_vector(Call& call, const Args& args, int row, int vector) {
  const WorldView& view = args.reduce.view;
  Global<const Vec16> from[kMaxRanks];
  std::uint32_t wanted = 0;
#pragma unroll
  for (int owner = 0; owner < kMaxRanks; ++owner) {
    const bool is_there = owner < view.size && owner != view.rank && row < rows_of(args, owner);
    if (is_there) wanted |= 1u << owner;
    from[owner] =
        own_address<const Vec16>(view, args.finished_inbox.place(call.epoch, is_there ? owner : 0, row, vector));
  }
  Vec16 eight[kMaxRanks] = {};
  // depth 1: the owner may wait for partial sums.
  if (!wait_words<1, failure>(call, from, wanted, eight, {.site = kSiteFinished, .peer = -1, .depth = 1})) return false;
#pragma unroll
  for (int owner = 0; owner < kMaxRanks; ++owner) {
    if (wanted >> owner & 1)
      gemm_reduce::IntoY{args.reduce}(owner * args.reduce.bands.owned + row, vector, eight[owner]);
  }
  clear_words(from, wanted);
  return true;
}

}  // namespace farwarp::FARWARP_TARGET::gemm_ar
