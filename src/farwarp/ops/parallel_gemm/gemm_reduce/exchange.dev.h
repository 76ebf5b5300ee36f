// What all kernels share of the exchange of partial sums. For the sender: permission to write an owner's memory, flags
// of bands, words. For the owner: the waits for bands and words, and the sums.
#pragma once

#include "farwarp/ops/parallel_gemm/gemm_reduce/args.h"
#include "farwarp/tile/gemm/raster.h"
#include "farwarp/tile/sums.dev.h"
#include "farwarp/world/device/wait.dev.h"
#include "farwarp/world/device/words.dev.h"

namespace farwarp::FARWARP_TARGET::gemm_reduce {

using namespace farwarp::gemm_reduce;

// ---- bands: permission to write, and flags --------------------------------------------------------------------------

using Flag = SystemCell<std::uint64_t>;

/// The flag at `owner` of this rank's band that begins at (row, column) of the whole sum.
FARWARP_DEVICE Peer<Flag> flag_at(const Args& args, int owner, int row, int column) {
  const Bands& bands = args.bands;
  return peer_address<Flag>(args.view, owner, args.offsets.flags) +
         bands.flag_index(args.view.rank, row / bands.rows - bands.first_of(owner), column / bands.columns);
}

/// [thread] Remembers which owners have stored their ready cells for this call, so that each is awaited once.
class Permissions {
 public:
  /// Waits for the ready cells of `owners`. False: the call is over.
  template <Failure failure>
  FARWARP_DEVICE bool await(Call& call, const Args& args, OwnerRange owners) {
    for (int owner = owners.first; owner <= owners.last; ++owner) {
      if (ready_ >> owner & 1) continue;
      wait_ready<failure>(call, args.offsets.ready_cells, owner, kSiteReady);
      ready_ |= 1u << owner;
    }
    return call.live;
  }

 private:
  std::uint32_t ready_ = 0;
};

// ---- owners of bands: add up the partial sums of all ranks, in the order of the ranks, into rows of y ---------------

using farwarp::FARWARP_TARGET::tile::sum_in_order;

/// [thread] sum_in_order() for each vector of `from` whose bit is set in `wanted`. The sources' vectors are `stride`
/// bytes apart.
template <class T, int most, int vectors>
FARWARP_DEVICE void sum_sources(const Global<const std::byte> (&from)[vectors], std::uint32_t wanted,
                                std::int64_t stride, int ranks, Vec16 (&result)[vectors]) {
  Vec16 parts[vectors][most] = {};
#pragma unroll
  for (int v = 0; v < vectors; ++v) {
#pragma unroll
    for (int source = 0; source < most; ++source) {  // all loads are issued before the first is used
      if (source < ranks && (wanted >> v & 1) != 0)
        parts[v][source] = load<Cache::streaming>(
            Global<const Vec16>(reinterpret_cast<const Vec16*>((from[v] + source * stride).raw)));
    }
  }
#pragma unroll
  for (int v = 0; v < vectors; ++v) result[v] = sum_in_order<T>(parts[v], ranks);
}

/// The bands that have a chunk's rows: row bands first to last of one column of bands.
struct BandRange {
  int first, last;  ///< row bands, counted from Bands::first_of()
  int column;
  friend constexpr bool operator==(const BandRange&, const BandRange&) = default;
};

FARWARP_DEVICE BandRange bands_of_chunk(const Args& args, int row, int column) {
  const Bands& bands = args.bands;
  const int first_row = args.view.rank * bands.owned;  // of the whole sum
  const int first_band = bands.first_of(args.view.rank);
  const int last = row + kChunkRows < bands.owned ? row + kChunkRows - 1 : bands.owned - 1;
  return {(first_row + row) / bands.rows - first_band, (first_row + last) / bands.rows - first_band, column};
}

/// [warp] Waits until all sources have flagged the bands, one lane for each flag. False: the call is over.
template <Failure failure>
FARWARP_DEVICE bool await_bands(Call& call, const Args& args, BandRange bands) {
  const int source = lane_index() % args.view.size;
  const int band = bands.first + lane_index() / args.view.size;
  // A band has at least kChunkRows rows, so a chunk has rows of at most two bands.
  static_assert(2 * kMaxRanks <= Target::kWarpSize, "a lane for each flag");
  if (band <= bands.last) {
    const Global<Flag> flags = own_address<Flag>(args.view, args.offsets.flags);
    std::uint32_t value = 0;
    // depth 1: the peer that has not sent may itself wait for a ready cell.
    wait_tagged<failure>(call, flags + args.bands.flag_index(source, band, bands.column), call.epoch, value,
                         {.site = kSitePartials, .peer = source, .depth = 1});
  }
  warp_sync();
  return ballot(!call.live) == 0;
}

/// [warp] Adds up one chunk: kChunkRows of the owned rows from `row` by `columns` columns from `column`, without what
/// is outside.
/// `put(row, column, eight)` gets eight neighbours of a row. A lane issues the loads of `vectors` vectors from all
/// sources (at most `most`) before it adds.
template <class T, int columns, int vectors, int most, class Put>
FARWARP_DEVICE void reduce_chunk(const Args& args, int row, int column, const Put& put) {
  constexpr int kRowVectors = columns / 8, kWarp = Target::kWarpSize;
  static_assert(kChunkRows * kRowVectors % (kWarp * vectors) == 0);
  const Global<const std::byte> inbox = own_address<const std::byte>(args.view, args.offsets.inbox);
  const std::int64_t stride = std::int64_t{args.bands.owned} * args.n * 2;
  const auto row_of = [&](int vector) { return row + vector / kRowVectors; };
  const auto column_of = [&](int vector) { return column + vector % kRowVectors * 8; };
#pragma unroll 1
  for (int first = lane_index(); first < kChunkRows * kRowVectors; first += kWarp * vectors) {
    Global<const std::byte> from[vectors];
    std::uint32_t wanted = 0;
#pragma unroll
    for (int v = 0; v < vectors; ++v) {
      const int of_row = row_of(first + v * kWarp), of_column = column_of(first + v * kWarp);
      if (of_row < args.bands.owned && of_column < args.n) wanted |= 1u << v;
      from[v] = inbox + (std::int64_t{of_row} * args.n + of_column) * 2;
    }
    Vec16 sums[vectors];
    sum_sources<T, most>(from, wanted, stride, args.view.size, sums);
#pragma unroll
    for (int v = 0; v < vectors; ++v) {
      if (wanted >> v & 1) put(row_of(first + v * kWarp), column_of(first + v * kWarp), sums[v]);
    }
  }
}

/// The largest number up to `wanted` that divides the vectors of a lane in a chunk.
template <int columns>
consteval int vectors_of_chunk(int wanted) {
  constexpr int kOfLane = kChunkRows * (columns / 8) / Target::kWarpSize;
  while (kOfLane % wanted != 0) --wanted;
  return wanted;
}

/// [warp] reduce_chunk() for this World's number of ranks. A lane has at most as many loads under way as `vectors`
/// vectors from eight sources; with fewer sources it takes more vectors at a time.
template <class T, int columns, int vectors, class Put>
FARWARP_DEVICE void reduce_chunk_for_ranks(const Args& args, int row, int column, const Put& put) {
  if (args.view.size <= 2) {
    reduce_chunk<T, columns, vectors_of_chunk<columns>(4 * vectors), 2>(args, row, column, put);
  } else if (args.view.size <= 4) {
    reduce_chunk<T, columns, vectors_of_chunk<columns>(2 * vectors), 4>(args, row, column, put);
  } else {
    reduce_chunk<T, columns, vectors, kMaxRanks>(args, row, column, put);
  }
}

/// [warp] Adds up the chunks whose numbers `next()` returns, until a number is not less than the count. `await(bands)`
/// waits until the bands of a chunk have arrived (await_bands()); if it returns false, the call is over, and so is
/// this. `put` gets the sums, `done(chunk)` is called after each chunk.
template <class T, int columns, int vectors, class Next, class Await, class Put, class Done>
FARWARP_DEVICE void reduce_chunks(const Args& args, Next&& next, const Await& await, const Put& put, const Done& done) {
  const int chunks = chunks_of(args.bands);
  BandRange awaited{-1, -1, -1};
  for (std::int64_t chunk = next(); chunk < chunks; chunk = next()) {
    const auto [row, column] = chunk_at(args.bands, static_cast<int>(chunk));
    const BandRange bands = bands_of_chunk(args, row, column);
    if (bands != awaited && !await(bands)) return;
    awaited = bands;
    const TraceStart start = trace_start();
    reduce_chunk_for_ranks<T, columns, vectors>(args, row, column * columns, put);
    trace_warp(start, TraceWork::kReduce, chunk);
    done(static_cast<int>(chunk));
  }
}

/// [warp] reduce_chunks() into y, which has the owned rows.
template <class T, int columns, int vectors, class Next, class Await>
FARWARP_DEVICE void reduce_into_y(const Args& args, Next&& next, const Await& await) {
  const auto put = [&](int row, int column, Vec16 eight) {
    store(Global<Vec16>(reinterpret_cast<Vec16*>(static_cast<T*>(args.y) + (std::int64_t{row} * args.n + column))),
          eight);
  };
  reduce_chunks<T, columns, vectors>(args, next, await, put, [](int) {});
}

/// The chunks of warp `number` of `count` on this rank: consecutive ones, as many for each warp.
class EvenChunks {
 public:
  FARWARP_DEVICE EvenChunks(const Args& args, int number, int count) : chunks_(chunks_of(args.bands)) {
    next_ = chunks_ * number / count;
    end_ = chunks_ * (number + 1) / count;
  }
  FARWARP_DEVICE std::int64_t operator()() { return next_ < end_ ? next_++ : chunks_; }

 private:
  std::int64_t chunks_, next_, end_;
};

// ---- words ----------------------------------------------------------------------------------------------------------
//
// A vector is eight neighbours of a row. Each half of it shows by itself whether it has arrived, so there is no flag
// and no fence. One thread reads the vectors of all sources, adds them up, and clears them.

static_assert(sizeof(Vec16) == WordInbox::kVectorBytes);

/// [thread] Sends eight sums to `row` of `rank`'s inbox.
FARWARP_DEVICE void send_vector(const Call& call, const WordInbox& inbox, int rank, int row, int vector, Vec16 eight) {
  const std::int64_t place = inbox.place(call.epoch, call.view.rank, row, vector);
  store_words(peer_address<Vec16>(call.view, rank, place), sendable(eight));
}

/// A `put` that stores the owned rows in y.
struct IntoY {
  const Args& args;
  FARWARP_DEVICE void operator()(int row, int vector, Vec16 eight) const {
    store(Global<Vec16>(static_cast<Vec16*>(args.y)) + (std::int64_t{row} * args.word_inbox.vectors + vector), eight);
  }
};

/// [thread] Waits for a vector of the owned row `row` from all sources, adds them up, gives the sum to
/// `put(row, vector, eight)`, and clears the words: the call after the next one uses them again. False: the call is
/// over.
template <class T, Failure failure, class Put>
FARWARP_DEVICE bool reduce_vector(Call& call, const Args& args, int row, int vector, const Put& put) {
  const WordInbox& inbox = args.word_inbox;
  const int ranks = args.view.size;
  Global<const Vec16> from[kMaxRanks];
#pragma unroll
  for (int source = 0; source < kMaxRanks; ++source)
    from[source] =
        own_address<const Vec16>(args.view, inbox.place(call.epoch, source < ranks ? source : 0, row, vector));
  Vec16 parts[kMaxRanks] = {};
  const Wait wait{.site = kSitePartials, .peer = -1};
  if (!wait_words<1, failure>(call, from, (1u << ranks) - 1, parts, wait)) return false;
  put(row, vector, sum_in_order<T>(parts, ranks));
#pragma unroll
  for (int source = 0; source < kMaxRanks; ++source) {
    if (source < ranks) clear_words(Global<Vec16>(const_cast<Vec16*>(from[source].raw)));
  }
  return true;
}

/// A thread's share of vectors: `number`, `number + count`, and so on.
struct VectorShare {
  int number, count;
};

/// [thread] Calls `work(row, vector)` for the thread's share of the inbox's first `rows` rows, until the call is over.
template <class Visit>
FARWARP_DEVICE void for_each_vector(const Call& call, const WordInbox& inbox, int rows, VectorShare share,
                                    const Visit& work) {
  const int vectors = rows * inbox.vectors;
  for (int i = share.number; i < vectors && call.live; i += share.count) work(i / inbox.vectors, i % inbox.vectors);
}

/// [warp] Calls `work(row, vector)` for all vectors of the chunks whose numbers `next()` returns, one vector a lane,
/// within the inbox's first `rows` rows, until a number is not less than the count or the call is over.
template <class Next, class Visit>
FARWARP_DEVICE void for_each_vector_of_chunks(const Call& call, const WordInbox& inbox, int rows, const Next& next,
                                              const Visit& work) {
  static_assert(kWordChunkRows * kWordChunkVectors <= Target::kWarpSize);
  const int chunks = chunks_of(inbox);
  for (std::int64_t chunk = next(); chunk < chunks; chunk = next()) {
    const auto [first_row, first_vector] = chunk_at(inbox, static_cast<int>(chunk));
    const int row = first_row + lane_index() / kWordChunkVectors,
              vector = first_vector + lane_index() % kWordChunkVectors;
    if (row < rows && vector < inbox.vectors) work(row, vector);
    if (ballot(!call.live) != 0) return;
  }
}

}  // namespace farwarp::FARWARP_TARGET::gemm_reduce
