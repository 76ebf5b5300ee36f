// The owner's part: partial sums of all ranks, in the order of the ranks, become rows of y.
#pragma once

#include "farwarp/ops/parallel_gemm/gemm_rs/bands.dev.h"
#include "farwarp/tile/gemm/raster.h"

namespace farwarp::FARWARP_TARGET::gemm_rs {

/// Threads that reduce together, a warpgroup or a wave: number `number` of `count` on this rank.
struct Reducers {
  int number;
  int count;
  int thread;  ///< the caller's among them
  int threads;
};

using farwarp::gemm_rs::kUnitRows;
using farwarp::gemm_rs::unit_at;
using farwarp::gemm_rs::units_of;

template <class T>
FARWARP_DEVICE T element(Vec16 eight, int i) {
  return T{static_cast<std::uint16_t>((i < 4 ? eight.lo : eight.hi) >> (16 * (i & 3)))};
}

/// [thread] Eight neighbours of a row: the sum over `ranks` sources, `stride` bytes apart, in fp32 and in their order, rounded once.
template <class T>
FARWARP_DEVICE Vec16 sum_sources(Global<const std::byte> first, std::int64_t stride, int ranks) {
  Vec16 parts[kMaxRanks] = {};
#pragma unroll
  for (int source = 0; source < kMaxRanks; ++source) {  // all on their way before the first is used
    if (source < ranks)
      parts[source] =
          load<Cache::streaming>(Global<const Vec16>(reinterpret_cast<const Vec16*>((first + source * stride).raw)));
  }
  float sums[8];
#pragma unroll
  for (int i = 0; i < 8; ++i) sums[i] = to_float(element<T>(parts[0], i));
#pragma unroll
  for (int source = 1; source < kMaxRanks; ++source) {
    if (source >= ranks) continue;
#pragma unroll
    for (int i = 0; i < 8; ++i) sums[i] = add(sums[i], to_float(element<T>(parts[source], i)));
  }
  std::uint64_t pairs[4];
#pragma unroll
  for (int pair = 0; pair < 4; ++pair) pairs[pair] = round_pair<T>(sums[2 * pair], sums[2 * pair + 1]);
  return {pairs[1] << 32 | pairs[0], pairs[3] << 32 | pairs[2]};
}

/// Which flags cover some of the owned rows, at one band of columns.
struct Cover {
  int first, last;  ///< row bands, counted from the owner's first
  int column;
};

/// [the reducers] All sources have told of the bands. `meet()` is their barrier. One thread polls for each flag.
template <Failure failure, class Meet>
FARWARP_DEVICE void await_bands(Call& call, const Args& args, Cover cover, int thread, const Meet& meet) {
  const int source = thread % args.view.size;
  const int band = cover.first + thread / args.view.size;
  if (band <= cover.last) {
    const Global<Flag> flags = own_address<Flag>(args.view, args.at.flags);
    std::uint32_t value = 0;
    // Whoever lacks a peer's sums may stand behind that peer's own wait for an entry.
    wait_tagged<failure>(call, flags + args.bands.flag(source, band, cover.column), call.epoch, value,
                         {farwarp::gemm_rs::kSitePartials, source, 1});
  }
  meet();
}

/// [the reducers] One unit: `kUnitRows` of the owned rows from `row`, `columns` columns from `column`, as far as there are any.
/// `put(row, column, eight)` takes eight neighbours of a row.
template <class T, int columns, class Put>
FARWARP_DEVICE void reduce_unit(const Args& args, const Reducers& mine, int row, int column, const Put& put) {
  constexpr int kVectors = columns / 8;  // of a row
  const Global<const std::byte> inbox = own_address<const std::byte>(args.view, args.at.inbox);
  const std::int64_t stride = std::int64_t{args.bands.owned} * args.n * 2;
  for (int i = mine.thread; i < kUnitRows * kVectors; i += mine.threads) {
    const int at = row + i / kVectors, to = column + i % kVectors * 8;
    if (at >= args.bands.owned || to >= args.n) continue;
    const std::int64_t place = std::int64_t{at} * args.n + to;
    put(at, to, sum_sources<T>(inbox + place * 2, stride, args.view.size));
  }
}

/// [the reducers] Their share of this rank's rows: units in a row, `put` for their elements and `done(unit, over)` behind each. All that
/// this rank sends must have been told before. When the call is over, nothing is put, and `over` says so.
template <class T, int columns, Failure failure, class Meet, class Put, class Done>
FARWARP_DEVICE void reduce_role(Call& call, const Args& args, const Reducers& mine, const Meet& meet, const Put& put,
                                const Done& done) {
  const Bands& bands = args.bands;
  const int units = units_of(bands);
  const auto share_begin = [&](int number) { return static_cast<int>(std::int64_t{units} * number / mine.count); };
  const int first_row = args.view.rank * bands.owned;  // of the whole sum
  const int first_band = bands.first_of(args.view.rank);
  Cover awaited{-1, -1, -1};
  std::uint32_t over = 0;
  for (int unit = share_begin(mine.number), end = share_begin(mine.number + 1); unit < end; ++unit) {
    const auto [row, column] = unit_at(bands, unit);
    const int last_row = row + kUnitRows < bands.owned ? row + kUnitRows - 1 : bands.owned - 1;
    const Cover cover{(first_row + row) / bands.rows - first_band, (first_row + last_row) / bands.rows - first_band,
                      column};
    if (cover.first != awaited.first || cover.last != awaited.last || cover.column != awaited.column)
      await_bands<failure>(call, args, cover, mine.thread, meet);
    awaited = cover;
    over = load<Order::relaxed>(abort_cell(call));  // whoever gave up has seen it raised, or raised it, before they met
    reduce_unit<T, columns>(args, mine, row, column * columns, [&](int at, int to, Vec16 eight) {
      if (over == 0) put(at, to, eight);
    });
    done(unit, over != 0);
  }
}

/// [the reducers] The same into y, which is of the owned rows.
template <class T, int columns, Failure failure, class Meet>
FARWARP_DEVICE void reduce_into_y(Call& call, const Args& args, const Reducers& mine, const Meet& meet) {
  const auto put = [&](int row, int column, Vec16 eight) {
    store(Global<Vec16>(reinterpret_cast<Vec16*>(static_cast<T*>(args.y) + (std::int64_t{row} * args.n + column))),
          eight);
  };
  reduce_role<T, columns, failure>(call, args, mine, meet, put, [](int, bool) {});
}

}  // namespace farwarp::FARWARP_TARGET::gemm_rs
